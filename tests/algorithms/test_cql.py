"""CQL(H): its losses and gradients against float64 numpy, its penalty against an integral."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import cql
from sbac.algorithms.base import Step
from sbac.nn import MLP, Critic, GaussianPolicy
from tests.algorithms import float64, harness

CONFIG = cql.CQLConfig(hidden=(5,), steps=(10,), discount=0.9, alpha=2.0, threshold=3.0, samples=4)
LAGRANGE = cql.CQLConfig(hidden=(5,), steps=(10,), discount=0.9, alpha=2.0, threshold=3.0, samples=4, lagrange=True)


@pytest.fixture(scope="module")
def state() -> cql.State:
    made, other = harness.two_states(cql.init, CONFIG)
    return cql.State(made.policy, made.critic, other.target, made.temperature, made.multiplier)


def proposals(state: cql.State) -> cql.Proposals:
    return jax.jit(lambda: cql.propose(state.policy.model, harness.small_batch(), 4, jax.random.key(5)))()


def test_proposals_come_with_their_densities(state: cql.State) -> None:
    batch, made = harness.small_batch(), proposals(state)
    assert made.actions.shape == (12, 6, 2)
    np.testing.assert_allclose(made.log_density[:4], -2 * math.log(2), rtol=1e-6)
    for rows, s in ((slice(4, 8), batch.observations), (slice(8, 12), batch.next_observations)):
        a = np.asarray(made.actions[rows], np.float64)
        inside = np.abs(a).max(-1) < 0.999
        expected = float64.log_tanh_normal(a, *float64.tanh_gaussian(state.policy.model, s))
        np.testing.assert_allclose(np.asarray(made.log_density[rows])[inside], expected[inside], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("config", [CONFIG, LAGRANGE], ids=["fixed", "lagrange"])
def test_critic_loss_and_gradient(state: cql.State, config: cql.CQLConfig) -> None:
    batch, made = harness.small_batch(), proposals(state)
    target = np.arange(6.0)

    def expected(critic: Critic) -> float:
        q = float64.critic(critic, batch.observations, batch.actions)
        s = np.broadcast_to(batch.observations, (12, 6, 3))
        pushed = np.exp(float64.critic(critic, s, made.actions) - np.asarray(made.log_density, np.float64))
        gap = (np.log(pushed.sum(1)) - q).mean(-1)
        weighted = 1.3 * (2.0 * gap - 3.0) if config.lagrange else 2.0 * gap
        return float((((q - target) ** 2).mean(-1) + weighted).sum())

    def loss(critic: Critic) -> jax.Array:
        return cql.critic_loss(config, critic, batch, jnp.asarray(target), made, jnp.asarray(1.3))[0]

    harness.assert_loss(loss, expected, state.critic.model)


def test_the_penalty_estimates_an_integral() -> None:
    """log (1 / 3n) sum exp(Q) / density tends to log of the integral of exp(Q) over all actions."""
    count = 3000
    batch = harness.small_batch(actions=1)
    zero = jax.tree.map(jnp.zeros_like, GaussianPolicy.create(jax.random.key(0), 3, (8,), 1))
    wide = MLP(zero.net.weights, [zero.net.biases[0], jnp.asarray([0.2, 0.458])])  # deviation 1 before the tanh
    critic = jax.tree.map(lambda x: 2 * x, Critic.create(jax.random.key(1), 3, 1, (8,)))
    made = jax.jit(lambda key: cql.propose(GaussianPolicy(wide), batch, count, key))(jax.random.key(2))
    estimate = jax.jit(cql.penalty)(critic, batch, made) - math.log(3 * count)
    grid = np.linspace(-1, 1, 4001)[:, None, None] * np.ones((1, 6, 1))
    q = float64.critic(critic, np.broadcast_to(batch.observations, (4001, 6, 3)), grid)
    exact = np.log(np.trapezoid(np.exp(q), grid[:, 0, 0], axis=1)) - float64.critic(
        critic, batch.observations, batch.actions
    )
    np.testing.assert_allclose(estimate, exact.mean(-1), atol=0.03)


def test_bootstrap_target_has_no_entropy_and_no_future_after_the_end(state: cql.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    u, _ = float64.sampled(state.policy.model, batch.next_observations, harness.normal(key, 6, 2))
    q = float64.critic(state.target, batch.next_observations, np.tanh(u)).min(0)
    harness.assert_target(jax.jit(cql.bootstrap_target)(CONFIG, state, batch, key), batch, q)


@pytest.mark.parametrize("cloning", [False, True])
def test_policy_loss_and_gradient(state: cql.State, cloning: bool) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)

    def expected(policy: GaussianPolicy) -> float:
        u, log_prob = float64.sampled(policy, batch.observations, harness.normal(key, 6, 2))
        gain = float64.critic(state.critic.model, batch.observations, np.tanh(u)).min(0)
        if cloning:
            gain = float64.log_tanh_normal(batch.actions, *float64.tanh_gaussian(policy, batch.observations))
        return float((0.6 * log_prob - gain).mean())

    def loss(policy: GaussianPolicy) -> jax.Array:
        return cql.policy_loss(policy, state.critic.model, jnp.asarray(0.6), batch, key, jnp.asarray(cloning))[0]

    harness.assert_loss(loss, expected, state.policy.model)


def test_dual_variables_move_towards_their_constraints(state: cql.State) -> None:
    step = jax.jit(lambda c: cql.update(c, {}, state, harness.small_batch(), jax.random.key(0), Step(jnp.asarray(0))))
    free, metrics = step(LAGRANGE)
    assert (float(free.multiplier.value) > 1) == (2.0 * float(metrics["penalty"]) > 3.0)
    assert (float(free.temperature.value) > 1) == (float(metrics["entropy"]) < -2)
