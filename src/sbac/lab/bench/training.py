"""The training of cells on this machine. What lies in a cell's folder already is continued."""

import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import jax

from sbac import files
from sbac.data import Dataset
from sbac.errors import UserError
from sbac.lab.bench.bench import Bench, CellGroup, Outcome
from sbac.lab.bench.code import code_version
from sbac.lab.bench.finding import PlacedCell
from sbac.lab.cells import CellRecord, CodeVersion, MeasuredRun, read_cell, write_cell
from sbac.lab.protocol import Protocol
from sbac.results.describe import describe, machine, now
from sbac.runs import Run
from sbac.training.folder import Folder
from sbac.training.loop import train_runs
from sbac.training.online.request import OnlineRequest
from sbac.training.online.train import train_in_environment
from sbac.training.open_run import OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest


@dataclass
class ThisMachine:
    _seconds: list[float] = field(init=False, default_factory=list[float])
    """Of each cell that was trained."""

    def at_once(self, mates: int) -> int:
        return 1 if jax.default_backend() == "cpu" else mates

    def train(self, groups: Sequence[CellGroup], bench: Bench) -> Generator[Outcome, None, None]:
        waiting = deque(groups)
        while waiting:
            left = sum(map(len, waiting))
            group = waiting.popleft()
            made_elsewhere = [at for at in group if at.file.exists()]  # by another process, in the meantime
            yield from ((at, read_cell(at.file)) for at in made_elsewhere)
            group = [at for at in group if at not in made_elsewhere]
            try:
                records = self._train(group, left, bench) if group else []
            except UserError as error:
                if len(group) == 1:
                    yield group[0], error
                else:
                    waiting.extendleft([at] for at in reversed(group))  # one by one it will show which it was
            else:
                yield from zip(group, records, strict=True)

    def _train(self, group: CellGroup, left: int, bench: Bench) -> list[CellRecord]:
        online = group[0].cell.online
        resumed = any(at.folder.exists() for at in group) and not online
        bench.say(f"{bench.title(group)}{', resumed' if resumed else ''}{self._time_for(left)}")
        data = [None if online else bench.finder.data(at) for at in group]
        began = time.monotonic()
        runs = [_train_online(group[0], bench)] if online else _train_offline(group, data, bench)
        seconds = (time.monotonic() - began) / len(group)
        self._seconds += [seconds] * len(group)
        took = None if resumed else round(seconds, 1)
        records = [
            _record(at, describe(run, log), bench.finder.protocol, took, len(group))
            for at, run, log in zip(group, runs, data, strict=True)
        ]
        for at, record in zip(group, records, strict=True):
            write_cell(at.results, record)
            files.remove(at.folder / "checkpoint")  # the policies stay
        return records

    def _time_for(self, cells: int) -> str:
        """How long so many cells may take, if they take as long as those that were trained."""
        if not self._seconds:
            return ""
        return f", about {cells * sum(self._seconds) / len(self._seconds) / 60:.0f} min left"


def _train_offline(group: CellGroup, data: Sequence[Dataset | None], bench: Bench) -> list[Run]:
    protocol = bench.finder.protocol
    with ExitStack() as stack:
        open_runs: list[OpenRun] = []
        for at, log in zip(group, data, strict=True):
            cell, schedule = at.cell, protocol.schedule(at.steps[-1])
            if log is None or (at.task is None and cell.environment is None):
                raise UserError("no environment is known for this data; name one with --env")
            request = OfflineRequest(
                data=log,
                algorithm=cell.algorithm,
                folder=Folder(at.folder, resume=True),
                grid=Grid(cell.seeds, cell.preset, cell.length, cell.settings),
                evaluating=Evaluating(True, cell.environment, protocol.episodes, protocol.seed, None, schedule),
            )
            open_runs.append(OpenRun.open(request))
            stack.callback(open_runs[-1].opened.close)
        return train_runs(open_runs, workers=bench.workers)


def _train_online(at: PlacedCell, bench: Bench) -> Run:
    cell, protocol = at.cell, bench.finder.protocol
    assert cell.environment is not None
    schedule = protocol.schedule(at.steps[-1])
    every = schedule[-1] - schedule[-2] if len(schedule) > 1 else None
    request = OnlineRequest(
        environment=cell.environment,
        algorithm=cell.algorithm,
        folder=Folder(at.folder, overwrite=True),
        grid=Grid(cell.seeds, cell.preset, cell.length, cell.settings),
        evaluating=Evaluating(True, None, protocol.episodes, protocol.seed, every),
    )
    return train_in_environment(request, workers=bench.workers)


def _record(
    at: PlacedCell, measured: MeasuredRun, protocol: Protocol, seconds: float | None, together: int
) -> CellRecord:
    """The record of a cell whose policies have not played their final episodes yet."""
    return CellRecord(
        **vars(replace(measured, data=replace(measured.data, identity=at.identity))),
        key=at.key,
        length=None if at.cell.length is None else list(at.cell.length),
        settings=at.cell.settings,
        protocol=protocol,
        code=CodeVersion(**code_version(at.cell.algorithm)),
        machine=machine(),
        date=now(),
        seconds=seconds,
        together=together,
        final=[],
    )
