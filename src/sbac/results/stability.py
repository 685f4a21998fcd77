"""How far the worst falls below the mean: over the episodes of one evaluation, and over the last evaluations.

The two measures of Fujimoto and Gu (2021) that the paper's two bar charts show. Neither publication prints a formula;
the one used here is `percent_difference`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sbac.environments.tasks import find_task

LAST_EVALUATIONS = 10
SMALLEST_SHARE = 0.05
"""A mean return closer to zero than this share of the task's reference range is too small to divide by."""

DEFINITION = (
    "Percent difference of the worst: 100 (min - mean) / |mean|, on undiscounted returns, averaged over seeds; "
    "0 is perfectly stable, -100 means that the worst got nothing. "
    "First: the worst of the episodes of the last evaluation. "
    f"Second: the worst of the last {LAST_EVALUATIONS} evaluations, each the mean of its episodes. "
    f"Seeds whose mean return lies within {SMALLEST_SHARE:.0%} of the task's reference range from zero are left out, "
    "since nothing can be said relative to a mean of nothing."
)


def percent_difference(values: ArrayLike, smallest: float = 0.0) -> float | None:
    """100 (min - mean) / |mean|; None where |mean| is not larger than `smallest`."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    return None if abs(mean) <= smallest else 100.0 * (float(array.min()) - mean) / abs(mean)


def worst_episode(returns: Sequence[ArrayLike], smallest: float = 0.0) -> float | None:
    """`returns`: for each seed those of the episodes of its last evaluation."""
    return _over_seeds([percent_difference(seed, smallest) for seed in returns])


def worst_evaluation(means: Sequence[ArrayLike], smallest: float = 0.0) -> float | None:
    """`means`: for each seed the mean returns of its evaluations in order, of which the last ten count."""
    return _over_seeds([percent_difference(np.asarray(seed)[-LAST_EVALUATIONS:], smallest) for seed in means])


def smallest_mean(task: str | None) -> float:
    """The least |mean return| that a percentage is taken of: known where the task has reference returns."""
    if task is None:
        return 0.0
    references = find_task(task)
    return SMALLEST_SHARE * (references.reference_max - references.reference_min)


def _over_seeds(values: Sequence[float | None]) -> float | None:
    """The mean over the seeds whose own mean is large enough; None where none is."""
    counted = [value for value in values if value is not None]
    return float(np.mean(counted)) if counted else None
