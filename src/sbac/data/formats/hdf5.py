"""Reading untrusted HDF5 files: D4RL's flat layout, and the functions that Minari's reader shares.

Refused unread: links to other files, data stored in other files, Python objects, and shapes that claim far more data
than the file holds. No other module calls h5py, which has no types.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from sbac.data.formats.arrays import one_line, refuse_larger, require_file
from sbac.data.naming import ColumnMap, match, side_by_side
from sbac.errors import UserError


def read_columns(path: Path, columns: ColumnMap | None) -> dict[str, NDArray[Any]]:
    """The columns of a D4RL file: one dataset per column at the top of the file."""
    with opened(path) as file:
        chosen = match(names_in(file), columns, str(path))
        members = {name: member(file, name, path) for names in chosen.values() for name in names}
        refuse_larger(path, sum(claimed_bytes(dataset) for dataset in members.values()))
        stored = {name: values(dataset) for name, dataset in members.items()}
    return {field: side_by_side(stored, names, str(path)) for field, names in chosen.items()}


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
    return dataset[()]


def length(dataset: h5py.Dataset) -> int:
    """The rows of a dataset; 0 for a single number."""
    return int(dataset.shape[0]) if dataset.shape else 0


def member(group: h5py.Group, name: str, path: Path) -> h5py.Dataset:
    """A dataset that lies in this file and holds plain numbers."""
    where = f"{path}: {f'{group.name}/{name}'.strip('/')}"
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise UserError(f"{where}: is a link, which is never followed; store the data in the file itself")
    found = group[name]
    if not isinstance(found, h5py.Dataset):
        raise UserError(f"{where}: expected an array of numbers, got a group")
    if found.is_virtual or found.external:
        raise UserError(f"{where}: keeps its data in another file, which is never followed")
    if found.dtype.kind not in "fiub":
        raise UserError(f"{where}: expected numbers, got an array of {found.dtype}")
    if found.shape is None:
        raise UserError(f"{where}: is empty")
    return found


def claimed_bytes(dataset: h5py.Dataset) -> int:
    """The memory that reading takes: all of the array and one chunk of it."""
    chunk = dataset.chunks or ()
    return dataset.dtype.itemsize * (_product(dataset.shape) + (_product(chunk) if chunk else 0))


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= int(length)
    return size


class ColumnBlocks:
    """The rows of a D4RL file, read from one to another."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        self._path = path
        with opened(path) as file:
            self._chosen = match(names_in(file), columns, str(path))
            lengths = {length(member(file, name, path)) for names in self._chosen.values() for name in names}
        if len(lengths) != 1:
            raise UserError(f"{path}: columns of {len(lengths)} different lengths; expected one")
        self.rows = lengths.pop()

    def ranges(self, size: int) -> list[tuple[int, int]]:
        return [(start, min(start + size, self.rows)) for start in range(0, self.rows, size)]

    def read(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        with opened(self._path) as file:
            names = [name for parts in self._chosen.values() for name in parts]
            stored = {name: member(file, name, self._path)[start:stop] for name in names}
        return {field: side_by_side(stored, parts, str(self._path)) for field, parts in self._chosen.items()}
