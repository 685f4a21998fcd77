"""Tables against what was put in: means, deviations, what the paper printed, and what is said about it."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from tests.report.synthetic import parsed, record, record_json

from sbac.environments.tasks import find_task
from sbac.lab.cells import CellRecord
from sbac.lab.commands import bench_commands
from sbac.lab.naming import collect, data_order, method_order, short_name
from sbac.lab.paper import paper_score
from sbac.lab.report.markdown import results_markdown
from sbac.lab.representing import BEST, ONE
from sbac.lab.tables import score_tables
from sbac.results.measured import MeasuredRun


def cells() -> list[CellRecord]:
    return [
        record("hopper-medium-made", "sbac", {0.5: 90.0, 2.0: 80.0}, key="1" * 12),
        record("walker2d-medium-made", "sbac", {0.5: 20.0, 2.0: 70.0}, key="2" * 12),
        record("hopper-medium-made", "cql", {1.0: 60.0}, key="3" * 12),
        record("walker2d-medium-made", "cql", {1.0: 75.0}, key="4" * 12),
        record("halfcheetah-medium-made", "sbac", {0.5: 10.0, 2.0: 30.0}, key="5" * 12),
    ]


def test_a_table_for_each_way() -> None:
    one, best = score_tables(collect(cells()))
    assert (one.way, best.way) == (ONE, BEST) and one.length == "1k steps a phase"
    assert one.methods == ["sbac", "cql"]
    assert one.datasets == ["halfcheetah-medium-made", "walker2d-medium-made", "hopper-medium-made"]
    assert one.chosen["hopper-medium-made", "sbac"].mean == pytest.approx(80.0, abs=0.5)
    assert best.chosen["hopper-medium-made", "sbac"].mean == pytest.approx(90.0, abs=0.5)


def test_one_setting_can_be_fixed_beforehand_on_other_trainings() -> None:
    """The other trainings prefer alpha 0.5; so it stands for sbac, though alpha 2 is better here."""
    others = [
        record("hopper-medium-made", "sbac", {0.5: 60.0, 2.0: 50.0}, key="6" * 12),
        record("walker2d-medium-made", "sbac", {0.5: 50.0, 2.0: 55.0}, key="7" * 12),
    ]
    one, best = score_tables(collect(cells(), others))
    assert {one.chosen[data, "sbac"].setting["alpha"] for data in one.datasets} == {0.5}
    assert one.fixed_note == "Fixed beforehand, on other trainings: the setting of sbac. " and not best.fixed_note
    assert one.fixed_note in results_markdown(cells(), others)
    assert best.chosen["walker2d-medium-made", "sbac"].setting["alpha"] == 2.0


def test_a_setting_that_was_tried_on_fewer_datasets_is_not_fixed() -> None:
    others = [
        record("hopper-medium-made", "sbac", {0.5: 60.0, 2.0: 50.0}, key="6" * 12),
        record("walker2d-medium-made", "sbac", {2.0: 10.0, 1.0: 5.0}, key="7" * 12),
    ]
    one, _ = score_tables(collect(cells(), others))
    assert one.chosen["hopper-medium-made", "sbac"].setting["alpha"] == 2.0


def test_the_best_setting_is_chosen_on_the_other_seeds() -> None:
    """Alpha 0.5 has 90, 10 and 10, alpha 2 has 45 throughout. The seed with 90 goes by the other two, which prefer
    alpha 2; those two go by one of 90 and one of 10, and prefer alpha 0.5."""
    cell = record_json(means={0.5: 50.0, 2.0: 45.0}, noise=0.0)
    task = find_task("hopper-medium-made")
    for entry in (*cell["curves"], *cell["final"]):
        if entry["setting"].get("alpha") == 0.5:
            score = 90 if entry["seed"] == 0 else 10
            reached = task.reference_min + score / 100 * (task.reference_max - task.reference_min)
            entry["returns"] = json.loads(json.dumps(entry["returns"]), parse_float=lambda _, own=reached: own)
    _, best = score_tables(collect([parsed(cell)]))
    np.testing.assert_allclose(best.chosen["hopper-medium-made", "sbac"].scores, [45.0, 10.0, 10.0], atol=0.1)


def test_tries_and_differences_are_told() -> None:
    text = results_markdown(cells())
    assert "Scores by the number of policies tried in the environment" in text
    assert "| sbac | 65.0 | " in text  # one policy of two settings on two tasks: the mean of 90, 80, 20 and 70
    assert "sbac less it" in text


def test_means_are_over_what_every_method_has() -> None:
    one, _ = score_tables(collect(cells()))
    (block,) = one.blocks
    assert block == ("MuJoCo", ["walker2d-medium-made", "hopper-medium-made"], ["sbac", "cql"])  # no halfcheetah of cql
    mean, iqm = one.overall(block)["sbac"]
    assert mean.value == pytest.approx((70.0 + 80.0) / 2, abs=0.5)
    assert mean.low is not None and mean.high is not None and mean.low < mean.value < mean.high
    assert 70.0 < iqm.value < 80.0
    assert one.paper_mean(block, "sbac") == pytest.approx((81.1 + 99.6) / 2)
    deviations: Any = [one.chosen[data, "sbac"].deviation for data in block.datasets]
    expected = np.mean(deviations)
    assert one.deviation(block, "sbac") == pytest.approx(expected)


def test_the_data_stand_beside_what_was_learned_from_them_and_the_best_is_bold() -> None:
    """The data's episodes return 5 on average, which scores 0.8 on hopper and 0.1 on walker2d."""
    one, _ = score_tables(collect(cells()))
    assert one.data_score("hopper-medium-made") == pytest.approx(100 * 25.272305 / 3254.572305)
    assert one.data_score("walker2d-medium-made") == pytest.approx(100 * 3.370992 / 4590.670992, rel=1e-3)
    (block,) = one.blocks
    assert one.data_mean(block) == pytest.approx((0.77652 + 0.07343) / 2, abs=1e-4)
    text = results_markdown(cells())
    hopper, walker = (next(x for x in text.splitlines() if x.startswith(f"| {n}-me")) for n in ("hopper", "walker2d"))
    assert [cell[:3] for cell in hopper.split(" | ")[3:]] == ["0.8", "**8", "60."]
    assert [cell[:3] for cell in walker.split(" | ")[3:]] == ["0.1", "70.", "**7"]
    untold = [replace(cell, data=replace(cell.data, returns=None)) for cell in cells()]
    (table, _), lines = score_tables(collect(untold)), results_markdown(untold)
    assert table.data_score("hopper-medium-made") is None and table.data_mean(block) is None
    assert "| 1k + 1k |  | **80." in lines


def test_means_over_the_most_tasks_of_at_least_two() -> None:
    """Five tasks of two methods hold fewer cells than three tasks of four, and are averaged none the less."""
    tasks = [f"{body}-medium-made" for body in ("halfcheetah", "walker2d", "hopper")]
    tasks += [f"{body}-expert-made" for body in ("halfcheetah", "walker2d")]
    many = [record(task, method, {1.0: 50.0}) for task in tasks[:3] for method in ("bc", "iql", "cql", "rebrac")]
    wide = [record(task, method, {1.0: 90.0}) for task in tasks[3:] for method in ("bc", "iql")]
    few = [record(tasks[0], "td3-bc", {1.0: 60.0}), record(tasks[1], "td3-bc", {1.0: 60.0})]
    lone = [record("hopper-expert-made", "bc", {1.0: 90.0})]
    (table,) = score_tables(collect([*many, *wide, *few, *lone]))
    assert [(len(block.datasets), block.methods) for block in table.blocks] == [
        (2, ["bc", "td3-bc", "iql", "rebrac", "cql"]),
        (3, ["bc", "iql", "rebrac", "cql"]),
        (5, ["bc", "iql"]),
    ]
    assert table.mean(table.blocks[2], "bc") == pytest.approx((3 * 50.0 + 2 * 90.0) / 5, abs=0.5)


def test_suites_are_averaged_apart() -> None:
    settings = {"sbac": {0.5: 5.0, 2.0: 6.0}, "cql": {1.0: 5.0}}
    adroit = [record(f"{hand}-human-v1", name, settings[name]) for hand in ("pen", "door") for name in settings]
    table, _ = score_tables(collect([*cells(), *adroit]))
    assert [block.name for block in table.blocks] == ["2 MuJoCo tasks", "2 Adroit tasks"]
    assert table.overall(table.blocks[1])["cql"][0].value == pytest.approx(5.0, abs=0.5)
    assert table.paper_mean(table.blocks[1], "cql") == pytest.approx((55.8 + 9.1) / 2)
    text = results_markdown([*cells(), *adroit, record("hopper-medium-made", "bc", {1.0: 50.0})])
    assert "### 2 Adroit tasks that these 2 methods have" in text  # bc has none of them
    alone, _ = score_tables(collect(adroit[:2]))  # a lone dataset is averaged where there is nothing else
    assert [block.name for block in alone.blocks] == ["1 Adroit task"]
    (unscored,) = score_tables(collect([record("log.npz", "bc", {1.0: 50.0}, scored=False)]))
    assert not unscored.blocks


def with_worst(cell: CellRecord, episode: float, evaluation: float) -> CellRecord:
    """The cell with returns of 1000, but for one episode of the last evaluation, and the evaluation before it."""
    curves = [
        replace(curve, returns=[*[[1000.0] * 10 for _ in curve.steps[2:]], [evaluation] * 10, [episode, *[1000.0] * 9]])
        for curve in cell.curves
        if curve.phase == "improve"
    ]
    return replace(cell, curves=curves)


def test_stability_is_averaged_over_tasks_if_all_have_a_number() -> None:
    hopper, walker = record("hopper-medium-made", "bc", {1.0: 50.0}), record("walker2d-medium-made", "bc", {1.0: 50.0})
    cells = [with_worst(hopper, 0.0, 500.0), with_worst(walker, 450.0, 1000.0)]
    (table,) = score_tables(collect(cells))
    (block,) = table.blocks
    # worst episodes: 0 of a mean of 900, 450 of 945; worst evaluations: 500 of a mean of 940, 945 of 994.5
    episode, evaluation = -(100.0 + 495.0 / 9.45) / 2, -(440.0 / 9.4 + 49.5 / 9.945) / 2
    assert table.stability_means(block)["bc"] == pytest.approx([episode, evaluation])
    assert "| mean of 2 MuJoCo tasks | -76 / -26 |" in results_markdown(cells)
    nothing = [replace(curve, returns=[[0.0] * 10 for _ in curve.steps]) for curve in cells[1].curves]
    (table,) = score_tables(collect([cells[0], replace(cells[1], curves=nothing)]))
    assert table.stability_means(block)["bc"] == (None, None)


def without_grid(cell: CellRecord) -> CellRecord:
    """The cell with its first setting alone, as its preset's."""
    first = cell.runs[0].setting
    return replace(
        cell,
        curves=[replace(curve, setting={}) for curve in cell.curves if curve.setting == first],
        final=[replace(row, setting={}) for row in cell.final if row.setting == first],
        grid=[],
        runs=[replace(run, setting={}) for run in cell.runs if run.setting == first],
        settings={},
    )


def test_one_value_of_what_another_grid_varies_is_a_setting() -> None:
    """On hopper alpha has two values, on walker2d one, without a grid: one method, and alpha 2 stands for it."""
    hopper = record("hopper-medium-made", "sbac", {0.5: 70.0, 2.0: 80.0}, key="1" * 12)
    walker = without_grid(record("walker2d-medium-made", "sbac", {2.0: 60.0}, key="2" * 12))
    walker = replace(walker, config={**walker.config, "alpha": 2.0}, settings={"alpha": 2.0})
    assert not walker.grid
    one, best = score_tables(collect([hopper, walker]))
    assert one.methods == best.methods == ["sbac"]
    assert one.settings("sbac") == {"alpha 2": ["walker2d-medium-made", "hopper-medium-made"]}
    developed = [record("hopper-medium-made", "sbac", {0.5: 60.0, 2.0: 50.0}, key="3" * 12)]
    alone, *_ = score_tables(collect([walker], developed))
    assert alone.methods == ["sbac"] and alone.settings("sbac") == {"alpha 2": ["walker2d-medium-made"]}
    assert not alone.fixed_note


def test_different_trainings_are_never_pooled() -> None:
    """Other data of the same name, another environment, another configuration: each is a series of its own."""
    first = record("log.npz", "bc", {1.0: 50.0}, scored=False)
    other_data = replace(first, data=replace(first.data, hash="e" * 64, identity="e" * 64))
    assert {s.data for s in collect([first, other_data])} == {"log.npz (dddddddd)", "log.npz (eeeeeeee)"}
    elsewhere = record("log.npz", "bc", {1.0: 10.0}, scored=False, environment="Hopper-v5")
    assert {s.data for s in collect([first, elsewhere])} == {"log.npz in Pendulum-v1", "log.npz in Hopper-v5"}
    smaller = record("log.npz", "bc", {1.0: 10.0}, scored=False)
    smaller = replace(smaller, config={**smaller.config, "hidden": [16]})
    assert {s.label for s in collect([first, smaller])} == {"bc alpha=1 hidden=[256, 256]", "bc alpha=1 hidden=[16]"}
    older = record("log.npz", "bc", {1.0: 10.0}, scored=False)
    config = {k: v for k, v in older.config.items() if k != "hidden"}  # an option that came later
    older = replace(older, config=config)
    assert [s.label for s in collect([first, older])] == ["bc alpha=1"]


def test_a_setting_that_diverged_is_not_chosen() -> None:
    cell = record_json("log.npz", "bc", {1e30: 60.0, 0.001: 50.0}, scored=False)
    for entry in (*cell["curves"], *cell["final"]):
        if entry["setting"].get("alpha") == 1e30:
            entry["returns"] = json.loads(json.dumps(entry["returns"]), parse_float=lambda _: None)
    _, best = score_tables(collect([parsed(cell)]))
    assert best.chosen["log.npz", "bc"].setting == {"alpha": 0.001}


def test_seeds_that_diverged_are_named_and_count_as_random() -> None:
    whole = record("hopper-medium-made", "bc", {1.0: 50.0})
    assert not any(table.diverged_note for table in score_tables(collect([whole])))
    final = [*whole.final[:2], replace(whole.final[2], returns=[None] * 100)]
    broken = replace(whole, final=final)
    one = score_tables(collect([broken]))[0]
    assert one.chosen["hopper-medium-made", "bc"].scores[2] == 0
    said = (
        "Diverged: bc on hopper-medium-made (1 of 3 seeds). "
        "Where the task has reference returns they count as random policies."
    )
    assert one.diverged_note == said
    assert said in results_markdown([broken])
    assert "Diverged" not in results_markdown([whole])
    unfinished = record_json("hopper-medium-made", "bc", {1.0: 50.0}, final=False)
    unfinished["curves"][-1]["returns"][-1][0] = None
    assert [s.diverged for s in collect([parsed(unfinished)])] == [1]


def test_what_the_paper_printed() -> None:
    scores = {s.method: paper_score(s) for s in collect(cells()) if s.data == "hopper-medium-made"}
    assert scores == {"sbac": (99.6, 1.7), "cql": (58.0, None)}
    elsewhere = replace(record(), data=replace(record().data, task=None))  # evaluated as the task, on other data
    assert paper_score(collect([elsewhere])[0]) is None


def test_online_methods_stand_beside_for_stability_only() -> None:
    online = record(algorithm="td3", key="9" * 12, means={1.0: 95.0})
    online = replace(online, data=replace(online.data, name="Hopper-v4", kind="online", task=None))
    one, _ = score_tables(collect([*cells(), online]))
    assert "td3" not in one.methods and one.datasets == score_tables(collect(cells()))[0].datasets
    assert one.stability_methods == ["sbac", "cql", "td3 (online)"]
    assert "td3 (online)" in one.stability_row("hopper-medium-made")
    assert "td3 (online)" not in one.stability_row("walker2d-medium-made")
    (block,) = one.blocks
    assert list(one.stability_means(block)) == ["sbac", "cql"]  # it did not learn in Walker2d
    walker = record("walker2d-medium-made", "td3", key="8" * 12, means={1.0: 95.0})
    walker = replace(walker, data=replace(walker.data, name="Walker2d-v4", kind="online", task=None))
    both, _ = score_tables(collect([*cells(), online, walker]))
    expected: Any = [both.stability_row(data)["td3 (online)"].stability()[0] for data in block.datasets]
    assert both.stability_means(block)["td3 (online)"][0] == pytest.approx(np.mean(expected))
    assert bench_commands([online])[0].startswith("sbac bench --tasks hopper-medium-made --algorithms td3@paper")


def test_orders() -> None:
    assert sorted(["zzz", "td3-bc", "sbac@paper", "sbac@tuned", "bc", "sbac"], key=method_order) == [
        "sbac",
        "sbac@tuned",
        "sbac@paper",
        "bc",
        "td3-bc",
        "zzz",
    ]
    assert sorted(["mine.npz", "pen-human-v1", "hopper-medium-v2"], key=data_order)[-1] == "mine.npz"
    assert short_name("halfcheetah-medium-replay-v2") == "HC-mr" and short_name("door-human-v1") == "door-human-v1"
    assert short_name("D4RL/door/human-v2") == "door-human-v2" and short_name("mujoco/hopper/medium-v0") == "Hop-m"
    assert short_name("walker2d-medium-expert-td3-made") == "W-me-td3"
    assert short_name("a/b/mine.npz") == "a/b/mine.npz"


def test_commands_make_the_cells_again() -> None:
    first, second = bench_commands(cells()[:3])
    assert first == (
        "sbac bench --tasks hopper-medium-made walker2d-medium-made --algorithms sbac@paper --seeds 0 1 2 "
        "--steps 1000 --grid sbac.alpha=0.5,2.0"
    )
    assert "--algorithms cql@paper" in second
    run = MeasuredRun(**{field.name: getattr(record(), field.name) for field in fields(MeasuredRun)})
    assert bench_commands([run]) == []
    assert bench_commands([replace(cells()[0], preset="of-old")]) == []
