"""Kernel MMD between the two sides of the flow equation (F): what Eq. (7) sets out to be.

Both sides are weighted points: + w at s against the pushed mass at s' and the restarts. The squared MMD is the
kernel's quadratic form of the signed mass. Pairs of a row with itself are left out (i != j, a U-statistic): they
add a penalty on w^2 (1 + gamma^2 beta^2) that pulls w to 0. Differentiated through every w.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.errors import unknown
from sbac.ratio.base import LogRatio, RatioBatch, RatioConfig, flow, product, restart, shares
from sbac.ratio.kernels import kernel


def loss(config: RatioConfig, log_w: LogRatio, batch: RatioBatch, bandwidth: float | Array) -> Float[Array, ""]:
    """|| w d^D - (1 - gamma) restart - gamma push(w) ||^2 in the kernel's space."""
    log_weights = log_w(batch.states)
    inflow = flow(config, log_weights, batch, product(config, log_weights, batch).sum())
    start = restart(config, batch)
    rows = shares(batch.weights, batch.states)
    mass = rows * jnp.exp(log_weights)
    if config.ratio_normalise:
        mass = mass / mass.sum()

    data = (jnp.concatenate([batch.states, batch.next_states]), jnp.concatenate([mass, -inflow.pushed]))
    restarted = -inflow.restart * start.shares
    if config.ratio_form == "theorem":  # the restarts are the rows themselves
        data = (data[0], data[1].at[: len(rows)].add(restarted))
        return quadratic(config, data, len(rows), bandwidth)
    cross = data[1] @ kernel(config.ratio_kernel, bandwidth, data[0], start.states) @ restarted
    initial = quadratic(config, (start.states, restarted), len(restarted), bandwidth)
    return quadratic(config, data, len(rows), bandwidth) + 2 * cross + initial


def quadratic(
    config: RatioConfig, measure: tuple[Array, Array], samples: int, bandwidth: float | Array
) -> Float[Array, ""]:
    """mass K mass of independent samples; a sample owns every `samples`-th point."""
    points, mass = measure
    gram = kernel(config.ratio_kernel, bandwidth, points, points)
    if config.ratio_pairs == "all":
        return mass @ gram @ mass
    if config.ratio_pairs != "distinct":
        raise unknown("ratio_pairs", config.ratio_pairs, ("distinct", "all"))
    owner = jnp.arange(len(points)) % samples
    return mass @ (gram * (owner[:, None] != owner)) @ mass * samples / (samples - 1)
