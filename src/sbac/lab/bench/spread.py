"""Spreads the cells of a bench over the nodes of a cluster, and collects what they made into one results folder.

A task is a program: cells of one method on data of equal shape. A node trains it in a folder of its own and answers
with files, so nodes share nothing but the installed package. A task whose node is lost is sent again from its
beginning. What is collected is on disk at once: a bench that is stopped continues with what is missing.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol as Interface

from sbac import files, interrupts
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.final import Say, finish, is_final, say_at_once
from sbac.lab.bench.finding import CellFinder, Located
from sbac.lab.bench.node import RUN_FILES
from sbac.lab.bench.parcels import Answered, Asked, AskedCell, RunFiles, pack_asked, pack_dataset, unpack_answer
from sbac.lab.bench.plan import Cell
from sbac.lab.bench.status import DONE, TRAINED, Status
from sbac.lab.bench.training import widths
from sbac.lab.cells import CellRecord, parse_cell, path_of, write_cell
from sbac.lab.protocol import Protocol
from sbac.text import counted, phases_text
from sbac.training.folder import OpenFolder

ATTEMPTS = 4
"""How often a task is sent before its cells count as failed: a node may be lost three times."""


class Lost(Exception):
    """A task whose node or process is gone."""


class Cluster(Interface):
    """Where tasks run. A ticket stands for a task that was sent."""

    @property
    def devices(self) -> int:
        """How many tasks run at a time."""
        ...

    @property
    def has_accelerators(self) -> bool:
        """Whether a device is a GPU, which several cells fill better than one."""
        ...

    def store(self, data: bytes) -> object:
        """Keeps bytes for the tasks that read them; returns what stands for them in `send`."""
        ...

    def send(self, task: bytes, stored: Sequence[object]) -> object:
        """Has `sbac.lab.bench.node.run_task` run on some node; returns a ticket."""
        ...

    def wait(self, tickets: Sequence[object], seconds: float) -> list[object]:
        """The tickets that are answered or lost, after at most this time."""
        ...

    def answer(self, ticket: object) -> bytes:
        """The answer; raises Lost if there will be none."""
        ...


@dataclass(frozen=True, eq=False)
class Task:
    """Cells that train in one program on one device, with the folders that this process has locked for them."""

    group: Sequence[Located]
    folders: Sequence[OpenFolder]
    attempt: int = 1

    @property
    def name(self) -> str:
        return " + ".join([self.group[0].cell.name, *(at.cell.data for at in self.group[1:])])

    def release(self) -> None:
        """Gives the folders back; one that nothing was written into goes."""
        for folder in self.folders:
            folder.restore()
            folder.close()


@dataclass
class Spread:
    """A bench whose cells train on a cluster."""

    cells: Sequence[Cell]
    results: Path
    cluster: Cluster
    protocol: Protocol = field(default_factory=Protocol)
    workers: int | None = None
    """Evaluation processes of a task."""
    any_code: bool = False
    together: int | None = None
    """How many cells may share a task; None: one, or on GPUs as many as leave no device idle."""
    say: Say = say_at_once
    finder: CellFinder = field(init=False)
    status: Status = field(init=False)
    _stored: dict[str, object] = field(init=False, default_factory=dict[str, object])

    def __post_init__(self) -> None:
        self.finder = CellFinder(self.results, self.protocol, self.any_code)
        self.status = Status(self.cells, self.finder)

    def run(self, evaluate: bool = True) -> None:
        """Trains and measures what is missing. A cell that cannot be run is named, and the others go on."""
        open_tasks: dict[object, Task] = {}
        try:
            for group in self._groups(self._missing(evaluate)):
                self._open(group, evaluate, open_tasks)
            while open_tasks:
                interrupts.check()
                for ticket in self.cluster.wait(list(open_tasks), 1.0):
                    self._take(open_tasks.pop(ticket), ticket, evaluate, open_tasks)
        finally:
            for task in open_tasks.values():
                task.release()

    # --- What is to be done ---------------------------------------------------------------------------------------

    def _missing(self, evaluate: bool) -> list[Located]:
        """The cells without a record. Those that lack only their final episodes play them here: a policy is small."""
        found: list[Located] = []
        for cell in self.cells:
            try:
                at = self.finder.locate(cell)
                record = self.finder.record(at)
                if record is None:
                    found.append(at)
                else:
                    self._note(cell, self._finished(record) if evaluate else record)
            except UserError as error:
                self._report(cell, error)
        return found

    def _finished(self, record: CellRecord) -> CellRecord:
        if is_final(record, self.protocol):
            return record
        with Pool(self.workers) as pool:
            return finish(record, self.results, self.protocol, pool)

    def _groups(self, missing: Iterable[Located]) -> list[list[Located]]:
        """The cells of each task."""
        mates: dict[str, list[Located]] = {}
        for at in missing:
            shape = at.cell.data if at.data is None else widths(at.data)
            mates.setdefault(str((at.cell.training, shape)), []).append(at)
        return [group for cells in mates.values() for group in _even(cells, self._at_once(len(cells)))]

    def _at_once(self, mates: int) -> int:
        if self.together is not None:
            return self.together
        return math.ceil(mates / self.cluster.devices) if self.cluster.has_accelerators else 1

    # --- Tasks ----------------------------------------------------------------------------------------------------

    def _open(self, group: Sequence[Located], evaluate: bool, open_tasks: dict[object, Task]) -> None:
        """Locks the folders of the cells and sends them; cells that another process trains are left to it."""
        own: list[Located] = []
        folders: list[OpenFolder] = []
        for at in group:
            is_new = not at.folder.exists()
            try:
                folders.append(OpenFolder(at.folder))
            except UserError as error:
                self._report(at.cell, error)
                continue
            folders[-1].is_new = is_new
            own.append(at)
        if own:
            self._send(Task(own, folders), evaluate, open_tasks)

    def _send(self, task: Task, evaluate: bool, open_tasks: dict[object, Task]) -> None:
        asked = Asked([AskedCell.of(at) for at in task.group], self.protocol, self.workers, evaluate)
        stored = [self._data(at) for at in task.group if at.data is not None]
        open_tasks[self.cluster.send(pack_asked(asked), stored)] = task
        if task.attempt == 1:
            self.say(f"{task.name}: {phases_text(task.group[0].steps)} steps, sent")

    def _data(self, at: Located) -> object:
        """What stands for a cell's dataset; it is packed and handed over once."""
        assert at.data is not None
        if at.identity not in self._stored:
            self._stored[at.identity] = self.cluster.store(pack_dataset(at.data))
        return self._stored[at.identity]

    def _take(self, task: Task, ticket: object, evaluate: bool, open_tasks: dict[object, Task]) -> None:
        try:
            answered, runs = unpack_answer(self.cluster.answer(ticket))
        except Lost as loss:
            self._again(task, str(loss), evaluate, open_tasks)
            return
        if answered.error is None:
            self._write(task, answered, runs)
            return
        if len(task.group) == 1:
            self._fail(task, answered.error)
            return
        for at, folder in zip(task.group, task.folders, strict=True):  # one by one it will show which it was
            self._send(Task([at], [folder]), evaluate, open_tasks)

    def _again(self, task: Task, why: str, evaluate: bool, open_tasks: dict[object, Task]) -> None:
        if task.attempt >= ATTEMPTS:
            self._fail(task, f"lost {ATTEMPTS} times; the last: {why}")
            return
        self.say(f"{task.name}: lost ({why}), sent again")
        self._send(Task(task.group, task.folders, task.attempt + 1), evaluate, open_tasks)

    def _write(self, task: Task, answered: Answered, runs: RunFiles) -> None:
        """Puts the cells of an answer where this bench would have made them. A cell's own file comes last."""
        place = f"{answered.node}, {answered.seconds:.0f} s"
        try:
            records = [self._checked(task, i, answered, runs) for i in range(len(task.group))]
        except UserError as error:
            self._fail(task, f"{answered.node}: {error}")
            return
        for at, record, run, diverged in zip(task.group, records, runs, answered.diverged, strict=True):
            for name in sorted(run, key=lambda name: name.startswith("policies/")):
                files.write_atomic(at.folder / name, run[name])
            files.remove(at.folder / "checkpoint")  # of a training that was begun here
            write_cell(self.results, record)
            self._note(at.cell, record)
            if diverged:
                self.say(f"{at.cell.name}: diverged, no longer numbers: {', '.join(diverged)}")
        for folder in task.folders:
            folder.begun()
            folder.close()
        self.say(f"{task.name}: {counted(len(records), 'cell')} from {place}")

    def _checked(self, task: Task, number: int, answered: Answered, runs: RunFiles) -> CellRecord:
        """The record of a task's cell, if the answer is about that cell and holds the files of its run alone."""
        at = task.group[number]
        if len(answered.records) != len(task.group) or len(answered.diverged) != len(task.group):
            raise UserError(f"{len(answered.records)} cells came back; expected {len(task.group)}")
        record = parse_cell(answered.records[number], at.cell.name)
        wanted = {*RUN_FILES, *(f"policies/{run.label}.safetensors" for run in at.cell.runs(at.task))}
        if path_of(self.results, record) != at.file or set(runs[number]) != wanted:
            raise UserError(f"the answer is not that of {at.cell.name}")
        return record

    def _fail(self, task: Task, why: str) -> None:
        for at in task.group:
            self._report(at.cell, UserError(why))
        task.release()

    # --- Notes ----------------------------------------------------------------------------------------------------

    def _note(self, cell: Cell, record: CellRecord) -> None:
        self.status.note(cell, DONE if is_final(record, self.protocol) else TRAINED)

    def _report(self, cell: Cell, error: UserError) -> None:
        self.status.note_error(cell, error)
        self.say(f"{cell.name}: {error}")


def _even(cells: Sequence[Located], most: int) -> list[list[Located]]:
    """The cells in as few parts as hold at most so many each, of equal size up to one."""
    count = math.ceil(len(cells) / most)
    return [list(cells[i * len(cells) // count : (i + 1) * len(cells) // count]) for i in range(count)]
