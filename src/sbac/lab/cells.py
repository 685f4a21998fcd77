"""A cell's file: everything measured about one method on one dataset, small enough to be committed.

One JSON file per cell, named after its key, so that results made on several machines are merged by copying their
folders together. Returns are kept raw, episode by episode; scores are computed when a table is made.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbac import files
from sbac.errors import UserError
from sbac.lab.protocol import Protocol
from sbac.records import Json, Settings, as_json, is_object, parse
from sbac.results.measured import FORMAT, Curve, FinalRow, MeasuredRun, MetricTable, SharedFields

LINE_BY_LINE = ("runs", "curves", "metrics", "final")
"""Lists that a file holds with one line for each entry, so that versions of it can be compared."""


@dataclass(frozen=True)
class CodeVersion:
    """Which code made a cell: the package's version, and the hash of the method's files."""

    version: str
    hash: str


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
        return min((len(row.returns) for row in self.final), default=0)


# --- Files --------------------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """A name as a file may bear it."""
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", name).strip("._") or "data"


def stem(data: str, algorithm: str, key: str) -> str:
    """The place of a cell within its folder, without a suffix."""
    return f"{slug(data)}/{slug(algorithm)}-{key}"


def cell_path(results: Path, data: str, algorithm: str, key: str) -> Path:
    return results / "cells" / f"{stem(data, algorithm, key)}.json"


def run_folder(results: Path, data: str, algorithm: str, key: str) -> Path:
    return results / "runs" / stem(data, algorithm, key)


def path_of(results: Path, cell: CellRecord) -> Path:
    return cell_path(results, cell.data.name, cell.algorithm, cell.key)


def folder_of(results: Path, cell: CellRecord) -> Path:
    return run_folder(results, cell.data.name, cell.algorithm, cell.key)


def write_cell(results: Path, cell: CellRecord) -> Path:
    path = path_of(results, cell)
    files.write_atomic(path, cell_text(cell).encode())
    return path


def cell_text(cell: CellRecord) -> str:
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
    spread = cell.data.returns
    if spread is not None and len(spread.edges) != len(spread.counts) + 1:
        yield f"data.returns.edges: {len(spread.edges)} numbers; expected {len(spread.counts) + 1}"
    if cell.actions is not None:
        counted = [cell.actions.data, *(policy.counts for policy in cell.actions.policies)]
        sizes = {len(cell.actions.low), len(cell.actions.high), *map(len, counted)}
        if len(sizes) > 1 or len({len(bins) for counts in counted for bins in counts}) > 1:
            yield "actions: expected as many dimensions and bins for the data as for every policy"


def read_cells(results: Path) -> list[CellRecord]:
    return [read_cell(path) for path in cell_files(results)]


def cell_files(results: Path) -> list[Path]:
    return sorted((results / "cells").rglob("*.json"))


def is_results(path: Path) -> bool:
    return (path / "cells").is_dir()
