"""Learning in environments: the replay buffer, a bandit, and a whole small run."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sbac
from sbac.algorithms import find
from sbac.algorithms.base import Algorithm
from sbac.errors import UserError
from sbac.policy import FORMULAS
from sbac.training.grid import Member
from sbac.training.online.learner import Learner, Sizes
from sbac.training.writer import actor_arrays

BEST = np.array([-0.4, 0.0, 0.7])
"""The best action of a bandit."""
SIZES = Sizes(4, 3)


def bandit(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows (s, a, r, terminal, s') of episodes of one step; the reward falls with the distance from the best."""
    s, after = rng.normal(size=(2, count, SIZES.observations))
    a = rng.uniform(-1, 1, (count, SIZES.actions))
    r = -((a - BEST) ** 2).sum(1)
    return np.concatenate([s, a, r[:, None], np.ones((count, 1)), after], 1).astype(np.float32)


def make_learner(method: Algorithm, steps: int = 200, capacity: int = 4000) -> Learner:
    options: dict[str, Any] = {"hidden": (32,), "learning_rate": 3e-3, "target_rate": 0.05}
    config = method.config(batch_size=64, **options)
    return Learner(method, [Member(seed, config, {}) for seed in (0, 1)], SIZES, steps, capacity)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_policies_come_near_the_best_action(name: str) -> None:
    learner = make_learner(find(name))
    rng = np.random.default_rng(0)
    for _ in range(15):
        learner.add(np.stack([bandit(rng, 200) for _ in learner.runs]), train=True)
    actor = jax.device_get(learner.actor)
    states = rng.normal(size=(50, SIZES.observations)).astype(np.float32)
    for row in range(2):
        actions = FORMULAS[actor.kind].mode(actor_arrays(actor, row), states)
        assert -((actions - BEST) ** 2).sum(1).mean() > 0.2 * -(1 / 3 + BEST**2).sum()


def test_the_oldest_transitions_leave_the_replay_buffer() -> None:
    learner = make_learner(find("td3"), 10, 25)
    assert learner.capacity == 20
    for i in range(3):
        learner.add(np.full((2, 10, 13), float(i), np.float32), train=False)
    assert learner.step == 30
    assert sorted(set(np.asarray(learner.replay[:, :, 0]).flat)) == [1.0, 2.0]


def test_a_run_in_an_environment(tmp_path: Path) -> None:
    """Pendulum, whose actions reach from -2 to 2: the folder of a run, and policies that speak those units."""
    out = tmp_path / "run"
    run = sbac.train_online(
        "Pendulum-v1",
        "td3",
        steps=300,
        start_steps=100,
        hidden=[16],
        batch_size=32,
        episodes=1,
        evaluate_every=200,
        out=out,
    )
    assert [row["step"] for row in run.evaluations] == [200, 300]
    assert all(-2000 < row["returns"][0] < 0 for row in run.evaluations)
    assert {"q", "seed", "step"} <= run.metrics[-1].keys()
    again = sbac.Run.load(out).policies[0]
    assert again.config["algorithm"] == "td3" and again.config["environment"] == "Pendulum-v1"
    assert np.abs(again(np.eye(3))).max() <= 2.0
    np.testing.assert_array_equal(again.arrays["scale/action_high"], [2.0])
    with pytest.raises(UserError, match="holds a run already"):
        sbac.train_online("Pendulum-v1", "td3", out=out)
