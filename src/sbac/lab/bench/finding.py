"""Where a planned cell lies in a results folder: its data, its key, its file, and the record it has already."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sbac.data import Dataset, load
from sbac.data.locating import locate
from sbac.errors import UserError
from sbac.lab.bench.code import code_version
from sbac.lab.bench.plan import Cell
from sbac.lab.cells import CellRecord, cell_path, read_cell, run_folder
from sbac.lab.protocol import Protocol
from sbac.making.making import made_identity
from sbac.training.grid import Member


@dataclass(frozen=True)
class PlacedCell:
    """A planned cell, what its data is, and its place on disk."""

    cell: Cell
    data: str
    """The name that the data bears in the results."""
    task: str | None
    sizes: tuple[int, int] | None
    """Of an observation and of an action of the data; None for a method that learns in an environment."""
    identity: str
    """What tells the data from other data."""
    key: str
    results: Path

    @property
    def file(self) -> Path:
        return cell_path(self.results, self.data, self.cell.algorithm, self.key)

    @property
    def folder(self) -> Path:
        return run_folder(self.results, self.data, self.cell.algorithm, self.key)

    @property
    def runs(self) -> list[Member]:
        return self.cell.runs(self.task)

    @property
    def steps(self) -> tuple[int, ...]:
        """Of every phase; where no length was asked for they may be published ones of the task."""
        return self.runs[0].config.steps


def load_with_identity(name: str) -> tuple[Dataset, str]:
    """The data of a name, and what tells it from other data.

    That is the hash of its transitions; of made data, whose bits may differ between processors, what it was made from.
    """
    data = load(name)
    made = made_identity(locate(name).path) if data.kind == "made" else None
    return data, data.hash if made is None else str(made)


@dataclass(frozen=True)
class CellFinder:
    results: Path
    protocol: Protocol
    read: Callable[[str], tuple[Dataset, str]] = field(default_factory=lambda: lru_cache(1)(load_with_identity))
    """The data of a name, and its identity. Cells come task by task, so the data last read is kept."""

    def place(self, cell: Cell) -> PlacedCell:
        """Reads a cell's data and computes its key; data that cannot be loaded is a UserError."""
        name, task, sizes, identity = cell.data, None, None, cell.data
        if not cell.online:
            data, identity = self.read(cell.data)
            name, task, sizes = data.name, data.task, (data.observations.shape[1], data.actions.shape[1])
        key = cell.key(task, identity, self.protocol, code_version(cell.algorithm))
        return PlacedCell(cell, name, task, sizes, identity, key, self.results)

    def data(self, at: PlacedCell) -> Dataset:
        """The data of a cell. Many cells are placed before the first is trained, so it is read again."""
        data, identity = self.read(at.cell.data)
        if identity != at.identity:
            raise UserError(f"{at.cell.data}: has changed since the bench began")
        return data

    def record(self, at: PlacedCell) -> CellRecord | None:
        return read_cell(at.file) if at.file.exists() else None
