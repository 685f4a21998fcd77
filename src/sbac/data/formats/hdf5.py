"""HDF5 files: D4RL's flat layout, and the functions that other layouts share.

Refused unread: links to other files, data stored in other files, Python objects, shapes that claim far more data than
the file holds, and chunks that expand beyond their declared size. No other module calls h5py, which has no types.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import zlib
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import BLOCK, BOUNDS, SIDE_ARRAYS
from sbac.data.dataset import Dataset
from sbac.data.formats.arrays import LONGEST_TEXT
from sbac.data.formats.log import (
    FLOOR,
    Column,
    Format,
    Log,
    Rows,
    Slice,
    Written,
    is_file,
    log_of_arrays,
    one_line,
    product,
    read_names,
    require_file,
    with_flags,
)
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError

SUFFIXES = (".hdf5", ".h5")
LONGEST_LIMIT = 1000
"""The longest time limit of a D4RL task. A longer stretch without a flag means that a D4RL file lacks flags."""
PASSING = {h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
"""Filters that keep the size of a chunk."""
DEFLATE_RATIO = 1032
"""The most that deflate shrinks; no other filter of HDF5's own shrinks more to a size that it does not declare."""


def open_columns(path: Path, columns: ColumnMap | None) -> Log:
    """A D4RL file: one dataset per column at the top of the file."""
    with opened(path) as file:
        stored = names_in(file)
        names = match(stored, columns, str(path))
        before_version_2 = "timeouts" not in names and "terminals" in names and "episode_terminals" in stored
        if before_version_2:  # of d3rlpy
            names["episode_terminals"] = ["episode_terminals"]
        members = {name: member(file, name, path) for parts in names.values() for name in parts}
        declared = {name: column(dataset) for name, dataset in members.items()}
        work = sum(chunk_bytes(dataset) for dataset in members.values())
        description: dict[str, Any] = {**bounds(file, path), **side_arrays(file, path)}
        if isinstance(text := file.attrs.get("columns"), str):
            description["columns"] = read_names(text, path)

    @contextmanager
    def open_again(wanted: Collection[str]) -> Generator[Mapping[str, Slice]]:
        with opened(path) as file:
            yield {name: reader(member(file, name, path)) for name in wanted}

    log = log_of_arrays(path, path.stat().st_size, names, declared, open_again, description, work)
    if before_version_2:
        return with_flags(log, "episode_terminals", ("timeouts",), _ended_and_running)
    return replace(log, longest_episode=LONGEST_LIMIT)


def _ended_and_running(block: Rows) -> Rows:
    """The time limits: an episode ends and the environment would have gone on."""
    ended, terminal = (block[name].reshape(-1) != 0 for name in ("episode_terminals", "terminals"))
    return {"timeouts": ended & ~terminal}


def write_columns(data: Dataset, path: Path) -> Written:
    names = {"columns": json.dumps(data.columns)} if data.is_named else {}
    write(path, (data.arrays() | data.side_arrays()).items(), {"": {**data.bounds, **names}})
    return Written(len(data))


HDF5 = Format(lambda path: is_file(path, *SUFFIXES), open_columns, write_columns, suffixes=SUFFIXES, streams=True)


def bounds(file: h5py.File, path: Path) -> dict[str, NDArray[Any]]:
    """The bounds of the actions, as attributes or datasets at the top of the file."""
    stored: dict[str, NDArray[Any]] = {}
    for name in BOUNDS:
        if name in file.attrs:
            stored[name] = np.asarray(file.attrs[name])
        elif name in file:
            dataset = member(file, name, path)
            if column(dataset).values * dataset.dtype.itemsize < LONGEST_TEXT:
                stored[name] = values(dataset)
    return stored


def side_arrays(file: h5py.File, path: Path) -> dict[str, NDArray[Any]]:
    """What lies beside the columns and is not too large."""
    members = {name: member(file, name, path) for name in SIDE_ARRAYS if name in file}
    declared = {
        name: max(column(dataset).values * dataset.dtype.itemsize, chunk_bytes(dataset))
        for name, dataset in members.items()
    }
    return {name: values(dataset) for name, dataset in members.items() if declared[name] < FLOOR}


@contextmanager
def opened(path: Path) -> Generator[h5py.File]:
    """The open file; every failure to read it becomes a `UserError` of one line."""
    require_file(path)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not a readable HDF5 file: {one_line(error)}") from error


def names_in(group: h5py.Group) -> list[str]:
    """The names of what a group holds."""
    return [str(name) for name in group]


def subgroup(file: h5py.File, name: str) -> h5py.Group | None:
    """A group that lies in this file, or None."""
    group = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
    return group if isinstance(group, h5py.Group) else None


def values(dataset: h5py.Dataset) -> NDArray[Any]:
    """All numbers of a dataset."""
    return np.asarray(dataset[()])


def rows_of(dataset: h5py.Dataset | NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    """The numbers of some rows."""
    return dataset[start:stop]


def column(dataset: h5py.Dataset | NDArray[Any]) -> Column:
    """What a dataset declares."""
    return Column(tuple(int(length) for length in dataset.shape), dataset.dtype)


def member(group: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """A dataset that lies in this file and holds plain numbers."""
    where = f"{path}: {f'{group.name}/{name}'.strip('/')}"
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise UserError(f"{where}: is a link, which is never followed; store the data in the file itself")
    dataset = group[name]
    if not isinstance(dataset, h5py.Dataset):
        raise UserError(f"{where}: expected an array of numbers, got a group")
    if dataset.is_virtual or dataset.external:
        raise UserError(f"{where}: keeps its data in another file, which is never followed")
    if dataset.dtype.kind not in "fiub":
        raise UserError(f"{where}: expected numbers, got an array of {dataset.dtype}")
    if dataset.shape is None:
        raise UserError(f"{where}: is empty")
    _check_chunks(dataset, where)
    return dataset


def _check_chunks(dataset: h5py.Dataset, where: str) -> None:
    """Refuses chunks that may expand to more than their declared size: HDF5 would take any amount of memory for them.

    A chunk that is compressed twice is refused. One that is compressed once is tried where it is so large that it could
    expand beyond the limit for small files.
    """
    if dataset.chunks is None:
        return
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
    shrinking = [number for number in filters if number not in PASSING]
    if len(shrinking) > 1:
        raise UserError(f"{where}: its chunks are compressed twice; refusing to expand it")
    if shrinking != [h5py.h5z.FILTER_DEFLATE]:
        return
    declared, large = chunk_bytes(dataset), []

    def note(chunk: Any) -> None:
        if chunk.size * DEFLATE_RATIO > FLOOR:
            large.append(chunk)

    dataset.id.chunk_iter(note)
    for chunk in large:
        if chunk.filter_mask:
            continue
        _, stored = dataset.id.read_direct_chunk(chunk.chunk_offset)
        expander = zlib.decompressobj()
        expanded = len(expander.decompress(stored, declared + 64))  # a checksum may follow the values
        if expander.unconsumed_tail and expanded > declared:
            raise UserError(f"{where}: a chunk expands beyond its declared {declared:,} bytes; refusing to expand it")


def chunk_bytes(dataset: h5py.Dataset | NDArray[Any]) -> int:
    """The size of one chunk, expanded; an array that is in memory is one chunk."""
    chunk = dataset.shape if isinstance(dataset, np.ndarray) else dataset.chunks
    return dataset.dtype.itemsize * product(chunk) if chunk else 0


def reader(dataset: h5py.Dataset) -> Slice:
    """Reads rows in their order. Where a chunk has very many rows, all of them are kept until they are read."""
    tall = dataset.chunks[0] if dataset.chunks else 1
    if tall <= BLOCK // 4:
        return lambda start, stop: rows_of(dataset, start, stop)
    kept, first = np.empty(0), 0

    def read(start: int, stop: int) -> NDArray[Any]:
        nonlocal kept, first
        if not len(kept) or start < first or stop > first + len(kept):
            first = start // tall * tall
            kept = rows_of(dataset, first, min(-(-stop // tall) * tall, len(dataset)))
        return kept[start - first : stop - first]

    return read


def write(path: Path, arrays: Iterable[tuple[str, Any]], attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes arrays by name ("group/name" lies in a group), and attributes by group ("" is the file itself)."""
    with h5py.File(path, "w") as file:
        for name, array in arrays:
            file[name] = array
        for group, values in attributes.items():
            file[group or "/"].attrs.update(values)
