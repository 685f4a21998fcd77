"""Runs a bench: whatever is left to do is trained, here or on a cluster, and measured.

A cell's training is a run like any other, in `runs/` of the results folder. Cells of one method on data of equal shape
may train together, in one program. A cell's file appears in `cells/` when its training is over and is completed by the
final evaluation, which needs only the policies and is played beside the training of other cells.
"""

import math
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.bench import Bench, CellGroup, Executor
from sbac.lab.bench.final import finish, is_final
from sbac.lab.bench.finding import PlacedCell
from sbac.lab.bench.plan import Cell
from sbac.lab.bench.status import Status
from sbac.lab.bench.training import ThisMachine
from sbac.lab.cells import CellRecord
from sbac.runs import Run

Playing = dict[Cell, Future[CellRecord]]
"""Cells whose final episodes are being played."""


def run_bench(bench: Bench, executor: Executor | None = None) -> Status:
    """Trains and measures what is missing; where its cells stand then.

    A cell that cannot be run is named, and the others go on. One that another process trains at this moment is left to
    it.
    """
    results, protocol = bench.finder.results, bench.finder.protocol
    status, records = Status(bench.cells, bench.finder), _records(bench, executor or ThisMachine())
    playing: Playing = {}
    with ThreadPoolExecutor(1) as background, Pool(bench.workers) as pool, closing(records):
        try:
            for cell, record in records:
                _note(bench, status, cell, record)
                if bench.evaluate and isinstance(record, CellRecord) and not is_final(record, protocol):
                    playing[cell] = background.submit(finish, record, results, protocol, pool, cell.environment)
                _collect(bench, status, playing)
            while playing:
                next(iter(playing.values())).exception()
                _collect(bench, status, playing)
        except BaseException:
            background.shutdown(wait=False, cancel_futures=True)
            raise
    return status


def _note(bench: Bench, status: Status, cell: Cell, outcome: CellRecord | UserError) -> None:
    status.note(cell, outcome)
    if isinstance(outcome, UserError):
        bench.say(f"{cell.name}: {outcome}")


def _collect(bench: Bench, status: Status, playing: Playing) -> None:
    """Notes the cells whose final episodes are over."""
    for cell in [cell for cell, answer in playing.items() if answer.done()]:
        answer = playing.pop(cell)
        error = answer.exception()
        if error is not None and not isinstance(error, UserError):
            raise error
        _note(bench, status, cell, error or answer.result())
        if error is None:
            bench.say(f"{cell.name}: {bench.finder.protocol.final_episodes} episodes of each policy played")


def _records(bench: Bench, executor: Executor) -> Generator[tuple[Cell, CellRecord | UserError], None, None]:
    """Each cell with its record, if need be after training, or with the reason why it has none."""
    missing: list[PlacedCell] = []
    for cell in bench.cells:
        try:
            at = bench.finder.place(cell)
            record = bench.finder.record(at)
        except UserError as error:
            yield cell, error
            continue
        if record is None:
            missing.append(at)
        else:
            yield cell, record
    with closing(executor.train(_groups(missing, bench, executor), bench)) as outcomes:
        for at, outcome in outcomes:
            yield at.cell, outcome
            diverged = [] if isinstance(outcome, UserError) else Run.load(at.folder).diverged
            if diverged:
                bench.say(f"{at.cell.name}: diverged: {', '.join(diverged)}")


def _groups(missing: Sequence[PlacedCell], bench: Bench, executor: Executor) -> list[CellGroup]:
    """The cells that train together, in the order of the plan."""
    mates: dict[object, list[PlacedCell]] = {}
    for at in missing:
        mates.setdefault((at.cell.training, at.sizes or at.data), []).append(at)
    groups: list[CellGroup] = []
    for cells in mates.values():
        # As few groups as hold at most so many each, of equal size up to one.
        count = math.ceil(len(cells) / (bench.together or executor.at_once(len(cells))))
        groups += [cells[i * len(cells) // count : (i + 1) * len(cells) // count] for i in range(count)]
    return sorted(groups, key=lambda group: bench.cells.index(group[0].cell))
