"""SBAC's policy improvement without estimation: exact Q, exact w, exact return, for many enumerated MDPs at once.

A policy array has axes (alpha, MDP, state, action); whatever belongs to an MDP alone lacks the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from truth.problems import TabularMDP

TINY = 1e-300  # below, a probability has no logarithm
LEAST_WEIGHT = 1e-9  # where pi never goes: keeps 1 / w, and a weighted mean over such states, defined


@dataclass(frozen=True)
class Worlds:
    """MDPs of one size and one discount, stacked."""

    transitions: np.ndarray  # (m, s, a, s'): sums to 1 - termination over s'
    termination: np.ndarray  # (m, s, a)
    rewards: np.ndarray  # (m, s, a)
    initial: np.ndarray  # (m, s)
    mu: np.ndarray  # (m, s, a)
    data: np.ndarray  # (m, s): where the data's states lie
    discount: float

    @classmethod
    def stack(cls, mdps: Sequence[TabularMDP], discount: float) -> "Worlds":
        names = ("transitions", "termination", "rewards", "initial", "mu", "data")
        return cls(*(np.stack([getattr(mdp, name) for mdp in mdps]) for name in names), discount=discount)

    @property
    def shape(self) -> tuple[int, int, int]:
        """MDPs, states, actions."""
        return self.rewards.shape

    def values(self, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(V, Q) of the policy; an ended episode earns nothing more."""
        moves = np.einsum("...msa,msat->...mst", policy, self.transitions)
        earned = (policy * self.rewards).sum(-1)
        v = np.linalg.solve(np.eye(self.shape[1]) - self.discount * moves, earned[..., None])[..., 0]
        return v, self.rewards + self.discount * np.einsum("msat,...mt->...msa", self.transitions, v)

    def returns(self, policy: np.ndarray) -> np.ndarray:
        return (self.initial * self.values(policy)[0]).sum(-1)

    def return_std(self, policy: np.ndarray) -> np.ndarray:
        """Standard deviation of an episode's discounted return, by the Bellman equation of its second moment."""
        v, _ = self.values(policy)
        ahead = self.discount * np.einsum("msat,...mt->...msa", self.transitions, v)
        moves = self.discount**2 * np.einsum("...msa,msat->...mst", policy, self.transitions)
        earned = (policy * (self.rewards**2 + 2 * self.rewards * ahead)).sum(-1)
        square = np.linalg.solve(np.eye(self.shape[1]) - moves, earned[..., None])[..., 0]
        return np.sqrt((self.initial * square).sum(-1) - (self.initial * v).sum(-1) ** 2)

    def visitation(self, policy: np.ndarray) -> np.ndarray:
        """d^pi(s) from the initial states, where ended episodes restart; sums to 1."""
        moves = np.einsum("...msa,msat->...mts", policy, self.transitions)
        flow = np.linalg.solve(np.eye(self.shape[1]) - self.discount * moves, self.initial[..., None])[..., 0]
        return flow / flow.sum(-1, keepdims=True)

    def best_returns(self) -> np.ndarray:
        """J of the optimal policy, by policy iteration."""
        policy = self.mu
        while True:
            better = greedy(self.values(policy)[1])
            if np.all(self.returns(better) <= self.returns(policy) + 1e-10):
                return self.returns(policy)
            policy = better


def greedy(scores: np.ndarray) -> np.ndarray:
    return np.eye(scores.shape[-1])[scores.argmax(-1)]


# --- The policy step: objective (8) with w held fixed -----------------------------------------------------------------

Maximiser = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(gain (k, m, s, a), temperature (k, m, s)) -> pi that maximises sum_s [pi . gain + temperature entropy(pi)]."""


def each_state(gain: np.ndarray, temperature: np.ndarray) -> np.ndarray:
    """The unrestricted policy: every state for itself."""
    return softmax(gain / temperature[..., None], -1) if np.all(temperature > 0) else greedy(gain)


def shared(groups: np.ndarray) -> Maximiser:
    """One choice for all states of a group, `groups` (m, g, s) being 0 or 1: the states compete."""

    def maximise(gain: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        pooled = np.einsum("mgs,kmsa->kmga", groups, gain)
        chosen = each_state(pooled, np.einsum("mgs,kms->kmg", groups, temperature))
        return np.einsum("mgs,kmga->kmsa", groups, chosen)

    return maximise


def among(candidates: np.ndarray) -> Maximiser:
    """The best of listed policies (c, s, a); their entropy does not count."""

    def maximise(gain: np.ndarray, temperature: np.ndarray) -> np.ndarray:
        return candidates[np.tensordot(gain, candidates, ((2, 3), (1, 2))).argmax(-1)]

    return maximise


WEIGHTINGS = {
    "none": "Q + alpha log mu",
    "q": "w Q + alpha log mu",
    "penalty": "Q + (alpha / w) log mu",
    "state": "w (Q + alpha log mu)",
}
"""Where w stands: nowhere; as in (8); as in the paper's second view of (8); on the whole, which weighs states alone."""


def policy_step(
    worlds: Worlds,
    q: np.ndarray,
    w: np.ndarray,
    alpha: np.ndarray,
    *,
    weighting: str = "q",
    entropy: float = 0.0,
    maximise: Maximiser = each_state,
) -> np.ndarray:
    """max_pi E_{s~data}[w Q + alpha (log mu + entropy H)], alpha of shape (k, m), or another of `WEIGHTINGS`."""
    w, ones = w + LEAST_WEIGHT, np.ones_like(w)
    on_q = w if weighting in ("q", "state") else ones
    on_penalty = {"penalty": 1 / w, "state": w}.get(weighting, ones)
    strength = on_penalty * alpha[..., None]
    gain = on_q[..., None] * q + strength[..., None] * np.log(np.maximum(worlds.mu, TINY))
    return maximise(worlds.data[..., None] * gain, entropy * strength * worlds.data)


def gaussian_step(
    mean: float, std: float, slope: float, curvature: float, w: float, alpha: float, entropy: float
) -> tuple[float, float]:
    """Mean and standard deviation of the Gaussian pi that maximises the same for mu = N(mean, std^2) and
    Q(a) = slope (a - mean) - curvature (a - mean)^2 / 2, where w curvature + alpha / std^2 > 0.

    In pi's deviation x from mu's mean the objective is w slope E[x] - (w curvature + alpha / std^2) E[x^2] / 2
    + entropy alpha log(pi's std): the entropy term has no say in the mean, and without it the spread is 0.
    """
    stiffness = w * curvature + alpha / std**2
    return mean + w * slope / stiffness, float(np.sqrt(entropy * alpha / stiffness))


# --- The fixed point of pi and w --------------------------------------------------------------------------------------

Critic = Callable[[np.ndarray], np.ndarray]
"""w (k, m, s) -> Q (k, m, s, a), or (m, s, a) if it does not depend on w."""


def aggregated_critic(worlds: Worlds, groups: np.ndarray, weighted: bool) -> Critic:
    """Q^mu with one number per group and action: the fixed point of the Bellman regression, weighted by w or not.

    A weighted mean of targets is a contraction for every weight, so the fixed point always exists.
    """
    g, a = groups.shape[1], worlds.shape[2]
    next_pairs = np.einsum("msat,mtb,mgt->masgb", worlds.transitions, worlds.mu, groups, optimize=True)
    next_pairs = next_pairs.reshape(*next_pairs.shape[:3], g * a)

    def fit(w: np.ndarray) -> np.ndarray:
        counts = worlds.data[..., None] * worlds.mu * (w if weighted else np.ones_like(w))[..., None] + LEAST_WEIGHT
        shares = np.einsum("mgs,kmsa->kmags", groups, counts)
        shares /= shares.sum(-1, keepdims=True)
        moves = np.moveaxis(shares @ next_pairs, 2, 3).reshape(*w.shape[:2], g * a, g * a)
        earned = np.einsum("kmags,msa->kmga", shares, worlds.rewards).reshape(*w.shape[:2], g * a, 1)
        q = np.linalg.solve(np.eye(g * a) - worlds.discount * moves, earned).reshape(*w.shape[:2], g, a)
        return np.einsum("mgs,kmga->kmsa", groups, q)

    return fit


@dataclass(frozen=True)
class Found:
    policy: np.ndarray  # (k, m, s, a)
    w: np.ndarray  # (k, m, s), as the last policy step used it
    settled: np.ndarray  # (k, m): whether w is the ratio of the policy that it gave, within 5 % in the data's mean


def improve(
    worlds: Worlds,
    critic: Critic,
    alpha: np.ndarray,
    *,
    weighting: str,
    critic_weighted: bool = False,
    entropy: float = 0.0,
    maximise: Maximiser = each_state,
    iterations: int = 60,
) -> Found:
    """Alternates policy step and exact w with shrinking damping, from w = 1: Algorithm 1's second loop in the limit."""
    assert iterations > 0
    policy, ratio = np.empty(0), np.empty(0)
    used = w = np.ones((*alpha.shape, worlds.shape[1]))
    moves = weighting != "none" or critic_weighted
    for i in range(iterations if moves else 1):
        policy = policy_step(worlds, critic(w), w, alpha, weighting=weighting, entropy=entropy, maximise=maximise)
        used, ratio = w, worlds.visitation(policy) / worlds.data
        w = w + (ratio - w) / (1 + i / 5)
    off = (worlds.data * np.abs(ratio - used)).sum(-1)
    return Found(policy, used, off < 0.05 if moves else np.ones_like(off, bool))
