"""The MMD against its definition, pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.nn import mmd


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_the_definition(kernel: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 3, 2)), rng.standard_normal((5, 3, 2)) + 0.7

    def k(a: np.ndarray, b: np.ndarray) -> float:
        distance = ((a - b) ** 2).sum() if kernel == "gaussian" else np.abs(a - b).sum()
        return float(np.exp(-distance / (2 * 1.3)))

    ours = jax.jit(lambda x, y: mmd(x, y, kernel, 1.3))(x, y)
    for s in range(3):
        xx = np.mean([k(a, b) for a in x[:, s] for b in x[:, s]])
        yy = np.mean([k(a, b) for a in y[:, s] for b in y[:, s]])
        xy = np.mean([k(a, b) for a in x[:, s] for b in y[:, s]])
        np.testing.assert_allclose(ours[s], np.sqrt(xx + yy - 2 * xy + 1e-6), rtol=1e-4)


def test_equal_samples_have_no_distance_and_a_finite_gradient() -> None:
    x = jax.random.normal(jax.random.key(0), (4, 3, 2))
    value, gradient = jax.jit(jax.value_and_grad(lambda v: mmd(v, x, "gaussian", 1.0).sum()))(x)
    assert float(value) < 6e-3
    assert bool(jnp.isfinite(gradient).all())
