"""What a node of a cluster does with a task: it runs a bench of its own, and hands back the files."""

import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sbac.errors import UserError
from sbac.lab.bench.bench import Bench
from sbac.lab.bench.finding import CellFinder
from sbac.lab.bench.parcels import Answered, Asked, Files, pack, unpack, unpack_dataset
from sbac.lab.bench.runner import run_bench


def run_task(task: bytes, *datasets: bytes) -> bytes:
    """Trains the cells of a task on their datasets. Bad input is an answer too: it is the same on every node."""
    began = time.monotonic()
    files: Files = {}
    failures: dict[str, str] = {}
    reason = None
    try:
        with tempfile.TemporaryDirectory(prefix="sbac-node-") as scratch:
            files, failures = _trained(task, datasets, Path(scratch))
    except UserError as error:
        reason = str(error)
    return pack(Answered(platform.node(), time.monotonic() - began, reason, failures), files)


def _trained(task: bytes, datasets: Sequence[bytes], results: Path) -> tuple[Files, dict[str, str]]:
    """The files of the cells that were trained, and why the others were not."""
    asked = unpack(Asked, task)[0]
    # A method that learns in an environment has no dataset.
    data = {cell.data: unpack_dataset(packed) for cell, packed in zip(asked.cells, datasets, strict=False)}
    finder = CellFinder(results, asked.protocol, read=data.__getitem__)
    places = [finder.place(cell) for cell in asked.cells]
    for at, key in zip(places, asked.keys, strict=True):
        if at.key != key:  # a key holds the version of the code
            raise UserError(f"{platform.node()}: its sbac is not the bench's (the code of {at.cell.algorithm} differs)")
    bench = Bench(asked.cells, finder, asked.workers, len(places), asked.evaluate, say=lambda line: None)
    failures = run_bench(bench).failures
    paths = [path for at in places if at.file.exists() for path in (at.file, *at.folder.rglob("*")) if path.is_file()]
    files = {str(path.relative_to(results)): path.read_bytes() for path in paths}
    return files, {at.key: failures[at.cell] for at in places if at.cell in failures}
