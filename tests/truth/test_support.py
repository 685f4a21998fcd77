"""Objective (8) takes a cross-entropy, which depends on the coordinates of the action; a KL divergence does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.nn import Gaussian

U = jnp.linspace(-4.0, 4.0, 8001)[:, None]


def argmax(std: float, support: str) -> float:
    """The u at which log mu is largest, for mu with mean 0.3."""
    mu = Gaussian(jnp.array([0.3]), jnp.log(jnp.array([std])))
    density = mu.log_density if support == "pre-tanh" else mu.log_prob_pre_tanh
    return float(U[jnp.argmax(jax.vmap(density)(U)), 0])


def test_the_density_of_a_wide_tanh_gaussian_is_largest_at_the_bounds() -> None:
    assert argmax(0.1, "action") == pytest.approx(0.3, abs=0.02)  # a narrow mu: hardly a difference
    assert np.tanh(argmax(1.0, "action")) > 0.9
    assert np.tanh(argmax(1.5, "action")) > 0.999


def test_a_kl_divergence_is_the_same_in_both() -> None:
    pi = Gaussian(jnp.array([0.5]), jnp.array([-1.0]))
    mu = Gaussian(jnp.array([0.0]), jnp.array([0.2]))
    u = pi.sample_pre_tanh(jax.random.key(0), (1000,))
    before = jax.vmap(lambda x: pi.log_density(x) - mu.log_density(x))(u)
    after = jax.vmap(lambda x: pi.log_prob_pre_tanh(x) - mu.log_prob_pre_tanh(x))(u)
    np.testing.assert_allclose(before, after, rtol=1e-3, atol=1e-4)
