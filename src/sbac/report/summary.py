"""A run in a few lines of text: the last evaluation of every setting, over its seeds."""

from collections.abc import Iterable, Sequence

import numpy as np

from sbac.evaluation.evaluate_run import PolicyEpisodes
from sbac.results.describe import describe
from sbac.results.outcome import verdict
from sbac.results.series import Series, series_of
from sbac.results.statistics import Floats, mean_interval
from sbac.runs import Run, RunRecord, best_tenth
from sbac.text import number, setting_text, text_table

Texts = tuple[str, ...]
"""Of the table: a name, its seeds, the episodes of each, their mean, its 95 % interval over seeds, the worst."""


def source(record: RunRecord) -> str:
    """What a run learned from, in a line."""
    if record.data is None:
        return f"learned in {record.environment}"
    return f"data: {record.data.name} ({record.data.kind}), {record.data.rows:,} rows"


def outcome(run: Run) -> str:
    """What came of a run: its policies beside the clone and the log, and a verdict in a sentence."""
    log = run.record.log
    if run.record.evaluation.environment is None:
        text = "not evaluated in an environment"
        if log is None:
            return text
        return f"{text}\nthe log's episodes: mean return {number(log.mean)}, best tenth {number(log.best_tenth)}"
    series = [s for s in series_of(describe(run)) if s.evaluated]
    if not series:
        return "not evaluated yet"
    clones = [_over_seeds("the clone", s.clone_episodes) for s in series if s.clone_episodes is not None]
    policies = [_over_seeds(s.label, s.episodes) for s in series]
    # Settings that the first phase does not depend on share a clone.
    table = _table([*_log_lines(series[0]), *dict.fromkeys(clones), *policies], series[0].unit)
    return "\n".join(filter(None, [table, verdict(series)]))


def evaluation_table(rows: Iterable[PolicyEpisodes]) -> str:
    """A line for each setting: normalised scores where the task has them, returns elsewhere."""
    by_setting: dict[str, list[Floats]] = {}
    unit = "score"
    for row in rows:
        name = " ".join([row.algorithm, *(f"{key}={setting_text(value)}" for key, value in row.setting.items())])
        unit = "return" if row.episodes.scores is None else "score"
        by_setting.setdefault(name, []).append(np.array(row.episodes.scores or row.episodes.returns))
    return _table([_over_seeds(name, episodes) for name, episodes in by_setting.items()], unit)


def _log_lines(s: Series) -> list[Texts]:
    log = s.record.log
    if log is None:
        return []
    mean, best, worst = map(number, s.measured(np.array([log.mean, log.best_tenth, log.worst])).tolist())
    return [
        ("the log", "", str(log.episodes), mean, "", worst),
        ("the log's best tenth", "", str(best_tenth(log.episodes)), best, "", ""),
    ]


def _over_seeds(name: str, episodes: Sequence[Floats]) -> Texts:
    """The line of one setting, from the episodes of each of its seeds."""
    mean, low, high = mean_interval([played.mean() for played in episodes])
    interval = "" if low is None or high is None else f"{number(low)} to {number(high)}"
    worst = number(float(min(played.min() for played in episodes)))
    return name, str(len(episodes)), str(len(episodes[0])), number(mean), interval, worst


def _table(lines: Sequence[Texts], unit: str) -> str:
    head = ["policy", "seeds", "episodes", f"mean {unit}", "95 % over seeds", "worst episode"]
    return text_table(head, lines, numbers=True)
