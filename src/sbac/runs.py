"""A run's folder, read: its record, its metrics and evaluations, its policies."""

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac import files
from sbac.errors import UserError, path_of, remedy
from sbac.policy import Policy
from sbac.records import Json, Setting, Settings, as_json, is_list, is_object, parse, rest

FORMAT = 1


@dataclass(frozen=True)
class Streaming:
    """How a log was streamed: rows on the device at a time, and how often each was drawn there."""

    ring_rows: int
    reuse: float


@dataclass(frozen=True)
class DataRecord:
    """Which data a run learned from."""

    name: str
    kind: str
    task: str | None
    rows: int
    episodes: int
    hash: str
    streaming: Streaming | None = None


@dataclass(frozen=True)
class LogReturns:
    """What the episodes of a log return: what a policy is to improve on."""

    episodes: int
    mean: float
    best_tenth: float
    """The mean of the best tenth of them."""
    worst: float

    @staticmethod
    def of(returns: NDArray[np.float64]) -> "LogReturns":
        best = np.sort(returns)[-best_tenth(len(returns)) :]
        return LogReturns(len(returns), float(returns.mean()), float(best.mean()), float(returns.min()))


def best_tenth(episodes: int) -> int:
    """How many episodes the best tenth of them is: at least one."""
    return -(-episodes // 10)


@dataclass(frozen=True)
class Watch:
    """How a run's policies are evaluated while it trains. `environment` None: not at all.

    They play at the end of each phase, and in the last one every `every` steps, or at the steps `at`.
    """

    environment: str | None
    episodes: int
    seed: int
    every: int | None
    at: list[int] | None = None


@dataclass(frozen=True)
class WarmStart:
    """The run that another one starts from, and in which phases (None: in all)."""

    run: str
    phases: list[str] | None = None


@dataclass(frozen=True)
class Rounds:
    """How an online run gathers data: `steps` environment steps by `instances` copies, then as many updates."""

    instances: int
    steps: int


@dataclass(frozen=True)
class CommonFields:
    """The fields of a run's config that are read whatever its method is."""

    seed: int
    steps: list[int]
    """Gradient steps of every phase."""


@dataclass(frozen=True)
class RunRecord:
    """`config.json` of a run's folder: everything needed to run it again.

    `runs` has the resolved config of every run, with its seed. A run that learned from a log has `data`; one that
    learned in an environment has `environment`, `rounds`, and `task` if the environment is a task's. `log` says what
    the data's episodes return. `command`: what followed `sbac train`, for `sbac train --resume` alone.
    `columns`: what the data calls its observations and actions.
    """

    format: int
    algorithm: str
    preset: str
    labels: list[str]
    runs: list[Settings]
    evaluation: Watch
    versions: Mapping[str, str]
    data: DataRecord | None = None
    warm_start: WarmStart | None = None
    environment: str | None = None
    task: str | None = None
    rounds: Rounds | None = None
    log: LogReturns | None = None
    command: list[str] | None = None
    paths: list[str] | None = None
    """Where the log was found: the name or path as it was given, and the absolute path."""
    reading: Mapping[str, Json] | None = None
    """What was said of the log when it was read, as `LogOptions`."""
    columns: Mapping[str, Sequence[str]] | None = None
    notes: list[str] | None = None
    """What was done to the log when it was read."""

    @cached_property
    def common(self) -> list[CommonFields]:
        """Of every run, the fields that all methods have."""
        return [parse(CommonFields, run, f"config.json: runs[{i}]") for i, run in enumerate(self.runs)]


@dataclass(frozen=True)
class Place:
    """Which run a row is about, and when: the columns that metrics and evaluations share.

    `setting` holds the grid's fields; None where the phase does not depend on one.
    """

    algorithm: str
    seed: int
    setting: Settings
    phase: str
    step: int
    group: int = 0


@dataclass(frozen=True)
class MetricRow:
    """A row of metrics.jsonl: means over the steps since the row before. None: not a finite number."""

    place: Place
    values: Mapping[str, float | None]


@dataclass(frozen=True)
class Logged:
    """The columns of a row of metrics.jsonl that are numbers."""

    values: Mapping[str, float | None] = rest()


@dataclass(frozen=True)
class Episodes:
    """What a policy did in an environment: undiscounted returns, and scores where the task has reference returns."""

    environment: str
    returns: list[float]
    lengths: list[int]
    scores: list[float] | None
    versions: Mapping[str, str] | None = None
    discounted_returns: list[float] | None = None
    """With the run's own discount."""
    policy: str | None = None
    """The hash of the policy that played."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def score(self) -> float | None:
        return None if self.scores is None else float(np.mean(self.scores))


@dataclass(frozen=True)
class Failure:
    """When a run's numbers were first seen to be no longer finite, and the moment that its last good policy is of."""

    phase: str
    step: int
    kept_phase: str
    kept_step: int

    def __str__(self) -> str:
        return f"no longer finite at step {self.step} of {self.phase}; kept: step {self.kept_step} of {self.kept_phase}"


@dataclass(frozen=True)
class PolicyRecord:
    """Which run a policy comes from, as its file says. `failed`: the run's, where it failed."""

    algorithm: str
    seed: int
    label: str
    grid: list[str]
    environment: str | None = None
    task: str | None = None
    failed: Failure | None = None


@dataclass(frozen=True)
class EvaluationRow:
    place: Place
    episodes: Episodes


PLACE = ("algorithm", "seed", "phase", "step", "group")


def place_columns(place: Place) -> dict[str, Setting]:
    """The columns of a row that say which run it is about, and when."""
    run = {"algorithm": place.algorithm, "seed": place.seed, **place.setting}
    return {**run, "group": place.group, "phase": place.phase, "step": place.step}


def metric_json(row: MetricRow) -> dict[str, Json]:
    return {**place_columns(row.place), **row.values}


def evaluation_json(row: EvaluationRow) -> dict[str, Json]:
    return {**place_columns(row.place), **as_json(row.episodes)}


def parse_place(row: Mapping[str, object], fields: Collection[str], where: str) -> Place:
    """Reads the columns that `place_columns` writes. `fields`: the names of the run's config.

    The grid's fields stand before the phase; a metric may have the name of another field.
    """
    before = itertools.takewhile(lambda name: name != "phase", row)
    setting = {name: row[name] for name in before if name in fields and name not in PLACE}
    return parse(Place, {name: row[name] for name in PLACE if name in row} | {"setting": setting}, where)


def placed_rows(path: Path, record: RunRecord) -> Iterator[tuple[Place, dict[str, Any], str]]:
    """The rows of metrics.jsonl or evaluations.jsonl: the place of each, its columns, and its file and line."""
    fields = set(record.runs[0])
    for number, row in enumerate(files.read_rows(path), 1):
        where = f"{path}: line {number}"
        yield parse_place(row, fields, where), row, where


def read_metrics(path: Path, record: RunRecord) -> list[MetricRow]:
    rows: list[MetricRow] = []
    for place, row, where in placed_rows(path, record):
        logged = {name: value for name, value in row.items() if name not in place.setting and name not in PLACE}
        rows.append(MetricRow(place, parse(Logged, logged, where).values))
    return rows


def read_evaluations(path: Path, record: RunRecord) -> list[EvaluationRow]:
    return [
        EvaluationRow(place, parse(Episodes, _with_numbers(row), where))
        for place, row, where in placed_rows(path, record)
    ]


def _with_numbers(row: Mapping[str, object]) -> dict[str, object]:
    """A row whose returns and scores are numbers: null, which stands for one that is not finite, becomes NaN."""
    lists = {name: value for name in ("returns", "scores", "discounted_returns") if is_list(value := row.get(name))}
    return {**row, **{name: [math.nan if v is None else v for v in values] for name, values in lists.items()}}


def policy_record(policy: Policy) -> PolicyRecord:
    return parse(PolicyRecord, policy.config, "the policy's config")


def read_policy(path: Path) -> Policy:
    """A policy of a run's folder, and with it what its file says of the run."""
    with remedy("remove the file, and sbac train --resume makes it again from the checkpoint"):
        policy = Policy.load(path)
        parse(PolicyRecord, policy.config, str(path))
        return policy


def policy_setting(policy: Policy, grid: Iterable[str]) -> dict[str, Setting]:
    """The policy's values of the fields `grid`, of those that it has."""
    config: Settings = policy.config
    return {name: config[name] for name in grid if config.get(name) is not None}


class Run:
    """A training run: its record, its metrics and evaluations, and the policies that came out.

    `config`, `metrics` and `evaluations` are plain dictionaries, as they stand in the folder's files: ready for pandas.
    """

    def __init__(
        self,
        record: RunRecord,
        policies: list[Policy],
        metric_rows: Sequence[MetricRow],
        evaluation_rows: Sequence[EvaluationRow],
        folder: Path | None = None,
    ) -> None:
        self.record = record
        self.policies = policies
        self.metric_rows = metric_rows
        self.evaluation_rows = evaluation_rows
        self.folder = folder

    def __repr__(self) -> str:
        record = self.record
        learned = f"from {record.data.name}" if record.data is not None else f"in {record.environment}"
        count = f"{len(self.policies)} of {len(record.labels)} policies"
        where = "" if self.folder is None else f", in {self.folder}"
        return f"Run({record.algorithm}, preset {record.preset}, {learned}: {count}{where})"

    @property
    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        return as_json(self.record)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return [metric_json(row) for row in self.metric_rows]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The rows of evaluations.jsonl."""
        return [evaluation_json(row) for row in self.evaluation_rows]

    @property
    def is_finished(self) -> bool:
        """Whether every policy is there."""
        return len(self.policies) == len(self.record.labels)

    @property
    def failures(self) -> dict[str, Failure]:
        """By label: the runs whose numbers did not stay finite. Their policies are the last good ones."""
        records = map(policy_record, self.policies)
        return {record.label: record.failed for record in records if record.failed is not None}

    @property
    def diverged(self) -> list[str]:
        """Labels of the runs that failed."""
        return list(self.failures)

    @staticmethod
    def load(folder: str | Path) -> "Run":
        """Reads a run's folder, finished or not."""
        path = path_of("run", folder)
        record = read_record(path)
        policies = [read_policy(p) for p in sorted((path / "policies").glob("*.safetensors"))]
        order = {label: i for i, label in enumerate(record.labels)}
        policies.sort(key=lambda p: order.get(policy_record(p).label, len(order)))
        metrics = read_metrics(path / "metrics.jsonl", record)
        return Run(record, policies, metrics, read_evaluations(path / "evaluations.jsonl", record), path)


def policy_file(folder: Path, label: str) -> Path:
    return folder / "policies" / f"{label}.safetensors"


def is_label(text: str) -> bool:
    """Whether a policy's file can bear this name, and lies in its folder then."""
    name = f"{text}.safetensors"
    plain = text.isprintable() and "/" not in text and "\\" not in text and not text.startswith(".")
    return bool(text) and plain and len(name.encode(errors="replace")) <= files.LONGEST_NAME


def read_record(path: Path) -> RunRecord:
    """config.json of a run's folder."""
    if not path.is_dir():
        raise UserError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}; expected a run's folder")
    if not (path / "config.json").exists():
        inside = sorted(file.parent for file in path.glob("runs/*/config.json"))
        hint = f"; of sbac learn, expected one of its runs: {', '.join(map(str, inside))}" if inside else ""
        raise UserError(f"{path}: not a run's folder (it has no config.json){hint}")
    where = path / "config.json"
    value = files.read_json(where)
    if not is_object(value) or value.get("format") != FORMAT:
        raise UserError(f"{where}: not a run of this version of sbac (expected format {FORMAT})")
    record = parse(RunRecord, value, str(where))
    for i, run in enumerate(record.runs):
        if not parse(CommonFields, run, f"{where}: runs[{i}]").steps:
            raise UserError(f"{where}: runs[{i}]: steps is []; expected the steps of every phase")
        for name in sorted(set(run) ^ set(record.runs[0])):
            raise UserError(
                f"{where}: {name} is in runs[0] or in runs[{i}] alone; expected the same fields in all runs"
            )
    for label in record.labels:
        if not is_label(label):
            raise UserError(f"{where}: label {label!r}; expected a name that a file can have")
    if not record.runs or len(record.labels) != len(record.runs):
        raise UserError(f"{where}: {len(record.labels)} labels for {len(record.runs)} runs; expected one for each")
    return record
