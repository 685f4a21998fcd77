"""A short version of `make torture`, with another seed than its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from torture.torture import Outcome, mutate, table


def test_a_few_faults_of_each_kind() -> None:
    script = Path(__file__).with_name("torture.py")
    few = ["--kills", "3", "--mutations", "320", "--seed", "1", "--only", "kills", "mutations"]
    done = subprocess.run([sys.executable, str(script), *few], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "| damaged files | 3" in done.stdout


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
