"""Phase estimate of SBAC against exact answers: mu against a known conditional, Q^mu against solved systems."""

import numpy as np
from tests.truth.logged import Linear

import sbac
from sbac.files import load_arrays
from sbac.policy.formulas import TanhGaussian, forward


def q_values(folder, observations, actions, networks="estimate/critic", run=0):
    """Q of a finished run with one critic, evaluated in numpy."""
    arrays, _ = load_arrays(folder / "checkpoint" / "state-0.safetensors")
    where = f"{networks}/model/nets/"
    nets = {k.removeprefix(where): v[run] for k, v in arrays.items() if k.startswith(where)}
    flat = {f"q/{name}": v[0] for name, v in nets.items()} | {"q/normalise": np.ones(1)}  # LayerNorm
    return forward(flat, "q", np.concatenate([observations, actions], axis=1).astype(np.float32))[:, 0]


def fit(data, folder, steps, improve=0, **options):
    settings = {"behaviour_learning_rate": 2e-3, "critic_learning_rate": 2e-3, "standardise_states": False}
    settings |= {"reward_scale": "none", "critics": 1, "validation": 0.0, "target_rate": 0.02} | options
    return sbac.train(
        data,
        "sbac",
        steps=[steps, improve],
        evaluate=False,
        out=folder,
        preset="quick",
        checkpoint_seconds=1e9,
        **settings,
    )


def test_mu_recovers_a_known_conditional_gaussian(tmp_path) -> None:
    rng = np.random.default_rng(0)
    s = rng.uniform(-1, 1, (20_000, 2))
    mean = np.stack([0.8 * s[:, 0], -0.5 * s[:, 1] + 0.3], axis=1)
    std = np.stack([0.2 + 0.15 * s[:, 1], np.full(len(s), 0.4)], axis=1)
    a = np.tanh(mean + std * rng.normal(size=mean.shape))
    ends = np.zeros(len(s), bool)
    ends[99::100] = True
    data = sbac.Dataset(observations=s, actions=a, rewards=s[:, 0], terminals=np.zeros_like(ends), timeouts=ends)
    run = fit(data, tmp_path / "run", 2500)
    policy = run.policies[0]  # pi starts as mu, and takes no step
    probe = rng.uniform(-0.9, 0.9, (500, 2)).astype(np.float32)
    want_mean = np.stack([0.8 * probe[:, 0], -0.5 * probe[:, 1] + 0.3], axis=1)
    want_std = np.stack([0.2 + 0.15 * probe[:, 1], np.full(len(probe), 0.4)], axis=1)
    mean, log_std = TanhGaussian().parts(policy.arrays, probe)
    assert np.abs(mean - want_mean).mean() < 0.03
    assert np.abs(np.exp(log_std) / want_std - 1).mean() < 0.1


class Tabular:
    """A random MDP with terminations, one-hot states and three actions placed on a line, and a log of it by mu."""

    discount = 0.9
    actions = np.array([-0.8, 0.0, 0.8])

    def __init__(self, seed: int, ends: bool, rows: int = 30_000, states: int = 6) -> None:
        rng = np.random.default_rng(seed)
        self.states = states
        self.transition = rng.dirichlet(np.ones(states) * 0.5, size=(states, 3))
        self.reward = rng.uniform(0, 1, (states, 3))
        self.terminal = np.zeros((states, 3))
        self.terminal[0] = 0.3 * ends  # leaving state 0 ends the episode with probability 0.3
        self.mu = rng.dirichlet(np.ones(3) * 2, size=states)
        log = []
        s, t = rng.integers(states), 0
        for _ in range(rows):
            a = rng.choice(3, p=self.mu[s])
            done = rng.random() < self.terminal[s, a]
            t += 1
            limit = t == 50 and not done
            log.append((s, a, done, limit))
            s = rng.choice(states, p=self.transition[s, a])
            if done or limit:
                s, t = rng.integers(states), 0
        s, a, done, limit = (np.array(column) for column in zip(*log, strict=True))
        self.visits = np.array([[np.sum((s == i) & (a == j)) for j in range(3)] for i in range(states)]).ravel()
        self.data = sbac.Dataset(
            observations=np.eye(states)[s],
            actions=self.actions[a][:, None],
            rewards=self.reward[s, a],
            terminals=done,
            timeouts=limit,
        )

    def expectile_values(self, tau: float) -> np.ndarray:
        """Q with V(s) the expectile tau of Q(s, a) over a ~ mu; at 0.5 it is the mean, and Q is Q^mu."""
        q = np.zeros((self.states, 3))
        v = np.zeros(self.states)
        for _ in range(2000):
            above = np.where(q > v[:, None], tau, 1 - tau) * self.mu
            v = (above * q).sum(1) / above.sum(1)
            q = self.reward + self.discount * ((1 - self.terminal)[..., None] * self.transition) @ v
        return q.ravel()

    def fitted(self, folder, **where) -> np.ndarray:
        """Q of a run at all states and actions."""
        return q_values(
            folder, np.repeat(np.eye(self.states), 3, 0), np.tile(self.actions, self.states)[:, None], **where
        )


def tolerance(truth: np.ndarray) -> float:
    return 0.12 * np.ptp(truth) + 0.1


def assert_close(problem: Tabular, fitted: np.ndarray, truth: np.ndarray) -> None:
    seen = problem.visits > 200
    assert np.abs(fitted - truth)[seen].max() < tolerance(truth), (fitted, truth)
    assert np.corrcoef(fitted[seen], truth[seen])[0, 1] > 0.98


def test_q_mu_of_a_random_tabular_mdp(tmp_path) -> None:
    problem = Tabular(3, ends=True)
    fit(problem.data, tmp_path / "run", 3000, discount=0.9)
    assert_close(problem, problem.fitted(tmp_path / "run"), problem.expectile_values(0.5))


def test_expectile_values_of_a_random_tabular_mdp(tmp_path) -> None:
    """At 0.5 they are Q^mu's, at 0.9 near the best that mu shows; each is told from the other."""
    problem = Tabular(3, ends=True)
    fit(problem.data, tmp_path / "run", 3000, discount=0.9, critic="expectile", tau=[0.5, 0.9])
    mean, high = problem.expectile_values(0.5), problem.expectile_values(0.9)
    assert (high - mean).min() > tolerance(high)
    assert_close(problem, problem.fitted(tmp_path / "run", run=0), mean)
    assert_close(problem, problem.fitted(tmp_path / "run", run=1), high)


def test_the_fixed_point_of_the_penalised_bellman_equation(tmp_path) -> None:
    """pi rests at the clone, which costs nothing: with a share of 1, Q^pi is what it is without a price."""
    problem = Tabular(4, ends=False)
    options = {"critic": "pi", "critic_penalty": [0.0, 1.0], "penalty": 1.0, "policy_learning_rate": 0.0}
    fit(problem.data, tmp_path / "run", 1000, improve=1500, discount=0.5, **options)
    free, priced = (problem.fitted(tmp_path / "run", networks="improve/following", run=i) for i in (0, 1))
    np.testing.assert_allclose(priced, free, atol=tolerance(free))


def test_q_mu_of_a_linear_gaussian_system(tmp_path) -> None:
    """Q^mu is quadratic and known."""
    world = Linear.random(0, obs=2)
    data = sbac.Dataset(**world.log(600, 0))
    fit(data, tmp_path / "run", 3000, discount=world.discount)
    probe = np.random.default_rng(0).integers(len(data), size=1000)
    s, a = data.observations[probe].astype(float), data.actions[probe].astype(float)
    found, want = q_values(tmp_path / "run", s, a / world.bound), world.logged_q(s, a)
    assert np.corrcoef(found, want)[0, 1] > 0.97
    assert np.abs(found - want).mean() < 0.15 * want.std() + 0.05
