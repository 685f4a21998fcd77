"""Runs a bench: whatever is left to do is trained, here or on a cluster, and measured.

A cell's training is a run like any other, in `runs/` of the results folder. Cells of one method on data of equal shape
may train together, in one program. A cell's file appears in `cells/` when its training is over and is completed by the
final evaluation, which needs only the policies and is played beside the training of other cells.
"""

import math
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

from sbac import interrupts
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.executor import CellGroup, Executor, Terms
from sbac.lab.bench.final import Say, finish, is_final, say_at_once
from sbac.lab.bench.finding import CellFinder, PlacedCell
from sbac.lab.bench.plan import Cell
from sbac.lab.bench.status import DONE, TRAINED, Status
from sbac.lab.bench.training import ThisMachine
from sbac.lab.cells import CellRecord
from sbac.runs import Run

Playing = dict[Cell, Future[CellRecord]]
"""Cells whose final episodes are being played."""


@dataclass
class Bench:
    """Trains and measures the cells of a plan, as far as they are not in the results folder already."""

    cells: Sequence[Cell]
    finder: CellFinder
    workers: int | None = None
    """Evaluation processes; None: one per core."""
    together: int | None = None
    """How many cells of a method may train in one program; None: as many as suit the executor."""
    say: Say = say_at_once
    status: Status = field(init=False)

    def __post_init__(self) -> None:
        self.status = Status(self.cells, self.finder)

    def run(self, executor: Executor | None = None, evaluate: bool = True) -> None:
        """Trains and measures what is missing. A cell that cannot be run is named, and the others go on.

        A cell that another process trains at this moment is left to it.
        """
        records = self._records(executor or ThisMachine(), evaluate)
        results, protocol = self.finder.results, self.finder.protocol
        playing: Playing = {}
        with ThreadPoolExecutor(1) as background, Pool(self.workers) as pool, closing(records):
            try:
                for cell, record in records:
                    if isinstance(record, UserError):
                        self._report(cell, record)
                    else:
                        final = is_final(record, protocol)
                        self.status.note(cell, DONE if final else TRAINED)
                        if evaluate and not final:
                            asked = record, results, protocol, pool, cell.environment
                            playing[cell] = background.submit(finish, *asked)
                    self._collect(playing)
                while playing:
                    interrupts.check()
                    next(iter(playing.values())).exception()
                    self._collect(playing)
            except BaseException:
                background.shutdown(wait=False, cancel_futures=True)
                raise

    def _records(
        self, executor: Executor, evaluate: bool
    ) -> Generator[tuple[Cell, CellRecord | UserError], None, None]:
        """Each cell with its record, if need be after training, or with the reason why it has none."""
        missing: list[PlacedCell] = []
        for cell in self.cells:
            try:
                at = self.finder.place(cell)
                record = self.finder.record(at)
            except UserError as error:
                yield cell, error
                continue
            if record is None:
                missing.append(at)
            else:
                yield cell, record
        terms = Terms(self.cells, self.finder, self.workers, evaluate, self.say)
        with closing(executor.train(self._groups(missing, executor), terms)) as outcomes:
            for at, outcome in outcomes:
                yield at.cell, outcome
                diverged = [] if isinstance(outcome, UserError) else Run.load(at.folder).diverged
                if diverged:
                    self.say(f"{at.cell.name}: diverged: {', '.join(diverged)}")

    def _groups(self, missing: Sequence[PlacedCell], executor: Executor) -> list[CellGroup]:
        """The cells that train together, in the order of the plan."""
        mates: dict[object, list[PlacedCell]] = {}
        for at in missing:
            mates.setdefault((at.cell.training, at.sizes or at.data), []).append(at)
        groups = [
            group
            for cells in mates.values()
            for group in _even_parts(cells, self.together or executor.at_once(len(cells)))
        ]
        return sorted(groups, key=lambda group: self.cells.index(group[0].cell))

    def _collect(self, playing: Playing) -> None:
        """Notes the cells whose final episodes are over."""
        for cell in [cell for cell, answer in playing.items() if answer.done()]:
            error = playing.pop(cell).exception()
            if isinstance(error, UserError):
                self._report(cell, error)
            elif error is not None:
                raise error
            else:
                self.status.note(cell, DONE)
                self.say(f"{cell.name}: {self.finder.protocol.final_episodes} episodes of each policy played")

    def _report(self, cell: Cell, error: UserError) -> None:
        self.status.note_error(cell, error)
        self.say(f"{cell.name}: {error}")


def _even_parts(cells: CellGroup, most: int) -> list[CellGroup]:
    """The cells in as few parts as hold at most so many each, of equal size up to one."""
    count = math.ceil(len(cells) / most)
    return [cells[i * len(cells) // count : (i + 1) * len(cells) // count] for i in range(count)]
