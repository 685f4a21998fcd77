"""Fisher-BRC: its losses and gradients against float64 numpy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import fisher_brc
from sbac.nn import GaussianPolicy, behaviour
from tests.algorithms import float64, harness

CONFIG = fisher_brc.FisherBRCConfig(hidden=(5,), discount=0.9, gradient_penalty=0.7, reward_bonus=2.0)


@pytest.fixture(scope="module")
def clone() -> Any:
    return behaviour.create("mixture-per-dim", jax.random.key(9), 3, (4,), 2)


@pytest.fixture(scope="module")
def state() -> fisher_brc.State:
    made, other = harness.two_states(fisher_brc.init, CONFIG)
    return fisher_brc.State(made.policy, made.critic, other.critic_target, made.temperature)


def log_mu(clone: Any, s: Any, u: np.ndarray) -> np.ndarray:
    """log density of tanh(u) under five Gaussians for each of the two dimensions."""
    logits, mean, raw = np.split(float64.mlp(clone.net, s).reshape(-1, 6, 5), 3, axis=1)
    weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    std = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
    density = weights * np.exp(-0.5 * ((u[..., None] - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    return (np.log(density.sum(-1)) - np.log(1 - np.tanh(u) ** 2)).sum(-1)


def test_target(state: fisher_brc.State, clone: Any) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    u, _ = float64.sampled(state.policy.model, batch.next_observations, harness.normal(key, 6, 2))
    offset = float64.critic(state.critic_target, batch.next_observations, np.tanh(u)).min(0)
    value = offset + log_mu(clone, batch.next_observations, u)
    ours = jax.jit(lambda s: fisher_brc.targets(CONFIG, clone, s, batch, key))(state)
    harness.assert_target(ours - 2, batch, value, 1e-4)


def test_critic_loss_and_gradient(state: fisher_brc.State) -> None:
    batch, target, density = harness.small_batch(), np.arange(6.0), np.linspace(-2, 1, 6)
    a = np.tanh(np.random.default_rng(1).standard_normal((6, 2)))

    def expected(critic: Any) -> float:
        values = float64.critic(critic, batch.observations, batch.actions) + density
        error = sum(((q - target) ** 2).mean() for q in values)
        return float(error + 0.7 * (float64.slopes(critic, batch.observations, a) ** 2).sum(-1).mean(1).sum())

    def loss(critic: Any) -> jax.Array:
        arguments = (jnp.asarray(x, jnp.float32) for x in (density, target, a))
        return fisher_brc.critic_loss(critic, CONFIG, batch, *arguments)[0]

    harness.assert_loss(loss, expected, state.critic.model)


def test_actor_loss_and_gradient_which_passes_through_log_mu(state: fisher_brc.State, clone: Any) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)

    def expected(policy: GaussianPolicy) -> float:
        u, log_pi = float64.sampled(policy, batch.observations, harness.normal(key, 6, 2))
        offset = float64.critic(state.critic.model, batch.observations, np.tanh(u)).min(0)
        return float((0.3 * log_pi - offset - log_mu(clone, batch.observations, u)).mean())

    def loss(policy: GaussianPolicy) -> jax.Array:
        return fisher_brc.actor_loss(policy, clone, state.critic.model, jnp.asarray(0.3), batch, key)[0]

    harness.assert_loss(loss, expected, state.policy.model)
