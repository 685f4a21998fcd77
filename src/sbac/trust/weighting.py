"""Weighted estimates of J(p.sample), from the visitation ratio w = d^p / d^D and the action ratio beta = p / mu.

They read the log's own rewards and need no values of p; but the weights of a policy that is much sharper than the log
rest on a few rows. So they are made only where the effective share of beta allows it, and kept only where that of w
does. They are about the policy that draws its actions, `p.sample`, and not about its mode.
"""

import warnings
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sbac.nn import GaussianPolicy, pre_tanh
from sbac.nn.typed import take
from sbac.policy import Policy
from sbac.ratio import visitation_ratio
from sbac.ratio.visitation import LEAST_ESS_BETA, LEAST_ESS_W, RatioWarning
from sbac.trust.behaviour import behaviour_at
from sbac.trust.fitting import Fitted, values_at
from sbac.trust.log import BLOCK, Log

MOST_ROWS = 50_000
"""Rows that the weights are computed on, spread evenly over the log."""


def effective_share(log_weights: NDArray[np.float64]) -> float:
    """(E x)^2 / E x^2: the share of the rows that carry the weight."""
    x = np.exp(log_weights - log_weights.max())
    return float(x.mean() ** 2 / (x**2).mean())


def weighted_estimates(
    log: Log, policy: Policy, behaviour: GaussianPolicy, fitted: Fitted, number: int, seed: int, steps: int = 5_000
) -> tuple[float | None, Mapping[str, float] | None]:
    """The effective share of beta, and the estimates: None where the policy has no density, or its share is too small.

    rewards: sum of w beta r. doubly_robust: the value by fitted Q evaluation, corrected by the weighted errors of its
    Bellman equation. advantages: the log's mean return plus E[w A^mu] / (1 - gamma), the paper's Eq. (6).
    """
    chosen = np.unique(np.linspace(0, len(log.rows) - 1, min(MOST_ROWS, len(log.rows))).astype(int))
    rows, part = log.rows[chosen], take(log.transitions, chosen)
    data = log.data
    try:
        log_p = policy.log_prob(data.observations[rows], data.actions[rows])
    except ValueError:
        return None, None
    u = np.asarray(pre_tanh(jnp.asarray(log.units.within_bounds(np.asarray(part.actions)))), np.float64)
    mean, deviation = behaviour_at(behaviour, np.asarray(part.states))
    slopes = np.log1p(-(np.tanh(u) ** 2)) + np.log(log.units.action_half)
    log_mu = -(0.5 * ((u - mean) / deviation) ** 2 + np.log(deviation) + 0.5 * np.log(2 * np.pi) + slopes).sum(1)
    log_beta = np.asarray(log_p, np.float64) - log_mu
    share = effective_share(log_beta)
    if share < LEAST_ESS_BETA:
        return share, None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RatioWarning)  # what it warns of is decided here
        ratio = visitation_ratio(
            np.asarray(part.states),
            log_beta,
            np.asarray(part.next_states),
            1.0 - np.asarray(part.going_on),
            np.asarray(log.starts),
            log.discount,
            seed=seed,
            steps=steps,
        )
    share = min(share, ratio.diagnostics["ess_beta"])
    if ratio.diagnostics["ess_w"] < LEAST_ESS_W:
        return min(share, ratio.diagnostics["ess_w"]), None
    w = np.asarray(ratio(np.asarray(part.states)), np.float64)
    weights = w * np.exp(log_beta)
    weights /= weights.mean()
    return share, _estimates(log, policy, fitted, number, chosen, w, weights, seed)


def _estimates(
    log: Log,
    policy: Policy,
    fitted: Fitted,
    number: int,
    chosen: NDArray[np.int64],
    w: NDArray[np.float64],
    weights: NDArray[np.float64],
    seed: int,
) -> dict[str, float]:
    data, rows, part, gamma = log.data, log.rows[chosen], take(log.transitions, chosen), log.discount
    going_on = np.asarray(part.going_on, np.float64)
    # d^p has mass 1 - gamma + gamma (what goes on); ended episodes take theirs away.
    mass = 1.0 / (1.0 - gamma + gamma * (weights * (1.0 - going_on)).mean())

    def q(of: int, observations: NDArray[np.float32], actions: NDArray[np.float32]) -> NDArray[np.float64]:
        networks = take(fitted.networks, slice(of, of + 1))
        states = log.units.states(observations)
        parts = [
            np.asarray(
                values_at(networks, jnp.asarray(states[i : i + BLOCK]), jnp.asarray(actions[None, i : i + BLOCK]))
            )
            for i in range(0, len(states), BLOCK)
        ]
        return log.units.centre + log.units.spread * np.concatenate(parts, axis=1)[0].astype(np.float64)

    def drawn(observations: NDArray[np.float32]) -> NDArray[np.float32]:
        return log.act(lambda x: policy.sample(x, seed), observations)

    observations, next_observations = data.observations[rows], data.next_observations[rows]
    actions = log.units.actions(data.actions[rows])
    rewards = data.rewards[rows].astype(np.float64)
    ahead = gamma * going_on * q(number, next_observations, drawn(next_observations))
    errors = rewards + ahead - q(number, observations, actions)
    first = q(number, data.initial_observations, drawn(data.initial_observations)).mean()
    advantage = q(0, observations, drawn(observations)) - q(0, observations, actions)
    return {
        "rewards": float((weights * rewards).mean() * mass),
        "doubly_robust": float(first + (weights * errors).mean() * mass),
        "advantages": float(fitted.own.mean() + (w / w.mean() * advantage).mean() * mass),
    }
