"""TD3: its target, the policy's loss and gradient against float64 numpy; delayed updates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import td3
from sbac.algorithms.base import Spec, Step
from tests.algorithms import float64, harness

CONFIG = td3.TD3Config(hidden=(5,), discount=0.9)


@pytest.fixture(scope="module")
def state() -> td3.State:
    """With targets that differ from what they follow."""
    make = jax.jit(lambda key: td3.init(CONFIG, Spec(3, 2, jnp.zeros((1, 3))), {}, key))
    made, other = make(jax.random.key(0)), make(jax.random.key(1))
    return dataclasses.replace(made, policy_target=other.policy_target, critic_target=other.critic_target)


def test_critic_target(state: td3.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    noise = np.clip(0.2 * np.asarray(jax.random.normal(key, batch.actions.shape)), -0.5, 0.5)
    a = np.clip(np.tanh(float64.mlp(state.policy_target.net, batch.next_observations)) + noise, -1, 1)
    q = float64.critic(state.critic_target, batch.next_observations, a).min(0)
    expected = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * q)
    np.testing.assert_allclose(jax.jit(td3.critic_target)(CONFIG, state, batch, key), expected, atol=1e-5)


def test_policy_loss_and_gradient(state: td3.State) -> None:
    batch, critic = harness.small_batch(), state.critic.model

    def expected(policy: td3.DeterministicPolicy) -> float:
        a = np.tanh(float64.mlp(policy.net, batch.observations))
        return float(-float64.critic(critic, batch.observations, a)[0].mean())

    harness.assert_loss(lambda p: td3.policy_loss(p, critic, batch)[0], expected, state.policy.model)


def test_policy_and_targets_wait_for_every_second_step(state: td3.State) -> None:
    update = jax.jit(lambda i: td3.update(CONFIG, {}, state, harness.small_batch(), jax.random.key(0), Step(i))[0])
    first, second = update(jnp.asarray(0)), update(jnp.asarray(1))

    kept = (first.policy, first.policy_target, first.critic_target)
    assert harness.are_same(kept, (state.policy, state.policy_target, state.critic_target))
    assert not harness.are_same(first.critic, state.critic)
    assert not harness.are_same(second.policy, state.policy)
    expected = 0.995 * state.critic_target.nets.weights[0] + 0.005 * second.critic.model.nets.weights[0]
    np.testing.assert_allclose(second.critic_target.nets.weights[0], expected, rtol=1e-5)
