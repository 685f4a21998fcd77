"""A bench as the executors see it: cells that are to be trained and measured, and on which terms.

Two executors train cells: this machine (`training`) and the nodes of a cluster (`spread`).
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from sbac.errors import UserError
from sbac.lab.bench.final import Say, say_at_once
from sbac.lab.bench.finding import CellFinder, PlacedCell
from sbac.lab.bench.plan import Cell
from sbac.lab.cells import CellRecord
from sbac.text import phases_text

CellGroup = Sequence[PlacedCell]
"""Cells of one method on data of equal shape, which train in one program."""
Outcome = tuple[PlacedCell, CellRecord | UserError]
"""A cell with its record, or with the reason why there is none."""


@dataclass(frozen=True)
class Bench:
    """Cells to be trained and measured, as far as they are not in the results folder already."""

    cells: Sequence[Cell]
    finder: CellFinder
    workers: int | None = None
    """Evaluation processes; None: one per core."""
    together: int | None = None
    """How many cells of a method may train in one program; None: as many as suit the executor."""
    evaluate: bool = True
    """Whether the last policies play their final episodes."""
    say: Say = say_at_once

    def title(self, group: CellGroup) -> str:
        """A group's place among the cells, its name, and how long it trains."""
        number = self.cells.index(group[0].cell) + 1
        return f"[{number}/{len(self.cells)}] {group_name(group)}: {phases_text(group[0].steps)} steps"


def group_name(group: CellGroup) -> str:
    return " + ".join([group[0].cell.name, *(at.cell.data for at in group[1:])])


class Executor(Interface):
    def at_once(self, mates: int) -> int:
        """How many of so many cells that could share a program had best do so."""
        ...

    def train(self, groups: Sequence[CellGroup], bench: Bench) -> Generator[Outcome, None, None]:
        """Trains the groups and writes the files of their cells; answers once for each cell, in any order.

        Final episodes that it does not play are played by the bench.
        """
        ...
