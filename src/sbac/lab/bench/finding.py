"""Where a planned cell lies in a results folder: its data, its key, its file, and the record it has already."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sbac.config import fields_of
from sbac.lab.bench.code import code_version
from sbac.lab.bench.plan import Cell, plain_json
from sbac.lab.cells import CellRecord, cell_path, read_cell, run_folder
from sbac.lab.protocol import Protocol

if TYPE_CHECKING:
    from sbac.data import Dataset


@dataclass(frozen=True)
class Located:
    """A planned cell with its data (None for a method that learns in an environment) and its place on disk."""

    cell: Cell
    data: "Dataset | None"
    identity: str
    """What tells the data from other data."""
    key: str
    file: Path
    folder: Path
    """Of its training."""

    @property
    def task(self) -> str | None:
        return None if self.data is None else self.data.task

    @property
    def steps(self) -> tuple[int, ...]:
        """Of every phase; where no length was asked for they may be published ones of the task."""
        return self.cell.runs(self.task)[0].config.steps


@dataclass
class CellFinder:
    """Finds the cells of a bench in its results folder."""

    results: Path
    protocol: Protocol
    any_code: bool = False
    """Whether cells that another version of the code has finished count as done."""
    _last_data: "tuple[str, Dataset] | None" = field(init=False, default=None)

    def locate(self, cell: Cell) -> Located:
        """Loads a cell's data and computes its key; data that cannot be loaded is a UserError."""
        data = None if cell.online else self._load(cell.data)
        identity = data_identity(cell, data)
        key = cell.key(None if data is None else data.task, identity, self.protocol, code_version(cell.algorithm))
        name = cell.data if data is None else data.name
        file = cell_path(self.results, name, cell.algorithm, key)
        return Located(cell, data, identity, key, file, run_folder(self.results, name, cell.algorithm, key))

    def record(self, at: Located) -> CellRecord | None:
        """The record of a cell whose training is over; with `any_code`, also one that other code has made."""
        if at.file.exists():
            return read_cell(at.file)
        return self._by_other_code(at) if self.any_code else None

    def _by_other_code(self, at: Located) -> CellRecord | None:
        runs = at.cell.runs(at.task)
        wanted = [plain_json(run.record()) for run in runs]
        known = fields_of(type(runs[0].config)).items()
        defaults = plain_json({name: f.default for name, f in known if name in wanted[0]})
        for file in sorted(at.file.parent.glob("*.json"), reverse=True):
            record = read_cell(file)
            same = record.data.identity == at.identity and record.algorithm == at.cell.algorithm
            # Options that the other version did not have yet stood where they stand by default.
            made = [{**defaults, **record.config, "seed": run.seed, **run.setting} for run in record.runs]
            if same and made == wanted:
                return record
        return None

    def _load(self, name: str) -> "Dataset":
        """Cells come task by task, so the dataset last used is kept."""
        from sbac.data import load

        if self._last_data is None or self._last_data[0] != name:
            self._last_data = (name, load(name))
        return self._last_data[1]


def data_identity(cell: Cell, data: "Dataset | None") -> str:
    """The hash of the transitions; of made data, whose bits may differ between processors, what it was made from."""
    from sbac.data.loading import locate
    from sbac.making.making import made_identity

    if data is None:
        return cell.data
    made = made_identity(locate(cell.data).path) if data.kind == "made" else None
    return data.hash if made is None else str(made)
