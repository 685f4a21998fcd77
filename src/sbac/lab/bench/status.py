"""Where each cell of a bench stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sbac.errors import InUseError, UserError
from sbac.lab.bench.final import is_final
from sbac.lab.bench.finding import CellFinder
from sbac.lab.bench.plan import Cell
from sbac.text import text_table

DONE, TRAINED, STARTED, TO_DO, FAILED, IN_USE = "done", "trained", "started", "to do", "failed", "in use"


@dataclass
class Status:
    """Where each cell stands: what was noted while the bench ran, and else what lies in the results folder."""

    cells: Sequence[Cell]
    finder: CellFinder
    failures: dict[Cell, str] = field(init=False, default_factory=dict[Cell, str])
    _noted: dict[Cell, str] = field(init=False, default_factory=dict[Cell, str])

    def note(self, cell: Cell, state: str) -> None:
        """Takes down where a cell has come to."""
        self._noted[cell] = state

    def note_error(self, cell: Cell, error: UserError) -> None:
        """Takes down why a cell cannot be run; one that another process trains has not failed."""
        if isinstance(error, InUseError):
            self.note(cell, IN_USE)
        else:
            self.note(cell, FAILED)
            self.failures[cell] = str(error)

    def state(self, cell: Cell) -> str:
        """done, trained (its final episodes are missing), started, to do, failed, or in use by another process."""
        noted = self._noted.get(cell)
        if noted not in (None, IN_USE):  # the other process may be through by now
            return noted
        try:
            at = self.finder.place(cell)
        except UserError as error:
            self.failures[cell] = str(error)
            return FAILED
        record = self.finder.record(at)
        if record is None:
            return noted or (STARTED if at.folder.exists() else TO_DO)
        return DONE if is_final(record, self.finder.protocol) else TRAINED

    def view(self) -> str:
        """The whole grid, tasks by methods."""
        tasks = list(dict.fromkeys(cell.data for cell in self.cells))
        methods = list(dict.fromkeys(cell.method for cell in self.cells))
        states = {(cell.data, cell.method): self.state(cell) for cell in self.cells}
        rows = [[task, *(states.get((task, method), "") for method in methods)] for task in tasks]
        done = sum(state == DONE for state in states.values())
        table = text_table(["", *methods], rows, rule=False)
        return f"{table}\n{done} of {len(states)} cells done"
