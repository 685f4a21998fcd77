"""From cells to what a table shows: series of seeds, and the setting that stands for a method.

A method may be represented in two ways: by one setting for all tasks, or by the best one for each task (the paper's
way). Both are chosen on the episodes of the last evaluation during training and reported on the final episodes, which
are others. What was measured is always the last policy of a training; nothing here knows of a best one on the way.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.results.cells import Record
from sbac.results.stability import Stability, smallest_mean, worst_episode, worst_evaluation

Floats = NDArray[np.float64]

ONE, BEST = "one", "best"
PRESET = "its preset"
WAYS = {ONE: "one setting for all tasks", BEST: "the best setting per task"}


@dataclass(frozen=True)
class Trial:
    """One seed: returns by gradient step (over all phases) of the last phase's evaluations, and the final ones."""

    seed: int
    curve: list[tuple[int, Floats]]
    final: Floats | None
    record: Record
    diverged: bool = False
    """Whether what is reported of it has returns that are no numbers."""

    @property
    def last(self) -> Floats:
        return self.curve[-1][1]


@dataclass(frozen=True)
class Series:
    """A method with one setting on one dataset, over all its seeds."""

    data: str
    length: str
    method: str
    setting: dict[str, Any]
    trials: list[Trial]

    @property
    def record(self) -> Record:
        return self.trials[-1].record

    @cached_property
    def task(self) -> str | None:
        """The task whose reference returns its scores are relative to."""
        return scored_task(self.record)

    @property
    def label(self) -> str:
        return " ".join([self.method, *(f"{name}={short(value)}" for name, value in self.setting.items())])

    @property
    def setting_name(self) -> str:
        return ", ".join(f"{name} {short(value)}" for name, value in self.setting.items())

    @property
    def setting_order(self) -> tuple[tuple[float, str], ...]:
        """By values: numbers as numbers, and before names."""
        return tuple((v, "") if isinstance(v, int | float) else (math.inf, str(v)) for v in self.setting.values())

    @property
    def is_preset(self) -> bool:
        """Whether a bench left its setting to the preset, which may have another for every task."""
        named = self.record.get("settings")
        return named is not None and not any(name in named for name in self.setting)

    @property
    def unit(self) -> str:
        return "return" if self.task is None else "score"

    @property
    def steps(self) -> str:
        return " + ".join(short_steps(steps) for steps in self.record["config"]["steps"])

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
        known = self.record["data"].get("returns")
        return None if known is None else float(self.measured(np.array([known["mean"]]))[0])

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
        mean = float(np.mean([self.measured(trial.last).mean() for trial in self.trials]))
        return mean if np.isfinite(mean) else float("-inf")

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


def collect(records: Sequence[Record]) -> list[Series]:
    """All series of some cells; where two cells hold the same seed, the later one counts."""
    presets: dict[str, set[str]] = {}
    precisions: dict[tuple[str, str], set[str]] = {}
    for record in records:
        presets.setdefault(record["algorithm"], set()).add(record["preset"])
        precisions.setdefault(_place(record), set()).add(record["config"].get("precision", ""))
    names = _data_names(records)
    found: dict[str, tuple[Mapping[str, Any], dict[int, Trial]]] = {}
    for record in sorted(records, key=lambda r: r.get("date") or ""):
        method = record["algorithm"]
        if len(presets[method]) > 1:
            method += f"@{record['preset']}"
        fixed = {k: v for k, v in record.get("settings", {}).items() if not isinstance(v, list)}
        if len(precisions[_place(record)]) == 1:  # how a method was computed is no other method
            fixed.pop("precision", None)
        fixed |= {name: record["config"][name] for name in _unlike(record, records) if name in record["config"]}
        method += "".join(f" {name}={short(value)}" for name, value in fixed.items() if name not in record["grid"])
        for run in record["runs"]:
            setting = {name: run[name] for name in record["grid"]}
            trial = _trial(record, run["seed"], setting)
            about = {"data": names[id(record)], "length": _length(record), "method": method, "setting": setting}
            _, trials = found.setdefault(json.dumps(about), (about, {}))
            trials[trial.seed] = trial
    return [Series(**about, trials=[trials[s] for s in sorted(trials)]) for about, trials in found.values()]


def _place(record: Record) -> tuple[str, str]:
    return record["data"]["name"], record["algorithm"]


def _data_names(records: Sequence[Record]) -> dict[int, str]:
    """By record: the name of its data, with what tells it from other data of that name, or from another environment."""
    identities = {r["data"]["hash"]: r["data"].get("identity", r["data"]["hash"]) for r in records}

    def token(record: Record) -> str:
        return str(record["data"].get("identity", identities[record["data"]["hash"]]))

    names: dict[int, str] = {}
    for record in records:
        name = record["data"]["name"]
        alike = [other for other in records if other["data"]["name"] == name]
        if len({token(other) for other in alike}) > 1:
            name += f" ({record['data']['hash'][:8]})"
        if len({other["environment"] for other in alike}) > 1:
            name += f" in {record['environment']}"
        names[id(record)] = name
    return names


def _unlike(record: Record, records: Sequence[Record]) -> list[str]:
    """The fields of its configuration in which other trainings of the method on the same data differ from it.

    Those that one of two does not have, because it came later or is a grid there, do not count.
    """

    def fields(r: Record) -> dict[str, Any]:
        left_out = {"steps", "precision", "seed", *r["grid"]}
        return {name: value for name, value in r["config"].items() if name not in left_out}

    def alike(other: Record) -> bool:
        return (_place(other), other["preset"]) == (_place(record), record["preset"])

    own = fields(record)
    others = [fields(other) for other in records if alike(other)]
    return [name for name in own if any(name in other and other[name] != own[name] for other in others)]


def _trial(record: Record, seed: int, setting: Mapping[str, Any]) -> Trial:
    def own(entry: Mapping[str, Any]) -> bool:
        return entry["seed"] == seed and all(setting[name] == value for name, value in entry["setting"].items())

    lowest = _lowest_return(record)
    curves = [curve for curve in record["curves"] if own(curve)]
    if not curves:
        return Trial(seed, [], None, record)
    last = curves[-1]  # curves come in the order of the phases
    phases = list(dict.fromkeys(entry["phase"] for entry in record["metrics"]))
    before = sum(record["config"]["steps"][: phases.index(last["phase"])]) if last["phase"] in phases else 0
    curve = [
        (before + step, _returns(returns, lowest)) for step, returns in zip(last["steps"], last["returns"], strict=True)
    ]
    final = next((entry["returns"] for entry in record.get("final", []) if own(entry)), None)
    diverged = None in (last["returns"][-1] if final is None else final)
    return Trial(seed, curve, None if final is None else _returns(final, lowest), record, diverged)


def _returns(values: Iterable[float | None], lowest: float) -> Floats:
    """An episode whose return is not a finite number (a policy that diverged) counts as one of a random policy."""
    return np.array([lowest if value is None else value for value in values], np.float64)


def scored_task(record: Record) -> str | None:
    """The task it was evaluated as; None in an environment that has no reference returns."""
    from sbac.environments.tasks import is_task

    environment = record["environment"]
    return environment if environment is not None and is_task(environment) else None


def _lowest_return(record: Record) -> float:
    from sbac.environments.tasks import find_task

    task = scored_task(record)
    return float("nan") if task is None else find_task(task).reference_min


def _length(record: Record) -> str:
    """How long was trained, as tables are grouped by it: methods differ in their number of phases."""
    given = record.get("length") if "length" in record else record["config"]["steps"]
    if given is None:
        return f"the steps of preset {record['preset']}"
    if len(given) == 1:
        return f"{short_steps(given[0])} steps a phase"
    return " + ".join(map(short_steps, given)) + " steps"


def short_steps(steps: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if steps >= size and steps % (size // 10) == 0:
            return f"{steps / size:g}{letter}"
    return str(steps)


def short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    best: dict[tuple[str, str], Series] = {}
    for s in series:
        place = (s.data, s.method)
        if place not in best or s.chosen_by > best[place].chosen_by:
            best[place] = s
    return best


def one_setting(series: Sequence[Series]) -> list[Series]:
    """Of a method's settings that were tried on the most datasets, the one with the highest mean over them.

    What its preset has for each task counts as one.
    """
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
