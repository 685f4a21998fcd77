"""A bench: cells are cached and continued, wherever they train."""

import dataclasses
import shutil
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.lab.bench.cluster import PROTOCOL, SMALL, InProcess, make_bench, save_log, small_cells, status_of

import sbac
from sbac.cli import main
from sbac.errors import UserError
from sbac.lab.bench import finding
from sbac.lab.bench.bench import Bench, CellGroup, Executor, Outcome
from sbac.lab.bench.plan import Cell, plan
from sbac.lab.bench.runner import run_bench
from sbac.lab.bench.spread import Nodes
from sbac.lab.bench.training import ThisMachine
from sbac.lab.cells import read_cells, slug
from sbac.lab.naming import collect
from sbac.training.folder import OpenFolder


@dataclasses.dataclass
class Idle:
    """Takes down what it is asked to train, and trains nothing."""

    asked: list[list[str]] = dataclasses.field(default_factory=list)

    def at_once(self, mates: int) -> int:
        return mates

    def train(self, groups: Sequence[CellGroup], bench: Bench) -> Generator[Outcome, None, None]:
        self.asked = [[Path(at.cell.data).stem for at in group] for group in groups]
        yield from ()


@pytest.fixture(params=["this machine", "nodes"])
def executor(request: pytest.FixtureRequest) -> Executor:
    return ThisMachine() if request.param == "this machine" else Nodes(InProcess())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_log(tmp_path_factory.mktemp("data") / "log.npz")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_log(tmp_path_factory.mktemp("data") / "other.npz", rows=900, seed=1)


def cells(log: str, **changes: Any) -> list[Cell]:
    """Two settings with two seeds each."""
    grids = {"bc": {**SMALL, "learning_rate": [1e-3, 1e-2]}}
    return small_cells([log], **{"seeds": 2, "length": [40], "grids": grids, **changes})


@pytest.fixture(scope="module")
def finished(log: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    run_bench(make_bench(cells(log), results))
    return results


# --- Running ------------------------------------------------------------------------------------------------------


def test_a_cell_holds_what_was_measured(finished: Path) -> None:
    (cell,) = read_cells(finished)
    assert [run.seed for run in cell.runs] == [0, 1, 0, 1] and cell.grid == ["learning_rate"]
    assert cell.steps == [40] and cell.config["hidden"] == [8]
    assert len(cell.curves) == 4 and cell.curves[0].steps == PROTOCOL.schedule(40)
    assert all(len(returns) == PROTOCOL.episodes for curve in cell.curves for returns in curve.returns)
    assert [len(row.returns) for row in cell.final] == [PROTOCOL.final_episodes] * 4
    assert cell.actions is not None and cell.data.returns is not None
    assert np.shape(cell.actions.data) == (1, 25) and np.sum(cell.actions.policies[0].counts) == 512
    assert sum(cell.data.returns.counts) == 12
    assert not list(finished.rglob("checkpoint")) and len(list(finished.rglob("*.safetensors"))) == 4


def test_the_final_episodes_are_those_of_the_saved_policies(finished: Path) -> None:
    (cell,) = read_cells(finished)
    policy = sbac.Policy.load(next(finished.rglob("learning_rate=0.01_seed=1.safetensors")))
    again = sbac.evaluate(policy, "Pendulum-v1", episodes=PROTOCOL.final_episodes, seed=PROTOCOL.final_seed)
    (row,) = [row for row in cell.final if row.seed == 1 and row.setting == {"learning_rate": 0.01}]
    assert row.returns == pytest.approx(again.returns, rel=1e-5)


def test_what_is_done_is_not_done_again(log: str, finished: Path) -> None:
    idle = Idle()
    assert "1 of 1 cells done" in run_bench(make_bench(cells(log), finished), idle).view() and idle.asked == []


def test_other_code_makes_another_cell(log: str, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "code_version", lambda algorithm: {"version": "9", "hash": "other"})
    assert "to do" in status_of(make_bench(cells(log), finished)).view()


def test_stopped_anywhere_it_continues(
    log: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in training, then before the final episodes, the cell is that of an unbroken bench."""
    from sbac.training.writer import Writer

    said: list[str] = []
    bench = make_bench(cells(log), tmp_path, say=said.append)
    log_row = Writer.log

    def stop(self: Writer, phase: int, step: int, metrics: Mapping[str, np.ndarray]) -> None:
        log_row(self, phase, step, metrics)
        if step >= 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "log", stop)
        with pytest.raises(KeyboardInterrupt):
            run_bench(bench)
    assert "started" in status_of(bench).view() and not read_cells(tmp_path)
    assert "trained" in run_bench(dataclasses.replace(bench, evaluate=False)).view()
    assert said == [f"[1/1] {log} bc: 40 steps", f"[1/1] {log} bc: 40 steps, resumed"]
    assert "1 of 1 cells done" in run_bench(bench).view()
    (ours,), (unbroken,) = read_cells(tmp_path), read_cells(finished)
    for name in ("key", "curves", "final", "actions", "metrics", "runs", "config", "protocol"):
        assert getattr(ours, name) == getattr(unbroken, name), name


def test_cells_of_a_method_on_data_of_equal_shape_make_even_groups(log: str, other: str, tmp_path: Path) -> None:
    wide = save_log(tmp_path / "wide.npz", observations=6)
    wanted = small_cells([log, wide, other, save_log(tmp_path / "third.npz")])
    for together, groups in (
        (None, [["log", "other", "third"], ["wide"]]),
        (2, [["log"], ["wide"], ["other", "third"]]),
        (1, [["log"], ["wide"], ["other"], ["third"]]),
    ):
        idle = Idle()
        run_bench(make_bench(wanted, tmp_path, together=together), idle)
        assert idle.asked == groups


def test_each_of_cells_that_train_together_is_as_if_it_had_been_alone(
    log: str, other: str, finished: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    wanted = [*cells(log), *cells(other)]
    status = run_bench(make_bench(wanted, tmp_path, together=5, say=said.append))
    assert "2 of 2 cells done" in status.view() and said[0] == f"[1/2] {log} bc + {other}: 40 steps"
    records = {record.data.name: record for record in read_cells(tmp_path)}
    assert [record.together for record in records.values()] == [2, 2]
    ours, (alone,) = records["log.npz"], read_cells(finished)
    assert ours.key == alone.key
    assert np.abs(np.array(ours.final[0].returns) - np.array(alone.final[0].returns)).max() < 1.0
    assert records["other.npz"].final[0].returns != ours.final[0].returns


def test_a_bench_run_again_plays_what_it_had_left(log: str, tmp_path: Path, executor: Executor) -> None:
    bench = make_bench(small_cells([log]), tmp_path)
    assert "trained" in run_bench(dataclasses.replace(bench, evaluate=False), executor).view()
    assert "1 of 1 cells done" in run_bench(bench, executor).view()


def test_what_another_process_finishes_meanwhile_is_taken(log: str, finished: Path, tmp_path: Path) -> None:
    class Slow(ThisMachine):
        def train(self, groups: Sequence[CellGroup], bench: Bench) -> Generator[Outcome, None, None]:
            shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
            return super().train(groups, bench)

    said: list[str] = []
    status = run_bench(make_bench(cells(log), tmp_path, say=said.append), Slow())
    assert "1 of 1 cells done" in status.view() and said == []


def test_of_cells_that_train_together_one_bad_one_is_told_of(log: str, tmp_path: Path, executor: Executor) -> None:
    fleeting = save_log(tmp_path / "fleeting.npz", seed=1, episode=1)  # every row a time limit: no next state
    status = run_bench(make_bench(small_cells([log, fleeting], "td3-bc"), tmp_path / "results", together=5), executor)
    assert "1 of 2 cells done" in status.view()
    ((cell, reason),) = status.failures.items()
    assert cell.data == fleeting and "next state" in reason


def test_a_cell_that_another_process_trains_is_left_to_it(
    log: str, other: str, tmp_path: Path, executor: Executor
) -> None:
    wanted = small_cells([log, other])
    said: list[str] = []
    bench = make_bench(wanted, tmp_path, together=5, say=said.append)
    elsewhere = OpenFolder(bench.finder.place(wanted[0]).folder)
    status = run_bench(bench, executor)
    assert not status.failures and [status.state(cell) for cell in wanted] == ["in use", "done"]
    assert any(line.startswith(wanted[0].name) and "in use by another process" in line for line in said)
    elsewhere.close()
    assert "2 of 2 cells done" in run_bench(bench, executor).view() and "2 of 2 cells done" in status.view()


def test_data_without_an_environment_is_refused_before_training(log: str, tmp_path: Path, executor: Executor) -> None:
    status = run_bench(make_bench(small_cells([log], environment=None), tmp_path), executor)
    assert "--env" in next(iter(status.failures.values()))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_data_that_changes_while_the_bench_runs_is_refused(tmp_path: Path) -> None:
    log = save_log(tmp_path / "log.npz")
    finder = make_bench([], tmp_path).finder
    at = finder.place(small_cells([log])[0])
    save_log(tmp_path / "log.npz", seed=1)
    finder.place(small_cells([save_log(tmp_path / "other.npz")])[0])
    with pytest.raises(UserError, match="has changed"):
        finder.data(at)


def test_one_bad_dataset_does_not_stop_the_others(
    log: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    arguments = ["--tasks", "hopper-demoo", log, "--algorithms", "bc", "--seeds", "2", "--steps", "40"]
    arguments += ["--grid", "bc.batch_size=8", "bc.hidden=8", "bc.learning_rate=0.001,0.01", "--env", "Pendulum-v1"]
    protocol = ["--episodes", "1", "--final-episodes", "2", "--out", str(results)]
    assert main(["bench", *arguments, *protocol]) == 2
    out, err = capsys.readouterr()
    assert "1 of 2 cells done" in out and "failed" in out
    assert err.startswith("error: 1 of 2 cells") and "hopper-demo'" in err and err.count("\n") == 1


@pytest.mark.slow
def test_an_online_method_is_benched_too(tmp_path: Path, executor: Executor) -> None:
    small = {"td3": {**SMALL, "start_steps": 50}}
    wanted = plan(["hopper-medium-made"], ["td3"], seeds=2, length=[200], grids=small)
    run_bench(make_bench(wanted, tmp_path), executor)
    (cell,) = read_cells(tmp_path)
    assert cell.data.name == "Hopper-v4" and cell.data.kind == "online"
    assert len(cell.final) == 2 and len(cell.curves[0].steps) >= 3
    (series,) = collect([cell])
    assert series.unit == "score" and "1 of 1" in status_of(make_bench(wanted, tmp_path)).view()


def test_bad_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, word in (
        (["--together", "0"], "--together"),
        (["--algorithms", "sbca"], "did you mean 'sbac'"),
        (["--algorithms", "sbac", "sbac-no-w"], "sbac@quick and sbac-no-w@quick are the same"),
        (["--grid", "x"], "NAME.FIELD"),
    ):
        assert main(["bench", *arguments, "--out", str(tmp_path / "out")]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ") and word in err and err.count("\n") == 1, err
    assert not (tmp_path / "out").exists()


# --- Files --------------------------------------------------------------------------------------------------------


def test_names_stay_inside_the_folder() -> None:
    assert slug("../../etc/passwd") == "etc_passwd" and slug("<script>") == "script" and slug("..") == "data"
    assert slug("D4RL/door/human-v2") == "D4RL_door_human-v2"  # not the folder of D4RL/pen/human-v2
