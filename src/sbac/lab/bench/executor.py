"""What a bench asks of the place where its cells train: this machine, or the nodes of a cluster."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from sbac.errors import UserError
from sbac.lab.bench.final import Say
from sbac.lab.bench.finding import CellFinder, PlacedCell
from sbac.lab.bench.plan import Cell
from sbac.lab.cells import CellRecord
from sbac.text import phases_text

CellGroup = Sequence[PlacedCell]
"""Cells of one method on data of equal shape, which train in one program."""
Outcome = tuple[PlacedCell, CellRecord | UserError]
"""A cell with its record, or with the reason why there is none."""


@dataclass(frozen=True)
class Terms:
    """On which terms cells are trained."""

    plan: Sequence[Cell]
    """All cells of the bench."""
    finder: CellFinder
    workers: int | None
    """Evaluation processes; None: one per core."""
    evaluate: bool
    """Whether the last policies play their final episodes. An executor may do that, or leave it to the bench."""
    say: Say

    def title(self, group: CellGroup) -> str:
        """A group's place in the plan, its name, and how long it trains."""
        number = self.plan.index(group[0].cell) + 1
        return f"[{number}/{len(self.plan)}] {group_name(group)}: {phases_text(group[0].steps)} steps"


def group_name(group: CellGroup) -> str:
    return " + ".join([group[0].cell.name, *(at.cell.data for at in group[1:])])


class Executor(Interface):
    """Trains cells."""

    def at_once(self, mates: int) -> int:
        """How many of so many cells that could share a program had best do so."""
        ...

    def train(self, groups: Sequence[CellGroup], terms: Terms) -> Generator[Outcome, None, None]:
        """Trains the groups and writes the files of their cells; answers once for each cell, in any order."""
        ...
