"""Parquet tables: list columns, or numbered scalar columns such as obs_0, obs_1, ..."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from sbac.data.columns import BOUNDS
from sbac.data.dataset import Dataset
from sbac.data.formats import arrow
from sbac.data.formats.log import Column, Format, Log, Written, is_file, read_names
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError
from sbac.records import Json

ROW_GROUP = 2**17
"""Rows of a row group that is written."""
NAMES = b"columns"
"""Where a table's metadata has the names of the columns."""


def open_file(path: Path, columns: ColumnMap | None) -> Log:
    """A table of one file."""
    return open_files(path, [path], match(columns_of(path), columns, str(path)))


def columns_of(path: Path) -> list[str]:
    """The names of a file's columns."""
    with arrow.readable(path):
        names: list[str] = list(parquet.read_schema(path).names)
    arrow.refuse_doubles(names, path)
    return names


def open_files(path: Path, files: Sequence[Path], names: Mapping[str, Sequence[str]]) -> Log:
    """A table of one file or of several, one after the other, as one log. Sizes come from the files' footers."""
    declared: list[dict[str, Column]] = []
    groups: list[tuple[Path, Any, int]] = []
    rows: list[int] = []
    description: dict[str, Any] = {}
    for file in files:
        with arrow.readable(file), parquet.ParquetFile(file) as table:
            declared.append(_declared(table, names, file))
            groups += [(file, table.metadata, group) for group in range(table.num_row_groups)]
            rows += [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
            description = description or _described(table.schema_arrow.metadata or {}, file)
    joined = {name: _joined([columns[name] for columns in declared], files, name) for name in declared[0]}
    starts = [0, *accumulate(rows)]

    def batches(chosen: list[str], start: int, stop: int, most: int) -> Iterator[tuple[Path, int, Any]]:
        # All groups in one call, pyarrow would keep what it has read.
        for number in range(bisect_right(starts, start) - 1, bisect_left(starts, stop)):
            file, footer, group = groups[number]
            first = starts[number]
            with arrow.readable(file), parquet.ParquetFile(file, metadata=footer) as table:
                for batch in table.iter_batches(most, row_groups=[group], columns=chosen, use_threads=False):
                    yield file, first, batch
                    first += batch.num_rows

    size = sum(file.stat().st_size for file in files)
    return arrow.log_of_table(path, size, names, joined, batches, description, starts)


def _declared(table: Any, names: Mapping[str, Sequence[str]], path: Path) -> dict[str, Column]:
    """What the footer declares of the chosen columns: their rows, and how many values they hold in all."""
    schema = table.schema_arrow
    groups = [table.metadata.row_group(group) for group in range(table.num_row_groups)]
    columns: dict[str, Column] = {}
    leaves = [0, *accumulate(_leaves(kind.type) for kind in schema)]
    rows = sum(group.num_rows for group in groups)
    for field, members in names.items():
        for name in members:
            if name not in schema.names:
                raise UserError(f"{path}: no column {name!r}, which another file of the log has")
            position = schema.names.index(name)
            kind = schema[position].type
            leaf = [group.column(leaves[position]) for group in groups] if arrow.is_list(kind) else []
            width = -(-sum(chunk.num_values for chunk in leaf) // max(rows, 1))
            columns[name] = arrow.declare(field, kind, rows, width, f"{path}: {name}")
    return columns


def _leaves(kind: Any) -> int:
    """The number of Parquet's columns that a column of the table is stored as."""
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields)) if kind.num_fields else 1


def _joined(columns: Sequence[Column], files: Sequence[Path], name: str) -> Column:
    for column, path in zip(columns, files, strict=True):
        if column.shape[1:] != columns[0].shape[1:]:
            raise UserError(
                f"{path}: {name}: {column.shape[1:]} numbers a row, but {files[0]} has {columns[0].shape[1:]}"
            )
    rows = sum(column.shape[0] for column in columns)
    return Column((rows, *columns[0].shape[1:]), np.result_type(*{column.dtype for column in columns}))


def _described(metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Any]:
    """The bounds of the actions and the names of the columns, as JSON in the table's metadata."""
    bounds: dict[str, Any] = {}
    for name in BOUNDS:
        if (stored := metadata.get(name.encode())) is not None:
            try:
                bound: Json = json.loads(stored)
                bounds[name] = np.asarray(bound, np.float64)
            except (ValueError, TypeError, RecursionError):
                raise UserError(f"{path}: metadata {name}: expected a number or a list of numbers, as JSON") from None
    if (names := metadata.get(NAMES)) is not None:
        bounds["columns"] = read_names(names, path)
    return bounds


def write_file(data: Dataset, path: Path) -> Written:
    """Writes list columns and scalar columns, with the bounds in the metadata."""
    metadata = {name: json.dumps(bound.astype(float).tolist()) for name, bound in data.bounds.items()}
    metadata |= {NAMES.decode(): json.dumps(data.columns)} if data.is_named else {}
    writer: Any = None
    for block in data.blocks(ROW_GROUP):
        columns = {
            name: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
            if values.ndim == 2
            else pa.array(values)
            for name, values in block.items()
        }
        table = pa.table(columns, metadata=metadata)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()
    return Written(len(data))


PARQUET = Format(lambda path: is_file(path, ".parquet"), open_file, write_file, suffixes=(".parquet",), streams=True)
