"""From a run to what it measured: curves, metrics, and how its actions compare with the logged ones."""

import datetime
import importlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sbac.environments.opening import environment_of
from sbac.records import Setting
from sbac.results.measured import (
    ONLINE,
    ActionCounts,
    Actions,
    Curve,
    Histogram,
    MeasuredData,
    MeasuredRun,
    MetricTable,
    RunPoint,
    Watched,
)
from sbac.runs import (
    DataRecord,
    EvaluationRow,
    LogReturns,
    MetricRow,
    Place,
    Run,
    RunRecord,
    policy_record,
    policy_setting,
)
from sbac.text import significant

if TYPE_CHECKING:
    from sbac.data import Dataset

HISTOGRAM_BINS = 25
ACTION_STATES = 256


def describe(run: Run, data: "Dataset | None" = None) -> MeasuredRun:
    """What a run measured. With its data, also how its actions and returns compare with the logged ones."""
    record = run.record
    configs = record.runs
    grid = [name for name in configs[0] if name != "seed" and any(c[name] != configs[0][name] for c in configs)]
    if "alpha" in configs[0] and "alpha" not in grid:
        grid.append("alpha")  # the one setting that every table names
    about = record.data or _online_data(record)
    returns = None if data is None else _histogram(data.returns)
    return MeasuredRun(
        algorithm=record.algorithm,
        preset=record.preset,
        data=MeasuredData(**vars(about), returns=returns),
        environment=record.evaluation.environment,
        grid=grid,
        runs=[
            RunPoint(common.seed, {name: config[name] for name in grid})
            for common, config in zip(record.common, configs, strict=True)
        ],
        config={name: value for name, value in configs[0].items() if name not in (*grid, "seed")},
        watched=Watched(record.evaluation.episodes, record.evaluation.seed),
        versions=record.versions,
        curves=_curves(run.evaluation_rows, grid),
        metrics=_metric_tables(run.metric_rows, grid),
        actions=None if data is None else _actions(run, data, grid),
        log=record.log if data is None else LogReturns.of(data.returns),
        columns=None if record.columns is None else {field: [*names] for field, names in record.columns.items()},
        replaced=_replaced(run) or None,
    )


def _replaced(run: Run) -> list[str]:
    """The policies whose hash is not that of the one which played at the end of their training."""
    ends = {label: common.steps[-1] for label, common in zip(run.record.labels, run.record.common, strict=True)}
    last = {
        json.dumps([row.place.seed, _setting(row.place, row.place.setting), row.place.step]): row.episodes.policy
        for row in run.evaluation_rows
    }
    labels: list[str] = []
    for policy in run.policies:
        about = policy_record(policy)
        played = last.get(json.dumps([about.seed, policy_setting(policy, about.grid), ends.get(about.label)]))
        if played not in (None, policy.hash) and about.failed is None:  # a failed one is the last good one
            labels.append(about.label)
    return labels


def _online_data(record: RunRecord) -> DataRecord:
    """In place of data, for a run that learned in an environment."""
    name, _ = environment_of(record.environment or "")
    return DataRecord(name, ONLINE, None, 0, 0, "")


def _setting(place: Place, grid: Iterable[str]) -> dict[str, Setting]:
    """The grid's fields that the place depends on."""
    return {name: place.setting[name] for name in grid if place.setting.get(name) is not None}


def _curves(rows: Iterable[EvaluationRow], grid: Sequence[str]) -> list[Curve]:
    """For each policy and phase the steps of its evaluations and the returns of their episodes."""
    found: dict[tuple[str, int, str], Curve] = {}
    for row in rows:
        place, setting = row.place, _setting(row.place, grid)
        key = (place.phase, place.seed, json.dumps(setting))
        curve = found.setdefault(key, Curve(place.phase, place.seed, setting, [], []))
        curve.steps.append(place.step)
        curve.returns.append(significant(row.episodes.returns, 6))
    return list(found.values())


def _metric_tables(rows: Iterable[MetricRow], grid: Sequence[str]) -> list[MetricTable]:
    """For each phase and setting what was logged, as the mean over seeds."""
    found: dict[tuple[str, str], tuple[dict[str, Setting], dict[int, list[MetricRow]]]] = {}
    for row in rows:
        setting = _setting(row.place, grid)
        _, by_step = found.setdefault((row.place.phase, json.dumps(setting)), (setting, {}))
        by_step.setdefault(row.place.step, []).append(row)
    tables: list[MetricTable] = []
    for (phase, _), (setting, by_step) in found.items():
        names = sorted({name for rows in by_step.values() for row in rows for name in row.values})
        values = {name: [_mean(row.values.get(name) for row in rows) for rows in by_step.values()] for name in names}
        tables.append(MetricTable(phase, setting, list(by_step), values))
    return tables


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return significant([float(np.mean(known))], 4)[0] if known else None


def _histogram(values: NDArray[np.float64]) -> Histogram:
    counts, edges = np.histogram(values, HISTOGRAM_BINS)
    return Histogram(float(values.mean()), _finite(edges), counts.tolist())


def _finite(values: NDArray[Any]) -> list[float]:
    return [value for value in significant(values, 6) if value is not None]


def _actions(run: Run, data: "Dataset", grid: Sequence[str]) -> Actions:
    """How often each action occurs, dimension by dimension: in the data, and by each setting's policies there."""
    rows = np.linspace(0, len(data) - 1, min(len(data), ACTION_STATES)).astype(int)
    states, low, high = data.observations[rows], data.action_low, data.action_high

    def counts(actions: NDArray[Any]) -> list[list[int]]:
        return [
            np.histogram(actions[:, i], HISTOGRAM_BINS, (float(low[i]), float(high[i])))[0].tolist()
            for i in range(actions.shape[1])
        ]

    def distance(actions: NDArray[Any]) -> float | None:
        seeds = len(actions) // len(rows)
        apart = np.abs(actions - np.tile(data.actions[rows], (seeds, 1))) / (high - low)
        return significant([float(apart.mean())], 3)[0]

    by_setting: dict[str, tuple[Mapping[str, Setting], list[NDArray[Any]]]] = {}
    for policy in run.policies:
        setting = policy_setting(policy, grid)
        by_setting.setdefault(json.dumps(setting), (setting, []))[1].append(np.asarray(policy(states)))
    every = [(setting, np.concatenate(actions)) for setting, actions in by_setting.values()]
    policies = [ActionCounts(setting, counts(actions), distance(actions)) for setting, actions in every]
    return Actions(_finite(low), _finite(high), counts(data.actions[rows]), policies)


def machine() -> str:
    """What a number was made on, without saying where: the device, or the processor."""
    devices: list[Any] = importlib.import_module("jax").devices()
    if devices[0].platform == "cpu":
        return f"CPU, {platform.machine()}, {os.cpu_count()} cores"
    kind: str = devices[0].device_kind
    return f"{len(devices)} x {kind}" if len(devices) > 1 else kind


def now() -> str:
    """To the second: of two cells with the same policies the later one counts."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None).isoformat(timespec="seconds")
