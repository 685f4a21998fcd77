"""Few runs on many tasks: interquartile means, stratified bootstrap, who beats whom.

Scores come as one array per task with the runs along its last axis. A statistic reduces such a list to numbers and
keeps leading axes, so one call computes it for all resamples at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]
Statistic = Callable[[Sequence[Floats]], Floats]


class Interval(NamedTuple):
    """An estimate with its bootstrap interval; no interval where no task has more than one run."""

    value: float
    low: float | None
    high: float | None


def interquartile_mean(scores: Sequence[Floats]) -> Floats:
    """The mean of all runs of all tasks without the lowest and the highest quarter (rounded down) of them."""
    pooled = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    cut = pooled.shape[-1] // 4
    return pooled[..., cut : pooled.shape[-1] - cut].mean(-1)


def mean_of_tasks(scores: Sequence[Floats]) -> Floats:
    """The mean over tasks of the mean over runs: every task counts the same."""
    return np.mean([task.mean(-1) for task in scores], axis=0)


def wins(ours: Floats, theirs: Floats) -> Floats:
    """The share of pairs of runs of one task in which ours scores more; a tie counts a half."""
    difference = ours[..., :, None] - theirs[..., None, :]
    return ((difference > 0) + 0.5 * (difference == 0)).mean((-2, -1))


def resample(scores: Sequence[Floats], resamples: int, seed: int) -> list[Floats]:
    """Stratified bootstrap: the runs of each task drawn with replacement from that task's own runs."""
    rng = np.random.default_rng(seed)
    return [task[rng.integers(0, len(task), (resamples, len(task)))] for task in scores]


def percentiles(values: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The central share `confidence` of the resamples, which lie along the first axis."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail], axis=0)
    return low, high


def interval(
    scores: Sequence[ArrayLike],
    statistic: Statistic = interquartile_mean,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """A statistic of all tasks with its percentile interval under the stratified bootstrap."""
    tasks = _tasks(scores)
    value = float(statistic(tasks))
    if all(len(task) < 2 for task in tasks):
        return Interval(value, None, None)
    low, high = percentiles(statistic(resample(tasks, resamples, seed)), confidence)
    return Interval(value, float(low), float(high))


def probability_of_improvement(
    ours: Sequence[ArrayLike],
    theirs: Sequence[ArrayLike],
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """How likely a run of ours scores more than one of theirs on a task drawn at random; the same tasks in order."""
    x, y = _tasks(ours), _tasks(theirs)
    if len(x) != len(y):
        raise ValueError(f"{len(x)} tasks of ours and {len(y)} of theirs: expected the same tasks")
    value = float(np.mean([wins(a, b) for a, b in zip(x, y, strict=True)]))
    if all(len(task) < 2 for task in (*x, *y)):
        return Interval(value, None, None)
    pairs = zip(resample(x, resamples, seed), resample(y, resamples, seed + 1), strict=True)
    low, high = percentiles(np.mean([wins(a, b) for a, b in pairs], axis=0), confidence)
    return Interval(value, float(low), float(high))


def paired_difference(ours: ArrayLike, theirs: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """The mean of ours less theirs, run by run, with the interval of Student's t."""
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    value, count = float(difference.mean()), len(difference)
    if count < 2:
        return Interval(value, None, None)
    half = float(stdtrit(count - 1, (1.0 + confidence) / 2.0) * difference.std(ddof=1) / np.sqrt(count))
    return Interval(value, value - half, value + half)


def mean_interval(values: ArrayLike) -> Interval:
    """The mean of some runs with the 95 % interval of Student's t."""
    return paired_difference(values, np.zeros(1))


def _tasks(scores: Sequence[ArrayLike]) -> list[Floats]:
    tasks = [np.asarray(task, np.float64).reshape(-1) for task in scores]
    if not tasks or not all(len(task) for task in tasks):
        raise ValueError("expected at least one task, and at least one run of each")
    return tasks
