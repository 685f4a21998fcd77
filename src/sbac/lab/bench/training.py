"""The training of cells that share a program: the same on this machine and on a node of a cluster."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from sbac.errors import UserError
from sbac.lab.bench.code import code_version
from sbac.lab.bench.finding import Located
from sbac.lab.cells import CellRecord, CodeVersion
from sbac.lab.protocol import Protocol
from sbac.results.describe import describe, machine, now

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.runs import Run


def widths(data: "Dataset") -> tuple[int, int]:
    """The sizes that data must share to train in one program."""
    return data.observations.shape[1], data.actions.shape[1]


def train_group(group: Sequence[Located], protocol: Protocol, workers: int | None) -> "list[Run]":
    """Trains cells of one method together, each in its own folder; what lies there already is continued."""
    from sbac.training.folder import Folder
    from sbac.training.launch import Launch
    from sbac.training.loop import train_launches
    from sbac.training.request import Evaluating, Grid, OfflineRequest

    if group[0].data is None:
        return [_train_online(group[0], protocol, workers)]
    for at in group:
        if at.task is None and at.cell.environment is None:
            raise UserError("no environment is known for this data; name one with --env")
    with ExitStack() as stack:
        launches: list[Launch] = []
        for at in group:
            assert at.data is not None
            request = OfflineRequest(
                data=at.data,
                algorithm=at.cell.algorithm,
                folder=Folder(at.folder, resume=True),
                grid=Grid(at.cell.seeds, at.cell.preset, at.cell.length, at.cell.settings),
                evaluating=Evaluating(
                    environment=at.cell.environment,
                    episodes=protocol.episodes,
                    evaluation_seed=protocol.seed,
                    evaluate_at=protocol.schedule(at.steps[-1]),
                ),
            )
            launches.append(Launch.open(request))
            stack.callback(launches[-1].opened.close)
        return train_launches(launches, workers=workers)


def _train_online(at: Located, protocol: Protocol, workers: int | None) -> "Run":
    from sbac.training.folder import Folder
    from sbac.training.online.request import OnlineRequest
    from sbac.training.online.train import train_in_environment
    from sbac.training.request import Evaluating, Grid

    assert at.cell.environment is not None
    schedule = protocol.schedule(at.steps[-1])
    request = OnlineRequest(
        environment=at.cell.environment,
        algorithm=at.cell.algorithm,
        folder=Folder(at.folder, overwrite=True),
        grid=Grid(at.cell.seeds, at.cell.preset, at.cell.length, at.cell.settings),
        evaluating=Evaluating(
            episodes=protocol.episodes,
            evaluation_seed=protocol.seed,
            evaluate_every=schedule[-1] - schedule[-2] if len(schedule) > 1 else None,
        ),
    )
    return train_in_environment(request, workers=workers)


def trained_record(at: Located, run: "Run", protocol: Protocol, seconds: float | None, together: int) -> CellRecord:
    """The record of a cell whose policies have not played their final episodes yet."""
    measured = describe(run, at.data)
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
