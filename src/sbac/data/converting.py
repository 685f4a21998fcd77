"""`sbac data convert`: a dataset written in another format. What a format cannot hold is said, never made up."""

import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import BLOCK
from sbac.data.dataset import Dataset, jumps
from sbac.data.formats import csv_text, d3rlpy, hdf5, minari, parquet
from sbac.errors import UserError, unknown
from sbac.files import write_atomic

SUFFIXES = {".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5", ".parquet": "parquet", ".csv": "csv", "": "minari"}
FORMATS = ("npz", "npy", "hdf5", "parquet", "csv", "minari", "d3rlpy")
FOLDERS = ("npy", "minari")
Result = TypeVar("Result")
ROW_GROUP = 2**17
"""Rows of a row group of Parquet."""


class Written(NamedTuple):
    """How many rows were written, and what the format could not hold."""

    rows: int
    notes: list[str]


def convert(data: Dataset, out: str | Path, form: str | None = None, overwrite: bool = False) -> Written:
    """Writes a dataset as a file or a folder.

    form: one of FORMATS (default: by the name of `out`; one without a suffix is a Minari folder).
    """
    path = Path(out)
    if form is None:
        if path.suffix not in SUFFIXES:
            raise UserError(f"{path}: unknown kind of file; expected {', '.join(filter(None, SUFFIXES))} or --format")
        form = SUFFIXES[path.suffix]
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    if path.exists() and not (overwrite and path.is_file() and form not in FOLDERS):
        raise UserError(f"{path}: exists already; {'name a new folder' if form in FOLDERS else 'give --overwrite'}")
    if form == "minari":
        lost = _write_folder(path, lambda folder: minari.write_folder(folder, data, path.name))
        note = f"Minari needs the state after the last step: {lost:,} rows at time limits are left out"
        return Written(len(data) - lost, [note] if lost else [])
    notes: list[str] = []
    if form == "npz":
        data.save(path)
    elif form == "npy":
        _write_folder(path, lambda folder: _write_arrays(folder, data))
    else:
        notes = _write_file(path, data, form)
    return Written(len(data), notes)


def _write_file(path: Path, data: Dataset, form: str) -> list[str]:
    bounds = {"action_low": data.action_low, "action_high": data.action_high}
    if form == "hdf5":
        write_atomic(path, lambda file: hdf5.write(file, data.columns().items(), {"": bounds}))
        return []
    if form == "parquet":
        _need_tables(path)
        write_atomic(path, lambda file: parquet.write_parquet(file, blocks(data, ROW_GROUP), bounds))
        return []
    if form == "csv":
        _need_tables(path)
        write_atomic(path, lambda file: csv_text.write_csv(file, blocks(data)))
        plain = (data.action_low == -1).all() and (data.action_high == 1).all()
        low, high = (" ".join(f"{x:g}" for x in bound) for bound in bounds.values())
        return [] if plain else [f"CSV holds no bounds: read it with --action-low {low} --action-high {high}"]
    return _write_buffer(path, data)


def _write_buffer(path: Path, data: Dataset) -> list[str]:
    ends = data.terminals | data.timeouts
    if data.stores_next and (inside := np.flatnonzero(jumps(data.observations, data.next_observations) & ~ends)).size:
        raise UserError(f"{data.name}: row {inside[0]}: its s' is not the next row, which d3rlpy cannot hold")

    def write(file: IO[bytes]) -> None:
        d3rlpy.write_buffer(file, data)

    write_atomic(path, write)
    lost = int(data.timeouts.sum()) if data.stores_next else 0
    return [f"d3rlpy holds no s' at a time limit: that of {lost:,} rows is left out"] if lost else []


def blocks(data: Dataset, rows: int = BLOCK) -> Iterator[dict[str, NDArray[Any]]]:
    """The columns of a dataset in blocks of rows."""
    columns = data.columns()
    for start in range(0, len(data), rows):
        yield {name: column[start : start + rows] for name, column in columns.items()}


def _write_arrays(folder: Path, data: Dataset) -> None:
    bounds = {"action_low": data.action_low, "action_high": data.action_high}
    for name, column in {**data.columns(), **bounds}.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)


def _write_folder(path: Path, write: Callable[[Path], Result]) -> Result:
    """Writes a folder beside its place and moves it there when it is whole; gives on what `write` returns."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".sbac-", dir=path.parent) as scratch:
            folder = Path(scratch) / "data"
            folder.mkdir()
            result = write(folder)
            shutil.move(folder, path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error})") from None
    return result


def _need_tables(path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"{path}: {path.suffix} tables need: pip install 'sbac[tables]'")
