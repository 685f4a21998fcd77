"""SBAC: its losses and gradients against float64 numpy, what its switches switch."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import find, sbac
from sbac.algorithms.base import Step
from sbac.nn import Critic, GaussianPolicy, Trained
from tests.algorithms import float64, harness

RATIO = sbac.SBACRatioConfig(hidden=(5,), std_floor=0.5)
CONFIG = sbac.SBACConfig(hidden=(5,), ratio=RATIO, steps=(10, 10), discount=0.9, critics=2, alpha=0.7)
SPEC = harness.SPEC
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def state() -> sbac.SBACEstimate:
    make = jax.jit(lambda key: sbac.init_networks(dataclasses.replace(CONFIG, critic="expectile"), SPEC, {}, key))
    first, other = make(jax.random.key(0)), make(jax.random.key(1))
    return sbac.SBACEstimate(first.clone, None, first.critic, other.target, None, first.values)


def another(policy: GaussianPolicy) -> GaussianPolicy:
    """A policy that is not the clone."""
    return jax.tree.map(lambda x: 1.5 * x + 0.05, policy)


def improve_state(config: sbac.SBACConfig, estimate: sbac.SBACEstimate) -> sbac.Improve:
    return jax.jit(lambda past: sbac.init_improve(config, SPEC, past, KEY))({"estimate": estimate})


def step(
    config: sbac.SBACConfig, estimate: sbac.SBACEstimate, state: sbac.Improve, at: int
) -> tuple[sbac.Improve, Any]:
    batch, past = harness.small_batch(), {"estimate": estimate}
    return jax.jit(lambda s, i: sbac.improve(config, past, s, batch, KEY, Step(i)))(state, jnp.asarray(at))


# --- Losses and gradients ---------------------------------------------------------------------------------------


def test_line_4_the_behaviour(state: sbac.SBACEstimate) -> None:
    batch = harness.small_batch()

    def expected(mu: GaussianPolicy) -> float:
        s, a = batch.rows
        return float(-float64.log_tanh_normal(a, *float64.tanh_gaussian(mu, s)).mean())

    harness.assert_loss(lambda mu: sbac.negative_log_likelihood(mu, batch.rows), expected, state.clone.model)


def test_lines_5_and_6_the_value_of_the_behaviour(state: sbac.SBACEstimate) -> None:
    """Each critic follows its own target, at the data's next action, and not beyond terminal rows."""
    batch = harness.small_batch()
    following = float64.critic(state.target, batch.next_observations, batch.next_actions)
    target = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * following)

    def expected(critic: Critic) -> float:
        return float(((float64.critic(critic, batch.observations, batch.actions) - target) ** 2).mean(-1).sum())

    values = sbac.next_values_of_log(None, state.target, batch)
    harness.assert_loss(lambda q: sbac.evaluation_loss(CONFIG, q, batch, values), expected, state.critic.model)


def test_the_expectile_of_each_critic_over_the_logs_actions(state: sbac.SBACEstimate) -> None:
    """V_j follows Q'_j, with tau above it and 1 - tau below; and Q_j goes on to V_j."""
    batch, config = harness.small_batch(), CONFIG.replace(tau=0.8)
    assert state.values is not None
    q = float64.critic(state.target, batch.observations, batch.actions)

    def values_at(values: sbac.Values, observations: jax.Array) -> np.ndarray:
        return float64.critic(Critic(values.nets), observations, np.zeros((6, 0)))

    def expected(values: sbac.Values) -> float:
        u = q - values_at(values, batch.observations)
        return float((np.where(u > 0, 0.8, 0.2) * u**2).mean(-1).sum())

    harness.assert_loss(lambda v: sbac.expectile_loss(config, v, state.target, batch)[0], expected, state.values.model)
    following = sbac.next_values_of_log(state.values.model, state.target, batch)
    np.testing.assert_allclose(following, values_at(state.values.model, batch.next_observations), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", ["paper", "scale-free"])
def test_the_critic_that_follows_pi_pays_a_share_of_its_penalty(state: sbac.SBACEstimate, objective: str) -> None:
    config = CONFIG.replace(objective=objective, critic_penalty=0.5, penalty=0.03)
    batch, policy = harness.small_batch(), another(state.clone.model)
    noise = harness.normal(KEY, 6, 2)
    mean, std = float64.tanh_gaussian(policy, batch.next_observations)
    clone_mean, clone_std = float64.tanh_gaussian(state.clone.model, batch.next_observations)
    q = float64.critic(state.target, batch.next_observations, np.tanh(mean + std * noise))
    price = 0.7 if objective == "paper" else 0.03 * 0.7 * np.abs(q).mean()
    expected = q - 0.5 * price * 0.5 * (((mean - clone_mean) / clone_std) ** 2).sum(-1)
    got = sbac.next_values_of_policy(config, policy, state.clone.model, state.target, batch, KEY)
    np.testing.assert_allclose(got, expected, rtol=1e-4)


WEIGHTS = np.array([0.2, 0.5, 0.9, 1.0, 1.4, 2.0])


@pytest.mark.parametrize("objective", ["paper", "scale-free"])
def test_objective_8(state: sbac.SBACEstimate, objective: str) -> None:
    """paper: w min Q + alpha log mu(a|s). scale-free: w (mean Q - k std Q) / mean |Q| + penalty alpha log mu(u|s), with
    nothing moving through the divisor."""
    config = CONFIG.replace(objective=objective, pessimism=0.5, penalty=0.03)
    batch, policy = harness.small_batch(), another(state.clone.model)
    noise = harness.normal(KEY, 6, 2)
    mu = float64.tanh_gaussian(state.clone.model, batch.observations)

    def at(pi: GaussianPolicy) -> tuple[np.ndarray, np.ndarray]:
        mean, std = float64.tanh_gaussian(pi, batch.observations)
        u = mean + std * noise
        values = float64.critic(state.critic.model, batch.observations, np.tanh(u))
        if objective == "paper":
            return values.min(0), float64.log_normal(u, *mu) - np.log(1 - np.tanh(u) ** 2).sum(-1)
        return values.mean(0) - 0.5 * values.std(0), float64.log_normal(u, *mu)

    scale, price = (1.0, 0.7) if objective == "paper" else (np.abs(at(policy)[0]).mean(), 0.03 * 0.7)

    def expected(pi: GaussianPolicy) -> float:
        q, log_mu = at(pi)
        return float((WEIGHTS * q / scale + price * log_mu).mean())

    def value(pi: GaussianPolicy) -> jax.Array:
        weigh, density = jnp.asarray(WEIGHTS, jnp.float32), state.mu(batch.observations)
        return sbac.policy_objective(config, pi, density, state.critic.model, weigh, batch, KEY)[0]

    harness.assert_loss(value, expected, policy)


def with_dropout(estimate: sbac.SBACEstimate, dropped: GaussianPolicy) -> sbac.SBACEstimate:
    return dataclasses.replace(estimate, dropped=Trained.create(dropped))


@pytest.mark.parametrize("better", ["plain", "dropped"])
def test_the_clone_that_finds_held_out_actions_likelier_is_kept(state: sbac.SBACEstimate, better: str) -> None:
    """Which of the two it is comes from their likelihoods in float64; a second conclusion changes nothing."""
    batch, other = harness.small_batch(), another(state.clone.model)

    def likelihood(mu: GaussianPolicy) -> float:
        s, a = batch.rows
        return float(float64.log_tanh_normal(a, *float64.tanh_gaussian(mu, s)).mean())

    likelier, less = sorted((state.clone.model, other), key=likelihood, reverse=True)
    pair = (likelier, less) if better == "plain" else (less, likelier)
    given = with_dropout(dataclasses.replace(state, clone=Trained.create(pair[0])), pair[1])
    once = sbac.choose_clone(CONFIG, {}, given, batch, KEY)
    twice = sbac.choose_clone(CONFIG, {}, once, batch, KEY)
    for kept in (once, twice):
        for got, expected in zip(jax.tree.leaves(kept.clone.model), jax.tree.leaves(likelier), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_second_clone_learns_with_dropout_and_leaves_the_rest_alone(state: sbac.SBACEstimate) -> None:
    batch = harness.small_batch()
    config = dataclasses.replace(CONFIG, behaviour_dropout=0.5)
    given = with_dropout(state, another(state.clone.model))

    def step_of(config: sbac.SBACConfig, state: sbac.SBACEstimate) -> tuple[sbac.SBACEstimate, Any]:
        return jax.jit(lambda s: sbac.estimate(config, {}, s, batch, KEY, Step(jnp.asarray(0))))(state)

    (alone, _), (both, metrics) = step_of(CONFIG, state), step_of(config, given)
    for name in ("clone", "critic", "target"):
        for a, b in zip(jax.tree.leaves(getattr(alone, name)), jax.tree.leaves(getattr(both, name)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    # The loss is that of the network with these units left out.
    net = given.dropped.model.net  # type: ignore[union-attr]
    kept = np.asarray(jax.random.bernoulli(jax.random.fold_in(KEY, 0), 0.5, (6, 5)))
    s, a = batch.rows
    hidden = np.maximum(np.asarray(s) @ np.asarray(net.weights[0]) + np.asarray(net.biases[0]), 0) * kept * 2
    mean, raw = np.split(hidden @ np.asarray(net.weights[1]) + np.asarray(net.biases[1]), 2, -1)
    expected = -float64.log_tanh_normal(a, mean, np.exp(-5 + 3.5 * (np.tanh(raw) + 1))).mean()
    np.testing.assert_allclose(metrics["dropped_loss"], expected, rtol=1e-5)


def test_the_lower_bound_of_critics_that_agree_has_a_finite_slope(state: sbac.SBACEstimate) -> None:
    batch = harness.small_batch()
    twice = jax.tree.map(lambda x: jnp.stack([x[0], x[0]]), state.critic.model)
    slope = jax.grad(lambda a: twice.lower_bound(batch.observations, a, 0.5).sum())(batch.actions)
    expected = jax.grad(lambda a: twice(batch.observations, a)[0].sum())(batch.actions)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


def test_critics_with_layer_norm() -> None:
    config = CONFIG.replace(objective="scale-free", critics=5)
    made = sbac.init_networks(config, SPEC, {}, KEY)
    assert made.critic.model.nets.normalise and not made.clone.model.net.normalise
    assert len(made.critic.model.nets.weights[0]) == 5


def test_the_density_ratio_of_a_widened_and_of_the_true_policy(state: sbac.SBACEstimate) -> None:
    batch, policy = harness.small_batch(), another(state.clone.model)
    narrow = CONFIG.replace(ratio=RATIO.replace(std_floor=2.0))  # wider than pi anywhere: the floor is felt
    wide, true = sbac.log_ratios(narrow, policy, state, batch)
    u = np.arctanh(np.clip(np.asarray(batch.actions, np.float64), -0.999, 0.999))
    mean, std = float64.tanh_gaussian(policy, batch.observations)
    mu_mean, mu_std = float64.tanh_gaussian(state.clone.model, batch.observations)
    below = float64.log_normal(u, mu_mean, mu_std)
    np.testing.assert_allclose(true, float64.log_normal(u, mean, std) - below, rtol=1e-3, atol=1e-3)
    floored = np.maximum(std, 2.0 * mu_std)
    np.testing.assert_allclose(wide, float64.log_normal(u, mean, floored) - below, rtol=1e-3, atol=1e-3)


# --- What the switches switch -----------------------------------------------------------------------------------


def test_trust_is_the_smaller_share_and_one_row_is_nothing() -> None:
    def after(beta: float, ratio: float) -> float:
        metrics = {"beta_ess": jnp.asarray(beta), "ratio_ess": jnp.asarray(ratio)}
        return float(sbac.trusted(jnp.zeros(()), metrics, 256)) / 0.01

    assert after(1 / 256, 1.0) == pytest.approx(0, abs=1e-6)
    assert after(1.0, 1.0) == pytest.approx(1)
    assert after((0.02 + 1 / 256) / 2, 1.0) == pytest.approx(0.5, abs=1e-5)
    assert after(1.0, (0.1 + 1 / 256) / 2) == pytest.approx(0.5, abs=1e-5)


def test_the_ratio_has_a_discount_of_its_own_or_the_methods(state: sbac.SBACEstimate) -> None:
    own = CONFIG.replace(ratio=RATIO.replace(discount=0.5))
    assert float(sbac.ratio_config(own).discount) == 0.5
    assert float(sbac.ratio_config(CONFIG).discount) == pytest.approx(0.9)
    start = improve_state(CONFIG, state)

    def moments(config: sbac.SBACConfig) -> np.ndarray:
        """Adam's, which are linear and quadratic in the gradient."""
        weight = step(config, state, start, at=0)[0].weight
        assert weight is not None
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(weight.ratio.trained.moments)])

    np.testing.assert_array_equal(moments(own), moments(CONFIG.replace(discount=0.5)))
    assert not np.allclose(moments(own), moments(CONFIG), rtol=1e-2)


def test_w_rests_between_its_updates(state: sbac.SBACEstimate) -> None:
    config = dataclasses.replace(CONFIG, ratio_every=3)
    start = improve_state(config, state)
    rested, moved = step(config, state, start, at=1)[0], step(config, state, start, at=3)[0]
    assert start.weight is not None and rested.weight is not None and moved.weight is not None
    nets = [w.ratio.trained.model.state_net.weights[0] for w in (start.weight, rested.weight, moved.weight)]
    np.testing.assert_array_equal(nets[0], nets[1])
    assert not np.array_equal(nets[0], nets[2])
    assert not np.array_equal(start.policy.model.net.weights[0], rested.policy.model.net.weights[0])


def test_without_trust_w_is_1(state: sbac.SBACEstimate) -> None:
    """A tempered w without trust gives the gradient of the ablation, number by number."""
    tempered = dataclasses.replace(CONFIG, temper=True, ratio_every=100)
    start = improve_state(tempered, state)
    assert start.weight is not None
    nets = start.weight.ratio.target.state_net
    strong = dataclasses.replace(nets, weights=[*nets.weights[:-1], 100 * nets.weights[-1]])
    ratio = dataclasses.replace(
        start.weight.ratio, target=dataclasses.replace(start.weight.ratio.target, state_net=strong)
    )

    def gradients(trust: float) -> list[jax.Array]:
        assert start.weight is not None
        weight = dataclasses.replace(start.weight, ratio=ratio, trust=jnp.asarray(trust))
        after, _ = step(tempered, state, dataclasses.replace(start, weight=weight), at=1)
        return jax.tree.leaves(harness.gradient(after.policy))

    ablation = dataclasses.replace(CONFIG, weighting="none")
    plain = dataclasses.replace(start, weight=None)
    expected = jax.tree.leaves(harness.gradient(step(ablation, state, plain, at=1)[0].policy))
    for ours, theirs in zip(gradients(0.0), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    different = [not np.allclose(a, b, rtol=1e-2, atol=1e-3) for a, b in zip(gradients(1.0), expected, strict=True)]
    assert any(different)


def test_ablations_differ_in_nothing_else() -> None:
    whole, no_w, q_pi = (find(name).presets for name in ("sbac", "sbac-no-w", "sbac-q-pi"))
    for name, preset in whole.items():
        assert no_w[name] == {**preset, "weighting": "none"}
        assert q_pi[name] == {**no_w[name], "critic": "pi", "critic_penalty": 0.0}


def test_q_pi_follows_the_policy_and_q_mu_stays(state: sbac.SBACEstimate) -> None:
    following = dataclasses.replace(CONFIG, weighting="none", critic="pi")
    after, _ = step(following, state, improve_state(following, state), at=0)
    assert after.following is not None and after.target is not None
    assert not np.array_equal(after.following.model.nets.weights[0], state.critic.model.nets.weights[0])
    fixed = dataclasses.replace(CONFIG, weighting="none")
    assert improve_state(fixed, state).following is None


def test_rates_fall_along_half_a_cosine() -> None:
    config = dataclasses.replace(CONFIG, objective="scale-free", steps=(10, 20))
    assert float(sbac.decay(config, 0, jnp.asarray(0))) == pytest.approx(1)
    assert float(sbac.decay(config, 0, jnp.asarray(5))) == pytest.approx(0.5)
    assert float(sbac.decay(config, 1, jnp.asarray(5))) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert float(sbac.decay(CONFIG, 1, jnp.asarray(19))) == 1


# --- Learning ---------------------------------------------------------------------------------------------------
