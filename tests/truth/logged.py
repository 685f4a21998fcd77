"""Logs from worlds in which every policy's discounted value is the solution of a linear system (numpy alone)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Columns = dict[str, Any]
Acts = Callable[[np.ndarray], np.ndarray]
PLACES = np.array([-0.8, 0.0, 0.8])
"""Where the three actions of a tabular world lie on the line."""


@dataclass(frozen=True)
class Table:
    """Six states, shown one-hot, and three actions; the log follows mu for `length` steps, cut by time."""

    transitions: np.ndarray  # (s, a, s')
    rewards: np.ndarray  # (s, a)
    mu: np.ndarray  # (s, a)
    discount: float = 0.9
    length: int = 50
    noise: float = 0.1

    @classmethod
    def random(cls, seed: int, states: int = 6, sharpness: float = 1.0) -> "Table":
        """`sharpness` of mu: the larger, the rarer its second and third action."""
        rng = np.random.default_rng(seed)
        transitions = rng.dirichlet(np.full(states, 0.5), size=(states, 3))
        logits = sharpness * rng.normal(size=(states, 3))
        mu = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return cls(transitions, rng.uniform(size=(states, 3)), mu)

    def value(self, policy: np.ndarray) -> float:
        """J of a policy (s, a) from a first state drawn evenly."""
        moves = np.einsum("sa,sat->st", policy, self.transitions)
        earned = (policy * self.rewards).sum(1)
        return float(np.linalg.solve(np.eye(len(moves)) - self.discount * moves, earned).mean())

    def improved(self) -> np.ndarray:
        """Greedy in Q^mu, one action a state."""
        moves = np.einsum("sa,sat->st", self.mu, self.transitions)
        v = np.linalg.solve(np.eye(len(moves)) - self.discount * moves, (self.mu * self.rewards).sum(1))
        return (self.rewards + self.discount * self.transitions @ v).argmax(1)

    def usual(self, changed: int = 0) -> np.ndarray:
        """mu's most frequent action; in the first `changed` states its second."""
        order = np.argsort(-self.mu, axis=1)
        return np.where(np.arange(len(order)) < changed, order[:, 1], order[:, 0])

    def rare(self) -> np.ndarray:
        """mu's rarest action."""
        return self.mu.argmin(1)

    def acts(self, choice: np.ndarray) -> Acts:
        return lambda observations: PLACES[choice[np.asarray(observations).argmax(1)]][:, None]

    def log(self, episodes: int, seed: int) -> Columns:
        rng = np.random.default_rng(seed)
        states = len(self.mu)

        def drawn(shares: np.ndarray) -> np.ndarray:
            return np.minimum((rng.random(episodes)[:, None] > shares.cumsum(1)).sum(1), shares.shape[1] - 1)

        rows = list[tuple[np.ndarray, ...]]()
        s = rng.integers(0, states, episodes)
        for time in range(self.length):
            a = drawn(self.mu[s])
            following = drawn(self.transitions[s, a])
            reward = self.rewards[s, a] + self.noise * rng.standard_normal(episodes)
            rows.append((s, a, reward, following, np.full(episodes, time == self.length - 1)))
            s = following
        s, a, r, following, cut = (np.stack(column, 1).reshape(-1) for column in zip(*rows, strict=True))
        return {
            "observations": np.eye(states)[s],
            "actions": PLACES[a][:, None],
            "rewards": r,
            "terminals": np.zeros(len(s), bool),
            "timeouts": cut,
            "next_observations": np.eye(states)[following],
        }


@dataclass(frozen=True)
class Linear:
    """s' = A s + B a + noise, r = 1 - s'Cs - 0.1 |a|^2; the log acts by a noisy linear law, cut by time."""

    dynamics: np.ndarray
    control: np.ndarray
    cost: np.ndarray
    gain: np.ndarray  # (act, obs): the log's law, a = gain s + deviation * noise
    deviation: float = 0.3
    start: float = 0.5
    noise: float = 0.1
    discount: float = 0.9
    length: int = 50
    bound: float = 3.0  # of the actions: so wide that it never counts

    @classmethod
    def random(cls, seed: int, obs: int = 3, act: int = 1) -> "Linear":
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.normal(size=(obs, obs)))[0]
        control = 0.5 * rng.normal(size=(obs, act)) / np.sqrt(act)
        return cls(0.8 * rotation, control, np.eye(obs) / obs, 0.1 * rng.normal(size=(act, obs)) / np.sqrt(obs))

    def better(self, share: float) -> np.ndarray:
        """The log's gain moved towards the optimal one: 0 is the log's, 1 the optimum."""
        p = self.cost
        act = self.control.shape[1]
        best = np.zeros_like(self.gain)
        for _ in range(500):
            ahead = self.discount * self.control.T @ p
            best = -np.linalg.solve(0.1 * np.eye(act) + ahead @ self.control, ahead @ self.dynamics)
            closed = self.dynamics + self.control @ best
            p = self.cost + 0.1 * best.T @ best + self.discount * closed.T @ p @ closed
        return self.gain + share * (best - self.gain)

    def costs(self, gain: np.ndarray, deviation: float = 0.0) -> tuple[np.ndarray, float]:
        """P and c of V(s) = c - s'Ps, for a = gain s + deviation * noise."""
        closed = self.dynamics + self.control @ gain
        p = np.zeros_like(self.cost)
        for _ in range(2_000):
            p = self.cost + 0.1 * gain.T @ gain + self.discount * closed.T @ p @ closed
        moved = self.noise**2 * np.eye(len(p)) + deviation**2 * self.control @ self.control.T
        per_step = 0.1 * len(gain) * deviation**2 + self.discount * np.trace(p @ moved)
        return p, float((1.0 - per_step) / (1 - self.discount))

    def value(self, gain: np.ndarray, deviation: float = 0.0) -> float:
        """J of a = gain s + deviation * noise."""
        p, constant = self.costs(gain, deviation)
        return float(constant - self.start**2 * np.trace(p))

    def logged_q(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q of the log's own law."""
        p, constant = self.costs(self.gain, self.deviation)
        after = states @ self.dynamics.T + actions @ self.control.T
        ahead = constant - np.einsum("ni,ij,nj->n", after, p, after) - self.noise**2 * np.trace(p)
        return self.rewards(states, actions) + self.discount * ahead

    def rewards(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        return 1.0 - np.einsum("ni,ij,nj->n", states, self.cost, states) - 0.1 * (actions**2).sum(1)

    def acts(self, gain: np.ndarray) -> Acts:
        return lambda observations: np.asarray(observations) @ gain.T

    def log(self, episodes: int, seed: int) -> Columns:
        rng = np.random.default_rng(seed)
        obs, act = self.control.shape
        rows = list[tuple[np.ndarray, ...]]()
        s = self.start * rng.standard_normal((episodes, obs))
        for time in range(self.length):
            a = s @ self.gain.T + self.deviation * rng.standard_normal((episodes, act))
            reward = self.rewards(s, a)
            following = s @ self.dynamics.T + a @ self.control.T + self.noise * rng.standard_normal((episodes, obs))
            rows.append((s, a, reward, following, np.full(episodes, time == self.length - 1)))
            s = following
        names = ("observations", "actions", "rewards", "next_observations", "timeouts")
        stacked = (np.stack(column, 1) for column in zip(*rows, strict=True))
        columns = {name: x.reshape(-1, *x.shape[2:]) for name, x in zip(names, stacked, strict=True)}
        bounds = {"action_low": np.full(act, -self.bound), "action_high": np.full(act, self.bound)}
        return {**columns, "terminals": np.zeros(len(columns["rewards"]), bool), **bounds}
