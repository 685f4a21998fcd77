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

from sbac.nn import pre_tanh
from sbac.nn.typed import take
from sbac.policy import Policy
from sbac.ratio import visitation_ratio
from sbac.ratio.visitation import LEAST_ESS_BETA, LEAST_ESS_W, RatioWarning
from sbac.trust.behaviour import behaviour_at, cloned
from sbac.trust.evidence import Evidence, Question
from sbac.trust.fitting import fit, values_at
from sbac.trust.log import BLOCK

MOST_ROWS = 50_000
"""Rows that the weights are computed on, spread evenly over the log."""
STEPS = 5_000
"""Of the learning of w."""


def evidence(question: Question) -> list[Evidence]:
    """The effective share, and the estimates where it is large enough. They do not go into the gain."""
    said: list[Evidence] = []
    for number, policy in enumerate(question.policies, 1):
        said.append(Evidence(diagnostics=weighted(question, number, policy) if isinstance(policy, Policy) else {}))
        question.reached("weighted estimates", number, len(question.policies))
    return said


def effective_share(log_weights: NDArray[np.float64]) -> float:
    """(E x)^2 / E x^2: the share of the rows that carry the weight."""
    x = np.exp(log_weights - log_weights.max())
    return float(x.mean() ** 2 / (x**2).mean())


def weighted(question: Question, number: int, policy: Policy) -> Mapping[str, float]:
    """The effective share, and the estimates: none where the policy has no density, or its share is too small.

    weighted_rewards: the sum of w beta r. doubly_robust: the value by fitted Q evaluation, corrected by the weighted
    errors of its Bellman equation. weighted_advantages: the log's mean return plus E[w A^mu] / (1 - gamma), Eq. (6).
    """
    log, data, gamma = question.log, question.log.data, question.log.discount
    chosen = np.unique(np.linspace(0, len(log.rows) - 1, min(MOST_ROWS, len(log.rows))).astype(int))
    rows, part = log.rows[chosen], take(log.transitions, chosen)
    states, going_on = np.asarray(part.states), np.asarray(part.going_on, np.float64)
    try:
        log_p = policy.log_prob(data.observations[rows], data.actions[rows])
    except ValueError:
        return {}
    u = np.asarray(pre_tanh(jnp.asarray(log.units.within_bounds(np.asarray(part.actions)))), np.float64)
    mean, deviation = behaviour_at(question.once(cloned), states)
    slopes = np.log1p(-(np.tanh(u) ** 2)) + np.log(log.units.action_half)
    log_mu = -(0.5 * ((u - mean) / deviation) ** 2 + np.log(deviation) + 0.5 * np.log(2 * np.pi) + slopes).sum(1)
    log_beta = np.asarray(log_p, np.float64) - log_mu
    share = effective_share(log_beta)
    if share < LEAST_ESS_BETA:
        return {"effective_share": share}
    starts, next_states = np.asarray(log.starts), np.asarray(part.next_states)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RatioWarning)  # what it warns of is decided here
        ratio = visitation_ratio(
            states, log_beta, next_states, 1.0 - going_on, starts, gamma, seed=question.seed, steps=STEPS
        )
    share = min(share, ratio.diagnostics["ess_beta"])
    if ratio.diagnostics["ess_w"] < LEAST_ESS_W:
        return {"effective_share": min(share, ratio.diagnostics["ess_w"])}
    w = np.asarray(ratio(states), np.float64)
    weights = w * np.exp(log_beta)
    weights /= weights.mean()
    # d^p has mass 1 - gamma + gamma (what goes on); ended episodes take theirs away.
    mass = 1.0 / (1.0 - gamma + gamma * (weights * (1.0 - going_on)).mean())
    fitted = question.once(fit)

    def q(of: int, observations: NDArray[np.float32], actions: NDArray[np.float32]) -> NDArray[np.float64]:
        networks, at = take(fitted.networks, slice(of, of + 1)), log.units.states(observations)
        blocks = [slice(i, i + BLOCK) for i in range(0, len(at), BLOCK)]
        parts = [values_at(networks, jnp.asarray(at[block]), jnp.asarray(actions[None, block])) for block in blocks]
        return log.units.values(np.concatenate(parts, axis=1)[0])

    def drawn(observations: NDArray[np.float32]) -> NDArray[np.float32]:
        return log.act(lambda x: policy.sample(x, question.seed), observations)

    observations, next_observations = data.observations[rows], data.next_observations[rows]
    actions, rewards = log.units.actions(data.actions[rows]), data.rewards[rows].astype(np.float64)
    ahead = gamma * going_on * q(number, next_observations, drawn(next_observations))
    errors = rewards + ahead - q(number, observations, actions)
    first = q(number, data.initial_observations, drawn(data.initial_observations)).mean()
    advantage = q(0, observations, drawn(observations)) - q(0, observations, actions)
    return {
        "effective_share": share,
        "weighted_rewards": float((weights * rewards).mean() * mass),
        "doubly_robust": float(first + (weights * errors).mean() * mass),
        "weighted_advantages": float(fitted.logged.mean() + (w / w.mean() * advantage).mean() * mass),
    }
