"""From what a run measured to what a table shows: series of seeds.

What is reported is always the last policy of a training, never the best one on the way.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sbac.environments.tasks import find_task, is_task, normalised_score
from sbac.records import Settings
from sbac.results.measured import Curve, FinalRow, MeasuredRun
from sbac.results.stability import smallest_mean, worst_episode, worst_evaluation
from sbac.results.statistics import Floats
from sbac.text import setting_text, steps_text

OWN_STEPS = "each with its own steps"
"""The length of trainings that nobody gave one: runs, and cells as long as their presets have it."""


@dataclass(frozen=True)
class SeedResult:
    """One seed: returns by gradient step (over all phases) of the last phase's evaluations, and the final ones."""

    seed: int
    curve: list[tuple[int, Floats]]
    final: Floats | None
    record: MeasuredRun
    diverged: bool = False
    """Whether what is reported of it has returns that are no numbers."""
    clone: tuple[int, Floats] | None = None
    """When the phase before the last one ended, and the returns of its policy: a clone of the data."""

    @property
    def last(self) -> Floats:
        return self.curve[-1][1]


@dataclass(frozen=True)
class Series:
    """A method with one setting on one dataset, over all its seeds."""

    data: str
    method: str
    setting: Settings
    trials: list[SeedResult]
    length: str = OWN_STEPS
    """How long was trained, in words: tables are grouped by it."""
    fixed: bool = False
    """Whether its setting was fixed beforehand, on other trainings."""

    @property
    def record(self) -> MeasuredRun:
        return self.trials[-1].record

    @cached_property
    def task(self) -> str | None:
        """The task whose reference returns its scores are relative to."""
        return scored_task(self.record)

    @property
    def label(self) -> str:
        return " ".join([self.method, *(f"{name}={setting_text(value)}" for name, value in self.setting.items())])

    def includes(self, setting: Settings) -> bool:
        """Whether an entry of its record with this setting, of the grid's fields alone, is about it."""
        return setting.items() <= self.setting.items()

    @property
    def setting_name(self) -> str:
        return ", ".join(f"{name} {setting_text(value)}" for name, value in self.setting.items())

    @property
    def unit(self) -> str:
        return "return" if self.task is None else "score"

    @property
    def steps(self) -> str:
        return " + ".join(map(steps_text, self.record.steps))

    @property
    def is_final(self) -> bool:
        return self.evaluated and all(trial.final is not None for trial in self.trials)

    @property
    def evaluated(self) -> bool:
        """Whether there is anything to report: a run without an environment has only what it logged."""
        return all(trial.curve for trial in self.trials)

    def measured(self, returns: Floats) -> Floats:
        """Normalised scores where the task has them, returns elsewhere."""
        return returns if self.task is None else normalised_score(self.task, returns)

    @property
    def data_mean(self) -> float | None:
        """What the episodes of the data score on average, where the record says so."""
        returns = self.record.data.returns or self.record.log
        return None if returns is None else float(self.measured(np.array([returns.mean]))[0])

    @property
    def best_tenth(self) -> float | None:
        """What the best tenth of the data's episodes scores on average, where the record says so."""
        log = self.record.log
        return None if log is None else float(self.measured(np.array([log.best_tenth]))[0])

    @cached_property
    def clone_episodes(self) -> list[Floats] | None:
        """What the clone of each seed scored, where the method begins with one."""
        clones = [trial.clone[1] for trial in self.trials if trial.clone is not None]
        return [self.measured(returns) for returns in clones] if len(clones) == len(self.trials) else None

    @property
    def clone_scores(self) -> Floats | None:
        """The mean of each seed's clone."""
        return None if self.clone_episodes is None else np.array([returns.mean() for returns in self.clone_episodes])

    @cached_property
    def episodes(self) -> list[Floats]:
        """What is reported, for each seed: the final episodes; without them, those of the last evaluation."""
        return [
            self.measured(trial.last if trial.final is None or not self.is_final else trial.final)
            for trial in self.trials
        ]

    @cached_property
    def scores(self) -> Floats:
        """The mean of each seed."""
        return np.array([episodes.mean() for episodes in self.episodes])

    @property
    def mean(self) -> float:
        return float(self.scores.mean())

    @property
    def deviation(self) -> float | None:
        return float(self.scores.std(ddof=1)) if len(self.trials) > 1 else None

    @property
    def diverged(self) -> int:
        """How many seeds have."""
        return sum(trial.diverged for trial in self.trials)

    @property
    def worst(self) -> float:
        return float(min(episodes.min() for episodes in self.episodes))

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """The mean of the last evaluation during training, of each seed: what settings are chosen by."""
        return {trial.seed: float(self.measured(trial.last).mean()) for trial in self.trials}

    def curve(self) -> list[tuple[int, Floats]]:
        """The mean of each seed at every step that all seeds were evaluated at."""
        by_step = [{step: float(self.measured(returns).mean()) for step, returns in t.curve} for t in self.trials]
        common = [step for step in by_step[0] if all(step in seed for seed in by_step)]
        return [(step, np.array([seed[step] for seed in by_step])) for step in common]

    def stability(self) -> tuple[float | None, float | None]:
        """Worst episode of the last evaluation, and worst of the last ten evaluations, in percent."""
        smallest = smallest_mean(self.task)
        means = [[returns.mean() for _, returns in trial.curve] for trial in self.trials]
        return worst_episode([t.last for t in self.trials], smallest), worst_evaluation(means, smallest)


def series_of(record: MeasuredRun, axes: Sequence[str] | None = None, final: Sequence[FinalRow] = ()) -> list[Series]:
    """A series for each setting of a run. `axes`: the options that are its setting, where they are not its grid's."""
    by_setting: dict[str, Series] = {}
    for run in record.runs:
        values = {**record.config, **run.setting}
        setting = {name: values[name] for name in (record.grid if axes is None else axes) if name in values}
        empty = Series(record.data.name, record.algorithm, setting, [])
        by_setting.setdefault(json.dumps(setting), empty).trials.append(_seed_result(record, run.seed, setting, final))
    return list(by_setting.values())


def _seed_result(record: MeasuredRun, seed: int, setting: Settings, rows: Sequence[FinalRow]) -> SeedResult:
    def belongs(entry: Curve | FinalRow) -> bool:
        return entry.seed == seed and all(setting[name] == value for name, value in entry.setting.items())

    task = scored_task(record)
    lowest = math.nan if task is None else find_task(task).reference_min
    curves = [curve for curve in record.curves if belongs(curve)]
    if not curves:
        return SeedResult(seed, [], None, record)
    last = curves[-1]  # curves come in the order of the phases
    phases = list(dict.fromkeys(table.phase for table in record.metrics))
    before = sum(record.steps[: phases.index(last.phase)]) if last.phase in phases else 0
    curve = [(before + step, _returns(played, lowest)) for step, played in zip(last.steps, last.returns, strict=True)]
    final = next((row.returns for row in rows if belongs(row)), None)
    diverged = None in (last.returns[-1] if final is None else final)
    earlier = [curve for curve in curves if curve.phase != last.phase]
    clone = (before, _returns(earlier[-1].returns[-1], lowest)) if earlier else None
    return SeedResult(seed, curve, None if final is None else _returns(final, lowest), record, diverged, clone)


def _returns(values: Iterable[float | None], lowest: float) -> Floats:
    """An episode whose return is not a finite number (a policy that diverged) counts as one of a random policy."""
    return np.array([lowest if value is None else value for value in values], np.float64)


def scored_task(record: MeasuredRun) -> str | None:
    """The task it was evaluated as; None in an environment that has no reference returns."""
    return record.environment if record.environment is not None and is_task(record.environment) else None
