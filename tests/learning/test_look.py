"""What a log must show before anything is learned from it."""

import numpy as np
import pytest

from sbac.errors import UserError
from sbac.learning.look import look
from tests.learning.small import point_log


def test_a_usual_log() -> None:
    (line,) = look(point_log())
    assert line.startswith("point: 1,200 rows, 40 episodes of 30 steps on average, 2 observations, 1 action,")


def ended(every: int = 10) -> np.ndarray:
    return np.arange(1, 1201) % every == 0


@pytest.mark.parametrize(
    ("reward", "ends", "message"),
    [
        (1.0, np.zeros(1200, bool), "the reward is 1 in every row and no episode ends by itself"),
        (0.0, ended(), "the reward is 0 in every row"),
    ],
)
def test_one_reward_in_every_row_is_refused(reward: float, ends: np.ndarray, message: str) -> None:
    with pytest.raises(UserError, match=message):
        look(point_log(rewards=np.full(1200, reward), terminals=ends))


@pytest.mark.parametrize(("reward", "aim"), [(1.0, "to last longer"), (-1.0, "to end sooner")])
def test_with_ends_it_has_an_aim(reward: float, aim: str) -> None:
    lines = look(point_log(rewards=np.full(1200, reward), terminals=ended()))
    assert lines[1] == f"The reward is {reward:g} in every row: the aim is {aim}"


def test_nothing_to_compare() -> None:
    with pytest.raises(UserError, match="every row has the same action"):
        look(point_log(actions=np.full((1200, 1), 0.5)))
    with pytest.raises(UserError, match="no episode has two rows.* a column of ones with --columns terminals=NAME"):
        look(point_log(timeouts=np.ones(1200, bool)))
