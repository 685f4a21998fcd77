"""Which setting stands for a method: chosen on other episodes than those reported."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.report.synthetic import record

from sbac.lab.cells import CellRecord
from sbac.lab.naming import collect
from sbac.lab.representing import BEST, ONE, chosen_by, represent


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


def test_curves_count_steps_over_all_phases() -> None:
    series = collect([record(means={2.0: 60.0})])[0]
    steps = [step for step, _ in series.curve()]
    assert steps[0] == 1100 and steps[-1] == 2000
    assert series.curve()[-1][1] == pytest.approx([60.0] * 3, abs=1.0)
