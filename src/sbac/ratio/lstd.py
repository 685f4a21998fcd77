"""Least squares in closed form: w(s) = phi(s) . theta on random Fourier features, for whole datasets.

With the features themselves as test functions, the flow equation (F) is linear in theta:

    E_D[phi phi'] theta = (1 - gamma) E_restart[phi] + (gamma / c) E_D[beta phi(arrival) phi'] theta

where a row arrives at its s', or at the restart if it terminates. With c = 1 this is plain LSTD, which fails through
its mass mode: a sampled mean of beta a little above 1 / gamma makes the mass negative. Here c = E_D[beta w], the same
normalisation of the product as everywhere else, and the equation is solved by iteration.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.typed import loop, scan, shapes
from sbac.ratio.base import FitConfig, RatioBatch, RatioConfig, clip_log_beta, restart, shares

Features = Callable[[Float[Array, "rows obs"]], Float[Array, "rows features"]]
Sums = TypeVar("Sums")
CHUNK = 8_192  # rows whose features are in memory at once
ITERATIONS = 5_000  # applications of the operator, which contracts by gamma or faster


class FourierFeatures(eqx.Module):
    """1 and cosines along random directions: a linear function of them is nearly one of a Gaussian kernel."""

    directions: Float[Array, "obs cosines"]
    phases: Float[Array, " cosines"]

    @classmethod
    def create(cls, key: PRNGKeyArray, state_size: int, count: int, bandwidth: float | Array) -> "FourierFeatures":
        direction_key, phase_key = jax.random.split(key)
        directions = jax.random.normal(direction_key, (state_size, count - 1)) / bandwidth
        return cls(directions, jax.random.uniform(phase_key, (count - 1,), maxval=2 * jnp.pi))

    def __call__(self, states: Float[Array, "*batch obs"]) -> Float[Array, "*batch features"]:
        cosines = jnp.sqrt(2.0) * jnp.cos(states @ self.directions + self.phases)
        return jnp.concatenate([jnp.ones((*states.shape[:-1], 1), states.dtype), cosines], axis=-1)


class LinearRatio(eqx.Module):
    """w(s) = phi(s) . theta, kept inside its clip: where data is scarce, least squares may go below 0."""

    features: FourierFeatures
    theta: Float[Array, " features"]

    def log_w(self, config: RatioConfig, states: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        limit = jnp.exp(config.log_w_clip)
        return jnp.log(jnp.clip(self.features(states) @ self.theta, 1 / limit, limit))


def solve(config: FitConfig, features: Features, batch: RatioBatch) -> Float[Array, " features"]:
    """theta, the whole dataset being one batch."""
    gamma = config.discount
    start = restart(config, batch)
    share = shares(batch.weights, batch.states)
    beta = jnp.exp(clip_log_beta(config, batch.log_ratio))

    def row_moments(s: Array, s_next: Array, share: Array, beta: Array, terminals: Array) -> Moments:
        phi, phi_next = features(s), features(s_next)
        pushed = share * beta
        goes_on = pushed * (1 - terminals)
        return Moments(
            gram=phi.T @ (share[:, None] * phi),
            push=phi_next.T @ (goes_on[:, None] * phi),
            mean=share @ phi,
            carried=pushed @ phi,
            ended=(pushed * terminals) @ phi,
        )

    rows = summed(row_moments, batch.states, batch.next_states, share, beta, batch.terminals)

    def row_mean(s: Array, share: Array) -> Array:
        return share @ features(s)

    arrival = summed(row_mean, start.states, start.shares)
    push = rows.push + jnp.outer(arrival, rows.ended)

    ridge = config.ridge * jnp.trace(rows.gram) / len(rows.gram)
    factor = cho_factor(rows.gram + ridge * jnp.eye(len(rows.gram), dtype=rows.gram.dtype))
    restarted = cho_solve(factor, (1 - gamma) * arrival)
    operator = cho_solve(factor, gamma * push)

    def apply(_: Array, theta: Array) -> Array:
        return restarted + operator @ theta / (rows.carried @ theta)

    as_one = cho_solve(factor, rows.mean)  # the projection of w = 1
    return loop(ITERATIONS, apply, as_one)


class Moments(NamedTuple):
    """Sums over the data's rows, phi at s: E[phi phi'], E[beta phi(s') phi'], E[phi], E[beta phi], and E[beta phi] of
    the rows that terminate."""

    gram: Float[Array, "features features"]
    push: Float[Array, "features features"]
    mean: Float[Array, " features"]
    carried: Float[Array, " features"]
    ended: Float[Array, " features"]


def summed(function: Callable[..., Sums], *rows: Array) -> Sums:
    """The sum of the function over chunks of the rows; its padding is rows of zeros, with mass 0."""
    count = -(-len(rows[0]) // CHUNK)
    size = -(-len(rows[0]) // count)

    def chunked(x: Array) -> Array:
        padding = jnp.zeros((count * size - len(x), *x.shape[1:]), x.dtype)
        return jnp.concatenate([x, padding]).reshape(count, size, *x.shape[1:])

    def add(total: Sums, chunk: tuple[Array, ...]) -> Sums:
        return jax.tree.map(jnp.add, total, function(*chunk))

    chunks = tuple(chunked(x) for x in rows)
    zeros = jax.tree.map(jnp.zeros_like, shapes(lambda chunk: function(*chunk), tuple(x[0] for x in chunks)))
    return scan(add, zeros, chunks)
