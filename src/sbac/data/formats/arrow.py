"""What the readers of tables share: pyarrow's columns as numbers.

No modules but these readers call pyarrow, which has no types.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import VECTORS
from sbac.data.formats.arrays import one_line, require_file
from sbac.data.formats.log import Column
from sbac.errors import UserError


@contextmanager
def readable(path: Path) -> Generator[None]:
    """Every failure to read the table becomes a `UserError` of one line."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(f"{path}: {path.suffix} tables need: pip install 'sbac[tables]'") from error
    require_file(path)
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable {path.suffix} table: {one_line(error)}") from error


def refuse_doubles(names: Sequence[str], path: Path) -> None:
    """Refuses a table with two columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{path}: two columns are named {twice[0]!r}")


def number_type(kind: Any) -> np.dtype[Any] | None:
    """numpy's type for a column of numbers, or None for another column."""
    import pyarrow as pa

    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype())
    return None


def is_list(kind: Any) -> bool:
    """Whether a column holds a list in every row."""
    import pyarrow as pa

    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def as_field(field: str, parts: Sequence[tuple[str, Column]], path: Path) -> Column:
    """The column of a field: a list column, a scalar column, or several scalar columns."""
    name, column = parts[0]
    if len(parts) == 1:
        return column if len(column.shape) == 2 or field not in VECTORS else Column((*column.shape, 1), column.dtype)
    for name, part in parts:
        if len(part.shape) != 1:
            raise UserError(f"{path}: {name}: expected one number per row where {field} has several columns")
    return Column((column.shape[0], len(parts)), np.result_type(*(part.dtype for _, part in parts)))


def field_values(field: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The values of a field from those of its columns."""
    if len(parts) == 1:
        return parts[0][:, None] if parts[0].ndim == 1 and field in VECTORS else parts[0]
    return np.column_stack(parts)


def numbers(array: Any, where: str, first_row: int = 0, width: int | None = None) -> NDArray[Any]:
    """A column as numbers: (rows,), or (rows, width) for a list column; `first_row` counts the rows before it."""
    if array.null_count:
        raise UserError(f"{where}: row {first_row + _first_null(array)} is empty")
    if is_list(array.type):
        flat = numbers(array.flatten(), where, first_row)
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        expected = width if width is not None else (lengths[0] if len(lengths) else 0)
        uneven = np.flatnonzero(lengths != expected)
        if len(uneven):
            row = uneven[0]
            raise UserError(f"{where}: row {first_row + row} has {lengths[row]} numbers, but row 0 has {expected}")
        return flat.reshape(len(lengths), expected)
    if number_type(array.type) is None:
        raise UserError(f"{where}: expected numbers, got {array.type}{_first_text(array, first_row)}")
    return array.to_numpy(zero_copy_only=False)


class Codes:
    """Numbers for values of any type, the same for the same value: of episodes only where they change matters."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}

    def __call__(self, array: Any, where: str, first_row: int) -> NDArray[np.int64]:
        if array.null_count:
            raise UserError(f"{where}: row {first_row + _first_null(array)} is empty")
        encoded = array.dictionary_encode()
        codes = [self._known.setdefault(value, len(self._known)) for value in encoded.dictionary.to_pylist()]
        return np.asarray(codes, np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def _first_text(array: Any, first_row: int) -> str:
    """The first text of a column that is not a number, for an error line."""
    import pyarrow as pa

    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return ""
    for row, value in enumerate(array):
        try:
            float(value.as_py())
        except ValueError:
            return f" (row {first_row + row}: {value.as_py()[:40]!r})"
    return ""
