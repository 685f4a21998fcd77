"""Spreads the cells of a bench over the nodes of a cluster, and collects what they made into one results folder.

A task is a group of cells. A node trains it in a folder of its own and answers with files, so nodes share nothing but
the installed package. A task whose node is lost is sent again from its beginning. What is collected is on disk at once:
a bench that is stopped continues with what is missing.
"""

import json
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from sbac import files, interrupts
from sbac.errors import UserError
from sbac.lab.bench.executor import CellGroup, Outcome, Terms, group_name
from sbac.lab.bench.finding import PlacedCell
from sbac.lab.bench.parcels import Answered, Asked, AskedCell, Files, pack_asked, pack_dataset, unpack_answer
from sbac.lab.bench.ray_cluster import Lost, RayCluster
from sbac.lab.cells import CellRecord, parse_cell, path_of, write_cell
from sbac.text import counted
from sbac.training.folder import OpenFolder

ATTEMPTS = 4
"""How often a task is sent before its cells count as failed: a node may be lost three times."""
RUN_FILES = ("config.json", "metrics.jsonl", "evaluations.jsonl")


@dataclass
class Nodes:
    """Trains groups of cells on the nodes of a cluster, each with the final episodes of its policies."""

    cluster: RayCluster
    _stored: dict[str, object] = field(init=False, default_factory=dict[str, object])
    """What stands for the datasets on the cluster, by their identity."""

    def at_once(self, mates: int) -> int:
        """One cell for each task, or on GPUs, which several fill better, as many as leave no device idle."""
        return math.ceil(mates / self.cluster.devices) if self.cluster.has_accelerators else 1

    def train(self, groups: Sequence[CellGroup], terms: Terms) -> Generator[Outcome, None, None]:
        locks: dict[PlacedCell, OpenFolder] = {}
        under_way: dict[object, tuple[CellGroup, int]] = {}
        try:
            for group in groups:
                for at in group:
                    try:
                        locks[at] = _locked(at)
                    except UserError as error:
                        yield at, error
                ours = [at for at in group if at in locks]
                if ours:
                    terms.say(f"{terms.title(ours)}, sent")
                    under_way[self._send(ours, terms)] = ours, 1
            while under_way:
                interrupts.check()
                for ticket in self.cluster.wait(list(under_way), 1.0):
                    group, attempt = under_way.pop(ticket)
                    try:
                        outcomes = _outcomes(group, self.cluster.answer(ticket), terms)
                    except Lost as loss:
                        if attempt < ATTEMPTS:
                            terms.say(f"{group_name(group)}: lost ({loss}), sent again")
                            under_way[self._send(group, terms)] = group, attempt + 1
                            continue
                        outcomes = [(at, UserError(f"lost {ATTEMPTS} times; the last: {loss}")) for at in group]
                    for at, outcome in outcomes:
                        _unlock(locks.pop(at), trained=not isinstance(outcome, UserError))
                        yield at, outcome
        finally:
            for folder in locks.values():
                _unlock(folder, trained=False)

    def _send(self, group: CellGroup, terms: Terms) -> object:
        """Sends a task; its ticket."""
        cells = [AskedCell(at.cell, at.identity, at.key) for at in group]
        asked = Asked(cells, terms.finder.protocol, terms.workers, terms.evaluate)
        return self.cluster.send(pack_asked(asked), [self._data(at, terms) for at in group if not at.cell.online])

    def _data(self, at: PlacedCell, terms: Terms) -> object:
        """What stands for a cell's dataset; it is packed and handed over once."""
        if at.identity not in self._stored:
            self._stored[at.identity] = self.cluster.store(pack_dataset(terms.finder.data(at)))
        return self._stored[at.identity]


def _locked(at: PlacedCell) -> OpenFolder:
    is_new = not at.folder.exists()
    folder = OpenFolder(at.folder)
    folder.is_new = is_new
    return folder


def _unlock(folder: OpenFolder, trained: bool) -> None:
    """Gives a folder back; one that nothing was written into goes."""
    if trained:
        folder.begun()
    else:
        folder.restore()
    folder.close()


def _outcomes(group: CellGroup, answer: bytes, terms: Terms) -> list[Outcome]:
    """The cells of an answer, with their records or with the reasons why they have none."""
    try:
        answered, made = unpack_answer(answer)
    except ValueError as error:
        return [(at, UserError(f"the answer cannot be read: {error}")) for at in group]
    outcomes = [(at, _take(at, answered, made)) for at in group]
    taken = sum(not isinstance(outcome, UserError) for _, outcome in outcomes)
    if taken:
        terms.say(f"{group_name(group)}: {counted(taken, 'cell')} from {answered.node}, {answered.seconds:.0f} s")
    return outcomes


def _take(at: PlacedCell, answered: Answered, made: Files) -> CellRecord | UserError:
    """Writes the files of a cell where this bench would have made them, the cell's own last; no others are written."""
    cell, run = (path.relative_to(at.results) for path in (at.file, at.folder))
    policies = [f"{run}/policies/{member.label}.safetensors" for member in at.runs]
    wanted = [*(f"{run}/{name}" for name in RUN_FILES), *policies]
    if str(cell) not in made:
        return UserError(answered.error or answered.failures.get(at.key, f"{answered.node}: no answer"))
    try:
        record = parse_cell(json.loads(made[str(cell)]), at.cell.name)
    except ValueError as error:
        return UserError(f"{answered.node}: {error}")
    if path_of(at.results, record) != at.file or not set(wanted) <= set(made):
        return UserError(f"{answered.node}: the answer is not that of {at.cell.name}")
    for name in wanted:
        files.write_atomic(at.results / name, made[name])
    files.remove(at.folder / "checkpoint")  # of a training that was begun here
    write_cell(at.results, record)
    return record
