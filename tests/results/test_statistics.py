"""Statistics against hand-computed cases, against exhaustive enumeration, and against SciPy."""

import itertools

import numpy as np
import pytest
import scipy.stats

from sbac.results.statistics import (
    interquartile_mean,
    interval,
    mean_of_tasks,
    paired_difference,
    probability_of_improvement,
    resample,
    wins,
)


def arrays(*tasks: list[float]) -> list[np.ndarray]:
    return [np.array(task, float) for task in tasks]


def test_interquartile_mean_by_hand() -> None:
    # Eight runs: the lowest two (-50, 1) and the highest two (9, 1000) are left out.
    assert interquartile_mean(arrays([-50, 4, 9, 2], [1, 3, 1000, 5])) == pytest.approx((2 + 3 + 4 + 5) / 4)
    # Five runs: a quarter of five rounds down to one.
    assert interquartile_mean(arrays([10, 0, 1, 2, 6])) == pytest.approx(3.0)
    # Three runs: nothing to cut.
    assert interquartile_mean(arrays([1, 2, 6])) == pytest.approx(3.0)


@pytest.mark.parametrize("count", [4, 7, 20, 45])
def test_interquartile_mean_is_scipys_trimmed_mean(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean([values]) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_mean_of_tasks_weighs_tasks_alike() -> None:
    assert mean_of_tasks(arrays([0, 0, 0, 0], [10])) == pytest.approx(5.0)


def test_improvement_by_hand() -> None:
    # Task 1: of the pairs (1,0) (1,1) (3,0) (3,1) three win and one ties: 3.5 / 4. Task 2: never.
    found = probability_of_improvement(arrays([1, 3], [0, 0]), arrays([0, 1], [5, 6]))
    assert found.value == pytest.approx((3.5 / 4 + 0) / 2)
    mirrored = probability_of_improvement(arrays([0, 1], [5, 6]), arrays([1, 3], [0, 0]))
    assert found.value + mirrored.value == pytest.approx(1.0)


def test_wins_is_mann_whitney() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.integers(0, 6, 9).astype(float), rng.integers(0, 6, 7).astype(float)
    u = scipy.stats.mannwhitneyu(ours, theirs).statistic
    assert wins(ours, theirs) == pytest.approx(u / (9 * 7))


def test_resamples_stay_in_their_task() -> None:
    first, second = resample(arrays([1, 2, 3], [10, 20]), 500, seed=0)
    assert first.shape == (500, 3) and second.shape == (500, 2)
    assert set(np.unique(first)) == {1, 2, 3} and set(np.unique(second)) == {10, 20}
    assert np.bincount(first.astype(int).ravel())[1:] / first.size == pytest.approx([1 / 3] * 3, abs=0.05)


def test_interval_equals_exhaustive_enumeration() -> None:
    """Two tasks of two and three runs have 2^2 x 3^3 equally likely resamples: their exact quantiles are known."""
    tasks = arrays([0.0, 4.0], [1.0, 2.0, 9.0])
    means = [
        mean_of_tasks(arrays(list(a), list(b)))
        for a in itertools.product(tasks[0], repeat=2)
        for b in itertools.product(tasks[1], repeat=3)
    ]
    found = interval(tasks, mean_of_tasks, confidence=0.8, resamples=40_000)
    assert found.value == pytest.approx(3.0)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.1, 0.9])), abs=0.1)


def test_stratified_interval_agrees_with_scipys_bootstrap_of_several_samples() -> None:
    """SciPy resamples each of several samples by itself, which is what a stratum is."""
    rng = np.random.default_rng(4)
    tasks = [rng.normal(loc, 1.0 + loc, size=6) for loc in (0.0, 1.0, 5.0)]

    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return interquartile_mean([np.moveaxis(s, axis, -1) for s in samples])

    theirs = scipy.stats.bootstrap(
        tasks, statistic, method="percentile", n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval
    ours = interval(tasks, resamples=20_000)
    spread = theirs.high - theirs.low
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03 * spread)


def test_paired_difference_is_scipys_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(3.0, 2.0, 7), rng.normal(1.0, 2.0, 7)
    found = paired_difference(ours, theirs, confidence=0.9)
    expected = scipy.stats.ttest_rel(ours, theirs).confidence_interval(0.9)
    assert found == pytest.approx((np.mean(ours - theirs), expected.low, expected.high))
    assert paired_difference([3.0], [2.0]) == (1.0, None, None)


def test_one_run_has_no_interval() -> None:
    assert interval(arrays([3.0], [5.0])) == (4.0, None, None)
    assert probability_of_improvement(arrays([3.0]), arrays([2.0])) == (1.0, None, None)


def test_refuses_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        interval([])
    with pytest.raises(ValueError, match="at least one"):
        interval([[1.0], []])
    with pytest.raises(ValueError, match="same tasks"):
        probability_of_improvement([[1.0]], [[1.0], [2.0]])
