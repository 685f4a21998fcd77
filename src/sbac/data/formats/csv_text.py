"""CSV tables with numbered columns such as obs_0, obs_1, ...: with commas, semicolons or tabs, plain or gzipped."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import codecs
import gzip
import io
import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from sbac.data.dataset import Dataset
from sbac.data.formats import arrow
from sbac.data.formats.log import Column, Format, Log, Written, is_file
from sbac.data.naming import ColumnMap, match
from sbac.errors import UserError

ZIPPED = b"PK\x03\x04"
"""How a workbook begins."""
BLOCK_BYTES = 2**22
"""The text that is decoded at once. Types are taken from the first such block."""


def open_text(path: Path, columns: ColumnMap | None) -> Log:
    """A CSV file. It does not declare its rows: the number of its lines is the upper bound."""

    def line_of(row: int) -> int:
        with io.TextIOWrapper(_stream(path), encoding="utf-8", errors="replace") as file:
            filled = (number for number, line in enumerate(file, 1) if line != "\n")  # empty lines are left out
            return next(islice(filled, row + 1, None))

    with arrow.readable(path):
        style = _style(path)
        begin = _first_block(path, style)
        names = match(begin.schema.names, columns, str(path))
        rows = _lines(path)
        declared: dict[str, Column] = {}
        for field, members in names.items():
            for name in members:
                declared[name] = Column((rows,), _dtype(field, begin[name], f"{path}: {name}", line_of))
        actions = names.get("actions", [])
        whole = [name for name in actions if declared[name].dtype.kind == "i"]
        if whole and (len(whole) < len(actions) or not _all_whole(path, whole, style)):
            declared |= {name: Column((rows,), np.dtype(float)) for name in actions}
    kinds = {
        name: pa.bool_() if declared[name].dtype.kind == "b" else pa.float64()
        for field, members in names.items()
        for name in members
        if field not in ("episode", "time")
    }

    def batches(chosen: list[str], start: int, stop: int, most: int) -> Iterator[tuple[Path, int, Any]]:
        with arrow.readable(path):
            for batch in _batches(path, style, chosen, {name: kinds[name] for name in chosen if name in kinds}):
                for first in range(0, batch.num_rows, most):
                    part = batch.slice(first, most)
                    yield path, start, part
                    start += part.num_rows

    return arrow.log_of_table(path, path.stat().st_size, names, declared, batches, line_of=line_of)


class Style(NamedTuple):
    """How a table is written."""

    delimiter: str
    decimal: str

    @contextmanager
    def reader(self, path: Path, **options: Any) -> Generator[Any]:
        """Reads the table in blocks."""
        blocks = csv.ReadOptions(block_size=BLOCK_BYTES)
        cells = csv.ParseOptions(delimiter=self.delimiter)
        numbers = csv.ConvertOptions(decimal_point=self.decimal, null_values=arrow.EMPTY, **options)
        with (
            pa.input_stream(str(path), compression="gzip" if _is_gzipped(path) else None) as file,
            csv.open_csv(file, blocks, cells, numbers) as reader,
        ):
            yield reader


def _style(path: Path) -> Style:
    """By the line of names, and by numbers with a comma where commas do not part the cells."""
    with _stream(path) as file:
        begin = file.read(BLOCK_BYTES)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin)
    except UnicodeDecodeError:
        if begin.startswith(ZIPPED):
            raise UserError(f"{path}: this is a workbook (.xlsx), not text; save it as CSV UTF-8") from None
        raise UserError(f"{path}: expected text in UTF-8; a spreadsheet saves it as such (CSV UTF-8)") from None
    head = re.sub(r'"[^"]*"', "", text.lstrip().partition("\n")[0].partition("\r")[0])
    delimiter = max(",;\t", key=head.count)
    comma = rf'(?:^|[{delimiter}"])\s*[+-]?\d*,\d+(?:[eE][+-]?\d+)?\s*(?:$|[{delimiter}"\r])'
    return Style(delimiter, "," if delimiter != "," and re.search(comma, text, re.MULTILINE) else ".")


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _stream(path: Path) -> Any:
    return gzip.open(path, "rb") if _is_gzipped(path) else path.open("rb")


def _first_block(path: Path, style: Style) -> Any:
    """The first block of the table, which has its names and types. It may have no rows."""
    with style.reader(path) as reader:
        arrow.refuse_doubles(reader.schema.names, path)
        return next(iter(reader), None) or pa.RecordBatch.from_pylist([], reader.schema)


def _dtype(field: str, begin: Any, where: str, line_of: arrow.LineOf) -> np.dtype[Any]:
    """The type of a column, or an error about its first value that is no number."""
    if field == "episode":
        return np.dtype(np.int64)
    if not len(begin) or (field == "time" and pa.types.is_temporal(begin.type)):
        return np.dtype(float)
    read = arrow.seconds_of if field == "time" else arrow.numbers_of
    dtype = read(begin, Column((0,), np.dtype(float)), where, 0, line_of).dtype
    return dtype if dtype.kind == "b" or (field == "actions" and dtype.kind in "iu") else np.dtype(float)


def _all_whole(path: Path, names: list[str], style: Style) -> bool:
    """Whether columns that begin with whole numbers hold nothing else."""
    batches = _batches(path, style, names, dict.fromkeys(names, pa.float64()))
    return all((np.mod(_numbers(batch[name]), 1) == 0).all() for batch in batches for name in names)


def _numbers(column: Any) -> np.ndarray[Any, Any]:
    return column.drop_null().to_numpy(zero_copy_only=False)


def _batches(path: Path, style: Style, names: list[str], kinds: Mapping[str, Any]) -> Iterator[Any]:
    with style.reader(path, include_columns=names, column_types=kinds) as reader:
        yield from reader


def _lines(path: Path) -> int:
    """The lines of a file, less the first, which names the columns."""
    ends = {b"\n": 0, b"\r": 0}
    last = b""
    with _stream(path) as file:
        while block := file.read(BLOCK_BYTES):
            ends = {end: count + block.count(end) for end, count in ends.items()}
            last = block[-1:]
    return max(ends.values()) + (last not in ends) - 1


def write_text(data: Dataset, path: Path) -> Written:
    """Writes a vector as numbered columns, or as columns with its names: observations:speed."""
    names = {**data.columns, "next_observations": data.columns["observations"]}
    writer: Any = None
    sink: Any = pa.output_stream(str(path), compression="gzip" if _is_gzipped(path) else None)
    for block in data.blocks():
        columns: dict[str, Any] = {}
        for name, values in block.items():
            vector = values.ndim == 2
            heads = [f"{name}:{part}" if data.is_named else f"{name}_{i}" for i, part in enumerate(names.get(name, []))]
            columns |= dict(zip(heads, values.T, strict=True)) if vector else {name: values}
        table = pa.table(columns)
        writer = writer or csv.CSVWriter(sink, table.schema)
        writer.write_table(table)
    writer.close()
    sink.close()
    notes: list[str] = []
    if (data.action_low != -1).any() or (data.action_high != 1).any():
        low, high = (" ".join(f"{x:g}" for x in bound) for bound in data.bounds.values())
        notes.append(f"CSV holds no bounds: read it with --action-low {low} --action-high {high}")
    if (data.actions % 1 == 0).all():
        notes.append("CSV does not tell whole numbers from continuous ones: read it with --continuous")
    return Written(len(data), notes)


SUFFIXES = (".csv", ".csv.gz")
CSV = Format(lambda path: is_file(path, *SUFFIXES), open_text, write_text, suffixes=SUFFIXES)
