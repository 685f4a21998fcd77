"""Eq. (7) to the letter: kernels k(s', s'), k(s', s), k(s, s), all pairs, sums.

It puts w at s', but the mass (1 - gamma) + gamma beta w(s) that should arrive at s' at its source s. Since
E_mu[beta | s] = 1, beta leaves the expected loss: on stationary data its minimiser is w = 1 whatever pi is. The
pairs i = j, at gamma = 0.99, pull w to 0, that is onto the clip of log w. Kept for faithfulness; nothing here
knows of terminals, since the paper does not mention them.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.ratio.base import LogRatio, RatioBatch, RatioConfig, clip_log_beta, shares
from sbac.ratio.kernels import kernel


def loss(config: RatioConfig, log_w: LogRatio, batch: RatioBatch, bandwidth: float | Array) -> Float[Array, ""]:
    """sum_ij w(s'_i) w(s'_j) k(s'_i, s'_j) - 2 w(s'_i) T_j k(s'_i, s_j) + T_i T_j k(s_i, s_j)."""

    def k(x: Array, y: Array) -> Array:
        return kernel(config.kernel, bandwidth, x, y)

    gamma = config.discount
    s, s_next = batch.states, batch.next_states
    count = len(s) * shares(batch.weights, s)  # ones, unless rows are weighted
    beta = jnp.exp(clip_log_beta(config, batch.log_ratio))
    w_next = count * jnp.exp(log_w(s_next))
    backed_up = count * (1 - gamma + gamma * beta * jnp.exp(log_w(s)))
    return w_next @ k(s_next, s_next) @ w_next - 2 * w_next @ k(s_next, s) @ backed_up + backed_up @ k(s, s) @ backed_up
