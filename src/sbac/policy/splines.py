"""The splines of `sbac.nn.spline` in numpy, for policies that act outside JAX; a test compares the two."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

TAIL, MIN_BIN, MIN_SLOPE = 4.0, 0.02, 0.02


def knots(raw: Floats) -> tuple[Floats, Floats, Floats]:
    """x, y and slope at the knots, from 3 bins - 1 unbounded numbers."""
    bins = (raw.shape[-1] + 1) // 3
    widths, heights, slopes = np.split(raw, [bins, 2 * bins], axis=-1)
    inner = MIN_SLOPE + np.logaddexp(0.0, slopes + np.log(np.expm1(1 - MIN_SLOPE)))
    edge = np.ones_like(inner[..., :1])
    return _places(widths), _places(heights), np.concatenate([edge, inner, edge], axis=-1)


def _places(logits: Floats) -> Floats:
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = MIN_BIN + (1 - MIN_BIN * logits.shape[-1]) * shares / shares.sum(-1, keepdims=True)
    ends = np.cumsum(shares[..., :-1], axis=-1)
    edge = np.ones_like(ends[..., :1])
    return TAIL * (2 * np.concatenate([0 * edge, ends, edge], axis=-1) - 1)


def spline(value: Floats, raw: Floats, inverse: bool) -> tuple[Floats, Floats]:
    """The spline or its inverse at a value, and the log of its slope there; the identity beyond the tails."""
    table = knots(raw)
    inside = np.abs(value) < TAIL
    at = np.where(inside, value, 0.0)
    index = (at[..., None] >= table[inverse][..., 1:-1]).sum(-1)[..., None]
    x0, y0, d0, x1, y1, d1 = (np.take_along_axis(t, i, -1)[..., 0] for i in (index, index + 1) for t in table)
    secant = (y1 - y0) / (x1 - x0)
    bend = d0 + d1 - 2 * secant
    if inverse:
        rise = (at - y0) * bend
        a, b, c = (y1 - y0) * (secant - d0) + rise, (y1 - y0) * d0 - rise, -secant * (at - y0)
        t = 2 * c / (-b - np.sqrt(np.maximum(b**2 - 4 * a * c, 1e-12)))
    else:
        t = (at - x0) / (x1 - x0)
    below = secant + bend * t * (1 - t)
    slope = d1 * t**2 + 2 * secant * t * (1 - t) + d0 * (1 - t) ** 2
    log_slope = 2 * np.log(secant) + np.log(slope) - 2 * np.log(below)
    moved = x0 + t * (x1 - x0) if inverse else y0 + (y1 - y0) * (secant * t**2 + d0 * t * (1 - t)) / below
    return np.where(inside, moved, value), np.where(inside, -log_slope if inverse else log_slope, 0.0)
