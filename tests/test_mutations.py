"""Damaged files of runs and policies: one line that names the file, or nothing amiss. Never anything else.

The number of a case is its seed: `damage(file, seed)` of `mutations.py` repeats it.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sbac
from sbac.errors import UserError
from sbac.evaluation.evaluate_run import own_environment, policy_files
from sbac.evaluation.worker import Pool
from sbac.report.page import run_page
from sbac.report.summary import outcome
from sbac.results.describe import describe
from tests.mutations import copied, damage
from tests.small import TINY, make_log

LOG = make_log()
OPTIONS: dict[str, Any] = TINY | {"seeds": 2, "workers": 1, "environment": "Pendulum-v1", "episodes": 2}
OPTIONS |= {"evaluate_every": 2, "learning_rate": [1e-3, 1e38]}
BATCH = 20
"""Damages of one test."""


def played(self: Pool, policy: Path, environment: str, episodes: int, seed: int) -> "Future[dict[str, Any]]":
    """What a worker would answer."""
    sbac.Policy.load(policy, diverged=True)
    answer: Future[dict[str, Any]] = Future()
    answer.set_result(
        {"environment": environment, "returns": [0.0] * episodes, "lengths": [1] * episodes, "scores": None}
    )
    return answer


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run, of which two policies failed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "submit", played)
        folder = tmp_path_factory.mktemp("whole") / "run"
        sbac.train(LOG, "bc", out=folder, **OPTIONS)
        yield folder


def is_refused(action: Callable[[], object], file: Path, case: str) -> bool:
    try:
        action()
    except UserError as error:
        assert "\n" not in str(error) and str(file) in str(error), f"{case}: {error}"
        return True
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return False


def read(folder: Path) -> None:
    """All that reads a run."""
    run = sbac.Run.load(folder)
    assert run.config and run.metrics is not None and run.evaluations is not None and run.diverged is not None
    for file in policy_files(folder):
        own_environment(folder, sbac.Policy.load(file))
    outcome(run)
    run_page(describe(run, LOG))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # damaged numbers overflow
@pytest.mark.parametrize("first", range(0, 6 * BATCH, BATCH))
def test_a_damaged_run(first: int, whole: Path, tmp_path: Path) -> None:
    names = [str(path.relative_to(whole)) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(names) == 8
    refused = 0
    for seed in range(first, first + BATCH):
        folder = copied(whole, tmp_path / "run")
        name = names[seed % len(names)]
        case = f"seed {seed}, {name}: {damage(folder / name, seed)}"
        refused += is_refused(partial(read, folder), folder, case)
        kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if is_refused(partial(sbac.train, LOG, "bc", out=folder, resume=True, **OPTIONS), folder, case):
            assert all(path.exists() for path in kept), case  # nothing is deleted
    assert refused > 0
