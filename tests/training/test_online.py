"""Learning in environments: the replay buffer, padded runs side by side, a bandit, and a whole small run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from sbac.algorithms import find
from sbac.algorithms.base import Algorithm
from sbac.errors import UserError
from sbac.policy import FORMULAS
from sbac.training.online.learner import Learner, OnlineRun, Schedule, pack, run_arrays, unpack

ROUNDS = Schedule(1, 200, 4000)
BEST = {1: np.array([0.5]), 3: np.array([-0.4, 0.0, 0.7])}
"""The best action of a bandit, by the number of actions."""


def bandit(rng: np.random.Generator, observations: int, actions: int, count: int) -> np.ndarray:
    """Rows (s, a, r, terminal, s') of episodes of one step; the reward falls with the distance from the best."""
    s, after = rng.normal(size=(2, count, observations))
    a = rng.uniform(-1, 1, (count, actions))
    r = -((a - BEST[actions]) ** 2).sum(1)
    return np.concatenate([s, a, r[:, None], np.ones((count, 1)), after], 1).astype(np.float32)


def make_learner(method: Algorithm, rounds: Schedule = ROUNDS) -> Learner:
    options: dict[str, Any] = {"hidden": (32,), "learning_rate": 3e-3, "target_rate": 0.05}
    config = method.config(batch_size=64, **options)
    return Learner(method, [OnlineRun("bandit", o, a, 0, config) for o, a in ((2, 1), (4, 3))], rounds)


def fresh_rows(learner: Learner, rng: np.random.Generator) -> np.ndarray:
    """A round of every run."""
    count = learner.rounds.steps
    return np.stack([pack(bandit(rng, r.observations, r.actions, count), r, learner.sizes) for r in learner.runs])


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_runs_of_different_sizes_learn_side_by_side(name: str) -> None:
    """Two bandits in one program, the smaller one padded: both policies come near their own best action."""
    learner = make_learner(find(name))
    rng = np.random.default_rng(0)
    for _ in range(15):
        learner.add(fresh_rows(learner, rng), train=True)
    actor = jax.device_get(learner.actor)
    for i, run in enumerate(learner.runs):
        arrays = run_arrays(actor, i, run, learner.sizes)
        assert arrays["policy/weights/0"].shape == (run.observations, 32)
        assert arrays["policy/biases/1"].shape == (run.actions * (2 if name == "sac" else 1),)
        states = rng.normal(size=(50, run.observations)).astype(np.float32)
        actions = FORMULAS[actor.kind].mode(arrays, states)
        uniform = -(1 / 3 + BEST[run.actions] ** 2).sum()
        assert -((actions - BEST[run.actions]) ** 2).sum(1).mean() > 0.2 * uniform


def test_rows_are_padded_and_read_back() -> None:
    learner = make_learner(find("td3"), Schedule(1, 10, 25))
    run = learner.runs[0]
    raw = bandit(np.random.default_rng(1), 2, 1, 10)
    batch = unpack(jnp.asarray(pack(raw, run, learner.sizes)), learner.sizes)
    np.testing.assert_array_equal(batch.observations[:, :2], raw[:, :2])
    np.testing.assert_array_equal(batch.actions[:, 0], raw[:, 2])
    np.testing.assert_array_equal(batch.rewards, raw[:, 3])
    np.testing.assert_array_equal(batch.terminals, raw[:, 4])
    np.testing.assert_array_equal(batch.next_observations[:, :2], raw[:, 5:])
    assert not np.asarray(batch.observations[:, 2:]).any() and not np.asarray(batch.actions[:, 1:]).any()


def test_the_oldest_transitions_leave_the_replay_buffer() -> None:
    learner = make_learner(find("td3"), Schedule(1, 10, 25))
    assert learner.capacity == 20
    for i in range(3):
        learner.add(np.full((2, 10, 13), float(i), np.float32), train=False)
    assert learner.step == 30
    assert sorted(set(np.asarray(learner.replay[:, :, 0]).flat)) == [1.0, 2.0]


def test_a_saved_learner_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    unbroken, stopped, resumed = (make_learner(find("td3")) for _ in range(3))
    rows = [fresh_rows(unbroken, np.random.default_rng(i)) for i in range(3)]
    for fresh in rows:
        unbroken.add(fresh, train=True)
    for fresh in rows[:2]:
        stopped.add(fresh, train=True)
    stopped.save(tmp_path)
    resumed.load(tmp_path)
    resumed.add(rows[2], train=True)
    for a, b in zip(jax.tree.leaves(unbroken.state), jax.tree.leaves(resumed.state), strict=True):
        np.testing.assert_array_equal(a, b)


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
