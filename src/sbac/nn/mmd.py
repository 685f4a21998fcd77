"""Maximum mean discrepancy between two small sets of samples, state by state."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def mean_kernel(
    x: Float[Array, "n batch act"], y: Float[Array, "m batch act"], kernel: str, sigma: float | Array
) -> Float[Array, " batch"]:
    """The mean of k(x_i, y_j) over all pairs, with k = exp(-distance / (2 sigma))."""
    difference = x[:, None] - y[None, :]
    distance = (difference**2 if kernel == "gaussian" else jnp.abs(difference)).sum(-1)
    return jnp.exp(-distance / (2.0 * sigma)).mean((0, 1))


def mmd(
    x: Float[Array, "n batch act"], y: Float[Array, "m batch act"], kernel: str, sigma: float | Array
) -> Float[Array, " batch"]:
    """sqrt(E k(x, x') + E k(y, y') - 2 E k(x, y)) over all pairs, a sample with itself included."""
    squared = (
        mean_kernel(x, x, kernel, sigma) + mean_kernel(y, y, kernel, sigma) - 2.0 * mean_kernel(x, y, kernel, sigma)
    )
    return jnp.sqrt(squared + 1e-6)  # the square root has no slope at 0
