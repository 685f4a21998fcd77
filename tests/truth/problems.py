"""Problems whose answers can be computed: enumerated MDPs and linear-Gaussian systems (numpy alone)."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp


@dataclass(frozen=True)
class TabularMDP:
    """States 0..n-1; an action may end the episode. A data distribution and two policies come with it."""

    transitions: np.ndarray  # (s, a, s'): sums to 1 - termination over s'
    termination: np.ndarray  # (s, a)
    rewards: np.ndarray  # (s, a)
    initial: np.ndarray  # (s)
    data: np.ndarray  # (s): where the data's states lie
    mu: np.ndarray  # (s, a)
    pi: np.ndarray  # (s, a)

    @classmethod
    def random(
        cls, seed: int, states: int = 12, actions: int = 3, terminates: bool = False, shift: float = 1.0
    ) -> "TabularMDP":
        """Sparse random dynamics, an arbitrary data distribution, and a pi away from mu by `shift` in its logits."""
        rng = np.random.default_rng(seed)
        transitions = rng.dirichlet(np.full(states, 0.3), size=(states, actions))
        termination = 0.3 * rng.random((states, actions)) ** 2 if terminates else np.zeros((states, actions))
        logits = rng.normal(size=(states, actions))
        return cls(
            transitions=transitions * (1 - termination)[..., None],
            termination=termination,
            rewards=rng.random((states, actions)),
            initial=rng.dirichlet(np.ones(states)),
            data=0.5 / states + 0.5 * rng.dirichlet(np.ones(states)),
            mu=softmax(logits),
            pi=softmax(logits + shift * rng.normal(size=(states, actions))),
        )

    @property
    def size(self) -> int:
        return len(self.initial)

    def step(self, policy: np.ndarray, restart: np.ndarray) -> np.ndarray:
        """P(s'|s) under the policy, ended episodes going on from `restart`."""
        moves = np.einsum("sa,sat->st", policy, self.transitions)
        return moves + (policy * self.termination).sum(1)[:, None] * restart

    def visitation(self, policy: np.ndarray, discount: float, start: np.ndarray | None = None) -> np.ndarray:
        """d(s) of the policy from `start` (the initial states), where ended episodes also restart; sums to 1."""
        start = self.initial if start is None else start
        return np.linalg.solve(np.eye(self.size) - discount * self.step(policy, start).T, (1 - discount) * start)

    def stationary(self, policy: np.ndarray) -> np.ndarray:
        """The distribution that the policy, with restarts, leaves as it is."""
        flow = self.step(policy, self.initial).T - np.eye(self.size)
        return np.linalg.lstsq(np.vstack([flow, np.ones(self.size)]), np.r_[np.zeros(self.size), 1], rcond=None)[0]

    def ratio(self, discount: float, start: np.ndarray | None = None) -> np.ndarray:
        """The true w(s)."""
        return self.visitation(self.pi, discount, start) / self.data

    def values(self, policy: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
        """(V, Q) of the policy; an ended episode earns nothing more."""
        moves = np.einsum("sa,sat->st", policy, self.transitions)
        v = np.linalg.solve(np.eye(self.size) - discount * moves, (policy * self.rewards).sum(1))
        return v, self.rewards + discount * self.transitions @ v

    def with_data(self, data: np.ndarray) -> "TabularMDP":
        return replace(self, data=data)

    def enumerate(self) -> dict[str, np.ndarray]:
        """Every transition (s, a, s', done) with its probability under the data: an expectation as one batch.

        A terminal row's s' is its own s, as in a batch of the engine.
        """
        s, a, t = (x.ravel() for x in np.indices(self.transitions.shape))
        pairs = self.data[:, None] * self.mu
        ended_s, ended_a = (x.ravel() for x in np.indices(self.termination.shape))
        goes_on = (pairs[..., None] * self.transitions).ravel()
        ends = (pairs * self.termination).ravel()
        rows = {
            "states": np.r_[s, ended_s],
            "actions": np.r_[a, ended_a],
            "next_states": np.r_[t, ended_s],
            "terminals": np.r_[np.zeros(len(s)), np.ones(len(ended_s))],
            "weights": np.r_[goes_on, ends],
        }
        keep = rows["weights"] > 0
        rows = {name: values[keep] for name, values in rows.items()}
        rows["log_ratio"] = np.log(self.pi / self.mu)[rows["states"], rows["actions"]]
        return rows


@dataclass(frozen=True)
class LinearGaussian:
    """s' = A s + B u + noise, u Gaussian around a linear law of s: every visitation is a mixture of Gaussians."""

    dynamics: np.ndarray  # (obs, obs)
    control: np.ndarray  # (obs, act)
    noise: float
    start: np.ndarray  # mean of the first state
    start_std: float
    mu_gain: np.ndarray  # (act, obs)
    mu_std: float
    pi_gain: np.ndarray
    pi_offset: np.ndarray  # (act)
    pi_std: float
    horizon: int = 200

    @classmethod
    def random(
        cls, seed: int, obs: int, act: int, *, shift: float, control: float, std_ratio: float = 1.0
    ) -> "LinearGaussian":
        """A stable random system that forgets in about 10 steps. pi's mean is about `shift` standard deviations of
        mu away from mu's, per action dimension; `control` says how much of that the states come to feel."""
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.normal(size=(obs, obs)))[0]
        mu_gain = 0.2 * rng.normal(size=(act, obs)) / np.sqrt(obs)
        offset = rng.normal(size=act)
        mu_std = 0.5
        return cls(
            dynamics=0.9 * rotation,
            control=control * rng.normal(size=(obs, act)) / np.sqrt(act),
            noise=0.3,
            start=rng.normal(size=obs),
            start_std=0.5,
            mu_gain=mu_gain,
            mu_std=mu_std,
            pi_gain=mu_gain + 0.3 * shift * mu_std * rng.normal(size=(act, obs)) / np.sqrt(obs),
            pi_offset=shift * mu_std * offset / np.sqrt((offset**2).mean()),
            pi_std=std_ratio * mu_std,
        )

    @property
    def sizes(self) -> tuple[int, int]:
        return self.control.shape

    def sample(self, trajectories: int, seed: int) -> dict[str, np.ndarray]:
        """Transitions of mu: `horizon` steps each, cut by time and not by an end."""
        rng = np.random.default_rng(seed)
        obs, act = self.sizes
        s = self.start + self.start_std * rng.normal(size=(trajectories, obs))
        rows: dict[str, list[np.ndarray]] = {"states": [], "actions": [], "next_states": []}
        initial = s
        for _ in range(self.horizon):
            u = s @ self.mu_gain.T + self.mu_std * rng.normal(size=(trajectories, act))
            following = s @ self.dynamics.T + u @ self.control.T + self.noise * rng.normal(size=s.shape)
            for name, value in zip(rows, (s, u, following), strict=True):
                rows[name].append(value)
            s = following
        data = {name: np.concatenate(values) for name, values in rows.items()}
        return {**data, "terminals": np.zeros(len(data["states"])), "initial_states": initial}

    def log_ratio(self, states: np.ndarray, actions: np.ndarray, std_floor: float = 0.0) -> np.ndarray:
        """log beta, pi's std being at least `std_floor` times mu's."""
        std = max(self.pi_std, std_floor * self.mu_std)
        z_pi = (actions - states @ self.pi_gain.T - self.pi_offset) / std
        z_mu = (actions - states @ self.mu_gain.T) / self.mu_std
        return 0.5 * (z_mu**2 - z_pi**2).sum(1) + actions.shape[1] * np.log(self.mu_std / std)

    def data_states(self, count: int, seed: int) -> np.ndarray:
        """Fresh states from the data's distribution: one time of each of `count` trajectories."""
        rng = np.random.default_rng(seed)
        times = rng.integers(self.horizon, size=count)
        means, covariances = self.moments(self.mu_gain, 0.0, self.mu_std, self.horizon)
        factors = np.linalg.cholesky(covariances)
        return means[times] + np.einsum("nij,nj->ni", factors[times], rng.normal(size=(count, self.sizes[0])))

    def moments(
        self, gain: np.ndarray, offset: np.ndarray | float, std: float, steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the state at each time under a linear law."""
        closed = self.dynamics + self.control @ gain
        drift = self.control @ np.broadcast_to(offset, self.sizes[1])
        diffusion = std**2 * self.control @ self.control.T + self.noise**2 * np.eye(self.sizes[0])
        mean, covariance = self.start, self.start_std**2 * np.eye(self.sizes[0])
        means, covariances = [], []
        for _ in range(steps):
            means.append(mean)
            covariances.append(covariance)
            mean, covariance = closed @ mean + drift, closed @ covariance @ closed.T + diffusion
        return np.array(means), np.array(covariances)

    def log_w(self, states: np.ndarray, discount: float) -> np.ndarray:
        """The true log of d^pi / d^D."""
        steps = 200  # beyond, the state has forgotten its start: the tail counts as the last step
        times = np.arange(steps)
        shares = (1 - discount) * discount**times
        shares[-1] = discount ** (steps - 1)
        visited = log_mixture(states, *self.moments(self.pi_gain, self.pi_offset, self.pi_std, steps), shares)
        uniform = np.full(self.horizon, 1 / self.horizon)
        return visited - log_mixture(states, *self.moments(self.mu_gain, 0.0, self.mu_std, self.horizon), uniform)


def softmax(logits: np.ndarray) -> np.ndarray:
    return np.exp(logits - logsumexp(logits, axis=-1, keepdims=True))


def log_mixture(x: np.ndarray, means: np.ndarray, covariances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """log density of a mixture of Gaussians."""
    logs = []
    for mean, covariance, share in zip(means, covariances, shares, strict=True):
        factor = np.linalg.cholesky(covariance)
        z = np.linalg.solve(factor, (x - mean).T)
        constant = np.log(np.diag(factor)).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
        logs.append(np.log(share) - constant - 0.5 * (z**2).sum(0))
    return np.asarray(logsumexp(logs, axis=0))


def effective_size(log_weights: np.ndarray) -> float:
    """(E w)^2 / E w^2: the share of the sample that carries the weight."""
    total, squares = (np.asarray(logsumexp(scale * log_weights)) for scale in (1, 2))
    return float(np.exp(2 * total - squares) / len(log_weights))


def correlation(log_w: np.ndarray, truth: np.ndarray) -> float:
    """Of log w with the true log w, both limited to +-4; 0 for a constant."""
    x, y = np.clip(log_w, -4, 4), np.clip(truth, -4, 4)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 1e-6 else 0.0


def skill(log_w: np.ndarray, truth: np.ndarray) -> float:
    """1 - E|w - w*| / E|1 - w*|, means normalised: 1 is perfect, 0 no better than w = 1."""
    w, w_true = (np.exp(x - logsumexp(x)) * len(x) for x in (log_w, truth))
    return float(1 - np.abs(w - w_true).mean() / np.abs(1 - w_true).mean())
