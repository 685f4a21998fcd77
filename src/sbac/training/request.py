"""What is asked of a training. Bad input is refused when a request is built: one that exists can be trained."""

import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from sbac.algorithms import find
from sbac.algorithms.base import Algorithm
from sbac.data import Dataset, load
from sbac.data.dataset import check_share
from sbac.data.loading import Source
from sbac.data.naming import ColumnMap
from sbac.data.streaming import StreamedLog
from sbac.environments.opening import EnvSource, check_fits, check_known, may_open
from sbac.errors import UserError, listed, name_of, not_negative, positive, unknown
from sbac.evaluation.rollout import versions
from sbac.files import in_home
from sbac.runs import FORMAT, DataRecord, LogReturns, RunRecord, Streaming, WarmStart, Watch, is_label, read_record
from sbac.training.folder import Folder
from sbac.training.grid import Member, members

PACKAGES = ("sbac", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")
"""What the bits of a run depend on."""


@dataclass(frozen=True)
class Grid:
    seeds: int | Sequence[int] = 1
    """How many seeds, or which ones."""
    preset: str = "quick"
    steps: int | Sequence[int] | None = None
    """Of every phase, or of each; None: as the preset has it."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Config fields of the method; a list of values is a grid."""
    settings: Iterable[Mapping[str, object]] | None = None
    """Values of some more fields, together: each is trained with all that `options` has."""

    def members(self, method: Algorithm, task: str | None = None) -> list[Member]:
        """Its runs with a method; `task` may have published settings."""
        steps = {} if self.steps is None else {"steps": self.steps}
        runs = members(method, self.preset, self.seeds, {**self.options, **steps}, task, self.settings)
        for run in runs:
            if not is_label(run.label):
                raise UserError(
                    f"{run.label[:60]}...: {len(run.label)} letters are too many for the name of a policy's file; "
                    "expected fewer or shorter settings in one grid"
                )
        return runs


@dataclass(frozen=True)
class Evaluating:
    """Whether policies are evaluated while they train, and how."""

    evaluate: bool = True
    environment: EnvSource | None = None
    """None: that of the data's task."""
    episodes: int = 10
    """Of each evaluation."""
    evaluation_seed: int = 10_000
    evaluate_every: int | None = None
    """Steps between evaluations; None: a tenth of the phase."""
    evaluate_at: Sequence[int] | None = None
    """The steps of the last phase at which policies are evaluated, instead of `evaluate_every`."""

    def __post_init__(self) -> None:
        positive("episodes", self.episodes)
        positive("evaluate_every", self.evaluate_every)
        not_negative("evaluation_seed", self.evaluation_seed)
        for step in listed("evaluate_at", self.evaluate_at):
            positive("evaluate_at", step)

    def record(self, environment: str | None) -> Watch:
        """What config.json says of it; `environment`: the name of the one that policies play in, if they do."""
        at = None if self.evaluate_at is None else sorted(set(self.evaluate_at))
        return Watch(environment, self.episodes, self.evaluation_seed, self.evaluate_every, at)


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What training from a log and training in an environment have in common."""

    algorithm: str
    folder: Folder
    grid: Grid = Grid()
    evaluating: Evaluating = Evaluating()

    @cached_property
    def method(self) -> Algorithm:
        return find(name_of("algorithm", self.algorithm))

    def describe(self, runs: Sequence[Member], evaluation: Watch) -> RunRecord:
        """What config.json will hold, of any training."""
        return RunRecord(
            format=FORMAT,
            algorithm=self.algorithm,
            preset=self.grid.preset,
            labels=[run.label for run in runs],
            runs=[run.record() for run in runs],
            evaluation=evaluation,
            versions={"python": platform.python_version(), **versions(PACKAGES)},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OfflineRequest(Request):
    data: Source | StreamedLog
    """A Dataset, anything that `sbac.load` takes, or a log that is streamed."""
    columns: ColumnMap | None = None
    """Which column of the data is which, as `sbac.load` takes it."""
    warm_start: WarmStart | None = None
    command: Sequence[str] | None = None
    """What followed `sbac train`, where the command line asks."""

    def __post_init__(self) -> None:
        if self.method.online:
            raise UserError(f"{self.algorithm} learns in an environment and not from a log: use sbac.train_online")
        check_share(self.runs[0].config.validation)
        if self.watched_in is not None:
            check_known(self.watched_in)
            check_fits(self.watched_in, *self.sizes)
        if self.warm_start is not None:
            self._check_start(Path(self.warm_start.run), self.warm_start.phases or [])

    @cached_property
    def dataset(self) -> Dataset | StreamedLog:
        if isinstance(self.data, StreamedLog):
            return self.data
        return load(self.data, environment=self.evaluating.environment, columns=self.columns)

    @property
    def sizes(self) -> tuple[int, int]:
        """Of an observation and of an action."""
        data = self.dataset
        return data.sizes if isinstance(data, StreamedLog) else (data.observations.shape[1], data.actions.shape[1])

    @cached_property
    def runs(self) -> list[Member]:
        return self.grid.members(self.method, self.dataset.task)

    @cached_property
    def watched_in(self) -> EnvSource | None:
        """The environment in which policies are evaluated, if there is one."""
        if not self.evaluating.evaluate:
            return None
        if self.evaluating.environment is not None:
            return self.evaluating.environment
        recorded = self.dataset.environment
        return self.dataset.task or (recorded if recorded is not None and may_open(recorded) else None)

    @cached_property
    def record(self) -> RunRecord:
        watched_in = self.watched_in
        name = getattr(watched_in, "__name__", "environment") if callable(watched_in) else watched_in
        return replace(
            self.describe(self.runs, self.evaluating.record(name)),
            data=data_record(self.dataset),
            warm_start=self.warm_start,
            log=LogReturns.of(self.dataset.returns),
            columns=self.dataset.columns,
            notes=self.dataset.notes,
            command=None if self.command is None else list(self.command),
            paths=paths_of(self.dataset),
            reading=None if isinstance(self.dataset, StreamedLog) else self.dataset.reading,
        )

    def _check_start(self, run: Path, named: Sequence[str]) -> None:
        read_record(run)
        phases = [phase.name for phase in self.method.phases]
        for name in named:
            if name not in phases:
                raise unknown(f"phase of {self.algorithm}", name, phases)
        if self.folder.path.exists() and run.samefile(self.folder.path):
            raise UserError(f"{self.folder.path}: a run cannot start from itself; name another folder for it")


def paths_of(data: Dataset | StreamedLog) -> list[str] | None:
    """Where a log can be found again: as it was given and, where that is a path, from anywhere."""
    if isinstance(data, StreamedLog) or data.source is None:
        return None
    path = in_home(data.source)
    return [data.source, str(path.resolve())] if path.exists() else [data.source]


def data_record(data: Dataset | StreamedLog) -> DataRecord:
    if isinstance(data, StreamedLog):
        survey, ring = data.survey, Streaming(data.ring_rows, data.reuse)
        return DataRecord(data.name, data.kind, data.task, len(data), len(survey.returns), survey.hash, ring)
    return DataRecord(data.name, data.kind, data.task, len(data), len(data.episodes), data.hash)
