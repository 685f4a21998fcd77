"""A run's folder: one process at a time, what is replaced is kept until the new run has begun, damage is named."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mutations import copied
from tests.small import TINY, contents, make_log

import sbac
from sbac import files
from sbac.errors import UserError
from sbac.report.card import true_returns
from sbac.report.compare import compare
from sbac.report.page import run_page
from sbac.results.describe import describe
from sbac.runs import RunRecord, Watch
from sbac.training.folder import Folder, open_folder
from sbac.trust.choosing import DIVERGED, candidate_record


def test_a_folder_is_written_by_one_process_at_a_time(tmp_path: Path) -> None:
    record = RunRecord(1, "bc", "quick", ["seed=0"], [{"seed": 0}], Watch(None, 1, 0, None), {})
    with open_folder(Folder(tmp_path / "run"), record), pytest.raises(UserError, match="in use"):
        open_folder(Folder(tmp_path / "run", resume=True), record)


def test_what_cannot_begin_replaces_nothing(finished: Path, tmp_path: Path) -> None:
    """One-row episodes have no next state: found out when the table is built."""
    run = copied(finished, tmp_path / "run")
    for _ in range(2):
        with pytest.raises(UserError, match="no row has a known next state"):
            sbac.train(make_log(episode=1), "td3-bc", out=run, overwrite=True, **TINY)
        assert contents(run) == contents(finished)
    with pytest.raises(UserError, match="no row has a known next state"):
        sbac.train(make_log(episode=1), "td3-bc", out=tmp_path / "new", **TINY)
    assert not (tmp_path / "new").exists()


def test_a_run_cannot_start_from_the_folder_it_replaces(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path / "run")
    with pytest.raises(UserError, match="start from itself"):
        sbac.train(make_log(), "bc", out=run, overwrite=True, warm_start=run, **TINY)
    assert contents(run) == contents(finished)


@pytest.mark.parametrize("moved", [[], ["config.json"], ["config.json", "checkpoint", "policies"]])
@pytest.mark.parametrize("flag", ["overwrite", "resume", None])
def test_a_kill_while_a_run_is_set_aside_loses_nothing(
    moved: list[str], flag: str | None, finished: Path, tmp_path: Path
) -> None:
    """Whatever is tried next and fails, the run is whole again."""
    run = copied(finished, tmp_path / "run")
    (run / ".replaced").mkdir()
    for name in moved:
        (run / name).rename(run / ".replaced" / name)
    flags: dict[str, Any] = {flag: True} if flag else {}
    with pytest.raises(UserError):
        sbac.train(make_log(episode=1), "td3-bc", out=run, **TINY, **flags)
    assert contents(run) == contents(finished)


@pytest.mark.parametrize("write", ["append_metrics", "write_state"])
def test_a_full_disk_before_the_first_checkpoint_keeps_the_replaced_run(
    write: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(finished, tmp_path / "run")
    (run / "metrics.jsonl").unlink()  # what the new run has and the old one has not must not stay
    before = contents(run)

    def full(*_: object) -> None:
        raise UserError("cannot be written (No space left on device)")

    monkeypatch.setattr(f"sbac.training.writer.{write}", full)
    with pytest.raises(UserError, match="No space left"):
        sbac.train(make_log(), "bc", out=run, overwrite=True, **TINY)
    assert contents(run) == before
    with pytest.raises(UserError, match="No space left"):
        sbac.train(make_log(), "bc", out=tmp_path / "new", **TINY)
    assert not (tmp_path / "new").exists()


def test_a_scratch_folder_is_made_where_it_is_needed_and_swept_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left, young, other = (tmp_path / name for name in ("sbac-run-left", "sbac-run-young", "another"))
    for folder in (left, young, other):
        folder.mkdir()
    for folder in (left, other):
        os.utime(folder, (0, 0))
    with files.scratch_folder() as used:
        os.utime(used, (0, 0))
        with files.scratch_folder() as second:
            assert set(tmp_path.iterdir()) == {young, other, used, second}
    assert set(tmp_path.iterdir()) == {young, other}
    monkeypatch.setattr(files, "scratch_folder", None)
    sbac.train(make_log(), "bc", out=tmp_path / "run", **TINY)


def test_an_evaluation_names_the_policy_that_played(tmp_path: Path) -> None:
    """So that the card shows returns of the policy that lies there, and of no other."""
    asked: dict[str, Any] = {**TINY, "evaluate": True}
    run = sbac.train(make_log(), "bc", out=tmp_path / "run", environment="Pendulum-v1", episodes=1, workers=1, **asked)
    (policy,) = run.policies
    *before, last = [row.episodes.policy for row in run.evaluation_rows]
    assert last == policy.hash and before and policy.hash not in before
    judged = candidate_record("seed=0", 0, {}, DIVERGED, policy.hash)
    assert true_returns(run, judged) == run.evaluation_rows[-1].episodes.discounted_returns
    assert true_returns(run, replace(judged, policy="another")) is None
    assert describe(run).replaced is None
    other, said = sbac.Run.load(tmp_path / "run"), "the policy in the run's folder is another one"
    other.policies[0].arrays["policy/biases/0"] += 1.0
    assert describe(other).replaced == ["seed=0"]
    assert said in compare(run, other, ("a", "b")) and said not in compare(run, run, ("a", "b"))
    assert '<p class="warning">seed=0: the policy in the run' in run_page(describe(other))


def test_what_was_said_of_the_replaced_policies_goes_with_them(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path / "run")
    for name in ("selection.json", "trials.jsonl"):
        (run / name).write_text("{}")
    sbac.train(make_log(), "bc", out=run, overwrite=True, **TINY)
    assert {path.name for path in run.iterdir()} == {path.name for path in finished.iterdir()}


def test_a_kill_during_the_first_write_leaves_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / f".{'0' * 16}.tmp").write_text("{")
    assert len(sbac.train(make_log(), "bc", out=tmp_path, resume=True, **TINY).policies) == 1


def test_a_finished_run_without_its_checkpoint_is_left_alone(finished: Path, tmp_path: Path) -> None:
    run = copied(finished, tmp_path / "run")
    files.remove(run / "checkpoint")
    before = contents(run)
    assert len(sbac.train(make_log(), "bc", out=run, resume=True, **TINY).policies) == 1
    assert contents(run) == before


def test_validation_needs_rows_that_the_method_can_use() -> None:
    """One episode of the two is a single row: held out, it would tell nothing of values."""
    columns: dict[str, Any] = make_log(31).arrays() | {"timeouts": np.isin(np.arange(31), (0, 30))}
    data = sbac.Dataset(**columns, action_low=-2.0, action_high=2.0)
    held_out = data.split(0.05)[1]
    assert held_out is not None and len(held_out) == 1
    metrics = sbac.train(data, "td3-bc", **TINY).metrics
    assert not any(name.startswith("validation") for name in metrics[-1])
    assert any(name.startswith("validation") for name in sbac.train(make_log(), "td3-bc", **TINY).metrics[-1])


def test_labels_tell_runs_apart(tmp_path: Path) -> None:
    rates = [0.00012345678, 0.00012345679]
    run = sbac.train(make_log(), "bc", out=tmp_path / "run", learning_rate=rates, **TINY)
    assert len(run.policies) == 2 and len(set(run.config["labels"])) == 2


def test_whole_numbers_of_any_kind() -> None:
    numbers: dict[str, Any] = {"seeds": np.int64(2), **TINY, "steps": np.int32(4)}
    assert len(sbac.train(make_log(), "bc", **numbers).policies) == 2
