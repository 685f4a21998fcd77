"""Reading Parquet and CSV tables: list columns, or numbered scalar columns such as obs_0, obs_1, ...

No other module calls pyarrow, which has no types.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import VECTORS
from sbac.data.formats.arrays import one_line, refuse_larger, require_file
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError

BATCH = 2**16
LARGEST_GROUP = 2**28
"""Bytes of a row group that streaming decodes at once."""


def read_table(path: Path, columns: ColumnMap | None) -> dict[str, NDArray[Any]]:
    """The columns of a table. A field of vectors is a list column, a scalar column, or numbered scalar columns."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(f"{path}: reading {path.suffix} tables needs: pip install 'sbac[tables]'") from error
    require_file(path)
    try:
        names = _names(path)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"{path}: two columns are named {twice[0]!r}")
        chosen = match(names, columns, str(path))
        table = _read(path, [name for parts in chosen.values() for name in parts])
        return {field: _field(table, field, parts, path) for field, parts in chosen.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable {path.suffix} table: {one_line(error)}") from error


def _names(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        import pyarrow.parquet as parquet

        return list(parquet.read_schema(path).names)
    import pyarrow.csv as csv

    with csv.open_csv(path) as reader:
        return list(reader.schema.names)


def _read(path: Path, names: list[str]) -> Any:
    """A pyarrow table of these columns. A file whose contents would be far larger than the file is refused."""
    if path.suffix == ".csv":
        import pyarrow.csv as csv

        return csv.read_csv(path, convert_options=csv.ConvertOptions(include_columns=names))
    import pyarrow as pa
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        refuse_larger(path, file.metadata.num_rows * len(names))
        batches: list[Any] = []
        # In batches, because only the decoded values tell how long the lists are.
        for batch in file.iter_batches(BATCH, columns=names):
            batches.append(batch)
            refuse_larger(path, sum(part.nbytes for part in batches))
        return pa.Table.from_batches(batches, None if batches else file.schema_arrow)


def _field(table: Any, field: str, parts: list[str], path: Path) -> NDArray[Any]:
    arrays = [table[name].combine_chunks() for name in parts]
    if field == "episode" and not arrays[0].null_count:  # a number or a text; only where it changes matters
        return arrays[0].dictionary_encode().indices.to_numpy(zero_copy_only=False)
    columns = [_column(array, f"{path}: {name}") for name, array in zip(parts, arrays, strict=True)]
    if len(columns) == 1 and (columns[0].ndim == 2 or field not in VECTORS):
        return columns[0]
    for name, column in zip(parts, columns, strict=True):
        if column.ndim != 1:
            raise UserError(f"{path}: {name}: expected one number per row where {field} has several columns")
    return np.column_stack(columns)


def _column(array: Any, where: str) -> NDArray[Any]:
    """A column as numbers: (rows,), or (rows, length) for a list column."""
    import pyarrow as pa

    kind = array.type
    if array.null_count:
        raise UserError(f"{where}: row {_first_null(array)} is empty")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = array.value_lengths().to_numpy(zero_copy_only=False)
        flat = _column(array.flatten(), where)
        if flat.ndim != 1:
            raise UserError(f"{where}: expected a list of numbers in every row, got lists of lists")
        uneven = np.flatnonzero(lengths != lengths[0]) if len(lengths) else np.empty(0, np.intp)
        if len(uneven):
            row = uneven[0]
            raise UserError(f"{where}: row {row} has {lengths[row]} numbers, but row 0 has {lengths[0]}")
        return flat.reshape(len(lengths), -1) if len(lengths) else flat.reshape(0, 0)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return array.to_numpy(zero_copy_only=False)
    if pa.types.is_null(kind) and len(array) == 0:
        return np.empty(0)
    first = _first_text(array)
    raise UserError(f"{where}: expected numbers, got {kind}{first}")


def _first_null(array: Any) -> int:
    return int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])


def _first_text(array: Any) -> str:
    """The first text of a column that is not a number, for an error line."""
    import pyarrow as pa

    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return ""
    for row, value in enumerate(array):
        try:
            float(value.as_py())
        except ValueError:
            return f" (row {row}: {value.as_py()[:40]!r})"
    return ""


class RowGroups:
    """The rows of a Parquet file, read from one row group to another."""

    def __init__(self, path: Path, columns: ColumnMap | None) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as parquet
        except ImportError as error:
            raise UserError(f"{path}: reading {path.suffix} tables needs: pip install 'sbac[tables]'") from error
        require_file(path)
        self._path, self._errors = path, (pa.ArrowException, OSError)
        try:
            self._file = parquet.ParquetFile(path)
        except self._errors as error:
            raise UserError(f"{path}: not a readable {path.suffix} table: {one_line(error)}") from error
        self._chosen = match(list(self._file.schema_arrow.names), columns, str(path))
        about = self._file.metadata
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        for number, group in enumerate(groups):
            if group.total_byte_size > LARGEST_GROUP:
                raise UserError(
                    f"{path}: row group {number} has {group.total_byte_size:,} bytes; expected at most "
                    f"{LARGEST_GROUP:,} (write the file with smaller row groups to stream it)"
                )
        self._starts = [0, *np.cumsum([group.num_rows for group in groups]).tolist()]
        self.rows: int = self._starts[-1]

    def ranges(self, size: int) -> list[tuple[int, int]]:
        """Whole row groups, as many as reach the size."""
        found, first = list[tuple[int, int]](), 0
        for stop in self._starts[1:]:
            if stop - first >= size or stop == self.rows:
                found.append((first, stop))
                first = stop
        return found

    def read(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        groups = list(range(self._starts.index(start), self._starts.index(stop)))
        names = [name for parts in self._chosen.values() for name in parts]
        try:
            table = self._file.read_row_groups(groups, columns=names, use_threads=False)
            return {field: _field(table, field, parts, self._path) for field, parts in self._chosen.items()}
        except self._errors as error:
            raise UserError(f"{self._path}: rows {start} to {stop}: {one_line(error)}") from error
