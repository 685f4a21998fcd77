"""Monotone rational-quadratic splines (Gregory and Delbourgo, 1982; in flows: Durkan et al., 2019).

A spline maps [-TAIL, TAIL] onto itself through knots, and is the identity outside. It has a formula in both
directions, which is what a density that can also be sampled needs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

TAIL = 4.0
MIN_BIN = 0.02  # of the whole width: keeps densities, and their gradients, bounded
MIN_SLOPE = 0.02


class Spline(NamedTuple):
    x: Float[Array, "... knots"]
    y: Float[Array, "... knots"]
    slope: Float[Array, "... knots"]


def spline_parameters(raw: Float[Array, "... numbers"]) -> Spline:
    """Knots from 3 bins - 1 unbounded numbers; zeros give the identity."""
    bins = (raw.shape[-1] + 1) // 3
    widths, heights, slopes = jnp.split(raw, [bins, 2 * bins], axis=-1)

    def knots(logits: Float[Array, "... bins"]) -> Float[Array, "... knots"]:
        shares = MIN_BIN + (1 - MIN_BIN * bins) * jax.nn.softmax(logits)
        ends = jnp.cumsum(shares[..., :-1], axis=-1)
        edge = jnp.ones((*ends.shape[:-1], 1))
        return TAIL * (2 * jnp.concatenate([0 * edge, ends, edge], axis=-1) - 1)

    shift = jnp.log(jnp.expm1(1 - MIN_SLOPE))  # a slope of 1 at zero
    inner = MIN_SLOPE + jax.nn.softplus(slopes + shift)
    edge = jnp.ones((*inner.shape[:-1], 1))
    return Spline(knots(widths), knots(heights), jnp.concatenate([edge, inner, edge], axis=-1))


def _bin(knots: Float[Array, "... knots"], value: Float[Array, "..."], spline: Spline) -> list[Float[Array, "..."]]:
    """x, y and slope at both ends of the bin that holds the value (a masked sum: cheaper than a gather)."""
    holds = (value[..., None] >= knots[..., :-1]) & (value[..., None] < knots[..., 1:])
    ends = [table[..., :-1] for table in spline] + [table[..., 1:] for table in spline]
    return [jnp.where(holds, end, 0.0).sum(-1) for end in ends]


def spline(x: Float[Array, "..."], parameters: Spline) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """y(x) and log dy/dx."""
    inside = jnp.abs(x) < TAIL
    at = jnp.where(inside, x, 0.0)
    x0, y0, d0, x1, y1, d1 = _bin(parameters.x, at, parameters)
    t = (at - x0) / (x1 - x0)
    y, log_slope = _rational(t, (y1 - y0) / (x1 - x0), y0, y1, d0, d1)
    return jnp.where(inside, y, x), jnp.where(inside, log_slope, 0.0)


def spline_inverse(y: Float[Array, "..."], parameters: Spline) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """x(y) and log dx/dy: the root in [0, 1] of a quadratic in t = (x - x0) / (x1 - x0)."""
    inside = jnp.abs(y) < TAIL
    at = jnp.where(inside, y, 0.0)
    x0, y0, d0, x1, y1, d1 = _bin(parameters.y, at, parameters)
    secant = (y1 - y0) / (x1 - x0)
    rise = (at - y0) * (d0 + d1 - 2 * secant)
    a = (y1 - y0) * (secant - d0) + rise
    b = (y1 - y0) * d0 - rise
    c = -secant * (at - y0)
    t = 2 * c / (-b - jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 1e-12)))
    _, log_slope = _rational(t, secant, y0, y1, d0, d1)
    return jnp.where(inside, x0 + t * (x1 - x0), y), jnp.where(inside, -log_slope, 0.0)


def _rational(t: Array, secant: Array, y0: Array, y1: Array, d0: Array, d1: Array) -> tuple[Array, Array]:
    """The rational quadratic between two knots, and the log of its slope."""
    below = secant + (d0 + d1 - 2 * secant) * t * (1 - t)
    y = y0 + (y1 - y0) * (secant * t**2 + d0 * t * (1 - t)) / below
    slope = d1 * t**2 + 2 * secant * t * (1 - t) + d0 * (1 - t) ** 2
    return y, 2 * jnp.log(secant) + jnp.log(slope) - 2 * jnp.log(below)
