"""Runs a bench: cell by cell, whatever is left to do, with the final episodes of one beside the training of the next.

A cell's training is a run like any other, in `runs/` of the results folder, and is resumed like any other. Cells of one
method on data of equal shape may train together, in one program. A cell's file appears in `cells/` when its training is
over and is completed by the final evaluation, which needs only the policies.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sbac import files, interrupts
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.final import Say, finish, is_final, say_at_once
from sbac.lab.bench.finding import CellFinder, Located
from sbac.lab.bench.plan import Cell
from sbac.lab.bench.status import DONE, TRAINED, Status
from sbac.lab.bench.training import train_group, trained_record, widths
from sbac.lab.cells import CellRecord, write_cell
from sbac.lab.protocol import Protocol
from sbac.text import phases_text

if TYPE_CHECKING:
    from sbac.data import Dataset

Trained = list[tuple[Cell, CellRecord]]
Waiting = list[tuple[Cell, Future[CellRecord]]]
"""Cells whose final episodes are being played."""


@dataclass
class Bench:
    """Trains and measures the cells of a plan, as far as they are not in the results folder already."""

    cells: Sequence[Cell]
    results: Path
    protocol: Protocol = field(default_factory=Protocol)
    workers: int | None = None
    any_code: bool = False
    """Whether cells that another version of the code has finished count as done."""
    together: int | None = None
    """How many cells of a method may train in one program; None: one on a CPU, as many as fit on anything else."""
    say: Say = say_at_once
    finder: CellFinder = field(init=False)
    status: Status = field(init=False)
    _seconds: list[float] = field(init=False, default_factory=list[float])

    def __post_init__(self) -> None:
        self.finder = CellFinder(self.results, self.protocol, self.any_code)
        self.status = Status(self.cells, self.finder)

    def run(self, evaluate: bool = True) -> None:
        """Trains and measures what is missing. A cell that cannot be run is named, and the others go on.

        A cell that another process trains at this moment is left to it.
        """
        with ThreadPoolExecutor(1) as background, Pool(self.workers) as pool:
            try:
                self._run(evaluate, background, pool)
            except BaseException:
                background.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, evaluate: bool, background: ThreadPoolExecutor, pool: Pool) -> None:
        waiting: Waiting = []
        seen: set[Cell] = set()
        for cell in self.cells:
            if cell in seen:  # trained together with one before it
                continue
            for trained, record in self._trained(cell):
                seen.add(trained)
                final = is_final(record, self.protocol)
                self.status.note(trained, DONE if final else TRAINED)
                if evaluate and not final:
                    asked = record, self.results, self.protocol, pool, trained.environment
                    waiting.append((trained, background.submit(finish, *asked)))
            waiting = self._collect(waiting)
        while waiting:
            interrupts.check()
            waiting[0][1].exception()
            waiting = self._collect(waiting)

    def _collect(self, waiting: Waiting) -> Waiting:
        """Notes the final evaluations that are over; returns the others."""
        for cell, answer in waiting:
            if not answer.done():
                continue
            error = answer.exception()
            if isinstance(error, UserError):
                self._report(cell, error)
            elif error is not None:
                raise error
            else:
                self.status.note(cell, DONE)
                self.say(f"{cell.name}: {self.protocol.final_episodes} episodes of each policy played")
        return [(cell, answer) for cell, answer in waiting if not answer.done()]

    def _report(self, cell: Cell, error: UserError) -> None:
        self.status.note_error(cell, error)
        self.say(f"{cell.name}: {error}")

    # --- Training -------------------------------------------------------------------------------------------------

    def _trained(self, cell: Cell) -> Trained:
        """The cell's record, after training if there is none yet, and those of the cells that trained with it."""
        try:
            at = self.finder.locate(cell)
            found = self.finder.record(at)
            if found is not None:
                return [(cell, found)]
            group = [at] if at.data is None else [at, *self.companions(at, at.data)]
        except UserError as error:
            self._report(cell, error)
            return []
        return self._train_or_report(group)

    def _train_or_report(self, group: Sequence[Located]) -> Trained:
        try:
            return self._train(group)
        except UserError as error:
            if len(group) == 1:
                self._report(group[0].cell, error)
                return []
        # One by one it will show which of them it was.
        return [trained for at in group for trained in self._train_or_report([at])]

    def companions(self, first: Located, data: "Dataset") -> list[Located]:
        """Later cells of the same method and settings that lack a record and whose data have the same shape."""
        found: list[Located] = []
        for cell in self.cells[self.cells.index(first.cell) + 1 :]:
            if len(found) + 1 >= self._at_once():
                break
            if self.status.is_noted(cell) or cell.training != first.cell.training:
                continue
            try:
                at = self.finder.locate(cell)
            except UserError:
                continue  # it is named when its turn comes
            assert at.data is not None
            if self.finder.record(at) is None and widths(at.data) == widths(data):
                found.append(at)
        return found

    def _at_once(self) -> int:
        if self.together is not None:
            return self.together
        import jax

        return 1 if jax.default_backend() == "cpu" else len(self.cells)

    def _train(self, group: Sequence[Located]) -> Trained:
        """Trains cells of one method, together, and writes their files."""
        first = group[0]
        resumed = any(at.folder.exists() for at in group) and not first.cell.online
        names = " + ".join([first.cell.name, *(at.cell.data for at in group[1:])])
        number = f"[{self.cells.index(first.cell) + 1}/{len(self.cells)}]"
        again = ", resumed" if resumed else ""
        self.say(f"{number} {names}: {phases_text(first.steps)} steps{again}{self._time_left()}")
        began = time.monotonic()
        runs = train_group(group, self.protocol, self.workers)
        seconds = (time.monotonic() - began) / len(group)
        self._seconds += [seconds] * len(group)
        trained: Trained = []
        for at, run in zip(group, runs, strict=True):
            record = trained_record(at, run, self.protocol, None if resumed else round(seconds, 1), len(group))
            write_cell(self.results, record)
            if run.diverged:
                self.say(f"{at.cell.name}: diverged: {', '.join(run.diverged)}")
            files.remove(at.folder / "checkpoint")  # the policies stay
            trained.append((at.cell, record))
        return trained

    def _time_left(self) -> str:
        """How long the rest may take, if it takes as long as what this bench has trained so far."""
        if not self._seconds:
            return ""
        return f", about {self.status.left * sum(self._seconds) / len(self._seconds) / 60:.0f} min left"
