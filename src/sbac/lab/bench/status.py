"""Where each cell of a bench stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sbac.errors import InUseError, UserError
from sbac.lab.bench.final import is_final
from sbac.lab.bench.finding import CellFinder
from sbac.lab.bench.plan import Cell
from sbac.lab.cells import CellRecord
from sbac.text import text_table

DONE, TRAINED, STARTED, TO_DO, FAILED, IN_USE = "done", "trained", "started", "to do", "failed", "in use"


@dataclass
class Status:
    """Where each cell stands: what was noted while the bench ran, and else what lies in the results folder."""

    cells: Sequence[Cell]
    finder: CellFinder
    failures: dict[Cell, str] = field(init=False, default_factory=dict[Cell, str])
    _noted: dict[Cell, str] = field(init=False, default_factory=dict[Cell, str])

    def note(self, cell: Cell, outcome: CellRecord | UserError) -> None:
        """Takes down what has become of a cell; one that another process trains has not failed."""
        if isinstance(outcome, CellRecord):
            self._noted[cell] = self._of(outcome)
        elif isinstance(outcome, InUseError):
            self._noted[cell] = IN_USE
        else:
            self._noted[cell] = FAILED
            self.failures[cell] = str(outcome)

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
        return self._of(record)

    def _of(self, record: CellRecord) -> str:
        return DONE if is_final(record, self.finder.protocol) else TRAINED

    def view(self) -> str:
        tasks = list(dict.fromkeys(cell.data for cell in self.cells))
        methods = list(dict.fromkeys(cell.method for cell in self.cells))
        states = {(cell.data, cell.method): self.state(cell) for cell in self.cells}
        rows = [[task, *(states.get((task, method), "") for method in methods)] for task in tasks]
        done = sum(state == DONE for state in states.values())
        table = text_table(["", *methods], rows, rule=False)
        return f"{table}\n{done} of {len(states)} cells done"
