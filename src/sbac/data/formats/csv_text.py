"""Reading and writing CSV tables with numbered columns such as obs_0, obs_1, ..."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sbac.data.formats import arrow
from sbac.data.formats.log import Column, Log, Rows
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError

BLOCK_BYTES = 2**22
"""The text that is decoded at once. Types are taken from the first such block."""


def open_csv(path: Path, columns: ColumnMap | None) -> Log:
    """A CSV file. It does not declare its rows: the number of its lines is the upper bound."""
    with arrow.readable(path):
        names, types, begin = _first_block(path)
        arrow.refuse_doubles(names, path)
        chosen = match(names, columns, str(path))
        rows = _lines(path)
        declared: dict[str, Column] = {}
        for field, parts in chosen.items():
            for name in parts:
                declared[name] = Column((rows,), _dtype(field, types[name], begin, name, path))
        actions = chosen.get("actions", [])
        whole = [name for name in actions if declared[name].dtype.kind == "i"]
        if whole and (len(whole) < len(actions) or not _all_whole(path, whole)):
            declared |= {name: Column((rows,), np.dtype(float)) for name in actions}
    fields = {
        field: arrow.as_field(field, [(name, declared[name]) for name in parts], path)
        for field, parts in chosen.items()
    }

    def read(rows: int, wanted: Collection[str]) -> Iterator[Rows]:
        codes, first = arrow.Codes(), 0
        numeric = {name: declared[name].dtype for field in wanted if field != "episode" for name in chosen[field]}
        kinds = {name: "bool" if dtype.kind == "b" else "float64" for name, dtype in numeric.items()}
        with arrow.readable(path):
            for batch in _batches(path, [name for field in wanted for name in chosen[field]], kinds):
                for start in range(0, batch.num_rows, rows):
                    part = batch.slice(start, rows)
                    block: Rows = {}
                    for field in wanted:
                        if field == "episode":
                            [name] = chosen[field]
                            block[field] = codes(part[name], f"{path}: {name}", first)
                            continue
                        values = [arrow.numbers(part[name], f"{path}: {name}", first) for name in chosen[field]]
                        block[field] = arrow.field_values(field, values)
                    first += part.num_rows
                    yield block

    return Log(path, path.stat().st_size, fields, read)


def _first_block(path: Path) -> tuple[list[str], dict[str, Any], Any]:
    """The names of the columns, their types in the first block, and that block."""
    import pyarrow.csv as csv

    with csv.open_csv(path, read_options=csv.ReadOptions(block_size=BLOCK_BYTES)) as reader:
        names = list(reader.schema.names)
        types = dict(zip(names, reader.schema.types, strict=True))
        try:
            return names, types, reader.read_next_batch()
        except StopIteration:
            return names, types, None


def _dtype(field: str, kind: Any, begin: Any, name: str, path: Path) -> np.dtype[Any]:
    """The type of a column, or an error about its first value that is no number."""
    if field == "episode":
        return np.dtype(np.int64)
    if begin is None:
        return np.dtype(float)
    dtype = arrow.number_type(kind)
    if dtype is None or begin[name].null_count:
        arrow.numbers(begin[name], f"{path}: {name}")
        raise UserError(f"{path}: {name}: expected numbers, got {kind}")
    return dtype if dtype.kind == "b" or (field == "actions" and dtype.kind in "iu") else np.dtype(float)


def _all_whole(path: Path, names: list[str]) -> bool:
    """Whether columns that begin with whole numbers hold nothing else."""
    batches = _batches(path, names, dict.fromkeys(names, "float64"))
    return all((np.mod(arrow.numbers(batch[name], name), 1) == 0).all() for batch in batches for name in names)


def _batches(path: Path, names: list[str], kinds: Mapping[str, str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.csv as csv

    types = {name: pa.bool_() if kind == "bool" else pa.float64() for name, kind in kinds.items()}
    convert = csv.ConvertOptions(include_columns=names, column_types=types)
    with csv.open_csv(path, csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=convert) as reader:
        yield from reader


def _lines(path: Path) -> int:
    """The lines of a file, less the first, which names the columns."""
    ends = {b"\n": 0, b"\r": 0}
    last = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            ends = {end: count + block.count(end) for end, count in ends.items()}
            last = block[-1:]
    return max(ends.values()) + (last not in ends) - 1


def write_csv(file: IO[bytes], blocks: Iterator[Mapping[str, NDArray[Any]]]) -> None:
    """Writes blocks of rows, a vector as numbered columns."""
    import pyarrow as pa
    import pyarrow.csv as csv

    writer: Any = None
    for block in blocks:
        columns: dict[str, NDArray[Any]] = {}
        for name, values in block.items():
            parts = (
                {f"{name}_{i}": values[:, i] for i in range(values.shape[1])} if values.ndim == 2 else {name: values}
            )
            columns |= parts
        table = pa.table(columns)
        if writer is None:
            writer = csv.CSVWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
