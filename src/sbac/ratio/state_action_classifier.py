"""The classifier over (s, a): needs actions of pi, but no density of mu.

zeta(s, a) = d^pi(s) pi(a|s) / d^D(s, a) obeys the flow equation with beta absorbed: the mass zeta(s, a) of a row
arrives at (s', a'), a' drawn from pi. A second head learns w(s) from the same masses. Twice the classifier's cost.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.errors import UserError
from sbac.ratio.base import LogRatio, RatioBatch, RatioConfig, flow, restart, shares
from sbac.ratio.classifier import logistic, split_call


def loss(
    config: RatioConfig,
    log_zeta: LogRatio,
    log_w: LogRatio,
    target: Float[Array, " batch"],
    batch: RatioBatch,
    mean_product: Array,
) -> Float[Array, ""]:
    """The classifier's loss on zeta, plus that of the state head at the same masses.

    `log_zeta` takes rows [s, a], `target` is the copy's log zeta at the batch's, `mean_product` the mean of zeta.
    """
    inflow = flow(config, target, absorbed(batch), mean_product)
    start = restart(config, batch)
    rows = shares(batch.weights, batch.states)

    def cross_entropy(function: LogRatio, at: Array, at_next: Array, at_start: Array) -> Array:
        h, h_next, h_start = split_call(function, at, at_next, at_start)
        return logistic(rows, h, inflow.pushed, h_next, inflow.restart * start.shares, h_start)

    pairs = (batch.states, batch.actions), (batch.next_states, batch.next_policy_actions)
    on_pairs = cross_entropy(
        log_zeta, *(beside(s, a) for s, a in (*pairs, (start.states, batch.initial_policy_actions)))
    )
    return on_pairs + cross_entropy(log_w, batch.states, batch.next_states, start.states)


def absorbed(batch: RatioBatch) -> RatioBatch:
    """The batch with log beta = 0: zeta is beta w already."""
    return batch._replace(log_ratio=jnp.zeros_like(batch.terminals))


def beside(states: Array, actions: Array | None) -> Array:
    """Rows [s, a]."""
    if actions is None:
        raise UserError("actions: the state-action classifier needs those of the data and of pi; some are missing")
    return jnp.concatenate([states, actions], axis=-1)
