"""What is asked of a training. Bad input is refused when a request is built: one that exists can be trained."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sbac import __version__
from sbac.algorithms import find
from sbac.algorithms.base import Algorithm
from sbac.data import Dataset, load
from sbac.data.dataset import check_share
from sbac.data.loading import Source
from sbac.data.streaming import StreamedLog
from sbac.environments.opening import EnvSource, check_fits, check_known, may_open
from sbac.errors import UserError, listed, name_of, not_negative, positive, unknown
from sbac.runs import (
    FORMAT,
    DataRecord,
    LogReturns,
    Rounds,
    RunRecord,
    Streaming,
    WarmStart,
    Watch,
    is_label,
    read_record,
)
from sbac.training.grid import Member, members

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "mujoco")


@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """What training from a log and training in an environment have in common."""

    algorithm: str
    folder: Path
    """The run's folder."""
    seeds: int | Sequence[int] = 1
    """How many seeds, or which ones."""
    preset: str = "quick"
    steps: int | Sequence[int] | None = None
    """Of every phase, or of each; None: as the preset has it."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Config fields of the method; a list of values is a grid."""
    evaluate: bool = True
    episodes: int = 10
    """Episodes of each evaluation."""
    evaluation_seed: int = 10_000
    evaluate_every: int | None = None
    """Steps between evaluations; None: a tenth of the phase."""
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        positive("episodes", self.episodes)
        positive("evaluate_every", self.evaluate_every)
        not_negative("evaluation_seed", self.evaluation_seed)

    @cached_property
    def method(self) -> Algorithm:
        return find(name_of("algorithm", self.algorithm))

    def members(self, task: str | None = None) -> list[Member]:
        """The runs that are asked for; `task` may have published settings."""
        steps = {} if self.steps is None else {"steps": self.steps}
        runs = members(self.method, self.preset, self.seeds, {**self.options, **steps}, task)
        for run in runs:
            if not is_label(run.label):
                raise UserError(
                    f"{run.label[:60]}...: {len(run.label)} letters are too many for the name of a policy's file; "
                    "expected fewer or shorter settings in one grid"
                )
        return runs

    def watch(self, environment: str | None, at: list[int] | None = None) -> Watch:
        """How the policies are evaluated, in the environment of this name."""
        return Watch(environment, self.episodes, self.evaluation_seed, self.evaluate_every, at)

    def describe(
        self,
        runs: Sequence[Member],
        evaluation: Watch,
        *,
        data: DataRecord | None = None,
        warm_start: WarmStart | None = None,
        environment: str | None = None,
        task: str | None = None,
        rounds: Rounds | None = None,
        log: LogReturns | None = None,
        command: list[str] | None = None,
    ) -> RunRecord:
        """The record that config.json will hold."""
        return RunRecord(
            format=FORMAT,
            algorithm=self.algorithm,
            preset=self.preset,
            labels=[run.label for run in runs],
            runs=[run.record() for run in runs],
            evaluation=evaluation,
            versions=package_versions(),
            data=data,
            warm_start=warm_start,
            environment=environment,
            task=task,
            rounds=rounds,
            log=log,
            command=command,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OfflineRequest(Request):
    """A training from a log."""

    data: Source | StreamedLog
    """A Dataset, anything that `sbac.load` takes, or a log that is streamed."""
    environment: EnvSource | None = None
    """Where policies are evaluated; None: in the environment of the data's task."""
    evaluate_at: Sequence[int] | None = None
    """The steps of the last phase at which policies are evaluated, instead of `evaluate_every`."""
    warm_start: Path | None = None
    """The folder of a finished run whose networks this one starts from."""
    warm_phases: Sequence[str] | None = None
    """The phases that start warm; None: all."""
    command: Sequence[str] | None = None
    """What followed `sbac train`, where the command line asks."""

    def __post_init__(self) -> None:
        if self.method.online:
            raise UserError(f"{self.algorithm} learns in an environment and not from a log: use sbac.train_online")
        check_share(self.runs[0].config.validation)
        super().__post_init__()
        for step in listed("evaluate_at", self.evaluate_at):
            positive("evaluate_at", step)
        self._check_environment()
        self._check_warm_start()

    @cached_property
    def dataset(self) -> Dataset | StreamedLog:
        return self.data if isinstance(self.data, StreamedLog) else load(self.data, environment=self.environment)

    @property
    def sizes(self) -> tuple[int, int]:
        """Of an observation and of an action."""
        data = self.dataset
        return data.sizes if isinstance(data, StreamedLog) else (data.observations.shape[1], data.actions.shape[1])

    @cached_property
    def runs(self) -> list[Member]:
        return self.members(self.dataset.task)

    @cached_property
    def watched_in(self) -> EnvSource | None:
        """The environment in which policies are evaluated, if there is one."""
        if not self.evaluate:
            return None
        if self.environment is not None:
            return self.environment
        recorded = self.dataset.environment
        return self.dataset.task or (recorded if recorded is not None and may_open(recorded) else None)

    @cached_property
    def record(self) -> RunRecord:
        watched_in, at = self.watched_in, self.evaluate_at
        name = getattr(watched_in, "__name__", "environment") if callable(watched_in) else watched_in
        phases = None if self.warm_phases is None else list(self.warm_phases)
        return self.describe(
            self.runs,
            self.watch(name, None if at is None else sorted(set(at))),
            data=data_record(self.dataset),
            warm_start=None if self.warm_start is None else WarmStart(str(self.warm_start), phases),
            log=LogReturns.of(self.dataset.returns),
            command=None if self.command is None else list(self.command),
        )

    def _check_environment(self) -> None:
        if self.watched_in is None:
            return
        check_known(self.watched_in)
        check_fits(self.watched_in, *self.sizes)

    def _check_warm_start(self) -> None:
        phases = [phase.name for phase in self.method.phases]
        named = listed("warm_phases", self.warm_phases)
        if self.warm_start is None:
            return
        read_record(self.warm_start)
        for name in named:
            if name not in phases:
                raise unknown(f"phase of {self.algorithm}", name, phases)
        if self.folder.exists() and self.warm_start.samefile(self.folder):
            raise UserError(f"{self.folder}: a run cannot start from itself; name another folder for it")


def data_record(data: Dataset | StreamedLog) -> DataRecord:
    """Which data a run learns from."""
    if isinstance(data, StreamedLog):
        found, ring = data.survey, Streaming(data.ring_rows, data.reuse)
        return DataRecord(data.name, data.kind, data.task, len(data), len(found.returns), found.hash, ring)
    return DataRecord(data.name, data.kind, data.task, len(data), len(data.episodes), data.hash)


def package_versions() -> dict[str, str]:
    """Of everything that the bits depend on."""
    found = {"python": platform.python_version(), "sbac": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
