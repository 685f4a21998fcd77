"""A run whose numbers do not stay finite harms no other, is reported with its step, and keeps its last good policy."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from tests.small import TINY, contents, make_log, pendulum

import sbac
from sbac import files
from sbac.runs import Failure
from sbac.training.engine import Inputs, Program
from sbac.training.writer import Writer

SMALL: dict[str, Any] = TINY | {"steps": 8}


WATCHED: dict[str, Any] = {"environment": pendulum, "episodes": 1, "evaluate_every": 2}


TWO: dict[str, Any] = {"seeds": 2, "checkpoint_seconds": 0.0, **SMALL, **WATCHED}


def poison(monkeypatch: pytest.MonkeyPatch, phase: int, row: int, at: int) -> None:
    """From this step of a phase on, all numbers of one of its runs are NaN."""
    advance = Program.advance

    def poisoned(self: Program, index: int, inputs: Inputs, state: Any, start: int, stop: int, block: int = 1) -> Any:
        state, metrics = advance(self, index, inputs, state, start, stop, block)
        if index != phase or stop < at:
            return state, metrics
        state = jax.tree.map(lambda x: x.at[row].set(np.nan) if x.dtype == np.float32 else x, state)
        return state, metrics

    monkeypatch.setattr(Program, "advance", poisoned)


def test_an_exploding_run_changes_no_other(tmp_path: Path) -> None:
    """The losses of the second rate overflow. The first and the third are those of a run in which none does."""
    runs = [
        sbac.train(make_log(), "bc", out=tmp_path / str(rate), learning_rate=[1e-3, rate, 2e-3], **SMALL, **WATCHED)
        for rate in (1e38, 5e-4)
    ]
    failed, whole = runs
    assert whole.failures == {} and whole.diverged == []
    assert list(failed.failures) == failed.diverged == ["learning_rate=1e+38_seed=0"]
    assert failed.failures["learning_rate=1e+38_seed=0"].phase == "clone"
    for index in (0, 2):
        for name, array in whole.policies[index].arrays.items():
            np.testing.assert_array_equal(failed.policies[index].arrays[name], array)
    assert failed.policies[1].is_finite
    others = [[row for row in run.evaluations if row["learning_rate"] in (1e-3, 2e-3)] for run in runs]
    assert others[0] == others[1] and len(others[0]) == 8


def test_the_last_good_policy_is_kept_and_the_step_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer: dict[str, Any] = SMALL | {"steps": 4}
    short = sbac.train(make_log(), "bc", seeds=3, **fewer)
    poison(monkeypatch, phase=0, row=1, at=5)
    run = sbac.train(make_log(), "bc", out=tmp_path / "run", seeds=3, **SMALL, **WATCHED)
    assert run.failures == {"seed=1": Failure("clone", 5, "clone", 4)}
    assert run.policies[1].config["failed"] == {"phase": "clone", "step": 5, "kept_phase": "clone", "kept_step": 4}
    for name, array in short.policies[1].arrays.items():
        np.testing.assert_array_equal(run.policies[1].arrays[name], array)
    returns = {(row["seed"], row["step"]): row["returns"][0] for row in run.evaluations}
    assert all(np.isnan(value) == (seed == 1 and step > 5) for (seed, step), value in returns.items())
    text = (tmp_path / "run" / "evaluations.jsonl").read_text()
    assert (
        "NaN" not in text and '"returns": [null]' in text and "NaN" not in (tmp_path / "run/metrics.jsonl").read_text()
    )
    again = sbac.Run.load(tmp_path / "run")
    assert again.failures == run.failures and len(again.evaluations) == len(run.evaluations)


def test_what_fails_in_the_first_steps_of_a_later_phase_keeps_the_phase_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both alphas stand on the estimate of their seed; one of them fails at once."""
    options: dict[str, Any] = SMALL | {"preset": "paper", "alpha": [0.5, 2.0], "steps": (4, 4)}
    poison(monkeypatch, phase=1, row=0, at=1)
    run = sbac.train(make_log(), "sbac-no-w", **options)
    assert run.failures == {"alpha=0.5_seed=0": Failure("improve", 1, "estimate", 4)}
    assert run.policies[0].is_finite


def test_what_fails_in_a_shared_phase_fails_in_all_that_stand_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, phase=0, row=1, at=3)
    options: dict[str, Any] = SMALL | {"preset": "paper", "alpha": [0.5, 2.0], "steps": (4, 4)}
    run = sbac.train(make_log(), "sbac-no-w", seeds=2, **options)
    expected = Failure("estimate", 3, "estimate", 2)
    assert run.failures == {"alpha=0.5_seed=1": expected, "alpha=2_seed=1": expected}
    assert all(policy.is_finite for policy in run.policies)


@pytest.fixture(scope="module")
def failed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run of two seeds, of which the second failed at step 4."""
    folder = tmp_path_factory.mktemp("failed") / "run"
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, phase=0, row=1, at=4)
        sbac.train(make_log(), "bc", out=folder, **TWO)
    return folder


@pytest.mark.parametrize("stop", [2, 4, 7])
def test_a_run_that_failed_resumes_to_the_same_files(
    stop: int, failed_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before the failure, just after it, and later: the policy that it keeps lies in the checkpoint."""
    poison(monkeypatch, phase=0, row=1, at=4)
    real = Writer.log

    def log(self: Writer, phase: int, step: int, metrics: Any) -> None:
        if step > stop:
            raise KeyboardInterrupt
        real(self, phase, step, metrics)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "log", log)
        with pytest.raises(KeyboardInterrupt):
            sbac.train(make_log(), "bc", out=tmp_path / "broken", **TWO)
    sbac.train(make_log(), "bc", out=tmp_path / "broken", resume=True, **TWO)
    assert contents(tmp_path / "broken") == contents(failed_run)


def test_a_missing_policy_is_made_again_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a run which failed; the others are not touched."""
    with monkeypatch.context() as patch:
        poison(patch, phase=0, row=1, at=4)
        sbac.train(make_log(), "bc", out=tmp_path / "run", seeds=3, **SMALL)
    before = contents(tmp_path / "run")
    for name in ("seed=0", "seed=1"):
        (tmp_path / "run" / "policies" / f"{name}.safetensors").unlink()
    kept = tmp_path / "run" / "policies" / "seed=2.safetensors"
    time = kept.stat().st_mtime_ns
    run = sbac.train(make_log(), "bc", out=tmp_path / "run", seeds=3, resume=True, **SMALL)
    assert contents(tmp_path / "run") == before and kept.stat().st_mtime_ns == time
    assert len(run.policies) == 3 and list(run.failures) == ["seed=1"]


def test_a_snapshot_whose_rows_are_half_written_is_evaluated_again(tmp_path: Path) -> None:
    """A kill in the middle of the write: some of its rows are whole, one is cut, and its policies still lie there."""
    common: dict[str, Any] = {"seeds": 3, "checkpoint_seconds": 0.0, **SMALL, **WATCHED}
    folder = tmp_path / "run"
    sbac.train(make_log(), "bc", out=folder, **common)
    whole = contents(folder)
    for left in (1, 2):
        half_write(folder, left)
        sbac.train(make_log(), "bc", out=folder, resume=True, **common)
        assert contents(folder) == whole


def half_write(folder: Path, left: int) -> None:
    """Leaves so many of the last snapshot's three rows, and a part of the next."""
    path = folder / "evaluations.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    last = lines[-3:]
    pending = folder / "checkpoint" / "pending" / "000-0-clone-0000000008"
    pending.mkdir(parents=True)
    for i in range(3):
        shutil.copy(folder / "policies" / f"seed={i}.safetensors", pending / f"{i}.safetensors")
    places = [
        {k: v for k, v in json.loads(line).items() if k in ("algorithm", "seed", "group", "phase", "step")}
        for line in last
    ]
    files.write_json(pending / "rows.json", places)
    path.write_text("".join(lines[:-3] + last[:left]) + last[left][:20])
