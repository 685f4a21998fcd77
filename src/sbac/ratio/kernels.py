"""Kernels on standardised states, and their length scale."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def kernel(
    name: str, bandwidth: float | Array, x: Float[Array, "n obs"], y: Float[Array, "m obs"]
) -> Float[Array, "n m"]:
    """gaussian: exp(-|x - y|_2^2 / 2 h^2); laplacian: exp(-|x - y|_1 / h)."""
    if name == "gaussian":
        return jnp.exp(-squared_distances(x, y) / (2 * bandwidth**2))
    return jnp.exp(-absolute_distances(x, y) / bandwidth)


SAMPLE = 1_000
"""How many states the median distance is taken over."""


def median_bandwidth(name: str, sample: Float[Array, "n obs"]) -> Float[Array, ""]:
    """The median distance between two states of a sample, in the kernel's own norm."""
    states = sample[:SAMPLE]
    squared = name == "gaussian"
    distances = jnp.sqrt(squared_distances(states, states)) if squared else absolute_distances(states, states)
    pairs = distances[jnp.triu_indices(len(states), 1)]
    return jnp.maximum(jnp.median(pairs), 1e-6)


def squared_distances(x: Float[Array, "n obs"], y: Float[Array, "m obs"]) -> Float[Array, "n m"]:
    # (x - y)^2 = x^2 + y^2 - 2 x y: a matrix product instead of an n x m x obs array.
    return jnp.maximum((x**2).sum(-1)[:, None] + (y**2).sum(-1) - 2 * x @ y.T, 0.0)


def absolute_distances(x: Float[Array, "n obs"], y: Float[Array, "m obs"]) -> Float[Array, "n m"]:
    # One coordinate at a time, for the same reason.
    def add(total: Array, columns: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = columns
        return total + jnp.abs(a[:, None] - b), None

    return jax.lax.scan(add, jnp.zeros((len(x), len(y)), x.dtype), (x.T, y.T))[0]
