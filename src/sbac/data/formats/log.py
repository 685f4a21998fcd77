"""A log that is opened and not yet decoded: what it declares, and its rows in blocks.

Every reader gives a `Log`. Whether a log is too large is decided from what it declares, in decoded bytes, before any
value is decoded. Its rows are read in blocks, in the order of the decisions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import BLOCK, VECTORS
from sbac.errors import UserError

FLOOR = 256 * 2**20
EXPANSION = 100
BLOCK_BYTES = 2**25
"""About as many bytes as a block may have."""

Array = NDArray[Any]
Rows = dict[str, Array]
"""A block of rows: the values of every field."""


class Column(NamedTuple):
    """What a file declares of a column."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def values(self) -> int:
        return product(self.shape)


@dataclass(frozen=True)
class Log:
    """A log that was opened and not decoded."""

    path: Path
    size: int
    """Bytes on disk."""
    columns: Mapping[str, Column]
    """The declared columns, by field. The number of rows is an upper bound where a format does not store it."""
    read: Callable[[int, Collection[str]], Iterator[Rows]]
    """The rows of some fields, in blocks of at most so many."""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments of `Dataset` that are not columns."""
    work: int = 0
    """Bytes that decoding takes besides the columns, such as one chunk of each."""

    @property
    def readable(self) -> list[str]:
        """The fields whose shape and type can be those of a dataset."""
        return [name for name, column in self.columns.items() if is_readable(name, column)]

    @property
    def decoded_bytes(self) -> int:
        """The memory that the log takes."""
        return self.work + sum(
            column.values * kept_dtype(name, column).itemsize
            for name, column in self.columns.items()
            if is_readable(name, column)
        )

    def blocks(self, rows: int = BLOCK, fields: Collection[str] | None = None) -> Iterator[Rows]:
        """The rows of the fields (None: all that are readable), in blocks of at most `rows` and about 32 MiB."""
        chosen = self.readable if fields is None else fields
        widths = (self.columns[name] for name in chosen)
        row_bytes = sum(c.dtype.itemsize * product(c.shape[1:]) for c in widths)
        return self.read(max(1, min(rows, BLOCK_BYTES // max(row_bytes, 1))), chosen)


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
        return kind in ("f" if name == "actions" else "fiub") and len(shape) == 2
    return kind in "fiub" and len(shape) >= 1 and product(shape[1:]) == 1


def kept_dtype(name: str, column: Column) -> np.dtype[Any]:
    """The type in which a field is kept in memory."""
    return np.dtype(np.float32) if name in VECTORS else column.dtype


def refuse_larger(path: Path, size: int, claimed: int, limit: int | None) -> None:
    """Refuses, without decoding it, a log that would take more memory than the limit.

    The limit is 100 times the log's size on disk, and at least 256 MiB, unless another is given.
    """
    most = max(FLOOR, EXPANSION * size) if limit is None else limit
    if claimed > most:
        raise UserError(
            f"{path}: claims {claimed:,} bytes of data, but the file holds {size:,}; refusing to expand it beyond "
            f"{most:,} bytes (--max-bytes or max_bytes= sets another limit)"
        )


def decode(log: Log, limit: int | None = None) -> dict[str, Any]:
    """The arguments of `Dataset`: vectors as float32, the rest as stored. Nothing is held twice.

    A column that cannot be that of a dataset is not decoded. Zeros of its shape and type, which take no memory, stand
    for it, so that the checks can name it.
    """
    refuse_larger(log.path, log.size, log.decoded_bytes, limit)
    chosen = log.readable
    arrays: Rows = {name: np.empty(log.columns[name].shape, kept_dtype(name, log.columns[name])) for name in chosen}
    filled = dict.fromkeys(chosen, 0)
    with np.errstate(over="ignore"):
        for block in log.blocks():
            for name, part in block.items():
                stop = filled[name] + len(part)
                arrays[name][filled[name] : stop] = part
                filled[name] = stop
    read: Rows = {name: arrays[name][: filled[name]] for name in chosen}
    unread = {n: np.broadcast_to(np.zeros((), c.dtype), c.shape) for n, c in log.columns.items() if n not in read}
    return {**{name: read[name] if name in read else unread[name] for name in log.columns}, **log.about}


def with_flags(log: Log, extra: str, columns: Mapping[str, Column], derive: Callable[[Rows], Rows]) -> Log:
    """The same log with flags that are derived of its `terminals` and an extra column, which it then lacks."""

    def read(rows: int, fields: Collection[str]) -> Iterator[Rows]:
        derived = [name for name in fields if name in columns]
        plain = [name for name in fields if name not in columns]
        for block in log.read(rows, [*{*plain, "terminals", extra}] if derived else plain):
            own = derive(block) if derived else {}
            yield {name: own[name] if name in own else block[name] for name in fields}

    kept = {name: column for name, column in log.columns.items() if name != extra}
    return Log(log.path, log.size, {**kept, **columns}, read, log.about, log.work)


# --- Formats that store one array a column --------------------------------------------------------------------------

Read = Callable[[int, int], Array]
"""The values of an array from a row to another, asked for in the order of the rows."""


def log_of_arrays(
    path: Path,
    size: int,
    fields: Mapping[str, Sequence[str]],
    declared: Mapping[str, Column],
    opened: Callable[[Collection[str]], AbstractContextManager[Mapping[str, Read]]],
    about: Mapping[str, Any],
    work: int = 0,
) -> Log:
    """A log of arrays. A field is one array, or several side by side. `opened` gives access to arrays by name."""
    columns = {name: _side_by_side([(part, declared[part]) for part in parts], path) for name, parts in fields.items()}

    def read(rows: int, chosen: Collection[str]) -> Iterator[Rows]:
        with opened([part for name in chosen for part in fields[name]]) as arrays:
            lengths = {name: columns[name].shape[0] for name in chosen}
            for start in range(0, max(lengths.values(), default=0), rows):
                block: Rows = {}
                for name in chosen:
                    stop = min(start + rows, lengths[name])
                    if start < stop:
                        parts = [arrays[part](start, stop) for part in fields[name]]
                        block[name] = parts[0] if len(parts) == 1 else np.column_stack(parts)
                yield block

    return Log(path, size, columns, read, about, work)


def _side_by_side(parts: Sequence[tuple[str, Column]], path: Path) -> Column:
    """One column as it is, or two and more as a matrix."""
    first, column = parts[0]
    if len(parts) == 1:
        return column
    for name, other in parts:
        if other.shape[:1] != column.shape[:1]:
            raise UserError(f"{path}: {name} has another number of rows than {first}")
        if len(other.shape) != 1:
            raise UserError(f"{path}: {name}: expected one number per row where a field has several columns")
    return Column((*column.shape[:1], len(parts)), np.result_type(*(other.dtype for _, other in parts)))


def whole_parts(starts: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Parts of a log, such as episodes, in groups of at least `size` rows: the first row, and the one after the last.

    starts: the first row of every part, and the number of rows.
    """
    found: list[tuple[int, int]] = []
    first = 0
    for stop in starts[1:]:
        if stop - first >= size or (stop == starts[-1] and stop > first):
            found.append((first, stop))
            first = stop
    return found
