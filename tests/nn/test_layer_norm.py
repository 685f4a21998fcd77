"""LayerNorm and its slope, which is written out, against the formula in float64 and what JAX makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.nn.mlp import layer_norm

X = 3.0 + 2.0 * jax.random.normal(jax.random.key(0), (7, 33))


def formula(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def test_rows_have_mean_0_and_deviation_1() -> None:
    x = np.asarray(X, np.float64)
    exact = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(layer_norm(X), exact, atol=5e-6)


def test_its_slope_is_the_formulas() -> None:
    direction = jax.random.normal(jax.random.key(1), X.shape)

    def along(function, x):
        return (jnp.sin(function(x)) * direction).sum()

    ours, theirs = (jax.grad(lambda x, f=f: along(f, x))(X) for f in (layer_norm, formula))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("row", [np.zeros(4), np.full(4, 1e4)])
def test_a_row_without_spread_stays_finite(row) -> None:
    x = jnp.asarray(row, jnp.float32)[None]
    value, slope = jax.value_and_grad(lambda x: (layer_norm(x) ** 2).sum())(x)
    assert np.isfinite(value) and np.isfinite(slope).all()


def test_half_precision_stays_half_and_is_computed_in_full() -> None:
    x = X.astype(jnp.bfloat16)
    assert layer_norm(x).dtype == jnp.bfloat16
    np.testing.assert_allclose(layer_norm(x).astype(jnp.float32), formula(x.astype(jnp.float32)), atol=0.02)
