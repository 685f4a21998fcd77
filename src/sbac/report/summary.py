"""A run in a few lines of text: the last evaluation of every setting, over its seeds."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sbac.evaluation.evaluate_run import PolicyEpisodes
from sbac.records import Setting, Settings
from sbac.runs import Episodes, EvaluationRow, RunRecord
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
    worst: float
    unit: str = "score"


def source(record: RunRecord) -> str:
    """What a run learned from, in a line."""
    if record.data is None:
        return f"learned in {record.environment}"
    return f"data: {record.data.name} ({record.data.kind}), {record.data.rows:,} rows"


def last_evaluations(rows: Sequence[EvaluationRow], phase: str | None = None) -> list[PolicyEpisodes]:
    """The last evaluation of a phase (the run's last one if None), policy by policy."""
    wanted = phase if phase is not None or not rows else rows[-1].place.phase
    last: dict[tuple[int, str], PolicyEpisodes] = {}
    for row in rows:
        if row.place.phase == wanted:
            setting = known_setting(row.place.setting)
            found = PolicyEpisodes(row.place.algorithm, row.place.seed, setting, row.episodes)
            last[row.place.seed, json.dumps(setting)] = found
    return list(last.values())


def known_setting(setting: Settings) -> dict[str, Setting]:
    """The fields of the grid that a phase depends on."""
    return {name: value for name, value in setting.items() if value is not None}


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
    means = [float(np.mean(scores_or_returns(episodes))) for episodes in group]
    return SettingSummary(
        name,
        seeds=len(group),
        episodes=len(group[0].returns),
        mean=float(np.mean(means)),
        deviation=float(np.std(means, ddof=1)) if len(means) > 1 else None,
        worst=float(min(min(scores_or_returns(episodes)) for episodes in group)),
        unit="return" if group[0].scores is None else "score",
    )


def render(table: Sequence[SettingSummary]) -> str:
    """The table as aligned text."""
    if not table:
        return "not evaluated yet"
    head = ["policy", "seeds", "episodes", f"mean {table[0].unit}", "sd over seeds", "worst episode"]
    rows = [
        [
            line.name,
            "" if line.seeds is None else str(line.seeds),
            str(line.episodes),
            number(line.mean),
            number_or_blank(line.deviation),
            number(line.worst),
        ]
        for line in table
    ]
    return text_table(head, rows, numbers=True)
