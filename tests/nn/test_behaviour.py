"""Behaviour models: proper densities, whose samples follow them, and a behaviour that one Gaussian cannot express."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.errors import UserError
from sbac.nn import Trained, behaviour
from sbac.nn.spline import TAIL, spline, spline_inverse, spline_parameters

KINDS = sorted(behaviour.KINDS)


def model(kind: str, actions: int, seed: int = 0, size: float = 1.0) -> behaviour.Behaviour:
    """A random model; `size` scales its last layers, so that its densities are far from simple."""
    made = behaviour.create(kind, jax.random.key(seed), 3, (16,), actions)
    return jax.tree.map(lambda x: size * x, made)


def states(count: int) -> jax.Array:
    return jax.random.normal(jax.random.key(7), (count, 3))


# --- Splines -----------------------------------------------------------------------------------------------------


def test_a_spline_of_zeros_is_the_identity() -> None:
    x = jnp.linspace(-6, 6, 41)
    y, log_slope = jax.jit(lambda x: spline(x, spline_parameters(jnp.zeros(23))))(x)
    np.testing.assert_allclose(y, x, atol=1e-5)
    np.testing.assert_allclose(log_slope, 0, atol=1e-5)


def test_a_spline_and_its_inverse_undo_each_other_and_know_their_slopes() -> None:
    parameters = spline_parameters(2 * jax.random.normal(jax.random.key(0), (23,)))
    x = jnp.linspace(-5, 5, 501)
    y, log_slope = jax.jit(spline)(x, parameters)
    assert (jnp.diff(y) > 0).all()
    assert float(jnp.abs(y - x).max()) > 0.5
    back, log_slope_back = jax.jit(spline_inverse)(y, parameters)
    np.testing.assert_allclose(back, x, atol=2e-3)
    np.testing.assert_allclose(log_slope_back, -log_slope, atol=2e-2)
    automatic = jax.jit(jax.vmap(jax.grad(lambda v: spline(v, parameters)[0])))(x)
    np.testing.assert_allclose(jnp.exp(log_slope), automatic, rtol=1e-3)
    np.testing.assert_array_equal(y[jnp.abs(x) > TAIL], x[jnp.abs(x) > TAIL])


# --- Densities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_densities_integrate_to_one(kind: str) -> None:
    made = model(kind, 1, size=2.0)
    u = jnp.linspace(-40, 40, 40_001)
    log_density = jax.jit(lambda m, s: m(jnp.broadcast_to(s, (len(u), 3))).log_density(u[:, None]))
    for s in states(3):
        assert jnp.trapezoid(jnp.exp(log_density(made, s)), u) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("actions", [1, 3])
def test_samples_follow_the_density(kind: str, actions: int) -> None:
    """E_mu[nu / mu] = 1 for any density nu that mu covers: here a narrow normal around mu's mode."""

    @jax.jit
    def draw(made: behaviour.Behaviour) -> tuple[jax.Array, jax.Array]:
        density = made(states(2))
        u = density.sample_pre_tanh(jax.random.key(1), (20_000,))
        log_nu = behaviour.log_normal(u, jnp.arctanh(density.mode()), jnp.log(0.1)).sum(-1)
        return u, jnp.exp(log_nu - density.log_density(u))

    u, ratio = draw(model(kind, actions, seed=3))
    assert u.shape == (20_000, 2, actions)
    error = ratio.std(0) / math.sqrt(len(u))
    assert (error < 0.15).all()
    assert (jnp.abs(ratio.mean(0) - 1) < 5 * error).all()


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_speak_the_same_language(kind: str) -> None:
    @jax.jit
    def ask(made: behaviour.Behaviour) -> tuple[jax.Array, ...]:
        density = made(states(5))
        mode, u = density.mode(), jnp.arctanh(density.mode())
        drawn = density.sample_pre_tanh(jax.random.key(5), (500,))
        return (
            density.sample(jax.random.key(0), (4,)),
            mode,
            density.log_prob(mode),
            density.log_prob_pre_tanh(u),
            density.log_density(u),
            density.log_density(drawn).max(0),
        )

    sample, mode, log_prob, log_prob_pre_tanh, log_density, densest = ask(model(kind, 2))
    assert sample.shape == (4, 5, 2)
    assert mode.shape == (5, 2)
    np.testing.assert_allclose(log_prob, log_prob_pre_tanh, atol=1e-3)
    np.testing.assert_allclose(log_prob, log_density - np.log(1 - np.asarray(mode) ** 2).sum(-1), atol=1e-3)
    assert (densest - log_density < 1.0).all()  # nothing drawn is much denser than the mode


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_finite_at_the_bounds(kind: str) -> None:
    made = model(kind, 2)
    corners = jnp.asarray([[1.0, -1.0], [1.0, 1.0], [0.0, 1.0]])
    gradients = jax.jit(jax.grad(lambda m: m(states(3)).log_prob(corners).mean()))(made)
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(gradients))


def test_unknown_kind() -> None:
    with pytest.raises(UserError, match="did you mean 'mixture'"):
        behaviour.create("mixtur", jax.random.key(0), 1, (4,), 1)


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


@pytest.mark.parametrize("kind", ["mixture", "flow"])
def test_models_that_can_express_it_reach_the_entropy_and_stay_with_the_data(kind: str) -> None:
    clone = cloned(kind)
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
