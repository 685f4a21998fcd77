"""Reading and writing Parquet tables: list columns, or numbered scalar columns such as obs_0, obs_1, ..."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sbac.data.formats import arrow
from sbac.data.formats.log import Column, Log, Rows, whole_parts
from sbac.errors import UserError
from sbac.records import Json

BOUNDS = ("action_low", "action_high")
LARGEST_GROUP = 2**28
"""Bytes of a row group that streaming decodes at once."""
Choose = Callable[[Sequence[str]], Mapping[str, list[str]]]
"""Chooses, among the names of all columns, those of each field."""


def open_parquet(path: Path, files: Sequence[Path], choose: Choose) -> Log:
    """A table of one file or of several, one after the other, as one log. Sizes come from the files' footers."""
    declared: list[dict[str, Column]] = []
    with arrow.readable(files[0]):
        chosen, metadata = _chosen(files[0], choose)
    about = _bounds(metadata, files[0])
    for part in files:
        with arrow.readable(part):
            declared.append(_footer(part, chosen))
    joined = {name: _joined([columns[name] for columns in declared], files, name) for name in declared[0]}
    columns = {
        field: arrow.as_field(field, [(name, joined[name]) for name in parts], path) for field, parts in chosen.items()
    }
    size = sum(part.stat().st_size for part in files)

    def read(rows: int, fields: Collection[str]) -> Iterator[Rows]:
        codes, first, widths = arrow.Codes(), 0, dict[str, int]()
        for part in files:
            with arrow.readable(part):
                for batch in _batches(part, rows, [name for field in fields for name in chosen[field]]):
                    block: Rows = {}
                    for field in fields:
                        if field == "episode":
                            [name] = chosen[field]
                            block[field] = codes(batch[name], f"{part}: {name}", first)
                            continue
                        values: list[NDArray[Any]] = []
                        for name in chosen[field]:
                            values.append(arrow.numbers(batch[name], f"{part}: {name}", first, widths.get(name)))
                            if values[-1].ndim == 2:
                                widths[name] = values[-1].shape[1]
                                _check_width(widths[name], joined[name], f"{part}: {name}")
                        block[field] = arrow.field_values(field, values)
                    first += batch.num_rows
                    yield block

    return Log(path, size, columns, read, about)


def _chosen(path: Path, choose: Choose) -> tuple[Mapping[str, list[str]], Mapping[bytes, bytes]]:
    """The columns of each field, and the table's metadata."""
    import pyarrow.parquet as parquet

    schema = parquet.read_schema(path)
    names: list[str] = list(schema.names)
    arrow.refuse_doubles(names, path)
    return choose(names), schema.metadata or {}


def _footer(path: Path, chosen: Mapping[str, list[str]]) -> dict[str, Column]:
    """What a file declares of the chosen columns."""
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        wanted = {name: field for field, parts in chosen.items() for name in parts}
        for name in wanted:
            if name not in file.schema_arrow.names:
                raise UserError(f"{path}: no column {name!r}, which another file of the log has")
        declared: dict[str, Column] = {}
        leaf = 0
        for kind in file.schema_arrow:
            if kind.name in wanted:
                is_code = wanted[kind.name] == "episode" and not arrow.is_list(kind.type)
                declared[kind.name] = _declared(file.metadata, kind.type, leaf, is_code, f"{path}: {kind.name}")
            leaf += _leaves(kind.type)
        return declared


def _declared(metadata: Any, kind: Any, leaf: int, is_code: bool, where: str) -> Column:
    """What the footer declares of a column: its rows, and how many values it holds in all."""
    rows = int(metadata.num_rows)
    if is_code:
        return Column((rows,), np.dtype(np.int64))
    if not arrow.is_list(kind):
        dtype = arrow.number_type(kind)
        if dtype is None and rows:
            raise UserError(f"{where}: expected numbers, got {kind}")
        return Column((rows,), dtype or np.dtype(float))
    dtype = arrow.number_type(kind.value_type)
    if dtype is None:
        raise UserError(f"{where}: expected a list of numbers in every row, got {kind}")
    values = sum(int(metadata.row_group(i).column(leaf).num_values) for i in range(metadata.num_row_groups))
    return Column((rows, -(-values // rows) if rows else 0), dtype)


def _leaves(kind: Any) -> int:
    """The number of Parquet's columns that a column of the table is stored as."""
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


def _joined(columns: Sequence[Column], files: Sequence[Path], name: str) -> Column:
    for column, path in zip(columns, files, strict=True):
        if column.shape[1:] != columns[0].shape[1:]:
            raise UserError(f"{path}: {name}: {_width(column)} numbers a row, but {files[0]} has {_width(columns[0])}")
    rows = sum(column.shape[0] for column in columns)
    return Column((rows, *columns[0].shape[1:]), np.result_type(*{column.dtype for column in columns}))


def _width(column: Column) -> int | None:
    return column.shape[1] if len(column.shape) == 2 else None


def _check_width(width: int, declared: Column, where: str) -> None:
    if width != _width(declared):
        raise UserError(
            f"{where}: row 0 has {width} numbers, but the file declares {declared.values:,} in {declared.shape[0]:,} "
            "rows; expected as many in every row"
        )


def _batches(path: Path, rows: int, names: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        for group in range(file.num_row_groups):  # all in one call, pyarrow would keep what it has read
            yield from file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)


def _bounds(metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Any]:
    """The bounds of the actions, as JSON in the table's metadata."""
    found: dict[str, Any] = {}
    for name in BOUNDS:
        if (stored := metadata.get(name.encode())) is not None:
            try:
                bound: Json = json.loads(stored)
                found[name] = np.asarray(bound, np.float64)
            except (ValueError, TypeError, RecursionError):
                raise UserError(f"{path}: metadata {name}: expected a number or a list of numbers, as JSON") from None
    return found


def write_parquet(file: IO[bytes], blocks: Iterator[Mapping[str, NDArray[Any]]], bounds: Mapping[str, Any]) -> None:
    """Writes blocks of rows as list columns and scalar columns, with the bounds in the metadata."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    writer: Any = None
    for block in blocks:
        columns = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            if values.ndim == 2
            else pa.array(values)
            for name, values in block.items()
        }
        table = pa.table(columns)
        if writer is None:
            known = {name: json.dumps(np.asarray(bound, np.float64).tolist()) for name, bound in bounds.items()}
            writer = parquet.ParquetWriter(file, table.schema.with_metadata(known))
        writer.write_table(table.cast(writer.schema))
    if writer is not None:
        writer.close()


# --- In blocks of any order -------------------------------------------------------------------------------------------


class RowGroups:
    """The rows of a Parquet file, read from any row group to any other, by several threads at a time."""

    def __init__(self, path: Path, choose: Choose) -> None:
        import pyarrow.parquet as parquet

        self._path = path
        with arrow.readable(path):
            self._chosen, metadata = _chosen(path, choose)
            footer = parquet.read_metadata(path)
            groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        self.about = _bounds(metadata, path)
        for number, group in enumerate(groups):
            if group.total_byte_size > LARGEST_GROUP:
                raise UserError(
                    f"{path}: row group {number} has {group.total_byte_size:,} bytes; expected at most "
                    f"{LARGEST_GROUP:,} (a file with smaller row groups can be streamed)"
                )
        self._footer, self._open = footer, threading.local()
        self._starts: list[int] = [0, *np.cumsum([group.num_rows for group in groups]).tolist()]
        self.rows = self._starts[-1]

    def ranges(self, size: int) -> list[tuple[int, int]]:
        return whole_parts(self._starts, size)

    def read(self, start: int, stop: int) -> Rows:
        groups = list(range(self._starts.index(start), self._starts.index(stop)))
        names = [name for parts in self._chosen.values() for name in parts]
        block: Rows = {}
        with arrow.readable(self._path):
            table = self._file().read_row_groups(groups, columns=names, use_threads=False)
            for field, parts in self._chosen.items():
                arrays = [(name, table[name].combine_chunks()) for name in parts]
                values = [arrow.numbers(array, f"{self._path}: {name}", start) for name, array in arrays]
                block[field] = arrow.field_values(field, values)
        return block

    def _file(self) -> Any:
        """The file as the calling thread has opened it: pyarrow's readers are not shared between threads."""
        import pyarrow.parquet as parquet

        if not hasattr(self._open, "file"):
            self._open.file = parquet.ParquetFile(self._path, metadata=self._footer)
        return self._open.file
