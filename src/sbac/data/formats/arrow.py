"""What the readers of tables share: pyarrow's columns as numbers.

No modules but these readers call pyarrow, which has no types.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sbac.data.columns import VECTORS
from sbac.data.formats.log import Column, Log, Rows, one_line, require_file, side_by_side
from sbac.errors import UserError

Batches = Callable[[list[str], int, int, int], Iterator[tuple[Path, int, Any]]]
"""`batches(names, start, stop, most)`: a table's columns in batches of at most `most` rows, each with the file that it
is from and the number of its first row."""
LineOf = Callable[[int], int] | None
EMPTY = ["", " ", "-", "--", ".", "?", "#N/A", "#NA", "N/A", "n/a", "NA", "NULL", "Null", "null", "NaN", "nan", "None"]
"""Texts that stand for a missing number."""


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Every failure to read the table becomes a `UserError` of one line."""
    require_file(path)
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable {path.suffix} table: {one_line(error)}") from error


def refuse_doubles(names: Sequence[str], path: Path) -> None:
    """Refuses a table with two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{path}: two columns are named {twice[0]!r}")


def log_of_table(
    path: Path,
    size: int,
    names: Mapping[str, Sequence[str]],
    declared: Mapping[str, Column],
    batches: Batches,
    description: Mapping[str, Any] | None = None,
    parts: Sequence[int] | None = None,
    line_of: LineOf = None,
) -> Log:
    """A log of a table. A field is a column of lists, a column of numbers, or several of these side by side."""
    columns = side_by_side(names, declared, path)
    for field in VECTORS:
        if field in columns and len(columns[field].shape) == 1:
            columns[field] = Column((*columns[field].shape, 1), columns[field].dtype)
    for field in ("rewards", "terminals", "timeouts"):  # whole numbers have no way to say that one is missing
        if field in columns and columns[field].dtype.kind in "iu":
            columns[field] = Column(columns[field].shape, np.dtype(np.float64))

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        chosen = [*dict.fromkeys(name for field in fields for name in names[field])]
        for file, first, batch in batches(chosen, start, stop, most):
            block: Rows = {}
            for field in fields:
                numbers = {"episode": codes, "time": seconds_of}.get(field, numbers_of)
                values = [
                    numbers(batch[name], declared[name], f"{file}: {name}", first, line_of) for name in names[field]
                ]
                block[field] = values[0] if len(values) == 1 else np.column_stack(values)
                if field in VECTORS and block[field].ndim == 1:
                    block[field] = block[field][:, None]
            yield block

    return Log(path, size, columns, read, names, description or {}, parts=parts, line_of=line_of)


def declare(field: str, kind: Any, rows: int, width: int, where: str) -> Column:
    """What a table declares of a column; `width` is the length of its lists, if it has lists."""
    lists = is_list(kind)
    dtype = number_type(kind.value_type if lists else kind)
    if field == "time" and pa.types.is_temporal(kind):
        dtype = np.dtype(np.float64)
    if field == "episode" and not lists:
        dtype = np.dtype(np.int64)  # see `codes`
    if dtype is None and (rows or lists):
        expected = "a list of numbers in every row" if lists else "numbers"
        raise UserError(f"{where}: expected {expected}, got {kind}")
    return Column((rows, width) if lists else (rows,), dtype or np.dtype(float))


def number_type(kind: Any) -> np.dtype[Any] | None:
    """numpy's type for a column of numbers, or None for another column."""
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    return None


def is_list(kind: Any) -> bool:
    """Whether a column holds a list in every row."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def numbers_of(array: Any, declared: Column, where: str, first: int, line_of: LineOf) -> NDArray[Any]:
    """A column as numbers: (rows,), or (rows, width) for a column of lists; `first` is the number of its first row.

    An empty number is NaN; an empty flag and an empty list are refused.
    """
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if is_list(array.type) or pa.types.is_boolean(array.type):
        _refuse_empty(array, where, first, line_of)
    if not is_list(array.type):
        if number_type(array.type) is None:
            raise UserError(f"{where}: expected numbers, got {array.type}{_first_text(array, first, line_of)}")
        return array.to_numpy(zero_copy_only=False)
    flat, lengths = array.flatten(), array.value_lengths().to_numpy(zero_copy_only=False)
    width = lengths[0] if len(lengths) else declared.shape[1]
    for row in np.flatnonzero(lengths != width)[:1]:
        raise UserError(f"{where}: row {first + row} has {lengths[row]} numbers, but row {first} has {width}")
    if width != declared.shape[1]:
        raise UserError(
            f"{where}: row {first} has {width} numbers, but the file declares {declared.values:,} in "
            f"{declared.shape[0]:,} rows; expected as many in every row"
        )
    return flat.to_numpy(zero_copy_only=False).reshape(len(lengths), width)


def seconds_of(array: Any, declared: Column, where: str, first: int, line_of: LineOf) -> NDArray[Any]:
    """Times as numbers: dates and clock times in seconds, numbers as they are."""
    if pa.types.is_date(array.type) or pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.float64())
        return array.to_numpy(zero_copy_only=False) / 1e6
    if pa.types.is_time(array.type):
        array = array.cast(pa.time64("us")).cast(pa.int64()).cast(pa.float64())
        return array.to_numpy(zero_copy_only=False) / 1e6
    if pa.types.is_string(array.type):
        shown = _first_text(array, first, line_of)
        raise UserError(f"{where}: expected numbers, or dates as in 2026-01-31 08:00, got {array.type}{shown}")
    return numbers_of(array, declared, where, first, line_of)


def codes(array: Any, declared: Column, where: str, first: int, line_of: LineOf) -> NDArray[np.int64]:
    """A number for values of any type, the same for the same value: of episodes only where they change matters."""
    _refuse_empty(array, where, first, line_of)
    if pa.types.is_integer(array.type):
        return array.to_numpy(zero_copy_only=False).astype(np.int64)
    encoded = array.dictionary_encode()
    digests = [blake2b(repr(value).encode(), digest_size=8).digest() for value in encoded.dictionary.to_pylist()]
    return np.frombuffer(b"".join(digests), np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


def _refuse_empty(array: Any, where: str, first: int, line_of: LineOf) -> None:
    if array.null_count:
        raise UserError(f"{where}: {_place(first + _first_empty(array), line_of)} is empty")


def _first_empty(array: Any) -> int:
    return int(array.is_null().to_numpy(zero_copy_only=False).argmax())


def _first_text(array: Any, first: int, line_of: LineOf) -> str:
    """The first text of a column that is not a number, for an error line."""
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return ""
    for row, value in enumerate(array.to_pylist()):
        if value is None or value in EMPTY:
            continue
        try:
            float(value)
        except ValueError:
            return f" ({_place(first + row, line_of)}: {value[:40]!r})"
    return ""


def _place(row: int, line_of: LineOf) -> str:
    return f"row {row}" if line_of is None else f"row {row}, line {line_of(row)}"
