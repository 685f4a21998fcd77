"""SAC: its target, losses and gradients against float64 numpy; the temperature's direction."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import sac
from sbac.algorithms.base import Step
from sbac.nn import Multiplier
from tests.algorithms import float64, harness

CONFIG = sac.SACConfig(hidden=(5,), discount=0.9)


@pytest.fixture(scope="module")
def state() -> sac.State:
    """With a target that differs from the critic, and a temperature that is not 1."""
    made, other = harness.two_states(sac.init, CONFIG)
    return dataclasses.replace(made, target=other.target, temperature=Multiplier.create(0.3))


def test_critic_target(state: sac.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    u, log_prob = float64.sampled(state.policy.model, batch.next_observations, harness.normal(key, 6, 2))
    q = float64.critic(state.target, batch.next_observations, np.tanh(u)).min(0)
    harness.assert_target(jax.jit(sac.critic_target)(CONFIG, state, batch, key), batch, q - 0.3 * log_prob, 1e-4)


def test_policy_loss_and_gradient(state: sac.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    critic = state.critic.model

    def expected(policy: sac.GaussianPolicy) -> float:
        u, log_prob = float64.sampled(policy, batch.observations, harness.normal(key, 6, 2))
        return float((0.3 * log_prob - float64.critic(critic, batch.observations, np.tanh(u)).min(0)).mean())

    harness.assert_loss(
        lambda p: sac.policy_loss(p, critic, jnp.float32(0.3), batch, key)[0], expected, state.policy.model
    )


@pytest.mark.parametrize(("entropy", "rises"), [(-10.0, True), (10.0, False)])
def test_temperature_pulls_the_entropy_to_minus_the_actions(state: sac.State, entropy: float, rises: bool) -> None:
    stepped = state.temperature.update(jnp.asarray(-2.0 - entropy), 0.01)
    assert (float(stepped.value) > 0.3) == rises


def test_target_follows_the_critic_slowly(state: sac.State) -> None:
    after, metrics = jax.jit(sac.update)(
        CONFIG, {}, state, harness.small_batch(), jax.random.key(0), Step(jnp.asarray(0))
    )
    expected = 0.995 * state.target.nets.weights[0] + 0.005 * after.critic.model.nets.weights[0]
    np.testing.assert_allclose(after.target.nets.weights[0], expected, rtol=1e-5)
    assert float(metrics["temperature"]) == pytest.approx(0.3)
