"""What a format is, and the log that it opens.

A `Log` is opened and not yet decoded: it says what it declares, and reads its rows in blocks. Whether a log is too
large is decided from what it declares, in decoded bytes, before any value is decoded.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import BLOCK, VECTORS
from sbac.data.dataset import Dataset
from sbac.data.naming import ColumnMap
from sbac.errors import UserError
from sbac.records import Json

FLOOR = 256 * 2**20
EXPANSION = 100
BLOCK_BYTES = 2**25
"""About as many bytes as a block may have."""
LONGEST_DESCRIPTION = 2**24
LARGEST_PART = 2**28
"""Bytes of a part that streaming decodes at once."""

Array = NDArray[Any]
Rows = dict[str, Array]
"""Some rows: the values of every field."""


class Column(NamedTuple):
    """What a file declares of a column."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def values(self) -> int:
        return product(self.shape)


class Written(NamedTuple):
    """How many rows were written, and what the format could not hold."""

    rows: int
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Format:
    """What a format can do."""

    recognises: Callable[[Path], bool]
    """Whether a path is of this format."""
    open: Callable[[Path, ColumnMap | None], "Log"]
    """The log at a path. The caller's names of the columns go to `match`, which finds the column of every field."""
    write: Callable[[Dataset, Path], Written] | None = None
    """Writes a dataset to a new file, or into a new folder."""
    suffixes: tuple[str, ...] = ()
    """Of its files. A new file with one of them is written in this format."""
    folder: str = ""
    """What a folder of this format is, for an error line; empty if it is a file."""
    streams: bool = False
    """Whether a log reads any of its parts, and not only all rows from the first on."""


@dataclass(frozen=True)
class Log:
    """A log that was opened and not decoded."""

    path: Path
    size: int
    """Bytes on disk."""
    columns: Mapping[str, Column]
    """The declared columns, by field. The number of rows is an upper bound where a format does not store it."""
    read: Callable[[Collection[str], int, int, int], Iterator[Rows]]
    """`read(fields, start, stop, most)`: some fields of the rows from `start` to `stop`, in blocks of at most `most`.

    A log that does not stream is asked for all its rows only, one that has parts for whole parts.
    """
    names: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The file's own names of the columns of each field."""
    description: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments of `Dataset` that are not columns."""
    work: int = 0
    """Bytes that decoding takes besides the columns, such as one chunk of each."""
    parts: Sequence[int] | None = None
    """The first row of every part read whole, such as an episode, and the number of rows; None if it has none."""
    longest_episode: int | None = None
    """The most rows of an episode, where it is known of all files of a format."""
    line_of: Callable[[int], int] | None = None
    """The line of the file that holds a row, where the file is text."""

    def __len__(self) -> int:
        return max((column.shape[0] for column in self.columns.values() if column.shape), default=0)

    @property
    def readable(self) -> list[str]:
        """The fields whose shape and type can be those of a dataset."""
        return [name for name, column in self.columns.items() if is_readable(name, column)]

    @property
    def decoded_bytes(self) -> int:
        """The memory that the log takes."""
        columns = [(self.columns[name], kept_dtype(name, self.columns[name])) for name in self.readable]
        return self.work + sum(column.values * dtype.itemsize for column, dtype in columns)

    @property
    def row_bytes(self) -> int:
        """The memory that a row takes while it is decoded."""
        columns = [self.columns[name] for name in self.readable]
        return max(1, sum(column.dtype.itemsize * product(column.shape[1:]) for column in columns))

    def ranges(self, size: int) -> list[tuple[int, int]]:
        """The log in blocks of `size` rows, or of whole parts with at least as many: first row, row after the last."""
        if self.parts is None:
            return [(start, min(start + size, len(self))) for start in range(0, len(self), size)]
        blocks: list[tuple[int, int]] = []
        first, row_bytes = 0, self.row_bytes
        for start, stop in pairwise(self.parts):
            if (stop - start) * row_bytes > LARGEST_PART:
                raise UserError(
                    f"{self.path}: rows {start} to {stop} are one part of {(stop - start) * row_bytes:,} bytes; "
                    f"expected row groups or episodes of at most {LARGEST_PART:,} to stream it"
                )
            if stop - first >= size or (stop == self.parts[-1] and stop > first):
                blocks.append((first, stop))
                first = stop
        return blocks

    def rows(self, start: int, stop: int) -> Rows:
        """The rows from `start` to `stop`: vectors as float32, the rest as stored. Nothing is held twice.

        A column that cannot be that of a dataset is not decoded. Zeros of its shape and type, which take no memory,
        stand for it, so that the checks can name it.
        """
        arrays: Rows = {}
        for name, column in self.columns.items():
            shape = (max(min(stop, column.shape[0]) - start, 0), *column.shape[1:]) if column.shape else ()
            if is_readable(name, column):
                arrays[name] = np.empty(shape, kept_dtype(name, column))
            else:
                arrays[name] = np.broadcast_to(np.zeros((), column.dtype), shape)
        filled = dict.fromkeys(self.readable, 0)
        most = max(1, min(BLOCK, BLOCK_BYTES // self.row_bytes))
        with np.errstate(over="ignore"):
            for block in self.read(self.readable, start, stop, most):
                for name, part in block.items():
                    end = filled[name] + len(part)
                    if end > len(arrays[name]):
                        raise UserError(f"{self.path}: {name}: more rows than the file declares")
                    arrays[name][filled[name] : end] = part
                    filled[name] = end
        return {name: array[: filled[name]] if name in filled else array for name, array in arrays.items()}


def decode(log: Log, limit: int | None = None) -> Rows:
    """All rows of a log.

    Refuses, without decoding it, one that would take more memory than the limit: 100 times its size on disk, and at
    least 256 MiB, unless another is given.
    """
    most = max(FLOOR, EXPANSION * log.size) if limit is None else limit
    if log.decoded_bytes > most:
        raise UserError(
            f"{log.path}: claims {log.decoded_bytes:,} bytes of data, but the file holds {log.size:,}; refusing to "
            f"expand it beyond {most:,} bytes (--max-bytes or max_bytes= sets another limit)"
        )
    return log.rows(0, len(log))


def product(shape: Sequence[int]) -> int:
    """The number of values, as a Python number, which does not overflow."""
    size = 1
    for length in shape:
        size *= int(length)
    return size


def is_readable(name: str, column: Column) -> bool:
    """Whether a column of this shape and type can be the field. What cannot is never decoded, only reported."""
    shape, kind = column.shape, column.dtype.kind
    if name in VECTORS:
        return kind in "fiub" and len(shape) == 2
    return kind in "fiub" and len(shape) >= 1 and (product(shape[1:]) == 1 or name == "extras")


def kept_dtype(name: str, column: Column) -> np.dtype[Any]:
    """The type in which a field is kept in memory."""
    return np.dtype(np.float32) if name in VECTORS else column.dtype


# --- For the formats --------------------------------------------------------------------------------------------------


def is_file(path: Path, *suffixes: str) -> bool:
    """Whether a path has one of the suffixes and is no folder."""
    return path.name.lower().endswith(suffixes) and not path.is_dir()


def require_file(path: Path) -> None:
    """Refuses pipes, sockets and devices, whose reading might never end."""
    if not path.is_file():
        raise UserError(f"{path}: {'not a regular file' if path.exists() else 'no such file'}")


def one_line(error: Exception) -> str:
    """The error's message without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def read_description(path: Path, what: str) -> dict[str, Any]:
    """The JSON object that describes a folder."""
    require_file(path)
    try:
        if path.stat().st_size > LONGEST_DESCRIPTION:
            raise UserError(f"{path}: expected {what}, got {path.stat().st_size:,} bytes")
        description: Json = json.loads(path.read_text())
    except UserError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not readable as JSON: {one_line(error)}") from error
    if not isinstance(description, dict):
        raise UserError(f"{path}: expected {what}, got {type(description).__name__}")
    return description


def read_names(text: str | bytes, path: Path) -> Json:
    """The names of the columns, as JSON that a dataset checks."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: columns: expected the names of the columns, as JSON") from None


def with_flags(log: Log, extra: str, derived: Collection[str], derive: Callable[[Rows], Rows]) -> Log:
    """The same log with flags that are derived of its `terminals` and an extra column, which it then lacks."""
    rows = log.columns["terminals"].shape[:1]
    for name in ("terminals", extra):
        if not is_readable(name, log.columns[name]) or log.columns[name].shape[:1] != rows:
            raise UserError(f"{log.path}: {name}: expected one number per row, as many as terminals")

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        stored = {name for name in fields if name not in derived}
        if len(stored) < len(fields):
            stored |= {"terminals", extra}
        for block in log.read(stored, start, stop, most):
            block |= derive(block) if extra in stored else {}
            yield {name: block[name] for name in fields}

    kept = {name: column for name, column in log.columns.items() if name != extra}
    return replace(log, columns=kept | dict.fromkeys(derived, Column(rows, np.dtype(bool))), read=read)


Slice = Callable[[int, int], Array]
"""The values of an array from a row to another."""


def log_of_arrays(
    path: Path,
    size: int,
    names: Mapping[str, Sequence[str]],
    declared: Mapping[str, Column],
    opened: Callable[[Collection[str]], AbstractContextManager[Mapping[str, Slice]]],
    description: Mapping[str, Any],
    work: int = 0,
) -> Log:
    """A log that stores one array a column. A field is one array, or several side by side.

    opened: gives access to arrays by name; it is asked for their rows in order.
    """
    columns = side_by_side(names, declared, path)

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        with opened([name for field in fields for name in names[field]]) as arrays:
            for first in range(start, stop, most):
                block: Rows = {}
                for field in fields:
                    rows = columns[field].shape[0]
                    begin, end = min(first, rows), min(first + most, stop, rows)
                    values = [arrays[name](begin, end) for name in names[field]]
                    block[field] = values[0] if len(values) == 1 else np.column_stack(values)
                yield block

    return Log(path, size, columns, read, names, description, work)


def side_by_side(
    names: Mapping[str, Sequence[str]], declared: Mapping[str, Column], where: Path | str
) -> dict[str, Column]:
    """The column of every field: one of the file's as it is, or two and more as a matrix."""
    columns: dict[str, Column] = {}
    for target, members in names.items():
        first = columns[target] = declared[members[0]]
        if len(members) == 1:
            continue
        for name in members:
            if declared[name].shape[:1] != first.shape[:1]:
                raise UserError(f"{where}: {name} has another number of rows than {members[0]}")
            if len(declared[name].shape) != 1:
                raise UserError(f"{where}: {name}: expected one number per row where {target} has several columns")
        dtype = np.result_type(*(declared[name].dtype for name in members))
        columns[target] = Column((*first.shape, len(members)), dtype)
    return columns
