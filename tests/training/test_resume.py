"""Killed with -9 again and again, a run resumes to the same bits as one that was never broken."""

import subprocess
import sys
from pathlib import Path


def test_kills_leave_no_trace() -> None:
    """A short version of `make torture`, with another seed than its own: both phases are killed, and evaluations."""
    command = [sys.executable, "-m", "tests.torture", "--kills", "6", "--only", "kills", "--seed", "1"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.startswith("seed 1, 6 faults (") and done.stdout.endswith(": 0 failed\n")
