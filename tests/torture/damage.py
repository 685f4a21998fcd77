"""Damaged files of every kind that we read."""

import contextlib
import io
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pyarrow
from pyarrow import parquet

from tests.mutations import damage, restore
from tests.torture.processes import Outcome, make_log, run, start, training, wait

MEMORY = 3 * 2**30
"""The most bytes that reading a damaged file may take, the interpreter included."""


def specimens(folder: Path, method: str) -> Iterator[tuple[str, Path, Callable[[], object]]]:
    """A kind of file, the file to damage, and what reads it."""
    import sbac
    from sbac.algorithms import find
    from sbac.lab.cells import read_cell
    from sbac.policy import Policy
    from sbac.runs import Run
    from sbac.training.checkpoint import Checkpoint

    log = folder / "log.npz"
    data = make_log(log, 120)
    yield "npz", log, lambda: sbac.load(log)
    columns = {name: np.asarray(getattr(data, name)) for name in ("observations", "actions", "rewards")}
    columns |= {"terminals": data.terminals, "timeouts": data.timeouts}
    columns["actions"] = columns["actions"] / 2  # inside the bounds that a file without bounds has
    flat = folder / "log.hdf5"
    with h5py.File(flat, "w") as file:
        for name, column in columns.items():
            file.create_dataset(name, data=column, compression="gzip" if name == "observations" else None)
    yield "hdf5", flat, lambda: sbac.load(flat, action_low=-2.0, action_high=2.0)
    yield "hdf5, streamed", flat, lambda: sbac.stream(flat).survey
    npy = folder / "arrays"
    npy.mkdir()
    for name, column in columns.items():
        np.save(npy / f"{name}.npy", column, allow_pickle=False)
    yield "npy folder", npy / "observations.npy", lambda: sbac.load(npy, action_low=-2.0, action_high=2.0)
    minari = folder / "minari"
    (minari / "data").mkdir(parents=True)
    (minari / "data" / "metadata.json").write_text('{"dataset_id": "own/log-v0", "total_episodes": 2}')
    with h5py.File(minari / "data" / "main_data.hdf5", "w") as file:
        for number in range(2):
            group = file.create_group(f"episode_{number}")
            group["observations"], group["actions"] = np.zeros((41, 3), np.float32), np.zeros((40, 1), np.float32)
            group["rewards"], group["terminations"] = np.zeros(40), np.zeros(40, bool)
            group["truncations"] = np.arange(40) == 39
    yield "Minari data", minari / "data" / "main_data.hdf5", lambda: sbac.load(minari)
    yield "Minari metadata", minari / "data" / "metadata.json", lambda: sbac.load(minari)
    table = pyarrow.table({name: list(c) if c.ndim == 2 else c for name, c in columns.items()})
    parquet.write_table(table, folder / "log.parquet", row_group_size=40)
    yield "parquet", folder / "log.parquet", lambda: sbac.load(folder / "log.parquet")
    yield "parquet, streamed", folder / "log.parquet", lambda: sbac.stream(folder / "log.parquet").survey
    text = "obs_0,obs_1,action_0,reward,terminal,timeout\n" + "0.5,1,0.25,1,0,0\n" * 20 + "0.5,1,0.25,1,1,0\n"
    (folder / "log.csv").write_text(text)
    yield "csv", folder / "log.csv", lambda: sbac.load(folder / "log.csv")
    trained = folder / "run"
    ended = run(training(log, trained, True, method), folder)
    assert ended.code == 0, ended.text
    policy = next((trained / "policies").glob("*.safetensors"))
    yield "policy", policy, lambda: Policy.load(policy)(np.zeros((2, 3), np.float32))
    for name in ("config.json", "metrics.jsonl", "evaluations.jsonl"):
        yield f"run: {name}", trained / name, lambda: Run.load(trained)
    state = trained / "checkpoint" / "state-0.safetensors"
    yield "run: checkpoint", state, lambda: Checkpoint.find(state, len(find(method).phases))
    cells = sorted(
        (Path(__file__).parents[2] / "lab-notes" / "table" / "cells").rglob("*.json"), key=lambda p: p.stat().st_size
    )
    if cells:
        cell = folder / "cell.json"
        shutil.copy(cells[0], cell)
        yield "cell", cell, lambda: read_cell(cell)


def mutations(folder: Path, count: int, seed: int, method: str) -> Outcome:
    """Damaged files are read, or refused with one line: no traceback, no crash, no hang, no memory over the limit."""
    outcome = Outcome("damaged files")
    kinds = list(specimens(folder, method))
    each = -(-count // len(kinds))
    for number, (kind, path, read) in enumerate(kinds):
        whole, done = path.read_bytes(), 0
        while done < each:
            result = folder / "result.txt"
            child = start(partial(read_damaged, path, whole, read, seed, number, done, each), result)
            ended = wait(child, result)
            lines = [line for line in ended.text.splitlines() if line.startswith("@")]
            for line in lines:
                word, _, detail = line[1:].partition(" ")
                if word in ("read", "refused"):
                    outcome.note(word)
                elif word == "bad":
                    outcome.expect(False, f"{kind}: {detail}")
            passed = sum(line.startswith(("@read", "@refused", "@bad")) for line in lines)
            outcome.tried += passed
            done += passed
            if done < each:  # it crashed, hung or ran out of memory over this one
                where = f"seed {seed} {number} {done}"
                outcome.expect(False, f"{kind}: {where}: ended with {ended.code}: {ended.text[-300:]}")
                outcome.tried, done = outcome.tried + 1, done + 1
        restore(path, whole)
    return outcome


def read_damaged(
    path: Path, whole: bytes, read: Callable[[], object], seed: int, number: int, first: int, last: int
) -> int:
    """Damages a file again and again and reads it, in a process with limited memory and time."""
    import warnings

    from sbac.errors import UserError

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    restore(path, whole)
    read()  # undamaged, it is read: else every refusal would count
    for i in range(first, last):
        signal.alarm(60)
        restore(path, whole)
        try:
            damage(path, f"{seed} {number} {i}")
            with contextlib.redirect_stderr(io.StringIO()):
                read()
            print("@read")
        except UserError as error:
            lines = str(error).splitlines()
            print("@refused" if len(lines) == 1 else f"@bad seed {seed} {number} {i}: {len(lines)} lines: {lines[:2]}")
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {str(error)[:120]!r} at {Path(place.filename).name}:{place.lineno}"
            print(f"@bad seed {seed} {number} {i}: {what}")
        sys.stdout.flush()
    return 0
