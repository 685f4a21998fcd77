"""Episodes played in lanes are those of Gymnasium, to the last bit."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from sbac.errors import UserError
from sbac.evaluation.rollout import Evaluator, rollout


class Twitching:
    """A fixed random policy: strong enough to fall, weak enough to live a while."""

    def __init__(self, observations: int, actions: int) -> None:
        self.weights = np.random.default_rng(3).normal(0, 0.05, (observations, actions)).astype(np.float32)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        return np.tanh(np.asarray(observations, np.float32) @ self.weights)


@pytest.mark.filterwarnings("ignore:.*out of date.*")
@pytest.mark.parametrize(
    ("task", "env_id"), [("hopper-demo", "Hopper-v4"), ("walker2d-medium-v2", "Walker2d-v4"), (None, "HalfCheetah-v4")]
)
def test_lanes_give_the_returns_of_gymnasium(task: str | None, env_id: str) -> None:
    environments: list[Any] = [gymnasium.make(env_id) for _ in range(3)]
    spaces = environments[0].observation_space.shape, environments[0].action_space.shape
    assert spaces[0] is not None and spaces[1] is not None
    policy = Twitching(spaces[0][0], spaces[1][0])
    returns, lengths, discounted = rollout(environments, policy, [7, 8, 9], discount=0.9)

    found = Evaluator(task or env_id)(policy, episodes=3, seed=7, discount=0.9)

    assert found.returns == returns.tolist()
    assert found.lengths == lengths.tolist()
    assert found.discounted is not None
    np.testing.assert_allclose(found.discounted, discounted, rtol=1e-9)
    assert env_id != "Walker2d-v4" or len(set(found.lengths)) > 1  # they end at different times


def test_an_evaluator_starts_anew_each_time() -> None:
    policy = Twitching(11, 3)
    play = Evaluator("Hopper-v4")
    first = play(policy, episodes=2, seed=0)
    play(policy, episodes=3, seed=5)
    assert play(policy, episodes=2, seed=0).returns == first.returns


@pytest.mark.parametrize("environment", ["Hopper-v4", "Hopper-v5"])  # in lanes, and through Gymnasium
def test_actions_of_another_size_are_refused(environment: str) -> None:
    with pytest.raises(UserError, match=r"expected \(2, 3\)"):
        Evaluator(environment)(lambda states: np.full((len(states), 1), 0.9), episodes=2, seed=0)


def test_what_is_no_environment() -> None:
    with pytest.raises(UserError, match="expected a task's name"):
        Evaluator(gymnasium.make("Pendulum-v1"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="seed -1"):
        Evaluator("Hopper-v4")(Twitching(11, 3), episodes=1, seed=-1)


class Paying(gymnasium.Env[Any, Any]):
    """Pays 1, 2, 4 and ends."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.paid = 0.5
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.paid *= 2
        return np.zeros(1), self.paid, self.paid == 4, False, {}


def test_discounted_returns_are_recorded_where_a_discount_is_given() -> None:
    play = Evaluator(Paying)
    found = play(Twitching(1, 1), episodes=2, seed=0, discount=0.5)
    assert found.returns == [7.0, 7.0] and found.discounted == [3.0, 3.0]
    assert play(Twitching(1, 1), episodes=1, seed=0).discounted is None
