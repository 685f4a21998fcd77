"""Kernel MMD between the two sides of the flow equation (F): what Eq. (7) sets out to be.

Both sides are weighted points: w at s against the pushed mass at s' and the restarts. The squared MMD is the kernel's
quadratic form of the signed mass. Pairs of a row with itself are left out (i != j, a U-statistic): they add a penalty
on w^2 that pulls w to 0. The pushed mass comes from the Polyak copy, as the classifier's does: differentiated through
both sides, the loss is so flat along smooth functions (by (1 - gamma)^2) that w hardly moves.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.ratio.base import LogRatio, RatioBatch, RatioConfig, flow, restart, shares
from sbac.ratio.kernels import kernel


def loss(
    config: RatioConfig,
    log_w: LogRatio,
    target: Float[Array, " batch"],
    batch: RatioBatch,
    mean_product: Array,
    bandwidth: float | Array,
    *,
    distinct: bool = True,
) -> Float[Array, ""]:
    """|| w d^D - (1 - gamma) restart - gamma push(w_bar) ||^2 in the kernel's space.

    `target` is log w_bar at the batch's states, `mean_product` the mean of beta w_bar. Not `distinct`: the batch is
    the whole distribution, not a sample of it, and all pairs count.
    """
    inflow = flow(config, target, batch, mean_product)
    start = restart(config, batch)
    rows = shares(batch.weights, batch.states)
    points = jnp.concatenate([batch.states, batch.next_states])
    mass = jnp.concatenate([rows * jnp.exp(log_w(batch.states)), -inflow.pushed])
    restarted = -inflow.restart * start.shares
    if config.form == "theorem":  # the restarts are the rows themselves
        return quadratic(config, points, mass.at[: len(rows)].add(restarted), len(rows), bandwidth, distinct)
    cross = mass @ kernel(config.kernel, bandwidth, points, start.states) @ restarted
    initial = quadratic(config, start.states, restarted, len(restarted), bandwidth, distinct)
    return quadratic(config, points, mass, len(rows), bandwidth, distinct) + 2 * cross + initial


def quadratic(
    config: RatioConfig, points: Array, mass: Array, samples: int, bandwidth: float | Array, distinct: bool
) -> Float[Array, ""]:
    """mass K mass; if `distinct`, over pairs of independent samples, where a sample owns every `samples`-th point."""
    gram = kernel(config.kernel, bandwidth, points, points)
    if not distinct:
        return mass @ gram @ mass
    owner = jnp.arange(len(points)) % samples
    return mass @ (gram * (owner[:, None] != owner)) @ mass * samples / (samples - 1)
