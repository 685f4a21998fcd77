"""The table on the device holds every column once; its batches are the transitions of the dataset."""

import jax
import numpy as np
import pytest
from tests.data.logs import make_log

from sbac.algorithms import find
from sbac.algorithms.base import Needs
from sbac.data import Dataset
from sbac.training.grid import members
from sbac.training.table import Scaling, build_table, draw

CONFIG = members(find("bc"), "quick", 1, {"standardise_states": True})[0].config


def dataset(stored: bool) -> Dataset:
    log = make_log([10, 1, 7, 20, 12], ["terminal", "timeout", "terminal", "timeout", "nothing"])
    return Dataset(**{name: column for name, column in log.items() if stored or name != "next_observations"})


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("held_out", [0.0, 0.4])
def test_a_batch_is_made_of_the_transitions_of_the_dataset(stored: bool, held_out: float) -> None:
    data = dataset(stored)
    rows = data.held_out_rows(held_out)
    chosen = np.ones(50, bool) if rows is None else ~rows
    scaling = Scaling.of(data, CONFIG, None if rows is None else chosen)
    table = build_table(data, scaling, None if rows is None else chosen)
    assert table.packed.shape == (chosen.sum(), 4 + 2 + 3 + (4 if stored else 0))
    row_of = {tuple(state): row for row, state in enumerate(scaling.states(data.observations))}
    kinds: list[Needs] = ["row", "next_state", "next_action"]
    for needs in kinds:
        batch = draw(table, table.place(0), jax.random.key(0), 2000, needs, 2)
        drawn = np.array([row_of[tuple(state)] for state in np.asarray(batch.observations)])
        known = chosen & (data.has_next | data.terminals | (needs == "row"))
        known &= data.has_next_action | (needs != "next_action")
        assert set(drawn) == set(np.flatnonzero(known))
        np.testing.assert_array_equal(batch.actions, scaling.actions(data.actions)[drawn])
        np.testing.assert_array_equal(batch.rewards, scaling.rewards(data.rewards)[drawn])
        np.testing.assert_array_equal(batch.terminals, data.terminals[drawn])
        np.testing.assert_array_equal(batch.next_observations, scaling.states(data.next_observations)[drawn])
        goes_on = ~(data.terminals | data.timeouts)[drawn]
        np.testing.assert_array_equal(batch.next_actions, scaling.actions(data.actions)[drawn + goes_on])
        firsts = {tuple(state) for state in np.asarray(batch.initial_observations)}
        starts = data.episodes[:, 0]
        assert firsts == {tuple(s) for s in scaling.states(data.observations[starts[chosen[starts]]])}


def test_the_scaling_of_some_rows_is_that_of_a_dataset_of_them() -> None:
    data = dataset(stored=False)
    rows = data.held_out_rows(0.4)
    assert rows is not None
    training, _ = data.split(0.4)
    for config in (
        CONFIG,
        *(members(find("iql"), "quick", 1, {"reward_scale": s})[0].config for s in ("unit", "none")),
    ):
        ours, theirs = Scaling.of(data, config, ~rows), Scaling.of(training, config)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
    mean, std = training.observations.mean(0, dtype=np.float64), training.observations.std(0, dtype=np.float64)
    np.testing.assert_allclose(Scaling.of(training, CONFIG).observation_mean, mean, rtol=1e-6)
    np.testing.assert_allclose(Scaling.of(training, CONFIG).observation_std, std + 1e-3, rtol=1e-6)
