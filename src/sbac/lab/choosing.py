"""Comparisons that allow for choosing: the score that is to be expected of so many tries, and differences of means.

A method with settings is worth what its user gets. Who may try n policies in the environment keeps the best one by the
episodes it was tried with; what is reported of it are other episodes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from sbac.results.series import Series
from sbac.results.statistics import Floats, Interval, mean_of_tasks, percentiles, resample

RESAMPLES = 10_000


def expected_of_tries(chosen_by: ArrayLike, reported: ArrayLike) -> Floats:
    """The expected reported score of the policy that is best of n by `chosen_by`, for n = 1 up to all of them.

    The n policies are drawn without replacement. Of N, the one of rank r is the best of n drawn if the others come from
    the N - r ranks below it: comb(N - r, n - 1) of comb(N, n) draws. Each share follows from that of n - 1, since the
    numbers themselves have thousands of digits where there are thousands of policies.
    """
    order = np.argsort(-np.asarray(chosen_by, np.float64), kind="stable")
    scores, count = np.asarray(reported, np.float64)[order], len(order)
    below = np.arange(count - 1, -1, -1)
    shares = np.full(count, 1 / max(count, 1))
    expected = np.empty(count)
    for tries in range(1, count + 1):
        expected[tries - 1] = shares @ scores
        if tries < count:
            shares = shares * np.maximum(below - tries + 1, 0) / tries * (tries + 1) / (count - tries)
    return expected


def tries_of(tried: Sequence[Series]) -> Floats:
    """Of one method on one dataset: what is to be expected of so many policies, drawn from all settings and seeds."""
    chosen_by = np.array([mean for s in tried for mean in s.by_seed.values()])
    return expected_of_tries(np.nan_to_num(chosen_by, nan=-np.inf), np.concatenate([s.scores for s in tried]))


def mean_tries(by_task: Sequence[Floats]) -> Floats:
    """The mean over tasks, as far as all of them go."""
    least = min(map(len, by_task))
    return np.mean([task[:least] for task in by_task], axis=0)


class Difference(NamedTuple):
    """A mean over tasks less another's."""

    tasks_fixed: Interval
    """95 %, the seeds of each task drawn anew."""
    tasks_drawn: Interval
    """95 %, the tasks drawn anew as well: what other tasks of the kind might have shown."""
    p_value: float
    """Two-sided, of the first interval's resamples."""
    holm: bool
    """Whether zero is excluded at 5 % after Holm's correction for the number of rivals."""


def differences(ours: Sequence[Floats], rivals: Mapping[str, Sequence[Floats]], seed: int = 0) -> dict[str, Difference]:
    """Our mean over tasks less each rival's, on the same tasks in the same order."""
    drawn = {name: _drawn_differences(ours, theirs, seed) for name, theirs in rivals.items()}
    p_values = {name: _two_sided(fixed) for name, (fixed, _) in drawn.items()}
    significant = holm(p_values)
    found: dict[str, Difference] = {}
    for name, theirs in rivals.items():
        value = float(mean_of_tasks(ours) - mean_of_tasks(theirs))
        fixed, free = (_interval(value, resamples) for resamples in drawn[name])
        found[name] = Difference(fixed, free, p_values[name], significant[name])
    return found


def holm(p_values: Mapping[str, float], level: float = 0.05) -> dict[str, bool]:
    """Which of several hypotheses are rejected: from the smallest p on, each against level / (number still left)."""
    rejected: dict[str, bool] = {}
    going_on = True
    for at, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        going_on = going_on and p_values[name] <= level / (len(p_values) - at)
        rejected[name] = going_on
    return {name: rejected[name] for name in p_values}


def _drawn_differences(ours: Sequence[Floats], theirs: Sequence[Floats], seed: int) -> tuple[Floats, Floats]:
    """Differences of the means over tasks, of resampled seeds: with the tasks as they are, and with drawn ones."""
    by_task = np.stack(
        [
            a.mean(-1) - b.mean(-1)
            for a, b in zip(resample(ours, RESAMPLES, seed), resample(theirs, RESAMPLES, seed + 1), strict=True)
        ]
    )
    chosen = np.random.default_rng(seed + 2).integers(0, len(by_task), by_task.shape)
    return by_task.mean(0), np.take_along_axis(by_task, chosen, axis=0).mean(0)


def _two_sided(resamples: Floats) -> float:
    below, above = float((resamples <= 0).mean()), float((resamples >= 0).mean())
    return min(1.0, 2 * max(min(below, above), 1 / len(resamples)))


def _interval(value: float, resamples: Floats) -> Interval:
    low, high = percentiles(resamples, 0.95)
    return Interval(value, float(low), float(high))
