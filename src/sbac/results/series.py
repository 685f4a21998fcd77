"""From cells to what a table shows: series of seeds, and the setting that stands for a method.

A method may be represented in two ways: by one setting for all tasks, or by the best one for each task (the paper's
way). Both are chosen on the episodes of the last evaluation during training and reported on the final episodes, which
are others. One setting for all tasks may also have been fixed before, on other trainings. The best one for a task is
chosen anew for every seed, on the other seeds: a choice that is reported on the trainings it was made on is too good.
What is reported is always the last policy of a training, never the best one on the way.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sbac.lab.cells import CellRecord, Curve, FinalRow, MeasuredRun
from sbac.records import Settings
from sbac.results.stability import Stability, smallest_mean, worst_episode, worst_evaluation
from sbac.results.statistics import Floats
from sbac.text import setting_text, steps_text

ONE, BEST = "one", "best"
PRESET = "its preset"
OWN_STEPS = "each with its own steps"
"""The length of trainings that nobody gave one: runs, and cells as long as their presets have it."""
WAYS = {ONE: "one setting for all tasks", BEST: "the best setting per task, chosen on the other seeds"}


@dataclass(frozen=True)
class Trial:
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
    length: str
    method: str
    setting: Settings
    trials: list[Trial]
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

    @property
    def setting_name(self) -> str:
        return ", ".join(f"{name} {setting_text(value)}" for name, value in self.setting.items())

    @property
    def setting_order(self) -> tuple[tuple[float, str], ...]:
        """By values: numbers as numbers, and before names."""
        return tuple((v, "") if isinstance(v, int | float) else (math.inf, str(v)) for v in self.setting.values())

    @property
    def is_preset(self) -> bool:
        """Whether a bench left its setting to the preset, which may have another for every task."""
        record = self.record
        return isinstance(record, CellRecord) and not any(name in record.settings for name in self.setting)

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
        from sbac.environments.tasks import normalised_score

        return returns if self.task is None else normalised_score(self.task, returns)

    @property
    def data_mean(self) -> float | None:
        """What the episodes of the data score on average, where the record says so."""
        known = self.record.data.returns or self.record.log
        return None if known is None else float(self.measured(np.array([known.mean]))[0])

    @property
    def best_tenth(self) -> float | None:
        """What the best tenth of the data's episodes scores on average, where the record says so."""
        known = self.record.log
        return None if known is None else float(self.measured(np.array([known.best_tenth]))[0])

    @cached_property
    def clone_episodes(self) -> list[Floats] | None:
        """What the clone of each seed scored, where the method begins with one."""
        found = [trial.clone[1] for trial in self.trials if trial.clone is not None]
        return [self.measured(returns) for returns in found] if len(found) == len(self.trials) else None

    @property
    def clone_scores(self) -> Floats | None:
        """The mean of each seed's clone."""
        return None if self.clone_episodes is None else np.array([found.mean() for found in self.clone_episodes])

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
        """The standard deviation over seeds."""
        return float(self.scores.std(ddof=1)) if len(self.trials) > 1 else None

    @property
    def diverged(self) -> int:
        """How many seeds have."""
        return sum(trial.diverged for trial in self.trials)

    @property
    def worst(self) -> float:
        return float(min(episodes.min() for episodes in self.episodes))

    @cached_property
    def chosen_by(self) -> float:
        """What settings are chosen by: the last evaluation during training."""
        return _or_worst(np.mean(list(self.by_seed.values())))

    @cached_property
    def by_seed(self) -> dict[int, float]:
        """The mean of the last evaluation during training, of each seed."""
        return {trial.seed: float(self.measured(trial.last).mean()) for trial in self.trials}

    def chosen_without(self, seed: int) -> float:
        """The same without one seed; of that seed itself where there is no other."""
        others = [mean for other, mean in self.by_seed.items() if other != seed]
        return _or_worst(np.mean(others or [self.by_seed[seed]]))

    def curve(self) -> list[tuple[int, Floats]]:
        """The mean of each seed at every step that all seeds were evaluated at."""
        by_step = [{step: float(self.measured(returns).mean()) for step, returns in t.curve} for t in self.trials]
        common = [step for step in by_step[0] if all(step in seed for seed in by_step)]
        return [(step, np.array([seed[step] for seed in by_step])) for step in common]

    def stability(self) -> tuple[Stability, Stability]:
        """Worst episode of the last evaluation, and worst of the last ten evaluations."""
        smallest = smallest_mean(self.task)
        means = [[returns.mean() for _, returns in trial.curve] for trial in self.trials]
        return worst_episode([t.last for t in self.trials], smallest), worst_evaluation(means, smallest)


# --- Reading ------------------------------------------------------------------------------------------------------


def collect(records: Sequence[MeasuredRun], developed_on: Sequence[MeasuredRun] = ()) -> list[Series]:
    """All series of some cells; where two cells hold the same seed, the later one counts.

    developed_on: other trainings, which the one setting of each method was fixed on.
    """
    fixed = _fixed_settings(developed_on) if developed_on else {}
    dials = _dials([*records, *developed_on])
    names, methods = _data_names(records), _method_names(records, dials)
    found: dict[tuple[str, ...], tuple[Series, dict[int, Trial]]] = {}
    for record in sorted(records, key=_date):
        data, length, method = names[id(record)], _length(record), methods[id(record)]
        for run in record.runs:
            setting = _values(record, run.setting, dials[_kind(record)])
            place = (data, length, method, json.dumps(setting))
            known = fixed.get(_kind(record))
            is_fixed = known is not None and _values(record, run.setting, known) == known
            _, trials = found.setdefault(place, (Series(data, length, method, setting, [], is_fixed), {}))
            trials[run.seed] = _trial(record, run.seed, setting)
    for series, trials in found.values():
        series.trials.extend(trials[seed] for seed in sorted(trials))
    return [series for series, _ in found.values()]


def _fixed_settings(records: Sequence[MeasuredRun]) -> dict[tuple[str, str], Settings]:
    """For each method and preset the setting with the highest mean over the datasets, of those tried on the most."""
    tried: dict[tuple[str, str], dict[str, tuple[Settings, list[float]]]] = {}
    for s in collect(records):
        if s.setting and s.is_final:
            known = tried.setdefault(_kind(s.record), {}).setdefault(json.dumps(s.setting), (s.setting, []))
            known[1].append(s.mean)
    return {
        key: max(settings.values(), key=lambda entry: (len(entry[1]), float(np.mean(entry[1]))))[0]
        for key, settings in tried.items()
    }


def _kind(record: MeasuredRun) -> tuple[str, str]:
    return record.algorithm, record.preset


def _dials(records: Sequence[MeasuredRun]) -> dict[tuple[str, str], list[str]]:
    """For each method and preset the options that some grid varies: a training with one value of them has a setting."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in records:
        known = found.setdefault(_kind(record), [])
        known += [name for name in record.grid if name not in known]
    return found


def _values(record: MeasuredRun, setting: Settings, names: Iterable[str]) -> Settings:
    """The values of some options in a training, whether its grid had them or not; an older one may lack some."""
    values = {**record.config, **setting}
    return {name: values[name] for name in names if name in values}


def _date(record: MeasuredRun) -> str:
    return record.date if isinstance(record, CellRecord) else ""


def _data_and_kind(record: MeasuredRun) -> tuple[str, ...]:
    return record.data.name, *_kind(record)


def _method_names(records: Sequence[MeasuredRun], dials: Mapping[tuple[str, str], Sequence[str]]) -> dict[int, str]:
    """By record: its method, with the preset and the settings that tell it from others of that name."""
    presets: dict[str, set[str]] = {}
    precisions: dict[tuple[str, ...], set[str | None]] = {}
    for record in records:
        presets.setdefault(record.algorithm, set()).add(record.preset)
        precisions.setdefault(_data_and_kind(record), set()).add(record.precision)
    names: dict[int, str] = {}
    for record in records:
        preset = f"@{record.preset}" if len(presets[record.algorithm]) > 1 else ""
        asked: Settings = record.settings if isinstance(record, CellRecord) else {}
        fixed = {name: value for name, value in asked.items() if not isinstance(value, list)}
        if len(precisions[_data_and_kind(record)]) == 1:  # how a method was computed is no other method
            fixed.pop("precision", None)
        settings = dials[_kind(record)]
        fixed |= {name: record.config[name] for name in _distinguishing(record, records, settings)}
        words = [f"{name}={setting_text(value)}" for name, value in fixed.items() if name not in settings]
        names[id(record)] = " ".join([record.algorithm + preset, *words])
    return names


def _data_names(records: Sequence[MeasuredRun]) -> dict[int, str]:
    """By record: the name of its data, with what tells it from other data of that name, or from another environment."""
    identities = {r.data.hash: r.data.hash if r.data.identity is None else r.data.identity for r in records}

    def identity(record: MeasuredRun) -> str:
        return identities[record.data.hash] if record.data.identity is None else record.data.identity

    names: dict[int, str] = {}
    for record in records:
        name = record.data.name
        alike = [other for other in records if other.data.name == name]
        if len({identity(other) for other in alike}) > 1:
            name += f" ({record.data.hash[:8]})"
        if len({other.environment for other in alike}) > 1:
            name += f" in {record.environment}"
        names[id(record)] = name
    return names


def _distinguishing(record: MeasuredRun, records: Sequence[MeasuredRun], settings: Sequence[str]) -> list[str]:
    """The fields of its configuration in which other trainings of the method on the same data differ from it.

    Those that one of two does not have, because it came later, or that are the method's settings, do not count.
    """

    def fields(r: MeasuredRun) -> Settings:
        left_out = {"steps", "precision", "seed", *settings}
        return {name: value for name, value in r.config.items() if name not in left_out}

    def alike(other: MeasuredRun) -> bool:
        return _data_and_kind(other) == _data_and_kind(record)

    own = fields(record)
    others = [fields(other) for other in records if alike(other)]
    return [name for name in own if any(name in other and other[name] != own[name] for other in others)]


def _trial(record: MeasuredRun, seed: int, setting: Settings) -> Trial:
    def own(entry: Curve | FinalRow) -> bool:
        return entry.seed == seed and all(setting[name] == value for name, value in entry.setting.items())

    lowest = _lowest_return(record)
    curves = [curve for curve in record.curves if own(curve)]
    if not curves:
        return Trial(seed, [], None, record)
    last = curves[-1]  # curves come in the order of the phases
    phases = list(dict.fromkeys(table.phase for table in record.metrics))
    before = sum(record.steps[: phases.index(last.phase)]) if last.phase in phases else 0
    curve = [(before + step, _returns(found, lowest)) for step, found in zip(last.steps, last.returns, strict=True)]
    rows = record.final if isinstance(record, CellRecord) else []
    final = next((row.returns for row in rows if own(row)), None)
    diverged = None in (last.returns[-1] if final is None else final)
    earlier = [curve for curve in curves if curve.phase != last.phase]
    clone = (before, _returns(earlier[-1].returns[-1], lowest)) if earlier else None
    return Trial(seed, curve, None if final is None else _returns(final, lowest), record, diverged, clone)


def _returns(values: Iterable[float | None], lowest: float) -> Floats:
    """An episode whose return is not a finite number (a policy that diverged) counts as one of a random policy."""
    return np.array([lowest if value is None else value for value in values], np.float64)


def scored_task(record: MeasuredRun) -> str | None:
    """The task it was evaluated as; None in an environment that has no reference returns."""
    from sbac.environments.tasks import is_task

    return record.environment if record.environment is not None and is_task(record.environment) else None


def _lowest_return(record: MeasuredRun) -> float:
    from sbac.environments.tasks import find_task

    task = scored_task(record)
    return float("nan") if task is None else find_task(task).reference_min


def _length(record: MeasuredRun) -> str:
    """How long was trained, as tables are grouped by it: methods differ in their number of phases."""
    given = record.length if isinstance(record, CellRecord) else None
    if given is None:
        return OWN_STEPS
    if len(given) == 1:
        return f"{steps_text(given[0])} steps a phase"
    return " + ".join(map(steps_text, given)) + " steps"


# --- Choosing -----------------------------------------------------------------------------------------------------


def represent(series: Sequence[Series], way: str) -> dict[tuple[str, str], Series]:
    """For each (dataset, method) the series that stands for it; only those with all their final episodes can."""
    candidates = [s for s in series if s.is_final]
    if way == BEST:
        return _best(candidates)
    by_method: dict[str, list[Series]] = {}
    for s in candidates:
        by_method.setdefault(s.method, []).append(s)
    chosen: dict[tuple[str, str], Series] = {}
    for group in by_method.values():
        chosen |= {(s.data, s.method): s for s in one_setting(group)}
    return chosen


def _best(series: Sequence[Series]) -> dict[tuple[str, str], Series]:
    places: dict[tuple[str, str], list[Series]] = {}
    for s in series:
        places.setdefault((s.data, s.method), []).append(s)
    return {place: best_without_own_seed(tried) for place, tried in places.items()}


def best_without_own_seed(tried: Sequence[Series]) -> Series:
    """Of one method's settings on one dataset: for every seed the setting that is best on the other seeds.

    It goes by the setting that is best on all of them.
    """
    overall = max(tried, key=lambda s: s.chosen_by)
    if len(tried) == 1:
        return overall
    trials = [{trial.seed: trial for trial in s.trials} for s in tried]
    picked: list[Trial] = []
    for seed in sorted({seed for own in trials for seed in own}):
        candidates = [(s, own[seed]) for s, own in zip(tried, trials, strict=True) if seed in own]
        picked.append(max(candidates, key=lambda pair: pair[0].chosen_without(seed))[1])
    return Series(overall.data, overall.length, overall.method, overall.setting, picked)


def _or_worst(mean: float | np.floating[Any]) -> float:
    return float(mean) if np.isfinite(mean) else float("-inf")


def one_setting(series: Sequence[Series]) -> list[Series]:
    """Of a method's settings that were tried on the most datasets, the one with the highest mean over them.

    What its preset has for each task counts as one. A setting that was fixed beforehand needs no choice.
    """
    beforehand = [s for s in series if s.fixed]
    if beforehand:
        return beforehand
    settings: dict[str, list[Series]] = {}
    for s in series:
        settings.setdefault(json.dumps(s.setting), []).append(s)
        if s.is_preset:
            settings.setdefault(PRESET, []).append(s)
    most = max(map(len, settings.values()))
    return max(
        (tried for tried in settings.values() if len(tried) == most),
        key=lambda tried: float(np.mean([s.chosen_by for s in tried])),
    )
