"""Families of problems with known answers: random MDPs, and linear-quadratic control on a grid (all enumerated).

`garnets` and `controls` give stacks of MDPs with mu and its data; what is exact about them is in
tests/truth/improvement.py.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # the problems with known answers live with the tests
from truth.improvement import Maximiser, Worlds, among, greedy, shared
from truth.problems import TabularMDP, softmax

STATES, ACTIONS, BRANCHES, GROUP = 24, 4, 3, 3
PER_CONDITION = 25
BEHAVIOURS = {"random": 0.0, "medium": 1.0, "decent": 2.0}  # how strongly mu's logits follow Q*
ROWS = 1_000  # of the log behind the noisy critic


# --- What every comparison needs --------------------------------------------------------------------------------------


def advantage_scale(worlds: Worlds) -> np.ndarray:
    v, q = worlds.values(worlds.mu)
    return np.sqrt((worlds.data[..., None] * worlds.mu * (q - v[..., None]) ** 2).sum((1, 2)))


def score(worlds: Worlds, policy: np.ndarray) -> np.ndarray:
    """0 is mu's return, 1 the optimal one."""
    low, high = worlds.returns(worlds.mu), worlds.best_returns()
    return (worlds.returns(policy) - low) / (high - low)


def true_q(worlds: Worlds) -> np.ndarray:
    return worlds.values(worlds.mu)[1]


# --- Random MDPs ------------------------------------------------------------------------------------------------------


def garnet(seed: int, behaviour: float, terminates: bool, discount: float) -> TabularMDP:
    """A random MDP with few successors, rewards in [0, 1], and data of mu's discounted visitation."""
    rng = np.random.default_rng(seed)
    transitions = np.zeros((STATES, ACTIONS, STATES))
    for s, a in np.ndindex(STATES, ACTIONS):
        transitions[s, a, rng.choice(STATES, BRANCHES, replace=False)] = rng.dirichlet(np.ones(BRANCHES))
    ends = 0.5 * (rng.random((STATES, ACTIONS)) < 0.1) if terminates else np.zeros((STATES, ACTIONS))
    starts = np.full(STATES, 0.1 / STATES)  # every state has some, so that the data has all states
    starts[rng.choice(STATES, 3, replace=False)] += 0.3
    uniform = np.full((STATES, ACTIONS), 1 / ACTIONS)
    rewards = rng.random((STATES, ACTIONS))
    mdp = TabularMDP(transitions * (1 - ends)[..., None], ends, rewards, starts, starts, uniform, uniform)
    q = optimal_q(mdp, discount)
    mu = softmax(behaviour * (q - q.mean(1, keepdims=True)) / q.std(1, keepdims=True) + rng.normal(size=q.shape))
    return replace(mdp, mu=mu, pi=mu, data=mdp.visitation(mu, discount))


def optimal_q(mdp: TabularMDP, discount: float) -> np.ndarray:
    policy = mdp.mu
    for _ in range(100):  # policy iteration; it stands still after a handful of rounds
        policy = greedy(mdp.values(policy, discount)[1])
    return mdp.values(policy, discount)[1]


def garnets() -> Iterator[tuple[str, Worlds]]:
    seed = 0
    for discount in (0.9, 0.99):
        for terminates in (False, True):
            for name, behaviour in BEHAVIOURS.items():
                seeds = range(seed, seed := seed + PER_CONDITION)
                label = f"gamma {discount}, {'ends' if terminates else 'no ends'}, {name} mu"
                yield label, Worlds.stack([garnet(i, behaviour, terminates, discount) for i in seeds], discount)


def random_groups(worlds: Worlds, size: int = GROUP) -> np.ndarray:
    """A random partition of the states: (m, g, s) of 0 and 1."""
    rng = np.random.default_rng(1)
    m, s, _ = worlds.shape
    return np.stack([np.eye(s // size)[rng.permutation(s) // size].T for _ in range(m)])


def sharing_mu(worlds: Worlds) -> Worlds:
    """The same MDPs under a mu that itself makes one choice per group, with its data: mu is in pi's class."""
    groups = random_groups(worlds)
    logits = np.einsum("mgs,msa->mga", groups, np.log(worlds.mu)) / groups.sum(-1, keepdims=True)
    worlds = replace(worlds, mu=np.einsum("mgs,mga->msa", groups, softmax(logits)))
    return replace(worlds, data=worlds.visitation(worlds.mu))


def garnets_sharing_mu() -> Iterator[tuple[str, Worlds]]:
    return ((label, sharing_mu(worlds)) for label, worlds in garnets())


def noisy_q(worlds: Worlds) -> np.ndarray:
    """Q^mu with the error of a mean over the rows that a log of `ROWS` has of each pair."""
    rng = np.random.default_rng(2)
    q = true_q(worlds)
    rows = ROWS * worlds.data[..., None] * worlds.mu
    return q + q.std((1, 2), keepdims=True) * rng.normal(size=q.shape) / np.sqrt(1 + rows)


def in_groups(worlds: Worlds) -> Maximiser:
    return shared(random_groups(worlds))


# --- Linear-quadratic control on a grid -------------------------------------------------------------------------------

POSITIONS, FORCES = np.linspace(-3, 3, 41), np.linspace(-2, 2, 31)
GAINS, OFFSETS = np.linspace(-1, 2.5, 71), np.linspace(-0.5, 0.5, 11)


def on_grid(mean: np.ndarray | float, std: float, grid: np.ndarray) -> np.ndarray:
    """A Gaussian around each mean, as probabilities of the grid's points (the ends take what lies beyond)."""
    edges = np.r_[-np.inf, (grid[1:] + grid[:-1]) / 2, np.inf]
    return np.diff(norm.cdf((edges - np.asarray(mean)[..., None]) / std), axis=-1)


def linear_laws() -> np.ndarray:
    """u = -gain x + offset, each without noise but for rounding to the two nearest forces: (c, s, a)."""
    gains, offsets = (x.ravel() for x in np.meshgrid(GAINS, OFFSETS, indexing="ij"))
    force = np.clip(-gains[:, None] * POSITIONS + offsets[:, None], FORCES[0], FORCES[-1])
    step = FORCES[1] - FORCES[0]
    return np.maximum(0, 1 - np.abs(force[..., None] - FORCES) / step)


def controlled(seed: int, uneven: bool) -> TabularMDP:
    """x' = a x + b u + noise, reward -(x^2 + c u^2). Uneven: b is 0.1 to 1.9 times as large from left to right, so
    that the best law needs a gain on each side."""
    rng = np.random.default_rng(seed)
    drift, push, noise, cost = rng.uniform((0.85, 0.2, 0.1, 0.05), (1.05, 0.6, 0.3, 0.5))
    strength = push * (1 + 0.9 * np.tanh(2 * POSITIONS)) if uneven else np.full(len(POSITIONS), push)
    mean = drift * POSITIONS[:, None] + strength[:, None] * FORCES
    rewards = -(POSITIONS[:, None] ** 2 + cost * FORCES**2)
    starts = on_grid(rng.uniform(-2, 2), 0.5, POSITIONS)
    usual = -rng.uniform(0, 0.6) * POSITIONS + 0.2 * rng.normal()
    mu = softmax(-0.5 * ((FORCES - usual[:, None]) / rng.uniform(0.4, 0.7)) ** 2)
    return TabularMDP(on_grid(mean, noise, POSITIONS), np.zeros(mean.shape), rewards, starts, starts, mu, mu)


def controls(uneven: bool) -> Iterator[tuple[str, Worlds]]:
    for discount in (0.9, 0.99):
        mdps = [controlled(seed, uneven) for seed in range(30)]
        mdps = [mdp.with_data(mdp.visitation(mdp.mu, discount)) for mdp in mdps]
        yield f"gamma {discount}", Worlds.stack(mdps, discount)


def linear_class(worlds: Worlds) -> Maximiser:
    return among(linear_laws())
