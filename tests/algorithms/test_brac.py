"""BRAC: its losses and gradients against float64 numpy, its clone's entropy floor."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import brac, cloning
from sbac.algorithms.base import Batch, Rows, Spec, Step
from sbac.nn import GaussianPolicy, kl_divergence
from tests.algorithms import float64, harness

CONFIG = brac.BRACConfig(
    steps=(100, 100), clone_hidden=(4,), policy_hidden=(5,), critic_hidden=(6,), discount=0.9, alpha=0.6
)
SPEC = harness.SPEC


@pytest.fixture(scope="module")
def clone() -> GaussianPolicy:
    return GaussianPolicy.create(jax.random.key(9), 3, (4,), 2)


@pytest.fixture(scope="module")
def state() -> brac.State:
    made, other = harness.two_states(brac.init, CONFIG)
    return brac.State(made.policy, made.critic, other.critic_target)


def kl(policy: Any, clone: GaussianPolicy, s: Any, key: jax.Array) -> np.ndarray:
    """log pi - log mu of the actions themselves, tanh included, over 4 of them."""
    u, log_pi = float64.sampled(policy, s, harness.normal(key, 4, 6, 2))
    log_mu = float64.log_normal(u, *float64.tanh_gaussian(clone, s)) - np.log(1 - np.tanh(u) ** 2).sum(-1)
    return (log_pi - log_mu).mean(0)


@pytest.mark.parametrize("value_penalty", [False, True])
def test_target(state: brac.State, clone: GaussianPolicy, value_penalty: bool) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    action_key, kl_key = jax.random.split(key)
    u, _ = float64.sampled(state.policy.model, batch.next_observations, harness.normal(action_key, 6, 2))
    value = float64.critic(state.critic_target, batch.next_observations, np.tanh(u)).min(0)
    if value_penalty:
        value = value - 0.6 * kl(state.policy.model, clone, batch.next_observations, kl_key)
    ours = jax.jit(lambda s: brac.targets(CONFIG, clone, s, batch, key, value_penalty))(state)
    harness.assert_target(ours, batch, value, 1e-4)


def test_actor_loss_and_gradient(state: brac.State, clone: GaussianPolicy) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    action_key, kl_key = jax.random.split(key)

    def expected(policy: GaussianPolicy) -> float:
        u, _ = float64.sampled(policy, batch.observations, harness.normal(action_key, 6, 2))
        q = float64.critic(state.critic.model, batch.observations, np.tanh(u)).min(0).mean()
        return float(0.6 * kl(policy, clone, batch.observations, kl_key).mean() - q)

    def loss(policy: GaussianPolicy) -> jax.Array:
        return brac.actor_loss(policy, CONFIG, clone, state.critic.model, batch, key, jnp.ones(()))[0]

    harness.assert_loss(loss, expected, state.policy.model)


def test_the_sampled_kl_is_the_kl(clone: GaussianPolicy) -> None:
    policy = GaussianPolicy.create(jax.random.key(8), 3, (4,), 2)
    s = jax.random.normal(jax.random.key(0), (2, 3))
    sampled = jax.jit(lambda p: brac.divergence(p, clone, s, jax.random.key(1), 200_000))(policy)
    np.testing.assert_allclose(sampled, kl_divergence(policy(s), clone(s)), rtol=0.02)


def test_the_variants_differ_in_the_critic_alone_and_q_waits_for_the_warm_up(
    state: brac.State, clone: GaussianPolicy
) -> None:
    """2 % of 100 steps: step 1 does not see the critic, step 2 does.

    The policies' gradients are compared, since Adam's first step is their sign, whatever the loss is. They depend on
    the critics, which start with moments that are not zero and therefore move apart.
    """
    batch, key = harness.small_batch(), jax.random.key(0)
    # A rate and a weight at which the two critics differ by some percent, and Q counts in the policy's gradient.
    config = dataclasses.replace(CONFIG, critic_learning_rate=0.1, alpha=1e-3)
    state = dataclasses.replace(state, critic=harness.with_moments(state.critic))
    past = {"clone": cloning.Clone(cloning.Trained.create(clone), cloning.Multiplier.create(1.0))}

    def update(algorithm: Any) -> Any:
        def after(step: jax.Array) -> tuple[jax.Array, jax.Array]:
            new, _ = algorithm.phases[1].update(config, past, state, batch, key, Step(step))
            return harness.gradient(new.policy).net.biases[-1], new.critic.model.nets.biases[-1]

        return jax.jit(after)

    with_policy_penalty, with_value_penalty = update(brac.BRAC_P), update(brac.BRAC_V)
    for step, equal in ((1, True), (2, False)):
        p, v = with_policy_penalty(jnp.asarray(step)), with_value_penalty(jnp.asarray(step))
        assert not np.allclose(p[1], v[1], rtol=1e-3, atol=0)
        assert np.allclose(p[0], v[0], rtol=1e-4, atol=1e-6) == equal


def test_clone_loss_and_gradient(clone: GaussianPolicy) -> None:
    batch, key = harness.small_batch(), jax.random.key(2)
    s, a = batch.rows

    def expected(model: GaussianPolicy) -> float:
        _, log_prob = float64.sampled(model, s, harness.normal(key, 6, 2))
        return float(-float64.log_tanh_normal(a, *float64.tanh_gaussian(model, s)).mean() + 0.8 * log_prob.mean())

    harness.assert_loss(lambda m: cloning.clone_loss(m, batch.rows, jnp.asarray(0.8), key)[0], expected, clone)


@pytest.mark.parametrize(("floor", "low", "high"), [(True, -1.15, -0.85), (False, -1.65, -1.35)])
def test_the_entropy_floor_keeps_the_clone_of_a_narrow_behaviour_broad(floor: bool, low: float, high: float) -> None:
    """One action dimension with deviation 0.05: an entropy of -1.58, where the floor is -1."""
    config = brac.BRACConfig(clone_hidden=(8,), clone_learning_rate=1e-2, entropy_floor=floor)
    rows = Rows(jnp.zeros((64, 3)), 0.3 + 0.05 * jax.random.normal(jax.random.key(3), (64, 1)))
    unread: Any = jnp.zeros(64)
    batch = Batch(rows.observations, rows.actions, unread, unread, unread, unread, rows, rows.observations)
    state = cloning.init_clone(config, Spec(3, 1, rows.observations), {}, jax.random.key(0))

    @jax.jit
    def train(state: cloning.Clone) -> cloning.Clone:
        def body(i: jax.Array, s: cloning.Clone) -> cloning.Clone:
            return cloning.update_clone(config, {}, s, batch, jax.random.fold_in(jax.random.key(1), i), Step(i))[0]

        return jax.lax.fori_loop(0, 1000, body, state)

    mu = train(state).behaviour.model(jnp.zeros((4000, 3)))
    entropy = -mu.log_prob(mu.sample(jax.random.key(2))).mean()
    assert low < float(entropy) < high


def test_the_clones_learning_rate_decays() -> None:
    config = brac.BRACConfig(steps=(1000, 1), clone_decay=True, clone_learning_rate=1.0)
    rates = [float(cloning.clone_rate(config, jnp.asarray(step))) for step in (0, 799, 800, 899, 900, 999)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.01])
