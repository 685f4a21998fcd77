"""What was measured of one run: curves, metrics, actions, and the final episodes of its policies."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from sbac.records import Settings, parse, rest
from sbac.runs import DataRecord, LogReturns

FORMAT = 1
ONLINE = "online"
"""The kind of data of a method that learns in an environment."""
Returns = list[float | None]
"""Of episodes; None where a policy that diverged has none."""


@dataclass(frozen=True)
class Histogram:
    """How the returns of a dataset's episodes are spread."""

    mean: float
    edges: list[float]
    counts: list[int]


@dataclass(frozen=True)
class MeasuredData(DataRecord):
    """The data behind a run. `identity`: what tells the data from other data of the same name."""

    returns: Histogram | None = None
    identity: str | None = None


@dataclass(frozen=True)
class RunPoint:
    """One run: its seed, and its values of the grid's fields."""

    seed: int
    setting: Settings = rest()


@dataclass(frozen=True)
class Watched:
    """How policies were evaluated during training: episodes, and the seed of the first one."""

    episodes: int
    seed: int


@dataclass(frozen=True)
class Curve:
    """The evaluations of one run in one phase: its steps, and the returns of the episodes at each of them."""

    phase: str
    seed: int
    setting: Settings
    steps: list[int]
    returns: list[Returns]


@dataclass(frozen=True)
class MetricTable:
    """What one setting logged in one phase, as means over its seeds: its steps, and a column for each name."""

    phase: str
    setting: Settings
    steps: list[int]
    values: Mapping[str, list[float | None]]


@dataclass(frozen=True)
class ActionCounts:
    """How often the policies of one setting take each action: for each dimension the counts of a histogram."""

    setting: Settings
    counts: list[list[int]]
    distance: float | None = None
    """Between these actions and the logged ones, in states of the data: the mean, as a share of an action's range."""


@dataclass(frozen=True)
class Actions:
    """How often each action occurs between `low` and `high`, by dimension: in the data, and by policies there."""

    low: list[float]
    high: list[float]
    data: list[list[int]]
    policies: list[ActionCounts]


@dataclass(frozen=True)
class FinalRow:
    """The final episodes of one run's last policy."""

    seed: int
    setting: Settings
    returns: Returns
    lengths: list[int]
    discounted_returns: Returns | None = None
    """With the run's own discount; cells of earlier versions lack them."""


@dataclass(frozen=True)
class SharedFields:
    """The fields of a config that are read whatever the method is."""

    steps: list[int]
    precision: str | None = None


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """What a run measured. `grid` names the fields that its runs differ in, `config` has all the others."""

    format: int = FORMAT
    algorithm: str
    preset: str
    data: MeasuredData
    environment: str | None
    grid: list[str]
    runs: list[RunPoint]
    config: Settings
    watched: Watched
    versions: Mapping[str, str]
    curves: list[Curve]
    metrics: list[MetricTable]
    actions: Actions | None = None
    log: LogReturns | None = None
    columns: Mapping[str, list[str]] | None = None
    """What the data calls its observations and actions."""
    replaced: list[str] | None = None
    """The labels of policies that are others than those which played at the end of training."""

    @cached_property
    def _shared(self) -> SharedFields:
        return parse(SharedFields, self.config, "config")

    @property
    def steps(self) -> list[int]:
        """Gradient steps of every phase."""
        return self._shared.steps

    @property
    def precision(self) -> str | None:
        return self._shared.precision

    @property
    def is_online(self) -> bool:
        return self.data.kind == ONLINE

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def code_version(self) -> str | None:
        return self.versions.get("sbac")
