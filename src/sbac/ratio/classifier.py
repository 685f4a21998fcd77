"""The classifier fixed point: logistic regression between the data and the mass that flows in.

For a fixed target w_bar, the logits h of a classifier that tells the right-hand side of the flow equation (F) from
the data's states have the minimiser exp(h) = [(1 - gamma) restart + gamma push(w_bar)] / d^D, state by state. With
w_bar the slowly following copy of exp(h), its fixed point is the ratio itself. No kernel, no saddle point, O(batch).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.ratio.base import LogRatio, RatioBatch, RatioConfig, flow, restart, shares


def loss(
    config: RatioConfig, log_w: LogRatio, target: Float[Array, " batch"], batch: RatioBatch, mean_product: Array
) -> Float[Array, ""]:
    """E_D[softplus(h(s))] + m E_restart[softplus(-h)] + E_D[p softplus(-h(s'))], with (p, m) the flow of w_bar.

    `target` is log w_bar at the batch's states, `mean_product` the mean of beta w_bar.
    """
    inflow = flow(config, target, batch, mean_product)
    start = restart(config, batch)
    rows = shares(batch.weights, batch.states)
    h, h_next, h_start = split_call(log_w, batch.states, batch.next_states, start.states)
    return logistic(rows, h, inflow.pushed, h_next, inflow.restart * start.shares, h_start)


def logistic(rows: Array, h: Array, pushed: Array, h_next: Array, restarted: Array, h_start: Array) -> Float[Array, ""]:
    """Cross entropy of the logits: the data is one class, the pushed and the restarted mass together the other."""
    data = rows @ jax.nn.softplus(h)
    inflow = pushed @ jax.nn.softplus(-h_next) + restarted @ jax.nn.softplus(-h_start)
    return data + inflow


def split_call(function: LogRatio, *inputs: Array) -> list[Array]:
    """The function on several arrays of rows in one call: one wide matrix product is faster than three."""
    ends = [sum(len(x) for x in inputs[: i + 1]) for i in range(len(inputs) - 1)]
    return jnp.split(function(jnp.concatenate(inputs)), ends)
