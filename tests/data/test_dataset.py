"""The rules of transitions, and what is refused on entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbac.data import Dataset
from sbac.errors import UserError
from tests.data.logs import make_log


def test_rules_of_transitions_without_stored_next_states(plain):
    data = Dataset(**plain)
    assert len(data) == 50
    assert data.episodes.tolist() == [[0, 10], [10, 11], [11, 18], [18, 38], [38, 50]]
    assert data.observations.dtype == data.next_observations.dtype == data.actions.dtype == np.float32
    assert data.rewards.shape == data.terminals.shape == data.timeouts.shape == (50,)
    assert np.flatnonzero(data.terminals).tolist() == [9, 17]
    assert np.flatnonzero(data.timeouts).tolist() == [10, 37, 49]  # 49: the unfinished last episode
    assert np.flatnonzero(~data.has_next).tolist() == [10, 37, 49]
    assert np.flatnonzero(~data.has_next_action).tolist() == [10, 37, 49]
    inside = ~(data.terminals | data.timeouts)
    np.testing.assert_array_equal(data.next_observations[inside], data.observations[1:][inside[:-1]])
    np.testing.assert_array_equal(data.next_observations[~inside], data.observations[~inside])


def test_a_row_flagged_as_both_is_a_time_limit(plain):
    for row in (9, -1):
        plain["timeouts"][row] = plain["terminals"][row] = True
    data = Dataset(**plain)
    for row in (9, -1):
        assert data.timeouts[row] and not data.terminals[row] and not data.has_next[row]


def test_without_timeouts_episodes_end_where_the_stored_next_state_jumps(log):
    flags = log.pop("timeouts")
    data = Dataset(**log)
    assert np.flatnonzero(data.timeouts).tolist() == [*np.flatnonzero(flags).tolist(), 49]
    shuffled = np.random.default_rng(1).permutation(50)
    data = Dataset(**{name: column[shuffled] for name, column in log.items()})
    assert data.has_next.all()
    assert data.has_next_action.sum() <= data.terminals.sum() + 2  # no a' is taken from an unrelated row


def test_given_columns_are_neither_changed_nor_trusted_to_stay(plain):
    before = {name: column.copy() for name, column in plain.items()}
    Dataset(**plain)
    for name, column in plain.items():
        np.testing.assert_array_equal(column, before[name])


def test_returns_initial_observations_and_score(plain):
    data = Dataset(**plain, task="hopper-medium-v2")
    expected = [plain["rewards"][start:stop].astype(np.float64).sum() for start, stop in data.episodes]
    np.testing.assert_allclose(data.returns, expected)
    assert data.initial_observations[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert data.initial_observations[:, 1].tolist() == [0] * 5
    assert data.score == pytest.approx(100 * (np.mean(expected) + 20.272305) / (3234.3 + 20.272305))
    assert Dataset(**plain).score is None


def test_actions_a_hair_outside_are_clipped(plain):
    actions = plain["actions"].astype(np.float64)
    actions[3, 1] = 1.0 + 5e-7
    data = Dataset(**plain | {"actions": actions})
    assert data.actions.max() <= 1.0
    actions[3, 1] = 1.0 + 5e-6
    with pytest.raises(UserError, match="actions: .* row 3"):
        Dataset(**plain | {"actions": actions})


def test_bounds_may_differ_per_action(plain):
    plain["actions"] = plain["actions"] * [2.0, 30.0]
    data = Dataset(**plain, action_low=[-2, -30], action_high=[2, 30])
    np.testing.assert_array_equal(data.action_high, np.array([2, 30], np.float32))
    with pytest.raises(UserError, match=r"actions: feature 1: \d+ out of bounds, such as "):
        Dataset(**plain, action_low=-2, action_high=2)


def test_split_is_by_episodes(plain):
    data = Dataset(**plain, name="log", task="hopper-medium-v2")
    training, validation = data.split(0.4, seed=3)
    assert validation is not None
    assert len(validation.episodes) == 2
    assert len(training) + len(validation) == len(data)
    assert set(training.observations[:, 0]).isdisjoint(validation.observations[:, 0])
    assert sorted([*training.returns, *validation.returns]) == pytest.approx(sorted(data.returns))
    again, _ = data.split(0.4, seed=3)
    assert again.hash == training.hash
    assert training.name == "log" and training.task == "hopper-medium-v2"
    assert len({data.split(0.4, seed)[0].hash for seed in range(10)}) > 3
    assert data.split(0.001)[1] is not None


def test_a_single_episode_is_not_split():
    data = Dataset(**make_log([30], ["terminal"]))
    assert data.split(0.2) == (data, None)
    with pytest.raises(UserError, match="validation"):
        data.split(1.0)


def test_hash_follows_the_content(plain, log):
    data = Dataset(**plain)
    assert data.hash == Dataset(**plain, name="other", task="hopper-medium-v2").hash
    assert data.hash == Dataset(**{k: v.astype(np.float64) for k, v in plain.items()}).hash
    changed = plain["rewards"].copy()
    changed[7] += 1e-3
    hashes = {
        data.hash,
        Dataset(**plain | {"rewards": changed}).hash,
        Dataset(**log).hash,
        Dataset(**plain, action_high=2.0).hash,
        Dataset(**plain | {"timeouts": np.zeros(50, bool)}).hash,
    }
    assert len(hashes) == 5


BAD = {
    "lengths": ({"rewards": np.zeros(49)}, "rewards: 49 rows, but observations has 50"),
    "zero rows": ({n: np.zeros((0, 2)) for n in ("observations", "actions")}, "zero rows"),
    "nan": (
        {"rewards": np.where(np.arange(50) == 17, np.nan, 0.0)},
        "rewards: 1 missing or not finite, the first in row 17",
    ),
    "infinite": ({"observations": np.full((50, 4), 1e39)}, "observations: feature 0: 50 missing or not finite"),
    "outside": (
        {"actions": np.full((50, 2), 1.5)},
        r"actions: feature 0: 50 out of bounds, such as 1.5, the first in rows 0, .*\[-1, 1\]",
    ),
    "discrete": ({"actions": np.zeros((50, 2), np.int64)}, "discrete actions"),
    "flat actions": ({"actions": np.zeros(50)}, r"a single continuous action is a column of shape \(rows, 1\)"),
    "images": ({"observations": np.zeros((50, 8, 8, 3), np.uint8)}, "images"),
    "flat observations": ({"observations": np.zeros(50)}, r"expected shape \(rows, features\)"),
    "objects": ({"rewards": np.array([None] * 50)}, "rewards: expected an array of numbers, got Python objects"),
    "flags": ({"terminals": np.arange(50) / 7}, "terminals: 48 not true or false, such as 0.14"),
    "wide rewards": ({"rewards": np.zeros((50, 2))}, "rewards: expected one number per row"),
    "next features": ({"next_observations": np.zeros((50, 3))}, "next_observations: 3 features"),
    "bounds": ({"action_low": 1.0, "action_high": -1.0}, "action_low"),
    "many bounds": ({"action_high": [1.0, 1.0, 1.0]}, "action_high"),
    "ragged": ({"observations": [[1.0, 2.0], [1.0]]}, "observations: .* rows of different lengths"),
    "task": ({"task": "hoper-medium-v2"}, "did you mean 'hopper-medium-v2'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_columns_are_refused_in_one_line(case, plain):
    change, message = BAD[case]
    if case == "zero rows":
        change = change | {name: np.zeros(0) for name in ("rewards", "terminals", "timeouts")}
    with pytest.raises(UserError, match=message) as caught:
        Dataset(**plain | change)
    assert "\n" not in str(caught.value)


endings = st.sampled_from(["terminal", "timeout"])
episodes = st.lists(st.tuples(st.integers(1, 6), endings), min_size=1, max_size=12)


@settings(max_examples=200, deadline=None)
@given(episodes=episodes, unfinished=st.booleans(), stored=st.booleans(), flagged=st.booleans(), seed=st.integers(0, 9))
def test_no_transition_crosses_an_episode(episodes, unfinished, stored, flagged, seed):
    lengths, ends = [length for length, _ in episodes], [end for _, end in episodes]
    if unfinished:
        ends[-1] = "nothing"
    log = make_log(lengths, ends, seed)
    if not flagged and stored:
        del log["timeouts"]
    if not stored:
        del log["next_observations"]
    data = Dataset(**log)

    episode, step = log["observations"][:, 0], log["observations"][:, 1]
    last = np.append(episode[1:] != episode[:-1], True)
    np.testing.assert_array_equal(data.terminals | data.timeouts, last)
    assert not (data.terminals & data.timeouts).any()
    np.testing.assert_array_equal(data.terminals, log["terminals"])
    # s' is of the row's own episode always, and the step after it where it counts
    np.testing.assert_array_equal(data.next_observations[:, 0], episode)
    known = data.has_next & ~data.terminals
    np.testing.assert_array_equal(data.next_observations[known, 1], step[known] + 1)
    np.testing.assert_array_equal(data.has_next, ~data.timeouts if not stored else np.ones(len(data), bool))
    # a' is the next row's, so the next row must be of the same episode
    has_action = np.flatnonzero(data.has_next_action & ~data.terminals)
    assert (has_action + 1 < len(data)).all()
    np.testing.assert_array_equal(episode[has_action + 1], episode[has_action])
    np.testing.assert_array_equal(data.has_next_action, ~last | data.terminals)
    # and the same holds of every split
    for part in data.split(0.3, seed):
        if part is not None:
            np.testing.assert_array_equal(part.next_observations[:, 0], part.observations[:, 0])
            starts, stops = part.episodes.T
            np.testing.assert_array_equal(part.observations[starts, 1], 0)
            assert (stops - starts).sum() == len(part)
