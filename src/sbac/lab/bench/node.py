"""What a node of a cluster does with a task: train its cells, play their final episodes, hand back the files."""

import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sbac.data import Dataset
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.code import code_version
from sbac.lab.bench.final import finish
from sbac.lab.bench.finding import Located
from sbac.lab.bench.parcels import Answered, Asked, AskedCell, pack_answer, unpack_asked, unpack_dataset
from sbac.lab.bench.training import train_group, trained_record
from sbac.lab.cells import cell_path, run_folder, write_cell
from sbac.lab.protocol import Protocol
from sbac.records import as_json

RUN_FILES = ("config.json", "metrics.jsonl", "evaluations.jsonl")


def run_task(task: bytes, *datasets: bytes) -> bytes:
    """Trains the cells of a task on their datasets. Bad input is an answer too: it is the same on every node."""
    began = time.monotonic()
    name = platform.node()
    try:
        return _trained(unpack_asked(task), [unpack_dataset(data) for data in datasets], name, began)
    except UserError as error:
        return pack_answer(Answered(name, time.monotonic() - began, error=str(error)))


def _trained(asked: Asked, datasets: Sequence[Dataset], name: str, began: float) -> bytes:
    with tempfile.TemporaryDirectory(prefix="sbac-node-") as scratch:
        results, waiting = Path(scratch), list(datasets)
        group = [
            _located(cell, waiting.pop(0) if cell.has_data else None, asked.protocol, results) for cell in asked.cells
        ]
        runs = train_group(group, asked.protocol, asked.workers)
        seconds = round((time.monotonic() - began) / len(group), 1)
        records = [
            trained_record(at, run, asked.protocol, seconds, len(group)) for at, run in zip(group, runs, strict=True)
        ]
        if asked.evaluate:
            for record in records:
                write_cell(results, record)
            with Pool(asked.workers) as pool:
                records = [finish(record, results, asked.protocol, pool) for record in records]
        answered = Answered(
            name,
            time.monotonic() - began,
            [as_json(record) for record in records],
            None,
            [run.diverged for run in runs],
        )
        return pack_answer(answered, [_run_files(at.folder) for at in group])


def _located(asked: AskedCell, data: Dataset | None, protocol: Protocol, results: Path) -> Located:
    """The cell's place in the node's own folder. Its key must be the bench's: a key holds the version of the code."""
    cell = asked.cell
    key = cell.key(None if data is None else data.task, asked.identity, protocol, code_version(cell.algorithm))
    if key != asked.key:
        raise UserError(f"{platform.node()}: its sbac is not the bench's (the code of {cell.algorithm} differs)")
    where = cell.data if data is None else data.name
    file = cell_path(results, where, cell.algorithm, key)
    return Located(cell, data, asked.identity, key, file, run_folder(results, where, cell.algorithm, key))


def _run_files(folder: Path) -> dict[str, bytes]:
    """The files that a finished run keeps: all but its checkpoint."""
    kept = [folder / name for name in RUN_FILES if (folder / name).exists()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in [*kept, *(folder / "policies").iterdir()]}
