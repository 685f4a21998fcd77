"""What came of a training, in a sentence: policies beside the clone of the log and the log itself."""

from collections.abc import Sequence

from sbac.results.measured import MeasuredRun
from sbac.results.series import Series
from sbac.results.statistics import Floats, Interval, paired_difference
from sbac.text import signed


def verdict(series: Sequence[Series]) -> str:
    """On the best of some settings: how many seeds are above the clone, the log's mean and its best tenth.

    Nothing where there is nothing to compare with.
    """
    evaluated = [s for s in series if s.evaluated]
    if not evaluated:
        return ""
    best = max(evaluated, key=lambda s: s.mean)
    parts = _above(best)
    if not parts:
        return ""
    chosen = f", the best of {len(evaluated)} settings by these same episodes" if len(evaluated) > 1 else ""
    return f"{best.label}{chosen}: {', '.join(parts)}."


def replaced_text(record: MeasuredRun) -> str:
    """Says which policies are others than those that played; nothing where all are the same."""
    if not record.replaced:
        return ""
    return (
        f"{', '.join(record.replaced)}: the policy in the run's folder is another one than the one that played; "
        "sbac evaluate RUN plays it"
    )


def _above(s: Series) -> list[str]:
    parts: list[str] = []
    clone = s.clone_scores
    if clone is not None:
        gain = difference(paired_difference(s.scores, clone))
        parts.append(f"{_count(s.scores, clone)} the clone ({gain})")
    if s.data_mean is not None:
        parts.append(f"{_count(s.scores, s.data_mean)} the log's mean")
    if s.best_tenth is not None:
        parts.append(f"{_count(s.scores, s.best_tenth)} the log's best tenth")
    return parts


def _count(scores: Floats, reference: Floats | float) -> str:
    above, seeds = int((scores > reference).sum()), len(scores)
    if seeds == 1:
        return "above" if above else "not above"
    return f"{above} of {seeds} seeds above" if above else "no seed above"


def difference(between: Interval) -> str:
    """A difference with its sign, and half the width of its interval."""
    return signed(between.value, None if between.high is None else between.high - between.value)
