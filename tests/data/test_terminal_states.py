"""The s' of terminal rows beside a log: kept by formats that can, part of neither rows nor hash."""

import numpy as np
import pytest

import sbac
from sbac.data import Dataset, load
from sbac.data.converting import convert
from sbac.errors import UserError
from sbac.making.making import TierData
from tests.data.test_converting import NAMES

ENDS = {"terminals": [0, 0, 1, 0, 0, 1, 0, 1], "timeouts": [0, 0, 0, 0, 0, 1, 0, 0]}
"""Eight rows; the second end is at a time limit as well, so it is none."""
BESIDE = np.array([[30.0, 31.0], [60.0, 61.0], [80.0, 81.0]], np.float32)


def columns(**changes):
    states = np.arange(16, dtype=np.float32).reshape(8, 2)
    return {"observations": states, "actions": np.full((8, 1), 0.5), "rewards": np.ones(8), **ENDS, **changes}


def test_they_are_carried_and_change_neither_rows_nor_hash() -> None:
    plain, data = Dataset(**columns()), Dataset(**columns(terminal_observations=BESIDE))
    assert plain.terminal_observations is None and data.hash == plain.hash
    np.testing.assert_array_equal(data.next_observations, plain.next_observations)
    np.testing.assert_array_equal(data.terminal_observations, BESIDE[[0, 2]])
    training, held_out = data.split(0.4)
    assert held_out is not None
    for part in (training, held_out):
        first = [int(row[0]) for row in part.observations[part.terminals]]
        expected = [{4: 30.0, 14: 80.0}[state] for state in first]
        assert part.terminal_observations is not None and part.terminal_observations[:, 0].tolist() == expected


@pytest.mark.parametrize("form", list(NAMES))
def test_formats_that_hold_them_give_them_back(form: str, tmp_path) -> None:
    data = Dataset(**columns(terminal_observations=BESIDE))
    convert(data, tmp_path / NAMES[form], form)
    again = load(tmp_path / NAMES[form])
    if form in ("npz", "npy", "hdf5"):
        assert again.hash == data.hash
        np.testing.assert_array_equal(again.terminal_observations, data.terminal_observations)
    else:
        assert again.terminal_observations is None


def test_a_stored_next_state_tells_them_unless_it_is_a_filler() -> None:
    rng = np.random.default_rng(0)
    states, after = rng.normal(size=(9, 2)), rng.normal(size=(9, 2))
    ends = np.arange(9) % 3 == 2
    given = {"observations": states, "actions": np.zeros((9, 1)), "rewards": np.ones(9), "terminals": ends}
    told = Dataset(**given, next_observations=after, timeouts=np.zeros(9)).terminal_observations
    assert told is not None
    np.testing.assert_allclose(told, after[ends].astype(np.float32))
    following = np.roll(states, -1, axis=0)
    for filler in (states, following, np.zeros_like(states)):
        filled = np.where(ends[:, None], filler, after)
        assert Dataset(**given, next_observations=filled, timeouts=np.zeros(9)).terminal_observations is None


@pytest.mark.parametrize("wrong", [BESIDE[:2], BESIDE[:, :1], np.full_like(BESIDE, np.nan), np.array(["a"])])
def test_what_they_cannot_be_is_refused_in_a_line(wrong) -> None:
    with pytest.raises(UserError, match=r"terminal_observations: expected finite numbers of shape \(3, 2\)"):
        load(columns(terminal_observations=wrong))


def test_logs_one_after_the_other_and_rows_that_are_left_out(tmp_path) -> None:
    data = Dataset(**columns(terminal_observations=BESIDE))
    for name in ("a.npz", "b.npz"):
        data.save(tmp_path / name)
    both = load([str(tmp_path / "a.npz"), str(tmp_path / "b.npz")])
    np.testing.assert_array_equal(both.terminal_observations, np.tile(BESIDE[[0, 2]], (2, 1)))
    rewards = np.ones(8)
    rewards[4] = np.nan
    cut = load(columns(terminal_observations=BESIDE, rewards=rewards), missing="cut")
    assert len(cut) == 7 and cut.terminal_observations is None


def test_made_logs_and_the_demo_have_them() -> None:
    data = sbac.load("hopper-demo")
    after = data.terminal_observations
    assert after is not None and len(after) == data.terminals.sum() == 313
    fallen = (after[:, 0] <= 0.7) | (np.abs(after[:, 1]) >= 0.2)  # Hopper's own rule: height and angle
    assert fallen.all()
    before = data.observations[data.terminals]
    assert not ((before[:, 0] <= 0.7) | (np.abs(before[:, 1]) >= 0.2)).any()


def test_a_tier_that_is_cut_to_its_size_keeps_those_of_its_rows() -> None:
    def shard(ends: list[int], value: float) -> dict[str, np.ndarray]:
        after = np.full((len(ends), 1), value) + np.array(ends)[:, None]
        return {"terminals": np.isin(np.arange(10), ends), "terminal_observations": after}

    rows = TierData("hopper", "random", 15, 0).join([shard([3, 6], 100.0), shard([4, 9], 200.0)])
    assert rows["terminals"].sum() == 3 and len(rows["terminals"]) == 15
    assert rows["terminal_observations"][:, 0].tolist() == [103.0, 106.0, 204.0]
