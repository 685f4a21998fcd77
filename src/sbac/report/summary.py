"""A run in a few lines of text: the last evaluation of every setting, over its seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sbac.evaluation.evaluate_run import PolicyEpisodes
from sbac.records import Settings
from sbac.results.describe import describe
from sbac.results.outcome import verdict
from sbac.results.series import Series, series_of
from sbac.results.statistics import Floats, mean_interval
from sbac.runs import Episodes, Run, RunRecord, best_tenth
from sbac.text import number, number_or_blank, setting_text, text_table


@dataclass(frozen=True)
class SettingSummary:
    """One line of the table: mean over seeds, standard deviation over seeds, worst episode."""

    name: str
    seeds: int | None
    """None for what no run made, such as the data."""
    episodes: int
    mean: float
    deviation: float | None
    worst: float | None
    unit: str = "score"
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the mean over seeds."""


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
    lines = [*_log_lines(series), *_clone_lines(series), *(over_seeds(s.label, s.episodes, s.unit) for s in series)]
    return "\n".join(filter(None, [render(lines), verdict(series)]))


def _log_lines(series: Sequence[Series]) -> list[SettingSummary]:
    log = series[0].record.log if series else None
    if log is None:
        return []
    unit = series[0].unit
    mean, best, worst = series[0].measured(np.array([log.mean, log.best_tenth, log.worst])).tolist()
    return [
        SettingSummary("the log", None, log.episodes, mean, None, worst, unit),
        SettingSummary("the log's best tenth", None, best_tenth(log.episodes), best, None, None, unit),
    ]


def _clone_lines(series: Sequence[Series]) -> list[SettingSummary]:
    """A line for each clone: settings that the first phase does not depend on share one."""
    lines = [over_seeds("the clone", s.clone_episodes, s.unit) for s in series if s.clone_episodes is not None]
    return list(dict.fromkeys(lines))


def run_name(algorithm: str, setting: Settings) -> str:
    """A method with its setting: `sbac alpha=2`."""
    return " ".join([algorithm, *(f"{name}={setting_text(value)}" for name, value in setting.items())])


def scores_or_returns(episodes: Episodes) -> list[float]:
    """Normalised scores where the task has them, returns elsewhere."""
    return episodes.returns if episodes.scores is None else episodes.scores


def summarise_settings(rows: Iterable[PolicyEpisodes]) -> list[SettingSummary]:
    """A line for each setting."""
    by_setting: dict[str, list[Episodes]] = {}
    for row in rows:
        by_setting.setdefault(run_name(row.algorithm, row.setting), []).append(row.episodes)
    return [_summary(name, group) for name, group in by_setting.items()]


def _summary(name: str, group: Sequence[Episodes]) -> SettingSummary:
    unit = "return" if group[0].scores is None else "score"
    return over_seeds(name, [np.array(scores_or_returns(episodes)) for episodes in group], unit)


def over_seeds(name: str, episodes: Sequence[Floats], unit: str) -> SettingSummary:
    """The line of one setting, from the episodes of each of its seeds."""
    means = [float(played.mean()) for played in episodes]
    mean, low, high = mean_interval(means)
    return SettingSummary(
        name,
        seeds=len(means),
        episodes=len(episodes[0]),
        mean=mean,
        deviation=float(np.std(means, ddof=1)) if len(means) > 1 else None,
        worst=float(min(played.min() for played in episodes)),
        unit=unit,
        low=low,
        high=high,
    )


def render(table: Sequence[SettingSummary]) -> str:
    """The table as aligned text."""
    if not table:
        return "not evaluated yet"
    head = ["policy", "seeds", "episodes", f"mean {table[0].unit}", "95 % over seeds", "worst episode"]
    rows = [
        [
            line.name,
            "" if line.seeds is None else str(line.seeds),
            str(line.episodes),
            number(line.mean),
            "" if line.low is None or line.high is None else f"{number(line.low)} to {number(line.high)}",
            number_or_blank(line.worst),
        ]
        for line in table
    ]
    return text_table(head, rows, numbers=True)
