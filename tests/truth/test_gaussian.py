"""The tanh-Gaussian against numerical integration, and its numpy twin against itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.nn import ACTION_EPSILON, Gaussian, pre_tanh

CASES = [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.3), (2.0, -0.5)]


@pytest.mark.parametrize(("mean", "log_std"), CASES)
def test_density_integrates_to_the_probability_of_intervals(mean: float, log_std: float) -> None:
    pi = Gaussian(jnp.full((1,), mean), jnp.full((1,), log_std))
    limit = 1 - ACTION_EPSILON
    for low, high in [(-limit, limit), (-0.5, 0.3), (0.2, 0.9)]:
        # Integrate over a, on a grid that is fine where tanh is steep.
        a = np.tanh(np.linspace(np.arctanh(low), np.arctanh(high), 20_001))
        density = np.exp(np.asarray(jax.vmap(pi.log_prob)(jnp.asarray(a)[:, None])))
        integral = np.trapezoid(density, a)
        u = np.random.default_rng(0).normal(mean, np.exp(log_std), 2_000_000)
        inside = np.mean((np.tanh(u) > low) & (np.tanh(u) < high))
        assert integral == pytest.approx(inside, abs=2e-3)


def test_the_tanh_term_cancels_in_a_ratio_even_at_the_bounds() -> None:
    pi = Gaussian(jnp.array([0.1]), jnp.array([-1.0]))
    mu = Gaussian(jnp.array([-0.2]), jnp.array([0.0]))
    for a in (-1.0, -0.999, 0.0, 1.0):
        u = pre_tanh(jnp.array([a]))
        ratio = pi.log_prob(jnp.array([a])) - mu.log_prob(jnp.array([a]))
        assert np.isfinite(ratio)
        np.testing.assert_allclose(ratio, pi.log_density(u) - mu.log_density(u), rtol=1e-4, atol=1e-4)


def test_extreme_network_outputs_keep_densities_and_gradients_finite() -> None:
    def loss(raw: jax.Array) -> jax.Array:
        from sbac.nn.gaussian import bounded_log_std

        return Gaussian(raw, bounded_log_std(raw)).log_prob(jnp.array([1.0, -1.0]))

    for size in (-1e4, -10.0, 10.0, 1e4):
        assert np.isfinite(loss(jnp.full(2, size)))
        assert np.isfinite(jax.grad(loss)(jnp.full(2, size))).all()
