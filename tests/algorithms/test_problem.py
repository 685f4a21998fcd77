"""The problem is what its description says: its optimum, its data, its bounds."""

import numpy as np
import pytest

from tests.algorithms import problem as p


def test_the_optimum_stays_inside_all_bounds_and_earns_what_riccati_says() -> None:
    """No nearby plan earns more; the return is concave in the pushes, so a plan that beats its neighbours beats all."""
    _, gains = p.gains()
    pushes, errors = [], []

    def optimal(states: np.ndarray, time: int) -> np.ndarray:
        pushes.append(-states @ gains[time].T)
        errors.append(states @ p.ERROR.T)
        return pushes[-1]

    best = p.optimal_returns(p.starts())
    np.testing.assert_allclose(p.returns(optimal), best, rtol=1e-10)
    assert np.abs(pushes).max() < 1 and np.abs(errors).max() < p.LOST
    for size in (0.3, 0.01, 0.001):
        plan = np.stack(pushes) + size * np.random.default_rng(0).standard_normal(np.shape(pushes))
        assert (p.returns(lambda states, time, plan=plan: plan[time]) < best).all()
    assert p.score(lambda s: 0 * s[:, :1]) == pytest.approx(0)
    assert 99 < p.score(lambda s: -s @ gains[0].T) <= 100


def test_the_data_are_mixed_and_follow_the_dynamics() -> None:
    data: dict[str, np.ndarray] = p.dataset()
    scores = [p.percent(data["rewards"][rows].sum()[None], data["observations"][rows][:1]) for rows in p.episodes(data)]
    assert len(scores) == 300 and max(scores) < 80 and data["terminals"].sum() >= 10
    mean_action, *_ = np.linalg.lstsq(data["observations"], data["actions"], rcond=None)
    assert 0 < p.score(lambda s: s @ mean_action) < 60
    after, rewards, terminals = p.step(data["observations"].astype(float), data["actions"].astype(float))
    np.testing.assert_allclose(after, data["next_observations"], atol=1e-5)
    np.testing.assert_allclose(rewards, data["rewards"], atol=1e-5)
    np.testing.assert_array_equal(terminals, data["terminals"] == 1)
