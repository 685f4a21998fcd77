"""The log as the estimators read it: returns, units, resampling."""

from typing import Any

import numpy as np
import pytest

import sbac
from sbac.errors import UserError
from sbac.trust.log import discounted_sums, read_log, resample, summed


def two_episodes(**changes):
    """Three rows that end, then two that a time limit cuts."""
    columns = {
        "observations": np.arange(10.0).reshape(5, 2),
        "actions": np.linspace(-1, 1, 5)[:, None],
        "rewards": np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
        "terminals": np.array([0, 0, 1, 0, 0], bool),
        "timeouts": np.array([0, 0, 0, 0, 1], bool),
    }
    return sbac.Dataset(**(columns | changes))


def test_discounted_sums_run_to_the_end_of_each_episode() -> None:
    sums = discounted_sums(data := two_episodes(), data.rewards, 0.5)
    np.testing.assert_allclose(sums, [1 + 1 + 0.75, 2 + 1.5, 3, 4 + 2.5, 5])
    behind = discounted_sums(data, data.rewards, 0.5, np.array([0.0, 0.0, 0.0, 0.0, 8.0]))
    np.testing.assert_allclose(behind[3:], [4 + 0.5 * 9, 5 + 4])


def test_discounted_sums_of_episodes_of_many_lengths() -> None:
    rng = np.random.default_rng(0)
    ends = rng.random(500) < 0.1
    data = sbac.Dataset(rng.normal(size=(500, 1)), rng.uniform(-1, 1, (500, 1)), rng.normal(size=500), ends)
    want = np.zeros(500)
    for first, stop in data.episodes:
        for row in reversed(range(first, stop)):
            want[row] = data.rewards[row] + (0.9 * want[row + 1] if row + 1 < stop else 0.0)
    np.testing.assert_allclose(discounted_sums(data, data.rewards, 0.9), want, rtol=1e-6)


def test_rows_that_a_time_limit_ended_are_left_out() -> None:
    log = read_log(two_episodes(), 0.5)
    assert log.rows.tolist() == [0, 1, 2, 3]
    assert log.episode.tolist() == [0, 0, 0, 1]
    assert log.transitions.going_on.tolist() == [1, 1, 0, 1]


def test_the_bellman_equation_holds_in_the_networks_units() -> None:
    """q = (Q - centre) / spread of the log's own returns solves q = r' + gamma m q' where Q = r + gamma m Q'."""
    data = two_episodes(terminals=np.array([0, 0, 1, 0, 1], bool), timeouts=np.zeros(5, bool))
    rewarded, going_on = summed(data, data.rewards, 0.9, np.arange(5)), 1.0 - data.terminals
    q = (discounted_sums(data, data.rewards, 0.9) - rewarded.centre) / rewarded.spread
    np.testing.assert_allclose(q, rewarded.rewards + 0.9 * going_on * np.append(q[1:], 0.0), atol=1e-5)
    np.testing.assert_allclose(rewarded.returns, q, atol=1e-5)


def test_a_member_learns_from_whole_episodes_of_other_folds() -> None:
    rng = np.random.default_rng(0)
    ends = np.zeros(400, bool)
    ends[9::10] = True
    data = sbac.Dataset(rng.normal(size=(400, 1)), rng.uniform(-1, 1, (400, 1)), rng.normal(size=400), ends)
    log = read_log(data, 0.9)
    sample = resample(log, 3, 2, np.random.default_rng(1))
    assert sample.rows.shape[0] == 6
    for number, (rows, count, reading) in enumerate(zip(sample.rows, sample.counts, sample.reading, strict=True)):
        weights = sample.weights[number // 2]
        drawn = np.bincount(log.episode[np.asarray(rows[:count])], minlength=40) / 10
        read = np.asarray(reading) > 0
        assert not (drawn[read]).any()  # never at an episode that it learned from
        np.testing.assert_array_equal(drawn[drawn > 0], weights[drawn > 0])  # whole episodes, by their weight
        assert reading.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(np.asarray(reading)[read], weights[read] / weights[read].sum(), rtol=1e-6)
    assert sample.weights.mean() == pytest.approx(1.0, abs=0.2)


def test_bad_input_is_named() -> None:
    with pytest.raises(UserError, match="discount: expected a number inside"):
        read_log(two_episodes(), 1.0)
    cut = two_episodes(terminals=np.zeros(5, bool), timeouts=np.ones(5, bool))
    with pytest.raises(UserError, match="no row has a known next action"):
        read_log(cut, 0.9)
    log = read_log(two_episodes(), 0.9)
    with pytest.raises(UserError, match="expected \\(5, 1\\)"):
        log.act(lambda x: np.zeros((len(x), 2)), log.data.observations)
    with pytest.raises(UserError, match="diverged"):
        log.act(lambda x: np.full((len(x), 1), np.nan), log.data.observations)


def long_log(rows: int, episodes: int = 1, **changes) -> sbac.Dataset:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"observations": rng.normal(size=(rows, 2)), "actions": rng.uniform(-1, 1, (rows, 1))}
    columns |= {"rewards": np.arange(rows) % 7 - 2.0, "terminals": np.zeros(rows, bool)}
    columns["timeouts"] = np.arange(1, rows + 1) % (rows // episodes) == 0
    return sbac.Dataset(**(columns | changes), extras={"x": np.arange(rows)})


def test_a_log_of_few_episodes_is_cut_into_blocks() -> None:
    data = long_log(4_000)
    log = read_log(data, 0.9, ["x"])
    assert (log.block, log.episodes, log.longest, log.hash) == (100, 40, 100, data.hash)
    assert len(log.rows) == 4_000 - 40  # what follows a cut is not known
    np.testing.assert_array_equal(log.watched[:, 0], log.rows)
    assert resample(log, 2, 2, np.random.default_rng(0)).folds == 2
    ended = long_log(4_000, 10, terminals=np.arange(1, 4_001) % 400 == 0, timeouts=np.zeros(4_000, bool))
    log = read_log(ended, 0.9)
    assert (log.block, log.episodes, int(log.data.terminals.sum())) == (100, 40, 10)


def test_a_log_of_enough_episodes_or_too_few_rows_is_not_cut() -> None:
    assert read_log(long_log(4_000, 20), 0.9).block == 0
    few = read_log(long_log(19, 1), 0.9)
    assert few.block == 0 and few.episodes == 1
    assert read_log(long_log(200_000), 0.9).longest == 1_000  # no block is longer


def test_what_a_whole_episode_can_earn() -> None:
    assert read_log(long_log(4_000, 40), 0.9).episode_bounds == (-200.0, 400.0)
    uneven = two_episodes()  # of three steps and two; rewards of 1 to 5
    assert read_log(uneven, 0.9).episode_bounds == (0.0, 15.0)
