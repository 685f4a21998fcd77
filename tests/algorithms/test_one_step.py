"""One-step RL: its losses and gradients against float64 numpy."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import one_step
from sbac.algorithms.base import Step
from sbac.nn import Critic, GaussianPolicy
from tests.algorithms import float64, harness

CONFIG = one_step.OneStepConfig(
    hidden=(5,), steps=(10, 10), discount=0.9, alpha=0.7, critics=2, clone_steps=5, samples=3
)
SPEC = harness.SPEC


@pytest.fixture(scope="module")
def state() -> one_step.Estimate:
    made, other = harness.two_states(one_step.init_estimate, CONFIG)
    return one_step.Estimate(made.clone, None, made.critic, other.target)


def test_evaluation_loss_and_gradient(state: one_step.Estimate) -> None:
    """SARSA: the next action is the data's own."""
    batch = harness.small_batch()
    q = float64.critic(state.target, batch.next_observations, batch.next_actions).min(0)
    target = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * q)

    def expected(critic: Critic) -> float:
        return float(((float64.critic(critic, batch.observations, batch.actions) - target) ** 2).mean(-1).sum())

    harness.assert_loss(
        lambda q: one_step.evaluation_loss(CONFIG, q, state.target, batch)[0], expected, state.critic.model
    )


def test_policy_loss_and_gradient(state: one_step.Estimate) -> None:
    """Q at one action, the KL over all of them, both differentiated through the actions."""
    batch, key = harness.small_batch(), jax.random.key(4)
    noise = harness.normal(key, 3, 6, 2)
    policy = jax.tree.map(lambda x: 1.5 * x, state.clone.model)

    def expected(policy: GaussianPolicy) -> float:
        mean, std = float64.tanh_gaussian(policy, batch.observations)
        u = mean + std * noise
        mu = float64.tanh_gaussian(state.clone.model, batch.observations)
        kl = (float64.log_normal(u, mean, std) - float64.log_normal(u, *mu)).mean()
        q = float64.critic(state.critic.model, batch.observations, np.tanh(u[0])).min(0).mean()
        return float(0.7 * kl - q)

    def loss(policy: GaussianPolicy) -> jax.Array:
        return one_step.policy_loss(CONFIG, policy, state.clone.model, state.critic.model, batch, key)[0]

    harness.assert_loss(loss, expected, policy)


def test_the_clone_rests_after_its_own_steps_and_the_critic_goes_on(state: one_step.Estimate) -> None:
    batch, key = harness.small_batch(), jax.random.key(0)
    update = jax.jit(lambda step: one_step.estimate(CONFIG, {}, state, batch, key, Step(step))[0])
    early, late = update(jnp.asarray(4)), update(jnp.asarray(5))
    before = state.clone.model.net.weights[0]
    assert not np.array_equal(early.clone.model.net.weights[0], before)
    np.testing.assert_array_equal(late.clone.model.net.weights[0], before)
    assert not np.array_equal(late.critic.model.nets.weights[0], state.critic.model.nets.weights[0])


def test_the_policy_starts_as_the_clone(state: one_step.Estimate) -> None:
    start = one_step.init_improve(CONFIG, SPEC, {"estimate": state}, jax.random.key(0))
    assert harness.are_same(start.policy.model, state.clone.model)


def test_a_richer_behaviour_is_trained_beside_the_start() -> None:
    config = dataclasses.replace(CONFIG, behaviour="mixture")
    state = one_step.init_estimate(config, SPEC, {}, jax.random.key(0))
    batch, key = harness.small_batch(), jax.random.key(0)
    after, _ = jax.jit(lambda s: one_step.estimate(config, {}, s, batch, key, Step(jnp.asarray(0))))(state)
    assert after.mu is not after.clone.model
    models: Any = after.mu, state.mu
    assert not np.array_equal(models[0].net.weights[0], models[1].net.weights[0])
    assert not np.array_equal(after.clone.model.net.weights[0], state.clone.model.net.weights[0])
