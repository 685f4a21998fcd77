"""Phase estimate of SBAC against exact answers: mu against a known conditional, Q^mu against solved systems."""

import numpy as np

import sbac
from sbac.files import load_arrays
from sbac.policy.formulas import forward


def q_values(folder, observations, actions):
    """Q^mu of a finished run (one seed), evaluated in numpy."""
    arrays, _ = load_arrays(folder / "checkpoint" / "state-0.safetensors")
    nets = {k.split("critic/model/nets/")[1]: v[0] for k, v in arrays.items() if "critic/model/nets/" in k}
    flat = {f"q/{name}": v[0] for name, v in nets.items()} | {"q/normalise": np.ones(1)}  # LayerNorm
    return forward(flat, "q", np.concatenate([observations, actions], axis=1).astype(np.float32))[:, 0]


def fit(data, folder, steps, **options):
    settings = {"behaviour_learning_rate": 2e-3, "critic_learning_rate": 2e-3, "standardise_states": False}
    settings |= {"reward_scale": "none", "critics": 1, "validation": 0.0, "target_rate": 0.02} | options
    return sbac.train(
        data,
        "sbac-no-w",
        steps=[steps, 0],
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
    run = fit(data, tmp_path / "run", 4000)
    policy = run.policies[0]  # pi starts as mu, and takes no step
    assert run.config["runs"][0]["start_from_clone"]
    probe = rng.uniform(-0.9, 0.9, (500, 2)).astype(np.float32)
    want_mean = np.stack([0.8 * probe[:, 0], -0.5 * probe[:, 1] + 0.3], axis=1)
    want_std = np.stack([0.2 + 0.15 * probe[:, 1], np.full(len(probe), 0.4)], axis=1)
    from sbac.policy.formulas import TanhGaussian

    mean, log_std = TanhGaussian().parts(policy.arrays, probe)
    assert np.abs(mean - want_mean).mean() < 0.03
    assert np.abs(np.exp(log_std) / want_std - 1).mean() < 0.1


def tabular_problem(rng, states=6, discount=0.9):
    """A random MDP with terminations: one-hot states, three actions placed on a line."""
    actions = np.array([-0.8, 0.0, 0.8])
    transition = rng.dirichlet(np.ones(states) * 0.5, size=(states, 3))
    reward = rng.uniform(0, 1, (states, 3))
    terminal = np.zeros((states, 3))
    terminal[0] = 0.3  # leaving state 0 ends the episode with probability 0.3
    mu = rng.dirichlet(np.ones(3) * 2, size=states)
    onward = (1 - terminal)[..., None] * transition
    q = np.zeros((states, 3))
    for _ in range(2000):
        q = reward + discount * onward @ (mu * q).sum(1)
    return actions, transition, reward, terminal, mu, q


def test_q_mu_of_a_random_tabular_mdp(tmp_path) -> None:
    rng = np.random.default_rng(3)
    actions, transition, reward, terminal, mu, q = tabular_problem(rng)
    rows = []
    s, t = rng.integers(6), 0
    for _ in range(30_000):
        a = rng.choice(3, p=mu[s])
        done = rng.random() < terminal[s, a]
        t += 1
        limit = t == 50 and not done
        rows.append((s, a, done, limit))
        s = rng.choice(6, p=transition[s, a])
        if done or limit:
            s, t = rng.integers(6), 0
    s, a, done, limit = (np.array(column) for column in zip(*rows, strict=True))
    data = sbac.Dataset(
        observations=np.eye(6)[s], actions=actions[a][:, None], rewards=reward[s, a], terminals=done, timeouts=limit
    )
    fit(data, tmp_path / "run", 6000, discount=0.9)
    grid = [(i, j) for i in range(6) for j in range(3)]
    found = q_values(tmp_path / "run", np.eye(6)[[i for i, _ in grid]], actions[[j for _, j in grid]][:, None])
    truth = np.array([q[i, j] for i, j in grid])
    visits = np.array([np.sum((s == i) & (a == j)) for i, j in grid])
    error = np.abs(found - truth)[visits > 200]
    assert error.max() < 0.12 * np.ptp(truth) + 0.1, (found, truth)
    assert np.corrcoef(found[visits > 200], truth[visits > 200])[0, 1] > 0.98


def test_q_mu_of_a_linear_gaussian_system(tmp_path) -> None:
    """s' = A s + B a + noise, a = K s + noise, r = -(s's + a'a): Q^mu is quadratic and known."""
    rng = np.random.default_rng(1)
    discount = 0.9
    A, B, K = np.array([[0.9, 0.2], [0.0, 0.7]]), np.array([[0.0], [0.5]]), np.array([[-0.1, -0.3]])
    noise, spread = 0.1, 0.2
    closed = A + B @ K
    P = np.zeros((2, 2))
    for _ in range(2000):
        P = np.eye(2) + K.T @ K + discount * closed.T @ P @ closed
    # V(s) = -(s'Ps + c); c solves the constant part: exploration noise and process noise.
    c = (spread**2 * (1 + discount * (B.T @ P @ B)[0, 0]) + discount * noise**2 * np.trace(P)) / (1 - discount)

    def truth(s, a):
        step = s @ A.T + a @ B.T
        future = np.einsum("ni,ij,nj->n", step, P, step) + noise**2 * np.trace(P) + c
        return -((s**2).sum(1) + (a**2).sum(1)) - discount * future

    obs, act, rew, out = [], [], [], []
    for _ in range(600):
        s = rng.uniform(-1, 1, 2)
        for t in range(50):
            a = np.clip(K @ s + spread * rng.normal(size=1), -0.99, 0.99)
            obs.append(s)
            act.append(a)
            rew.append(-(s @ s + a @ a))
            out.append(t == 49)
            s = A @ s + B @ a + noise * rng.normal(size=2)
    o, a = np.array(obs), np.array(act)
    data = sbac.Dataset(
        observations=o, actions=a, rewards=np.array(rew), terminals=np.zeros(len(o), bool), timeouts=np.array(out)
    )
    fit(data, tmp_path / "run", 6000, discount=discount)
    probe = rng.integers(len(o), size=1000)
    found, want = q_values(tmp_path / "run", o[probe], a[probe]), truth(o[probe], a[probe])
    assert np.corrcoef(found, want)[0, 1] > 0.97
    assert np.abs(found - want).mean() < 0.15 * want.std() + 0.05
