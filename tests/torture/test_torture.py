"""A short version of `make torture`, with another seed than its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from torture.damage import mutate
from torture.processes import Outcome, table


def test_a_few_faults_of_each_kind() -> None:
    tests = str(Path(__file__).parents[1])
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    few = ["--kills", "2", "--method", "bc", "--mutations", "160", "--seed", "1", "--only", "kills", "mutations"]
    command = [sys.executable, "-m", "torture", *few]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "| SIGKILL, then --resume | 2 | 0 |" in done.stdout and "| damaged files | 1" in done.stdout


def test_a_failure_is_counted_and_said() -> None:
    outcome = Outcome("kind", tried=2)
    outcome.expect(True, "not said")
    outcome.expect(False, "said")
    assert outcome.failures == ["said"] and "| kind | 2 | 1 |" in table([outcome])


def test_a_seed_gives_the_same_damage() -> None:
    data = bytes(range(256)) * 4
    damaged = [mutate(data, np.random.default_rng([0, 1, i])) for i in range(50)]
    assert damaged == [mutate(data, np.random.default_rng([0, 1, i])) for i in range(50)]
    assert sum(one != data for one in damaged) > 45
