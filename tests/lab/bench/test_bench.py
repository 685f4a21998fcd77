"""A bench: cells are cached, continued and merged; settings are chosen on other episodes than those reported."""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from report.synthetic import parsed, record, record_json
from sbac.algorithms import REGISTRY, find
from sbac.cli import main
from sbac.data import Dataset
from sbac.errors import UserError
from sbac.lab.bench import finding, runner
from sbac.lab.bench.code import code_version, sources
from sbac.lab.bench.final import evaluate_trained
from sbac.lab.bench.plan import Cell, parse_grids, plan
from sbac.lab.bench.runner import Bench
from sbac.lab.cells import CellRecord, merge, path_of, read_cell, read_cells, slug, write_cell
from sbac.lab.naming import collect
from sbac.lab.protocol import Protocol
from sbac.lab.representing import BEST, ONE, chosen_by, represent
from sbac.text import steps_text
from sbac.training.folder import OpenFolder

PROTOCOL = Protocol(episodes=2, final_episodes=3)


def make_data(n: int = 600, seed: int = 0, observations: int = 3, episode: int = 50) -> Dataset:
    rng = np.random.default_rng(seed)
    ends = np.zeros(n, bool)
    ends[episode - 1 :: episode] = True
    return Dataset(
        observations=rng.normal(size=(n, observations)),
        actions=rng.uniform(-2, 2, (n, 1)),
        rewards=rng.normal(size=n),
        terminals=np.zeros(n, bool),
        timeouts=ends,
        action_low=[-2.0],
        action_high=[2.0],
    )


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "log.npz"
    make_data().save(path)
    return str(path)


def cells(log: str, **changes: Any) -> list[Cell]:
    options = {"batch_size": 8, "hidden": [8], "learning_rate": [1e-3, 1e-2]}
    arguments: dict[str, Any] = {
        "seeds": 2,
        "length": [40],
        "grids": {"bc": options},
        "environment": "Pendulum-v1",
    } | changes
    return plan([log], ["bc"], **arguments)


@pytest.fixture(scope="module")
def finished(log: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    Bench(cells(log), results, PROTOCOL, workers=1).run()
    return results


# --- The plan -----------------------------------------------------------------------------------------------------


def test_schedule_is_dense_at_the_end_and_sparse_before() -> None:
    steps = Protocol().schedule(1_000_000)
    assert steps[-10:] == list(range(955_000, 1_000_001, 5_000))
    assert len(steps) == 15 and steps[0] == 190_000 and np.ptp(np.diff(steps[:5])) == 0
    assert Protocol().schedule(200_000)[-10:] == list(range(155_000, 200_001, 5_000))
    for short in (1, 3, 40, 999):
        at = Protocol().schedule(short)
        assert at[-1] == short and min(at) > 0 and at == sorted(set(at))


def test_every_method_has_as_many_settings_as_sbac() -> None:
    offline = [name for name in REGISTRY if not find(name).online]
    for preset in ("quick", "paper"):
        for cell in plan(["data"], offline, seeds=1, preset=preset):
            assert len(cell.runs(None)) == 4, cell.algorithm


def test_presets_by_method() -> None:
    chosen = {(c.algorithm, c.preset) for c in plan(["a"], ["sbac@paper", "sbac", "bc"], preset="corrected")}
    assert chosen == {("sbac", "paper"), ("sbac", "corrected"), ("bc", "paper")}
    with pytest.raises(UserError, match="twice"):
        plan(["a"], ["bc", "bc"])
    with pytest.raises(UserError, match="alhpa"):
        plan(["a"], ["sbac"], grids={"sbac": {"alhpa": [1.0]}})


def test_online_methods_have_one_cell_per_environment() -> None:
    tasks = ["hopper-medium-made", "hopper-expert-made", "walker2d-medium-made"]
    cells = plan(tasks, ["bc", "td3"], length=[100])
    assert [(c.data, c.environment) for c in cells if c.online] == [
        ("Hopper-v4", "hopper-medium-made"),
        ("Walker2d-v4", "walker2d-medium-made"),
    ]
    assert sum(not c.online for c in cells) == 3
    with pytest.raises(UserError, match="--env"):
        plan(["log.npz"], ["td3"])


def test_grids_from_the_command_line() -> None:
    assert parse_grids(["sbac.alpha=0.2,2", "bc.batch-size=8"], no_grid=False) == {
        "sbac": {"alpha": [0.2, 2]},
        "bc": {"batch_size": 8},
    }
    wide = parse_grids(["sbac.hidden=[512, 512]", "bc.hidden=[64]"], no_grid=False)
    assert wide == {"sbac": {"hidden": [512, 512]}, "bc": {"hidden": [64]}}
    none = parse_grids(["sbac.alpha=1,2"], no_grid=True)
    assert none["bc"] == {} and none["sbac"] == {"alpha": [1, 2]}
    with pytest.raises(UserError, match="NAME.FIELD"):
        parse_grids(["alpha=1"], no_grid=False)


def test_a_key_changes_with_whatever_changes_the_numbers(log: str) -> None:
    code = code_version("bc")
    (cell,) = cells(log)
    keys = {
        cell.key(None, "data", PROTOCOL, code),
        cells(log, length=[41])[0].key(None, "data", PROTOCOL, code),
        cells(log, seeds=3)[0].key(None, "data", PROTOCOL, code),
        cells(log, environment=None)[0].key(None, "data", PROTOCOL, code),
        cell.key(None, "other data", PROTOCOL, code),
        cell.key(None, "data", dataclasses.replace(PROTOCOL, episodes=5), code),
        cell.key(None, "data", PROTOCOL, code | {"hash": "another"}),
    }
    assert len(keys) == 7
    assert cell.key(None, "data", dataclasses.replace(PROTOCOL, final_episodes=5), code) in keys


def test_data_is_known_by_its_hash_and_made_data_by_what_it_was_made_from(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SBAC_DATA", str(tmp_path))
    made = '{"ladder": "abc", "tier": "medium", "size": 600, "seed": 0, "mujoco": "3.4.0"}'
    columns = {name: getattr(make_data(), name) for name in ("observations", "actions", "rewards", "terminals")}
    about = {"name": "hopper-medium-made", "kind": "made", "task": "hopper-medium-made", "identity": made}
    columns["actions"] = columns["actions"] / 2
    np.savez(
        tmp_path / "hopper-medium-made.npz", allow_pickle=False, **columns, **{k: np.array(v) for k, v in about.items()}
    )
    data = sbac.load("hopper-medium-made")
    assert finding.data_identity(Cell("hopper-medium-made", "bc"), data) == made
    assert finding.data_identity(Cell("log", "bc"), make_data()) == make_data().hash


def test_code_version_covers_what_a_method_imports() -> None:
    files = sources("sbac")
    expected = {"sbac.algorithms.sbac", "sbac.algorithms.base", "sbac.config", "sbac.nn.gaussian", "sbac.ratio.mmd"}
    assert expected | {"sbac.training.engine"} <= set(files)
    assert not {"sbac.algorithms", "sbac.algorithms.bc", "sbac.lab.report.page"} & set(files)
    assert "sbac.ratio.mmd" not in sources("bc")
    assert code_version("sbac") != code_version("bc")


# --- Running ------------------------------------------------------------------------------------------------------


def test_a_cell_holds_what_was_measured(finished: Path) -> None:
    (cell,) = read_cells(finished)
    assert [run.seed for run in cell.runs] == [0, 1, 0, 1] and cell.grid == ["learning_rate"]
    assert cell.steps == [40] and cell.config["hidden"] == [8]
    assert len(cell.curves) == 4 and cell.curves[0].steps == PROTOCOL.schedule(40)
    assert all(len(returns) == 2 for curve in cell.curves for returns in curve.returns)
    assert [len(row.returns) for row in cell.final] == [3] * 4
    assert cell.actions is not None and cell.data.returns is not None
    assert np.shape(cell.actions.data) == (1, 25) and np.sum(cell.actions.policies[0].counts) == 512
    assert sum(cell.data.returns.counts) == 12
    assert not list(finished.rglob("checkpoint")) and len(list(finished.rglob("*.safetensors"))) == 4


def test_the_final_episodes_are_those_of_the_saved_policies(finished: Path) -> None:
    (cell,) = read_cells(finished)
    path = next(finished.rglob("learning_rate=0.01_seed=1.safetensors"))
    again = sbac.evaluate(sbac.Policy.load(path), "Pendulum-v1", episodes=3, seed=PROTOCOL.final_seed)
    (row,) = [row for row in cell.final if row.seed == 1 and row.setting == {"learning_rate": 0.01}]
    assert row.returns == pytest.approx(again.returns, rel=1e-5)


def test_what_is_done_is_not_done_again(log: str, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbac.training.train.train", None)
    monkeypatch.setattr(runner, "finish", None)
    bench = Bench(cells(log), finished, PROTOCOL)
    bench.run()
    assert "1 of 1 cells done" in bench.status.view()


def test_other_code_counts_only_if_asked(log: str, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "code_version", lambda algorithm: {"version": "9", "hash": "other"})
    assert "to do" in Bench(cells(log), finished, PROTOCOL).status.view()
    assert "1 of 1 cells done" in Bench(cells(log), finished, PROTOCOL, any_code=True).status.view()
    assert "to do" in Bench(cells(log, seeds=3), finished, PROTOCOL, any_code=True).status.view()


def test_an_option_that_came_later_stood_at_its_default(log: str, finished: Path, tmp_path: Path) -> None:
    (cell,) = read_cells(finished)
    config = {name: value for name, value in cell.config.items() if name != "precision"}
    write_cell(tmp_path, dataclasses.replace(cell, config=config, key="0" * 12))
    assert "to do" in Bench(cells(log), tmp_path, PROTOCOL).status.view()
    assert "1 of 1 cells done" in Bench(cells(log), tmp_path, PROTOCOL, any_code=True).status.view()
    other = [dataclasses.replace(c, settings={**c.settings, "precision": "bfloat16"}) for c in cells(log)]
    assert "to do" in Bench(other, tmp_path, PROTOCOL, any_code=True).status.view()


def test_stopped_anywhere_it_continues(
    log: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in training, then before the final episodes, the cell is that of an unbroken bench."""
    from sbac.training.writer import Writer

    bench = Bench(cells(log), tmp_path, PROTOCOL, workers=1)
    log_row = Writer.log

    def stop(self: Writer, phase: int, step: int, metrics: Mapping[str, np.ndarray]) -> None:
        log_row(self, phase, step, metrics)
        if step >= 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "log", stop)
        with pytest.raises(KeyboardInterrupt):
            bench.run()
    assert "started" in bench.status.view() and not read_cells(tmp_path)
    bench.run(evaluate=False)
    assert "trained" in bench.status.view()
    later = dataclasses.replace(PROTOCOL, episodes=9)  # says nothing about the episodes that were played in training
    assert evaluate_trained(tmp_path, later, workers=1) == 1
    (ours,), (unbroken,) = read_cells(tmp_path), read_cells(finished)
    for name in ("key", "curves", "final", "actions", "metrics", "runs", "config", "protocol"):
        assert getattr(ours, name) == getattr(unbroken, name), name


def test_cells_of_a_method_train_together(log: str, finished: Path, tmp_path: Path) -> None:
    """Those whose data have equal shape, and each cell's file is as if it had been alone."""
    other, wide = tmp_path / "other.npz", tmp_path / "wide.npz"
    make_data(900, seed=1).save(other)
    make_data(600, seed=2, observations=6).save(wide)
    options = {"batch_size": 8, "hidden": [8], "learning_rate": [1e-3, 1e-2]}
    logs = [log, str(wide), str(other)]
    wanted = plan(logs, ["bc"], seeds=2, length=[40], grids={"bc": options}, environment="Pendulum-v1")
    bench = Bench(wanted, tmp_path / "results", PROTOCOL, workers=1, together=5, say=lambda line: None)
    first = bench.finder.locate(wanted[0])
    assert [at.cell.data for at in bench.companions(first, make_data())] == [str(other)]
    del wanted[1]  # Pendulum has three observations
    bench.run()
    assert "2 of 2 cells done" in bench.status.view()
    records = {record.data.name: record for record in read_cells(tmp_path / "results")}
    assert [record.together for record in records.values()] == [2, 2]
    ours, (alone,) = records["log.npz"], read_cells(finished)
    assert ours.key == alone.key
    assert np.abs(np.array(ours.final[0].returns) - np.array(alone.final[0].returns)).max() < 1.0
    assert records["other.npz"].final[0].returns != ours.final[0].returns


def test_a_bench_run_again_plays_what_it_had_left(log: str, tmp_path: Path) -> None:
    bench = Bench(cells(log), tmp_path, PROTOCOL, workers=1, say=lambda line: None)
    bench.run(evaluate=False)
    assert "trained" in bench.status.view()
    bench.run()
    assert "1 of 1 cells done" in bench.status.view()


def test_of_cells_that_train_together_one_bad_one_is_told_of(log: str, tmp_path: Path) -> None:
    fleeting = tmp_path / "fleeting.npz"
    make_data(600, seed=1, episode=1).save(fleeting)  # every row a time limit: no next state
    options = {"batch_size": 8, "hidden": [8]}
    wanted = plan(
        [log, str(fleeting)], ["td3-bc"], seeds=1, length=[20], grids={"td3-bc": options}, environment="Pendulum-v1"
    )
    bench = Bench(wanted, tmp_path / "results", PROTOCOL, workers=1, together=5, say=lambda line: None)
    bench.run()
    assert "1 of 2 cells done" in bench.status.view()
    ((cell, reason),) = bench.status.failures.items()
    assert "fleeting" in cell.data and "next state" in reason


def test_a_cell_that_another_process_trains_is_left_to_it(log: str, tmp_path: Path) -> None:
    other = tmp_path / "other.npz"
    make_data(900, seed=1).save(other)
    options = {"batch_size": 8, "hidden": [8]}
    wanted = plan([log, str(other)], ["bc"], seeds=1, length=[20], grids={"bc": options}, environment="Pendulum-v1")
    said: list[str] = []
    bench = Bench(wanted, tmp_path / "results", PROTOCOL, workers=1, together=5, say=said.append)
    elsewhere = OpenFolder(bench.finder.locate(wanted[0]).folder)
    bench.run()
    assert not bench.status.failures and [bench.status.state(cell) for cell in wanted] == ["in use", "done"]
    assert any(line.startswith(wanted[0].name) and "in use by another process" in line for line in said)
    elsewhere.close()
    again = Bench(wanted, tmp_path / "results", PROTOCOL, workers=1, say=lambda line: None)
    again.run()
    assert "2 of 2 cells done" in again.status.view() and "2 of 2 cells done" in bench.status.view()


def test_one_bad_dataset_does_not_stop_the_others(
    log: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    shutil.copytree(finished, results)
    arguments = ["--tasks", "hopper-demoo", log, "--algorithms", "bc", "--seeds", "2", "--steps", "40"]
    arguments += ["--grid", "bc.batch_size=8", "bc.hidden=8", "bc.learning_rate=0.001,0.01", "--env", "Pendulum-v1"]
    protocol = ["--episodes", "2", "--final-episodes", "3", "--out", str(results), "--any-code"]
    assert main(["bench", *arguments, *protocol]) == 2
    out, err = capsys.readouterr()
    assert "1 of 2 cells done" in out and "failed" in out
    assert err.startswith("error: 1 of 2 cells") and "hopper-demo'" in err and err.count("\n") == 1


@pytest.mark.slow
def test_an_online_method_is_benched_too(tmp_path: Path) -> None:
    small = {"td3": {"hidden": [8], "batch_size": 8, "start_steps": 50}}
    cells = plan(["hopper-medium-made"], ["td3"], seeds=2, length=[200], grids=small)
    Bench(cells, tmp_path, dataclasses.replace(PROTOCOL, every=20), workers=1).run()
    (cell,) = read_cells(tmp_path)
    assert cell.data.name == "Hopper-v4" and cell.data.kind == "online"
    assert len(cell.final) == 2 and len(cell.curves[0].steps) >= 3
    (series,) = collect([cell])
    assert (
        series.unit == "score"
        and "1 of 1" in Bench(cells, tmp_path, dataclasses.replace(PROTOCOL, every=20)).status.view()
    )


def test_data_without_an_environment_is_refused_before_training(log: str, tmp_path: Path) -> None:
    bench = Bench(cells(log, environment=None), tmp_path, PROTOCOL)
    bench.run()
    assert "--env" in next(iter(bench.status.failures.values())) and not list(tmp_path.rglob("config.json"))


def test_bad_arguments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, word in (
        (["--part", "3/2"], "--part"),
        (["--together", "0"], "--together"),
        (["--algorithms", "sbca"], "did you mean 'sbac'"),
        (["--merge", str(tmp_path / "no")], "results folder"),
        (["--grid", "x"], "NAME.FIELD"),
        (["--status", "--merge", "x"], "not allowed with"),
    ):
        assert main(["bench", *arguments]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ") and word in err and err.count("\n") == 1, err


def test_evaluation_at_chosen_steps(tmp_path: Path) -> None:
    options = {"steps": 10, "hidden": [8], "batch_size": 8, "environment": "Pendulum-v1", "episodes": 1, "workers": 1}
    run = sbac.train(make_data(), "bc", out=tmp_path / "run", evaluate_at=[7, 3, 99], **options)
    assert [row["step"] for row in run.evaluations] == [3, 7, 10]
    with pytest.raises(UserError, match="evaluation"):
        sbac.train(make_data(), "bc", out=tmp_path / "run", evaluate_at=[3], resume=True, **options)


# --- Files --------------------------------------------------------------------------------------------------------


def test_files_come_back_as_they_were_written(tmp_path: Path) -> None:
    cell = record()
    assert read_cell(write_cell(tmp_path, cell)) == cell
    broken = tmp_path / "cells" / "broken.json"
    deep = "[" * 100_000
    hostile = json.dumps(record_json() | {"key": "/../../../victim"})
    for text in ("{}", deep, hostile, json.dumps({k: v for k, v in record_json().items() if k != "config"})):
        broken.write_text(text)
        with pytest.raises(UserError, match=r"broken\.json"):
            read_cells(tmp_path)


def test_names_stay_inside_the_folder() -> None:
    assert slug("../../etc/passwd") == "etc_passwd" and slug("<script>") == "script" and slug("..") == "data"
    assert slug("D4RL/door/human-v2") == "D4RL_door_human-v2"  # not the folder of D4RL/pen/human-v2


def test_merging_keeps_the_more_complete(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write_cell(here, record(key="a" * 12, final=False))
    write_cell(there, record(key="a" * 12))
    write_cell(there, record(key="b" * 12, algorithm="bc"))
    assert merge([there], here) == 2 and len(read_cells(here)) == 2
    assert all(cell.final for cell in read_cells(here))
    assert merge([there], here) == 0
    write_cell(there, record(key="a" * 12, final=False))
    assert merge([there], here) == 0 and read_cell(path_of(here, record(key="a" * 12))).final


# --- Choosing -----------------------------------------------------------------------------------------------------


def swap_final(cell: CellRecord, first: float, second: float) -> CellRecord:
    """The final returns of two settings exchanged: the last evaluation then misleads about them."""
    other: dict[Any, float] = {first: second, second: first}
    final = [dataclasses.replace(row, setting={"alpha": other[row.setting["alpha"]]}) for row in cell.final]
    return dataclasses.replace(cell, final=final)


def test_settings_are_chosen_on_other_episodes_than_those_reported() -> None:
    series = collect([swap_final(record(means={0.5: 40.0, 2.0: 60.0}), 0.5, 2.0)])
    for way in (ONE, BEST):
        (chosen,) = represent(series, way).values()
        assert chosen.setting == {"alpha": 2.0}  # best on the last evaluation, though not on the final episodes
        assert chosen.mean == pytest.approx(40.0, abs=0.5) and chosen_by(chosen) == pytest.approx(60.0, abs=0.5)


def test_one_setting_for_all_tasks_and_the_best_for_each() -> None:
    series = collect(
        [
            record("hopper-medium-made", means={0.5: 90.0, 2.0: 80.0}),
            record("walker2d-medium-made", means={0.5: 20.0, 2.0: 70.0}, key="1" * 12),
        ]
    )
    one, best = represent(series, ONE), represent(series, BEST)
    assert {data: s.setting["alpha"] for (data, _), s in one.items()} == {
        "hopper-medium-made": 2.0,
        "walker2d-medium-made": 2.0,
    }
    assert best["hopper-medium-made", "sbac"].setting == {"alpha": 0.5}
    assert best["walker2d-medium-made", "sbac"].setting == {"alpha": 2.0}


def test_what_a_preset_has_for_each_task_is_one_setting() -> None:
    """CQL is published with one alpha for MuJoCo and another for Adroit."""
    preset = {"algorithm": "cql", "settings": {"precision": "bfloat16"}}
    cells = [
        record("hopper-medium-made", means={10.0: 50.0}, **preset),
        record("door-human-v1", means={1.0: 9.0}, key="1" * 12, **preset),
    ]
    chosen = represent(collect(cells), ONE)
    assert {data: s.setting["alpha"] for (data, _), s in chosen.items()} == {
        "hopper-medium-made": 10.0,
        "door-human-v1": 1.0,
    }
    named = [  # as a grid they are two
        dataclasses.replace(cell, settings={"alpha": [cell.runs[0].setting["alpha"]]}) for cell in cells
    ]
    assert len(represent(collect(named), ONE)) == 1


def test_a_cell_without_final_episodes_cannot_stand_for_its_method() -> None:
    series = collect([record(final=False)])
    assert len(series) == 2 and not represent(series, ONE) and not represent(series, BEST)


def test_seeds_of_several_cells_join_and_the_later_one_counts() -> None:
    old = record(key="1" * 12, seeds=2, means={2.0: 10.0})
    new = record(key="2" * 12, seeds=3, means={2.0: 50.0}, date="2026-02-01")
    only = [run for run in new.runs if run.seed > 0]
    (series,) = collect([dataclasses.replace(new, runs=only), old])
    assert [trial.seed for trial in series.trials] == [0, 1, 2]
    assert series.scores == pytest.approx([10.0, 50.0, 50.0], abs=1.0)
    assert series.deviation == pytest.approx(np.std(series.scores, ddof=1))


def test_lengths_and_presets_are_never_mixed() -> None:
    series = collect([record(), record(length=[2000]), record(preset="corrected")])
    assert {(s.length, s.method) for s in series} == {
        ("1k steps a phase", "sbac@paper"),
        ("2k steps a phase", "sbac@paper"),
        ("1k steps a phase", "sbac@corrected"),
    }


def test_a_diverged_policy_counts_as_a_random_one() -> None:
    cell = record_json(means={2.0: 60.0}, seeds=1)
    cell["final"][0]["returns"] = [None] * 100
    (series,) = collect([parsed(cell)])
    assert series.mean == pytest.approx(0.0)


def test_curves_count_steps_over_all_phases() -> None:
    series = collect([record(means={2.0: 60.0})])[0]
    steps = [step for step, _ in series.curve()]
    assert steps[0] == 1100 and steps[-1] == 2000
    assert series.curve()[-1][1] == pytest.approx([60.0] * 3, abs=1.0)


def test_steps_in_short() -> None:
    assert [steps_text(n) for n in (1_000_000, 200_000, 1_500_000, 2500, 999, 1234)] == [
        "1M",
        "200k",
        "1.5M",
        "2.5k",
        "999",
        "1234",
    ]
