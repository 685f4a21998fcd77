"""A cell's file: everything measured about one method on one dataset, small enough to be committed.

One JSON file per cell, named after its key, so that results made on several machines are merged by copying their
folders together. Returns are kept raw, episode by episode; scores are computed when a table is made.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sbac import files
from sbac.errors import UserError
from sbac.lab.protocol import Protocol
from sbac.records import Json, Settings, as_json, is_object, parse, rest
from sbac.runs import DataRecord, LogReturns

FORMAT = 1
ONLINE = "online"
"""The kind of data of a method that learns in an environment."""
LINE_BY_LINE = ("runs", "curves", "metrics", "final")
"""Lists that a file holds with one line for each entry, so that versions of it can be compared."""
Returns = list[float | None]
"""Of episodes; None where a policy that diverged has none."""


@dataclass(frozen=True)
class Histogram:
    """How the returns of a dataset's episodes are spread."""

    mean: float
    edges: list[float]
    counts: list[int]


@dataclass(frozen=True)
class CellData(DataRecord):
    """The data behind a cell. `identity`: what tells the data from other data of the same name."""

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
class CodeVersion:
    """Which code made a cell: the package's version, and the hash of the method's files."""

    version: str
    hash: str


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
    data: CellData
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
        """Whether it learned in an environment."""
        return self.data.kind == ONLINE

    @property
    def seeds(self) -> list[int]:
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def code_version(self) -> str | None:
        """The package's version."""
        return self.versions.get("sbac")


@dataclass(frozen=True, kw_only=True)
class CellRecord(MeasuredRun):
    """A cell of a bench: a run, how the bench made it, and the final episodes of its policies.

    `length` and `settings` are what the bench asked for: gradient steps (None: the preset's) and settings, with a list
    for each field of the grid. `seconds` is the time of training (None after an interruption), `together` the number
    of cells that trained in one program.
    """

    key: str
    length: list[int] | None
    settings: Settings
    protocol: Protocol
    code: CodeVersion
    machine: str
    date: str
    seconds: float | None
    together: int | None = None
    final: list[FinalRow]

    @property
    def code_version(self) -> str | None:
        return self.versions.get("sbac") or self.code.version

    @property
    def final_episodes(self) -> int:
        """How many final episodes every policy has played."""
        return min((len(row.returns) for row in self.final), default=0)


# --- Files --------------------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """A name as a file may bear it."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", name).strip("._") or "data"


def stem(data: str, algorithm: str, key: str) -> str:
    """The place of a cell within its folder, without a suffix."""
    return f"{slug(data)}/{slug(algorithm)}-{key}"


def cell_path(results: Path, data: str, algorithm: str, key: str) -> Path:
    """A cell's file."""
    return results / "cells" / f"{stem(data, algorithm, key)}.json"


def run_folder(results: Path, data: str, algorithm: str, key: str) -> Path:
    """The folder of a cell's training."""
    return results / "runs" / stem(data, algorithm, key)


def path_of(results: Path, cell: CellRecord) -> Path:
    return cell_path(results, cell.data.name, cell.algorithm, cell.key)


def folder_of(results: Path, cell: CellRecord) -> Path:
    return run_folder(results, cell.data.name, cell.algorithm, cell.key)


def write_cell(results: Path, cell: CellRecord) -> Path:
    """Writes the cell's file and returns its path."""
    path = path_of(results, cell)
    files.write_atomic(path, cell_text(cell).encode())
    return path


def cell_text(cell: CellRecord) -> str:
    """The cell as its file has it."""
    parts: list[str] = []
    for name, value in {"key": cell.key, **as_json(cell)}.items():
        if name in LINE_BY_LINE and isinstance(value, list):
            entries: Sequence[Json] = value
            text = "[\n" + ",\n".join(map(_dense, entries)) + "\n]"
        else:
            text = _dense(value)
        parts.append(f"{_dense(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _dense(value: Json) -> str:
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:  # a number beyond those of a float, which is read as an infinity
        return json.dumps(files.finite(value), separators=(",", ":"))


def read_cell(path: Path) -> CellRecord:
    """Reads and checks a cell's file."""
    return parse_cell(files.read_json(path), str(path))


def parse_cell(value: object, where: str) -> CellRecord:
    """A cell from the JSON of its file, which `where` names."""
    if not is_object(value) or value.get("format") != FORMAT:
        raise UserError(f"{where}: not a bench's cell (expected format {FORMAT})")
    cell = parse(CellRecord, value, where)
    if not re.fullmatch(r"[0-9a-f]{12}", cell.key):  # it becomes part of a path
        raise UserError(f"{where}: key is {cell.key!r}; expected 12 hexadecimal digits")
    parse(SharedFields, cell.config, f"{where}: config")
    for problem in _problems(cell):
        raise UserError(f"{where}: {problem}")
    return cell


def _problems(cell: CellRecord) -> Iterable[str]:
    """What does not fit together although every field has its type."""
    if not cell.runs:
        yield "runs is empty; expected at least one"
    for i, run in enumerate(cell.runs):
        if not set(cell.grid) <= set(run.setting):
            yield f"runs[{i}] has {', '.join(run.setting) or 'no setting'}; expected {', '.join(cell.grid)}"
    for name in ("curves", "metrics", "final"):
        rows: Sequence[Curve | MetricTable | FinalRow] = getattr(cell, name)
        for i, row in enumerate(rows):
            if not set(row.setting) <= set(cell.grid):
                known = ", ".join(cell.grid) or "none"
                yield f"{name}[{i}].setting has {', '.join(row.setting)}; expected fields of the grid ({known})"
    for i, curve in enumerate(cell.curves):
        if not curve.steps or len(curve.steps) != len(curve.returns) or not all(curve.returns):
            yield f"curves[{i}].returns: expected the episodes of each of {len(curve.steps)} steps"
    for i, table in enumerate(cell.metrics):
        if not table.steps or any(len(column) != len(table.steps) for column in table.values.values()):
            yield f"metrics[{i}].values: expected a number for each of {len(table.steps)} steps"
    for i, row in enumerate(cell.final):
        if not row.returns:
            yield f"final[{i}].returns is empty; expected at least one episode"
    known = cell.data.returns
    if known is not None and len(known.edges) != len(known.counts) + 1:
        yield f"data.returns.edges: {len(known.edges)} numbers; expected {len(known.counts) + 1}"


def read_cells(results: Path) -> list[CellRecord]:
    """All cells of a results folder, in a fixed order."""
    return [read_cell(path) for path in cell_files(results)]


def cell_files(results: Path) -> list[Path]:
    return sorted((results / "cells").rglob("*.json"))


def is_results(path: Path) -> bool:
    """Whether a folder is a results folder."""
    return (path / "cells").is_dir()


def merge(sources: Iterable[Path], into: Path) -> int:
    """Takes over the cells of other results folders; of two with the same key the more complete one stays."""
    taken = 0
    for source in sources:
        if not is_results(source):
            raise UserError(f"{source}: not a results folder (it has no cells/)")
        for file in cell_files(source):
            cell = read_cell(file)
            path = path_of(into, cell)
            if path.exists() and read_cell(path).final_episodes >= cell.final_episodes:
                continue
            files.write_atomic(path, file.read_bytes())
            taken += 1
    return taken
