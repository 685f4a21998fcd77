"""In an environment too, a run whose numbers do not stay finite harms no other and keeps its last good policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
import pytest

import sbac
from sbac.files import Arrays
from sbac.policy import Floats
from sbac.runs import Failure
from sbac.training.online.collector import Collectors, CollectorWorker, Opening
from sbac.training.online.learner import Learner
from sbac.workers import Message

SMALL: dict[str, Any] = {"steps": 80, "start_steps": 20, "round_steps": 10, "hidden": [4], "batch_size": 8}


class Beside(Collectors):
    """Gathers in this process, which saves the start of one for every run. Keeps what it is asked to gather with."""

    gathered: ClassVar[list[Arrays]] = []

    def __init__(self, environment: str, seeds: Sequence[int], instances: int, steps: int) -> None:
        self._here = [CollectorWorker() for _ in seeds]
        self._steps, self._answers = steps // instances, list[Message]()
        for i, (worker, seed) in enumerate(zip(self._here, seeds, strict=True)):
            worker(Message(vars(Opening(environment, instances, (seed, i, 0)))), print)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start_round(self, kind: str, policies: Sequence[Arrays] | None, noise: Sequence[float]) -> None:
        self.gathered.extend(policies or [])
        self._answers = [
            worker(
                Message({"steps": self._steps, "kind": kind, "noise": noise[i]}, policies[i] if policies else {}), print
            )
            for i, worker in enumerate(self._here)
        ]

    def finish_round(self) -> list[Floats]:
        return [answer.arrays["rows"] for answer in self._answers]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbac.training.online.train.Collectors", Beside)
    monkeypatch.setattr(Beside, "gathered", [])


def poison(monkeypatch: pytest.MonkeyPatch, run: int, at: int) -> None:
    """From this step on, all numbers of one run are NaN."""
    add = Learner.add

    def poisoned(self: Learner, fresh: Any, train: bool) -> None:
        add(self, fresh, train)
        if self.step >= at:

            def spoil(x: Any) -> Any:
                return x.at[run].set(np.nan) if x.dtype == np.float32 else x

            self.state, self.actor = jax.tree.map(spoil, (self.state, self.actor))

    monkeypatch.setattr(Learner, "add", poisoned)


def test_a_run_that_fails_keeps_its_last_good_policy_and_changes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = SMALL | {"seeds": 3, "progress": False}
    whole = sbac.train_online("Pendulum-v1", "td3", evaluate=False, **options)
    fewer: dict[str, Any] = options | {"steps": 40}
    short = sbac.train_online("Pendulum-v1", "td3", evaluate=False, **fewer)
    Beside.gathered.clear()
    poison(monkeypatch, run=1, at=50)
    run = sbac.train_online("Pendulum-v1", "td3", out=tmp_path / "run", episodes=1, workers=1, **options)
    assert whole.failures == {} and run.failures == {"seed=1": Failure("train", 50, "train", 40)}
    for name, array in short.policies[1].arrays.items():
        np.testing.assert_array_equal(run.policies[1].arrays[name], array)
    for index in (0, 2):
        for name, array in whole.policies[index].arrays.items():
            np.testing.assert_array_equal(run.policies[index].arrays[name], array)
    ended = {(row["seed"], row["step"]): bool(np.isnan(row["returns"][0])) for row in run.evaluations}
    assert ended == {(seed, step): seed == 1 and step >= 50 for seed in range(3) for step in range(10, 81, 10)}
    assert len(Beside.gathered) == 18
    assert all(np.isfinite(array).all() for arrays in Beside.gathered for array in arrays.values())
    assert sbac.Run.load(tmp_path / "run").failures == run.failures


def test_an_exploding_run_of_a_grid_is_marked() -> None:
    """Nothing is injected: the second rate is too high for any number to stay finite."""
    options: dict[str, Any] = SMALL | {"progress": False, "learning_rate": [1e-3, 1e38]}
    run = sbac.train_online("Pendulum-v1", "td3", evaluate=False, **options)
    assert list(run.failures) == run.diverged == ["learning_rate=1e+38_seed=0"]
    assert all(policy.is_finite for policy in run.policies)


def test_a_run_that_is_replaced_stays_until_the_new_one_has_its_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    sbac.train_online("Pendulum-v1", "td3", evaluate=False, out=out, **SMALL)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with monkeypatch.context() as patch:
        patch.setattr("sbac.training.online.train.policy_file", full_disk)
        for folder in (out, tmp_path / "new"):
            with pytest.raises(OSError, match="No space left"):
                sbac.train_online("Pendulum-v1", "td3", evaluate=False, out=folder, overwrite=True, **SMALL)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert sbac.Run.load(tmp_path / "new").metrics  # nothing was replaced: what was logged is worth more than nothing


def full_disk(*_: object) -> None:
    raise OSError("No space left on device")
