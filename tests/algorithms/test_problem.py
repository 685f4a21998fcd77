"""The problem is what its description says: its optimum, its data, its bounds."""

import numpy as np
import pytest

from tests.algorithms import problem as p


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    return p.dataset()


def test_the_optimum_stays_inside_all_bounds_and_earns_what_riccati_says() -> None:
    _, gains = p.gains()
    pushes, errors = [], []

    def optimal(states: np.ndarray, time: int) -> np.ndarray:
        pushes.append(-states @ gains[time].T)
        errors.append(states @ p.ERROR.T)
        return pushes[-1]

    np.testing.assert_allclose(p.returns(optimal), p.optimal_returns(p.starts()), rtol=1e-10)
    assert np.abs(pushes).max() < 1
    assert np.abs(errors).max() < p.LOST


def test_no_nearby_plan_earns_more() -> None:
    """The return is concave in the pushes, so a plan that beats its neighbours beats all."""
    rng = np.random.default_rng(0)
    states, pushes = p.starts(), list[np.ndarray]()
    for gain in p.gains()[1]:
        pushes.append(-states @ gain.T)
        states = states @ p.A.T + pushes[-1] @ p.B.T
    for size in (0.3, 0.01, 0.001):
        plan = np.stack(pushes) + size * rng.standard_normal((p.HORIZON, len(states), 1))
        assert (p.returns(lambda states, time, plan=plan: plan[time]) < p.optimal_returns(p.starts())).all()


def test_losing_the_target_on_purpose_never_pays() -> None:
    """The cheapest way to an error of 1.5 after T steps (a quadratic programme) earns less than the optimum."""
    for start in p.starts()[::4]:
        optimum = p.optimal_returns(start[None])[0]
        for steps in range(1, p.HORIZON):
            # States are affine in the pushes: s_t = A^t s_0 + sum_k A^(t-1-k) B a_k.
            effect = np.zeros((steps + 1, 3, steps))
            drift = [np.linalg.matrix_power(p.A, t) @ start for t in range(steps + 1)]
            for t in range(1, steps + 1):
                effect[t] = p.A @ effect[t - 1]
                effect[t][:, t - 1] += p.B[:, 0]
            hessian = p.ACTION_COST * np.eye(steps) + sum(e.T @ p.STATE_COST @ e for e in effect[:-1])
            linear = sum(e.T @ p.STATE_COST @ d for e, d in zip(effect[:-1], drift[:-1], strict=True))
            constant = sum(d @ p.STATE_COST @ d for d in drift[:-1])
            reach = (p.ERROR @ effect[-1])[0]
            for side in (-p.LOST, p.LOST):
                system = np.block([[hessian, reach[:, None]], [reach[None], np.zeros((1, 1))]])
                pushes = np.linalg.lstsq(system, np.append(-linear, side - (p.ERROR @ drift[-1])[0]), rcond=None)[0]
                cost = pushes[:-1] @ hessian @ pushes[:-1] + 2 * linear @ pushes[:-1] + constant
                if np.isclose(reach @ pushes[:-1] + (p.ERROR @ drift[-1])[0], side):
                    assert p.BONUS * steps - cost < optimum


def test_rest_scores_zero_and_the_optimum_a_hundred() -> None:
    assert p.score(lambda s: 0 * s[:, :1]) == pytest.approx(0)
    steady = -p.gains()[1][0]
    assert 99 < p.score(lambda s: s @ steady.T) <= 100


def test_the_data_are_mixed(data: dict[str, np.ndarray]) -> None:
    scores = [p.percent(data["rewards"][rows].sum()[None], data["observations"][rows][:1]) for rows in p.episodes(data)]
    assert len(scores) == 300
    assert max(scores) < 80
    assert data["terminals"].sum() >= 10
    mean_action, *_ = np.linalg.lstsq(data["observations"], data["actions"], rcond=None)
    assert 0 < p.score(lambda s: s @ mean_action) < 60


def test_rows_follow_the_dynamics(data: dict[str, np.ndarray]) -> None:
    after, rewards, terminals = p.step(data["observations"].astype(float), data["actions"].astype(float))
    np.testing.assert_allclose(after, data["next_observations"], atol=1e-5)
    np.testing.assert_allclose(rewards, data["rewards"], atol=1e-5)
    np.testing.assert_array_equal(terminals, data["terminals"] == 1)
    assert not (data["terminals"] * data["timeouts"]).any()
