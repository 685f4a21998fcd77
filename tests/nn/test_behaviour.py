"""Behaviour models: proper densities, whose samples follow them, and a behaviour that one Gaussian cannot express."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms.cloning import behaviour_actor
from sbac.nn import Trained, behaviour
from tests.algorithms import harness

KINDS = sorted(behaviour.MODELS)


def model(kind: str, actions: int) -> behaviour.Behaviour:
    """A random model."""
    return jax.jit(lambda key: behaviour.create(kind, key, 3, (16,), actions))(jax.random.key(3))


def states(count: int) -> jax.Array:
    return jax.random.normal(jax.random.key(7), (count, 3))


# --- Densities ---------------------------------------------------------------------------------------------------

EVERY = [(kind, actions) for kind in KINDS for actions in (1, 3)]
GRID = np.linspace(-40, 40, 40_001)


@functools.cache
def asked(kind: str, actions: int) -> dict[str, np.ndarray]:
    """All that the tests below want to know of a random model, from one program."""
    s = states(3)

    @jax.jit
    def ask(made: behaviour.Behaviour) -> dict[str, jax.Array]:
        density = made(s)
        mode, u = density.mode(), density.sample_pre_tanh(jax.random.key(1), (20_000,))
        slope = jax.grad(lambda v: density.log_density(v).sum())(u)
        answers = {
            "mode": mode,
            "mode_log_density": density.log_density(jnp.arctanh(mode)),
            "u": u,
            "log_density": density.log_density(u),
            "slope": slope,
            "log_prob": density.log_prob(jnp.tanh(u[0])),
            "log_prob_pre_tanh": density.log_prob_pre_tanh(u[0]),
            "sample": density.sample(jax.random.key(1), (20_000,)),
        }
        if actions == 1:
            along = jnp.broadcast_to(GRID[:, None, None], (len(GRID), *mode.shape))
            answers["cumulative"] = jnp.cumsum(jnp.exp(density.log_density(along)), axis=0) * (GRID[1] - GRID[0])
        return answers

    return {k: np.asarray(v, np.float64) for k, v in ask(model(kind, actions)).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_densities_integrate_to_one(kind: str) -> None:
    np.testing.assert_allclose(asked(kind, 1)["cumulative"][-1], 1, atol=1e-3)


@pytest.mark.parametrize(("kind", "actions"), EVERY)
def test_samples_follow_the_density(kind: str, actions: int) -> None:
    """Stein's identities: over samples of mu, grad log mu averages to 0, and (u - c) grad log mu to -1."""
    known = asked(kind, actions)
    u, slope = known["u"], known["slope"]
    for values, expected in ((slope, 0.0), ((u - u.mean(0)) * slope, -1.0)):
        error = values.std(0) / math.sqrt(len(values))
        assert (error < 0.3).all()
        assert (np.abs(values.mean(0) - expected) < 5 * error).all()


@pytest.mark.parametrize(("kind", "actions"), EVERY)
def test_all_kinds_speak_the_same_language(kind: str, actions: int) -> None:
    known = asked(kind, actions)
    u = known["u"][0]
    assert known["sample"].shape == (20_000, 3, actions)
    np.testing.assert_allclose(known["sample"], np.tanh(known["u"]), atol=1e-5)
    slope = np.log(1 - np.tanh(u) ** 2).sum(-1)
    np.testing.assert_allclose(known["log_prob_pre_tanh"], known["log_density"][0] - slope, atol=1e-3)
    assert (np.abs(np.tanh(u)) < 0.999).all()  # so that nothing is clipped
    np.testing.assert_allclose(known["log_prob"], known["log_prob_pre_tanh"], atol=1e-3)
    densest = known["log_density"][:500].max(0)
    assert (densest - known["mode_log_density"] < 1.0).all()  # nothing drawn is much denser than the mode


@pytest.mark.parametrize(("kind", "actions"), EVERY)
def test_a_clone_is_the_same_policy_outside_jax(kind: str, actions: int) -> None:
    """Mode and density agree; samples are compared by mean and deviation, since the generators differ."""
    known, s = asked(kind, actions), np.asarray(states(3))
    policy = harness.policy(behaviour_actor(model(kind, actions)), observations=3, actions=actions)
    np.testing.assert_allclose(policy(s), known["mode"], atol=1e-4)
    np.testing.assert_allclose(policy.log_prob(s, known["sample"][0]), known["log_prob"], atol=2e-3)
    mean, std = known["sample"].mean(0), known["sample"].std(0)
    for i in range(3):
        drawn = policy.sample(np.repeat(s[i : i + 1], 5000, 0), seed=i)
        assert (np.abs(drawn.mean(0) - mean[i]) < 6 * std[i] / math.sqrt(5000)).all()
        np.testing.assert_allclose(drawn.std(0), std[i], rtol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_finite_at_the_bounds(kind: str) -> None:
    made = model(kind, 2)
    corners = jnp.asarray([[1.0, -1.0], [1.0, 1.0], [0.0, 1.0]])
    gradients = jax.jit(jax.grad(lambda m: m(states(3)).log_prob(corners).mean()))(made)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(gradients))


# --- A behaviour with two ways of acting -------------------------------------------------------------------------
#
# In two dimensions mu goes either to +c(s) in both or to -c(s) in both, with small noise (in u), half of the time
# each. Its entropy is known. One Gaussian has to spread over both and puts its mode between them, where mu never
# acts; a mixture for each dimension by itself finds the places, but not that the dimensions agree.

NOISE = 0.15
ENTROPY = math.log(2) + 2 * (0.5 * math.log(2 * math.pi * math.e) + math.log(NOISE))


def centre(s: jax.Array) -> jax.Array:
    return 0.8 + 0.2 * jnp.tanh(s[:, :1])


def bimodal(key: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """States, and actions before the tanh."""
    state_key, side_key, noise_key = jax.random.split(key, 3)
    s = jax.random.normal(state_key, (count, 3))
    side = jnp.where(jax.random.bernoulli(side_key, shape=(count, 1)), 1.0, -1.0)
    return s, side * centre(s) + NOISE * jax.random.normal(noise_key, (count, 2))


class Clone(NamedTuple):
    excess: float
    """Nats by which the clone falls short of mu itself, on fresh data, before the tanh."""
    stray: float
    """Share of the clone's samples farther than 4 deviations from both modes; of mu's own 0.03 %."""
    lost: float
    """The same for a policy that climbs the regulariser alone, log mu, as SBAC's does where Q is flat."""


@functools.cache
def cloned(kind: str) -> Clone:
    def stray(s: jax.Array, u: jax.Array) -> jax.Array:
        distances = [jnp.linalg.norm(u - side * centre(s), axis=-1) for side in (1, -1)]
        return (jnp.minimum(*distances) > 4 * NOISE).mean()

    @jax.jit
    def run(key: jax.Array) -> tuple[jax.Array, ...]:
        init_key, loop_key, test_key, sample_key = jax.random.split(key, 4)

        def clone(step: jax.Array, state: Trained[Any]) -> Trained[Any]:
            s, u = bimodal(jax.random.fold_in(loop_key, step), 128)
            return state.minimise(lambda m: (-m(s).log_prob(jnp.tanh(u)).mean(), None), 2e-3)[0]

        start = Trained.create(behaviour.create(kind, init_key, 3, (32, 32), 2))
        s, u = bimodal(test_key, 2000)
        mu = jax.lax.fori_loop(0, 1500, clone, start).model(s)

        def climb(step: jax.Array, u: jax.Array) -> jax.Array:
            gradient = jax.grad(lambda v: mu.log_density(v).sum())(u)
            return u + 0.02 * gradient / jnp.maximum(1, jnp.linalg.norm(gradient, axis=-1, keepdims=True))

        climbed = jax.lax.fori_loop(0, 150, climb, 0.5 * u)  # from half-way to the nearer mode
        excess = -mu.log_density(u).mean() - ENTROPY
        return excess, stray(s, mu.sample_pre_tanh(sample_key)), stray(s, climbed)

    return Clone(*map(float, run(jax.random.key(0))))


def test_a_mixture_reaches_the_entropy_and_stays_with_the_data() -> None:
    clone = cloned("mixture")
    assert -0.05 < clone.excess < 0.25
    assert clone.stray < 0.05
    assert clone.lost < 0.05


def test_a_mixture_per_dimension_finds_the_places_but_misses_that_they_go_together() -> None:
    """Of its samples half are at corners where mu never acts: log 2 nats, no more and no less."""
    clone = cloned("mixture-per-dim")
    assert clone.excess == pytest.approx(math.log(2), abs=0.15)
    assert clone.stray == pytest.approx(0.5, abs=0.1)
    assert clone.lost < 0.05


def test_one_gaussian_acts_where_mu_never_does() -> None:
    """The best Gaussian has deviation sqrt(c^2 + NOISE^2) in each dimension, its mode half-way between mu's."""
    clone = cloned("gaussian")
    assert clone.excess > 2
    assert clone.stray > 0.4
    assert clone.lost > 0.9
