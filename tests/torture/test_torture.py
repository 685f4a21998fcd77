"""A short version of `make torture`, with another seed than its own."""

import subprocess
import sys
from pathlib import Path

from tests.mutations import damage, restore
from tests.torture.processes import Outcome, table


def test_a_few_kills() -> None:
    few = ["--kills", "2", "--method", "bc", "--seed", "1", "--only", "kills"]
    command = [sys.executable, "-m", "tests.torture", *few]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "| SIGKILL, then --resume | 2 | 0 |" in done.stdout


def test_a_failure_is_counted_and_said() -> None:
    outcome = Outcome("kind", tried=2)
    outcome.expect(True, "not said")
    outcome.expect(False, "said")
    assert outcome.failures == ["said"] and "| kind | 2 | 1 |" in table([outcome])


def test_a_seed_gives_the_same_damage(tmp_path: Path) -> None:
    path, whole = tmp_path / "log.npz", bytes(range(256)) * 4

    def damaged(seed: int) -> bytes | None:
        restore(path, whole)
        damage(path, seed)
        return path.read_bytes() if path.is_file() else None

    first, second = ([damaged(seed) for seed in range(50)] for _ in range(2))
    assert first == second and sum(one != whole for one in first) > 45
