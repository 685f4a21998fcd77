"""BRAC+: its losses and gradients against float64 numpy, its multipliers and thresholds."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import brac_plus
from sbac.algorithms.base import Step
from sbac.nn import GaussianPolicy, GaussianVAE, VAEEnsemble
from tests.algorithms import float64, harness

CONFIG = brac_plus.BRACPlusConfig(
    steps=(100, 100, 100), hidden=(5,), members=2, samples=2, codes=2, discount=0.9, kernel_width=0.5
)
SPEC = harness.SPEC


@pytest.fixture(scope="module")
def past() -> dict[str, Any]:
    clone = jax.jit(lambda key: brac_plus.init_clone(CONFIG, SPEC, {}, key))(jax.random.key(7))
    clone = brac_plus.Clone(clone.behaviour, jnp.asarray(0.8))
    initial = jax.jit(lambda key: brac_plus.init_initial(CONFIG, SPEC, {}, key))(jax.random.key(8))
    return {
        "clone": clone,
        "initial": brac_plus.Initial(initial.policy, brac_plus.Multiplier.create(1.3), jnp.asarray(2.0)),
    }


@pytest.fixture(scope="module")
def state(past: dict[str, Any]) -> brac_plus.State:
    """With targets that differ from what they follow."""
    made, other = harness.two_states(brac_plus.init, CONFIG, past)
    target = GaussianPolicy.create(jax.random.key(5), 3, (5,), 2)
    return dataclasses.replace(made, critic_target=other.critic_target, policy_target=target)


def member(model: VAEEnsemble, index: int) -> GaussianVAE:
    return jax.tree.map(lambda x: np.asarray(x[index], np.float64), model.members)


def bound(policy: Any, model: VAEEnsemble, s: Any, key: jax.Array, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """The policy's actions before the tanh, and the distance at every state, term by term."""
    policy_key, model_key = jax.random.split(key)
    mean, std = float64.tanh_gaussian(policy, s)
    u = mean + std * harness.normal(policy_key, samples, 6, 2)
    terms = []
    for m, k in enumerate(jax.random.split(model_key, 2)):
        vae = member(model, m)
        noise = harness.normal(k, 2, samples, 6, 4)
        for i in range(samples):
            q_mean, q_log_std = np.split(float64.mlp(vae.encoder, s, u[i]), 2, -1)
            q_std = np.exp(np.clip(q_log_std, -4, 2))
            prior = (0.5 * (q_mean**2 + q_std**2 - 1) - np.log(q_std)).sum(-1)
            for e in noise[:, i]:
                centre, raw = np.split(float64.mlp(vae.decoder, s, q_mean + q_std * e), 2, -1)
                spread = np.exp(-5 + 3.5 * (np.tanh(raw) + 1))
                inner = np.log(spread / std) + (std**2 + (mean - centre) ** 2) / (2 * spread**2) - 0.5
                terms.append(inner.sum(-1) + prior)
    return u, np.mean(terms, axis=0)


def entropy_excess(policy: Any, s: Any, u: np.ndarray) -> float:
    entropy = -float64.log_tanh_normal(np.tanh(u), *float64.tanh_gaussian(policy, s)).mean()
    return float(entropy - (0.8 - 2 * np.log(4)))


def test_initial_loss_and_gradient(past: dict[str, Any]) -> None:
    batch, key = harness.small_batch(), jax.random.key(2)
    model = past["clone"].behaviour.model

    def expected(policy: GaussianPolicy) -> float:
        u, distance = bound(policy, model, batch.observations, key, 2)
        return float(distance.mean() + 1.3 * entropy_excess(policy, batch.observations, u))

    def loss(policy: GaussianPolicy) -> jax.Array:
        return brac_plus.initial_loss(policy, CONFIG, past, jnp.asarray(1.3), batch, key)[0]

    harness.assert_loss(loss, expected, past["initial"].policy.model)


def test_actor_loss_and_gradient(past: dict[str, Any], state: brac_plus.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    model = past["clone"].behaviour.model
    net = jax.tree.map(lambda x: 30 * x, state.alpha.model)  # far from constant
    state = dataclasses.replace(state, alpha=brac_plus.Trained.create(net))
    alpha = np.logaddexp(0, float64.mlp(net, batch.observations)[:, 0])
    assert alpha.std() > 0.1

    def expected(policy: GaussianPolicy) -> float:
        u, distance = bound(policy, model, batch.observations, key, 2)
        q = np.mean([float64.critic(state.critic.model, batch.observations, np.tanh(x)).min(0) for x in u])
        return float(-q + (alpha * distance).mean() + 1.3 * entropy_excess(policy, batch.observations, u))

    def loss(policy: GaussianPolicy) -> jax.Array:
        return brac_plus.actor_loss(policy, CONFIG, past, state, state.critic.model, batch, key)[0]

    harness.assert_loss(loss, expected, state.policy.model)


def test_target_is_the_best_of_the_target_policys_samples(state: brac_plus.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    u, _ = float64.sampled(state.policy_target, batch.next_observations, harness.normal(key, 2, 6, 2))
    values = [float64.critic(state.critic_target, batch.next_observations, a) for a in np.tanh(u)]
    best = np.stack(values).min(1).max(0)
    ours = jax.jit(lambda s: brac_plus.targets(CONFIG, s, batch, key))(state)
    harness.assert_target(ours, batch, best)


def test_critic_loss_and_gradient(state: brac_plus.State) -> None:
    batch, target = harness.small_batch(), np.arange(6.0)
    a = np.tanh(np.random.default_rng(1).standard_normal((6, 2)))
    weights = np.linspace(0, 1, 6)

    def expected(critic: Any) -> float:
        error = sum(0.5 * ((q - target) ** 2).mean() for q in float64.critic(critic, batch.observations, batch.actions))
        smaller = float64.critic(critic, batch.observations, a).argmin(0)
        slope = np.linalg.norm(float64.slopes(critic, batch.observations, a)[smaller, np.arange(6)], axis=-1)
        return float(error + 0.6 * (weights * slope).mean())

    def loss(critic: Any) -> jax.Array:
        y, actions, weigh = (jnp.asarray(x, jnp.float32) for x in (target, a, weights))
        return brac_plus.critic_loss(critic, batch, y, actions, weigh, jnp.asarray(0.6))[0]

    harness.assert_loss(loss, expected, state.critic.model)


def test_clone_loss_is_a_mean_of_members_that_learn_apart(past: dict[str, Any]) -> None:
    batch, key = harness.small_batch(), jax.random.key(1)
    model = past["clone"].behaviour.model
    keys = jax.random.split(key, 2)
    u = jnp.arctanh(batch.rows.actions)

    def alone(vae: GaussianVAE, k: jax.Array) -> jax.Array:
        return vae.negative_elbo(batch.rows.observations, u, k).mean()

    each = jax.jit(jax.vmap(jax.value_and_grad(alone)))(model.members, keys)
    gradient, metrics = jax.jit(jax.grad(lambda m: brac_plus.clone_loss(m, batch.rows, key), has_aux=True))(model)
    np.testing.assert_allclose(metrics["clone_loss"], each[0].mean(), rtol=1e-4)
    np.testing.assert_allclose(gradient.members.decoder.biases[-1], each[1].decoder.biases[-1], rtol=1e-3, atol=1e-5)


def test_each_states_multiplier_follows_its_own_violation(past: dict[str, Any]) -> None:
    """One state breaks the bound and one does not; the network moves them apart, the scalar follows their mean."""
    s = jnp.asarray([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    excess = jnp.asarray([1.0, -1.5])
    moved = {}
    for multiplier in ("state", "scalar"):
        config = dataclasses.replace(CONFIG, multiplier=multiplier, hidden=(32,))
        alpha = brac_plus.init(config, SPEC, past, jax.random.key(0)).alpha
        before = brac_plus.multipliers(alpha.model, s)
        np.testing.assert_allclose(before, 10, rtol=0.05)
        step = jax.jit(lambda a: a.minimise(lambda m: brac_plus.dual_loss(m, s, excess), 1e-2)[0])
        for _ in range(20):
            alpha = step(alpha)
        moved[multiplier] = np.asarray(brac_plus.multipliers(alpha.model, s) - before)
    assert moved["state"][0] > 0.01 and moved["state"][1] < -0.01
    assert (moved["scalar"] < -0.01).all()


def test_a_multiplier_that_was_lost_comes_back() -> None:
    """Softplus of -30 is 1e-13 and its slope as well: a push through it would move nothing."""
    s = jnp.zeros((4, 3))
    for start, excess, end in (
        (-30.0, 0.5, -29.0),
        (-30.0, -0.5, -30.0),
        (-3.0, -0.5, -4.0),
        (-7.9, -0.5, brac_plus.FLOOR),
        (2e4, 0.5, 2e4),
        (2e4, -0.5, 2e4 - 1.0),
    ):
        alpha = brac_plus.Trained.create(jnp.asarray(start))
        step = jax.jit(lambda a, e=excess: a.minimise(lambda m: brac_plus.dual_loss(m, s, jnp.full(4, e)), 1e-2)[0])
        for _ in range(100):
            alpha = step(alpha)
        assert float(alpha.model) == pytest.approx(end, rel=0, abs=0.12), (start, excess)


def test_an_update_moves_the_multiplier_by_distance_minus_bound(past: dict[str, Any]) -> None:
    batch, key = harness.small_batch(), jax.random.key(0)
    config = dataclasses.replace(CONFIG, multiplier="scalar")
    state = brac_plus.init(config, SPEC, past, key)

    @jax.jit
    def moved(config: brac_plus.BRACPlusConfig) -> jax.Array:
        after, _ = brac_plus.update(config, past, state, batch, key, Step(jnp.asarray(0)))
        models: Any = after.alpha.model, state.alpha.model
        return models[0] - models[1]

    assert float(moved(dataclasses.replace(config, margin=-100.0))) > 0
    assert float(moved(dataclasses.replace(config, margin=100.0))) < 0


def test_weights_of_the_gradient_penalty() -> None:
    distance = jnp.asarray([0.0, 1.0, 3.0])
    soft = np.log1p(np.exp([-1.0, 0.0, 2.0]))
    ours = brac_plus.off_data(CONFIG, distance, jnp.asarray(1.0))
    np.testing.assert_allclose(ours, soft / soft.max(), rtol=1e-5)
    far = brac_plus.off_data(CONFIG, distance, jnp.asarray(1000.0))  # where softplus is 0 in float32
    np.testing.assert_allclose(far, np.exp(distance - 3.0), rtol=1e-4)
    hard = brac_plus.off_data(dataclasses.replace(CONFIG, divergence="mmd"), distance, jnp.asarray(1.0))
    np.testing.assert_array_equal(hard, [0, 0, 1])


def test_mmd(past: dict[str, Any]) -> None:
    policy, s = past["initial"].policy.model, harness.small_batch().observations
    key = jax.random.key(0)
    policy_key, model_key = jax.random.split(key)
    mean, std = float64.tanh_gaussian(policy, s)
    u = mean + std * harness.normal(policy_key, 3, 6, 2)
    model = past["clone"].behaviour.model
    logged = []
    for m, k in enumerate(jax.random.split(model_key, 2)):
        codes = np.clip(harness.normal(k, 2, 6, 4), -0.5, 0.5)
        logged += [float64.mlp(member(model, m).decoder, s, z)[:, :2] for z in codes]

    def kernel(x: Any, y: Any) -> np.ndarray:
        return np.mean([np.exp(-np.abs(a - b).sum(-1) / (2 * 0.5)) for a in x for b in y], axis=0)

    expected = np.sqrt(kernel(u, u) + kernel(logged, logged) - 2 * kernel(u, logged) + 1e-6)
    config = dataclasses.replace(CONFIG, divergence="mmd")
    ours = jax.jit(lambda p: brac_plus.propose(config, p, model, s, key, 3))(policy)
    np.testing.assert_allclose(ours.distance, expected, rtol=1e-3)


def test_schedules() -> None:
    rates = [float(brac_plus.decayed(2.0, jnp.asarray(step), 50)) for step in (0, 9, 10, 20, 30, 40, 49)]
    np.testing.assert_allclose(rates, [2, 2, 1, 0.2, 0.1, 0.02, 0.02], rtol=1e-6)
    mean = jnp.zeros(())
    for step, value in enumerate([4.0, 1.0, 7.0]):
        mean = brac_plus.running_mean(mean, jnp.asarray(value), jnp.asarray(step), 100)
    np.testing.assert_allclose(mean, 4.0)
    for steps in (10_000, 100_000):  # a start a hundred times as far leaves no trace
        values = jnp.where(jnp.arange(steps) < steps // 20, 300.0, 3.0)
        mean = jax.lax.scan(
            lambda m, x, n=steps: (brac_plus.running_mean(m, x[0], x[1], n), None),
            jnp.zeros(()),
            (values, jnp.arange(steps)),
        )[0]
        np.testing.assert_allclose(mean, 3.0, atol=0.05)


def test_acting_takes_the_best_sample_within_one_deviation_or_the_mean(state: brac_plus.State) -> None:
    actor = brac_plus.actor(CONFIG, {}, state)
    s = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    mean, std = float64.tanh_gaussian(state.policy.model, s)
    noise = np.asarray(actor.constants["noise"], np.float64)
    assert noise.shape == (20, 2) and np.abs(noise).max() == 1
    candidates = np.tanh(mean + std * noise[:, None])
    values = np.stack([float64.critic(state.critic.model, s, a).mean(0) for a in candidates])
    policy = harness.policy(actor, actions=2)
    harness.assert_best(policy(s), candidates, values)
    fresh = np.arctanh(policy.sample(s, 1))
    assert (np.abs((fresh - mean) / std) < 1 + 1e-3).all()
    alone = brac_plus.actor(dataclasses.replace(CONFIG, acting_candidates=1), {}, state)
    np.testing.assert_allclose(harness.policy(alone, actions=2)(s), np.tanh(mean), atol=2e-5)


def test_every_phase_leaves_a_policy(past: dict[str, Any]) -> None:
    s = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    clone = harness.policy(brac_plus.clone_actor(CONFIG, {}, past["clone"]), actions=2)
    decoded = float64.mlp(member(past["clone"].behaviour.model, 0).decoder, s, np.zeros((9, 4)))[:, :2]
    np.testing.assert_allclose(clone(s), np.tanh(decoded), atol=1e-5)
    initial = harness.policy(brac_plus.gaussian_actor(CONFIG, past, past["initial"]), actions=2)
    np.testing.assert_allclose(
        initial(s), np.tanh(float64.tanh_gaussian(past["initial"].policy.model, s)[0]), atol=1e-5
    )
