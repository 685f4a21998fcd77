"""The table of plans, which row is taken, and what is dropped: all without training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sbac.algorithms import find
from sbac.errors import UserError
from sbac.learning.plan import (
    DEFAULT_MINUTES,
    FEWEST_ROWS,
    LONG,
    PLAN_FORMAT,
    START,
    TABLE,
    LearnPlan,
    PlanRow,
    checked_minutes,
    least_minutes,
    pick,
    plan_text,
    read_plan,
    rows_for,
    to_drop,
    write_plan,
)
from sbac.training.request import Grid
from tests.learning.small import small_row


def plan_with(row: PlanRow, minutes: float = 1.0, **changes: Any) -> LearnPlan:
    return LearnPlan(PLAN_FORMAT, "log", "hash", minutes, 0, row, 1.0, **changes)


def test_the_table_is_small_and_the_judge_takes_little_more_than_training() -> None:
    assert len(TABLE) <= 10
    assert len({row.name for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert row.judge_seconds <= 0.6 * row.seconds(), row.name
    for rows in (90_000, LONG):
        for device, minutes in DEFAULT_MINUTES.items():
            sizes = [row.seconds() for row in rows_for(rows, device)]
            assert sizes == sorted(sizes)
            assert minutes <= 15
            assert pick(rows, device, minutes, 1.0).device == device


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_candidate_can_be_trained(row: PlanRow) -> None:
    """Its method has the settings and phases, and it takes over a phase only from a candidate before it."""
    before: list[str] = []
    for each in row.candidates:
        method = find(each.algorithm)
        members = Grid([0, 1], row.preset, row.steps, row.options, each.settings).members(method)
        assert len(members) == 2 * len(each.settings) and len(row.steps) == len(method.phases)
        assert each.starts_from is None or each.starts_from in before
        before.append(each.name)
    assert len(set(before)) == len(before)


def test_the_largest_row_that_fits_is_taken() -> None:
    names = [pick(90_000, "cpu", minutes, 1.0).name for minutes in (5, 15, 120)]
    assert names == [f"two cores, {minutes} minutes" for minutes in (5, 15, 30)]
    assert pick(90_000, "cpu", 15, 2.0).name == "two cores, 5 minutes"  # half as fast
    assert pick(90_000, "cpu", 15, 0.5).name == "two cores, 30 minutes"  # twice as fast
    assert pick(90_000, "cpu", 5, 0.1).name == "two cores, 15 minutes"  # judging is not ten times as fast
    for minutes in (15, 30):
        assert pick(LONG - 1, "cpu", minutes, 1.0).name == f"two cores, {minutes} minutes"
        longer = pick(LONG, "cpu", minutes, 1.0)
        assert longer.name == f"two cores, {minutes} minutes, a long log" and longer.steps[0] > 20_000
    assert pick(LONG, "cpu", 5, 1.0).name == "two cores, 5 minutes"
    assert pick(90_000, "gpu", 20, 1.0).name == "GPU, 20 minutes"
    assert pick(FEWEST_ROWS, "cpu", 5, 1.0).name == "two cores, 5 minutes"
    assert pick(FEWEST_ROWS - 1, "cpu", 120, 1.0).name == "a glance"


def test_too_few_minutes_are_refused_with_the_least() -> None:
    for slowness, least in ((1.0, 5), (3.0, 13), (0.5, 3)):
        with pytest.raises(UserError, match=f"expected at least {least}$"):
            pick(90_000, "cpu", least - 1, slowness)
        assert pick(90_000, "cpu", least, slowness).name == "two cores, 5 minutes"
        assert least_minutes(90_000, "cpu", slowness) == least
    for wrong in (0, -1, float("nan"), "soon"):
        with pytest.raises(UserError, match="minutes"):
            checked_minutes(wrong)


def test_the_last_candidates_are_dropped_first_and_only_as_many_as_must_be() -> None:
    row = next(row for row in TABLE if row.name == "two cores, 20 minutes")
    first, *others = row.candidates
    last = others[-1]

    def dropped(slowness: float) -> list[str]:
        took = slowness * first.seconds
        return to_drop(plan_with(row, 20.0, times={"start": 15.0, "train": took}), took)

    assert dropped(1.0) == []
    trained, without = row.seconds() - START, row.seconds(candidates=3) - START
    fewer = without - row.judging(1.0) + row.judging(1.0, 3)
    for seconds, expected in ((trained, []), (fewer, [last.name])):  # what fits by a hair, and does not
        most = (1_200 - 15) / seconds
        assert most > 1
        assert dropped(0.999 * most) == expected != dropped(1.001 * most)
    assert row.judging(1.0, 1) < row.judging(1.0, 3) < row.judging(1.0) == row.judge_seconds
    assert dropped(10.0) == [each.name for each in reversed(others)]  # the first is never dropped


def test_seeds_of_another_number_are_others() -> None:
    plans = [replace(plan_with(small_row()), seed=seed) for seed in range(4)]
    seeds = [seed for plan in plans for seed in plan.seeds]
    assert len(set(seeds)) == len(seeds)
    assert plans[0].seeds == [0, 1]


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    for row in (*TABLE, small_row()):
        plan = plan_with(row, dropped=["mu-1"], times={"start": 1.5}, watch=["x < 1"])
        write_plan(tmp_path, plan)
        again = read_plan(tmp_path)
        assert again is not None and again == replace(plan, row=again.row)
        assert again.row == replace(row, effort=again.row.effort) and vars(again.row.effort) == vars(row.effort)
    assert [each.name for each in plan_with(small_row(), dropped=["mu-1"]).kept] == ["pi-1"]
    (tmp_path / "plan.json").write_text('{"format": 1}')
    with pytest.raises(UserError, match="log is missing"):
        read_plan(tmp_path)


def test_the_plan_in_words() -> None:
    text = plan_text(plan_with(next(row for row in TABLE if row.name == "two cores, 20 minutes"), 20.0))
    assert "about 18 of 20 minutes" in text and "4 settings with 5 seeds each" in text
    assert "pi-0.25: sbac critic=pi alpha=0.25" in text
