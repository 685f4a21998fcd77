"""`sbac.load`: a Dataset from a name, a file, a folder or arrays. What is not clear is refused, never guessed."""

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import (
    BOUNDS,
    OPTIONAL,
    REQUIRED,
    SIDE_ARRAYS,
    VECTORS,
    Defect,
    LineOf,
    as_array,
    defects,
    masked,
)
from sbac.data.columns import missing as absent
from sbac.data.dataset import Dataset
from sbac.data.ends import with_time_limits
from sbac.data.formats import format_of
from sbac.data.formats.log import Column, Log, Rows, decode, log_of_arrays, product
from sbac.data.locating import locate, parts_of
from sbac.data.misleading import ends_at_one_length
from sbac.data.naming import UNNAMED, ColumnMap, Named, match, names_of_log, printable
from sbac.data.preparing import Missing, prepare
from sbac.data.sums import is_sum, summed
from sbac.environments.opening import EnvSource, action_bounds
from sbac.environments.tasks import find_task
from sbac.errors import UserError, positive, unknown
from sbac.records import Json, as_json, parse


class Frame(Protocol):
    """A table in memory, such as a DataFrame of pandas or polars."""

    @property
    def columns(self) -> Iterable[Any]: ...

    def __getitem__(self, name: Any, /) -> Any: ...


Source = str | Path | Dataset | Mapping[str, ArrayLike] | Frame | Sequence[str | Path]


def load(
    source: Source,
    *,
    task: str | None = None,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    environment: EnvSource | None = None,
    max_bytes: int | None = None,
    missing: Missing = "refuse",
    continuous: bool = False,
) -> Dataset:
    """The dataset behind a name, a file, a folder, a Minari id, a mapping of arrays or a DataFrame.

    task: the task whose environment and reference returns belong to the data, where the name does not say it.
    columns: which column of a file is which, e.g. {"observations": "obs", "rewards": "r"}.
    horizon: the time limit of the episodes, for logs that do not flag it, or flag it as terminal (default: the task's).
    action_low, action_high: the bounds of the actions; by default those that the file holds, else those of
        `environment`, else -1 and 1.
    environment: the environment the log is from, a Gymnasium id or a function that makes one.
    max_bytes: the most memory that the decoded log may take (default: 100 times the file, at least 256 MiB).
    missing: what to do about values that are missing or not finite: "refuse" them, "hold" the last value of the same
        episode, or "cut" the episode there.
    continuous: takes actions that are whole numbers as continuous, however few values they have.
    """
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | Path | Mapping | list | tuple):
        frame: Any = source
        if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
            raise UserError(f"expected a name, a path, arrays by name, a DataFrame or a Dataset, got {type(frame)}")
        source = FrameColumns({str(name): np.asarray(frame[name]) for name in frame.columns})
    bounds = action_low, action_high
    options = LogOptions(task, columns, horizon, *bounds, environment, max_bytes, missing, continuous)
    data = joined_logs([dataset_of(read(part, options)) for part in parts_of(source)])
    data.source = str(source) if isinstance(source, str | Path) else None
    data.reading = options.to_read_again(data)
    for line in ends_at_one_length(data):
        warnings.warn(f"{data.name}: {line}", stacklevel=2)
    return data


def joined_logs(parts: Sequence[Dataset]) -> Dataset:
    """Logs one after the other. No episode goes on from one to the next."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part in parts[1:]:
        if part.columns != first.columns:
            raise UserError(f"{part.name}: its columns are not those of {first.name}: {part.columns}")
        if part.extras.keys() != first.extras.keys():
            raise UserError(f"{part.name}: only one of it and {first.name} has {', '.join(part.extras | first.extras)}")
        if part.stores_next != first.stores_next:
            raise UserError(f"{part.name}: only one of it and {first.name} stores next observations")
        if any((part.bounds[name] != bound).any() for name, bound in first.bounds.items()):
            raise UserError(f"{part.name}: its bounds of the actions are not those of {first.name}")
    columns = {name: np.concatenate([part.arrays()[name] for part in parts]) for name in first.arrays()}
    about = {key: getattr(first, key) for key in ("kind", "task", "environment", "columns")}
    names = [printable(part.name) for part in parts]
    notes = [f"{len(parts)} files read as one log: {', '.join(names)}"]
    notes += said_once({name: part.notes for name, part in zip(names, parts, strict=True)})
    about["extras"] = {name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras}
    shared = [name for name in SIDE_ARRAYS if all(name in part.side_arrays() for part in parts)]
    beside = {name: np.concatenate([part.side_arrays()[name] for part in parts]) for name in shared}
    name = f"{first.name} and {len(parts) - 1} more"
    return Dataset(**columns, **beside, **first.bounds, **about, name=name, notes=notes)


def said_once(notes: Mapping[str, Sequence[str]]) -> list[str]:
    """The notes on several files: those on all of them as they are, others with the files that they are on."""
    said: list[str] = []
    for note in dict.fromkeys(note for lines in notes.values() for note in lines):
        noted = [name for name, lines in notes.items() if note in lines]
        said.append(note if len(noted) == len(notes) else f"{', '.join(noted)}: {note}")
    return said


@dataclass(frozen=True)
class LogOptions:
    """What the caller says of a log beside where it is."""

    task: str | None = None
    columns: ColumnMap | None = None
    horizon: int | None = None
    action_low: ArrayLike | None = None
    action_high: ArrayLike | None = None
    environment: EnvSource | None = None
    max_bytes: int | None = None
    missing: Missing = "refuse"
    continuous: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("task", str), ("columns", Mapping), ("horizon", int), ("max_bytes", int)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                expected = {str: "a name", Mapping: "a mapping from fields to columns", int: "a whole number"}[kind]
                raise UserError(f"{name}: expected {expected}, got {value!r}")
        if self.missing not in get_args(Missing):
            raise unknown("way with missing values (missing)", str(self.missing), get_args(Missing))
        if not isinstance(self.continuous, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UserError(f"continuous: expected true or false, got {self.continuous!r}")
        positive("horizon", self.horizon)
        positive("max_bytes", self.max_bytes)

    def to_read_again(self, data: Dataset) -> Mapping[str, Json]:
        """What to say to read the dataset again. In place of an environment, which code could hide in, its bounds."""
        given = any(bound is not None for bound in (self.action_low, self.action_high, self.environment))
        bounds = {name: bound.tolist() for name, bound in data.bounds.items()} if given else dict.fromkeys(BOUNDS)
        return as_json(replace(self, environment=None, max_bytes=None, **bounds))


@dataclass(frozen=True)
class Reading:
    """A source that was read: the arguments of `Dataset`, and what its problems are told with."""

    arguments: dict[str, Any]
    names: Mapping[str, Sequence[str]]
    """What the source calls the single columns of each field, where it has names."""
    line_of: LineOf = None
    """The line of the file that a row is from."""
    held: bool = False
    """Whether gaps were filled with the last value of the same episode."""

    def defects(self) -> Iterator[Defect]:
        """Every problem for which it is not a dataset."""
        columns = {key: value for key, value in self.arguments.items() if key in REQUIRED + OPTIONAL}
        low, high = self.arguments.get("action_low", -1.0), self.arguments.get("action_high", 1.0)
        return defects(columns, low, high, self.names, self.line_of, self.held)


def dataset_of(reading: Reading) -> Dataset:
    """The dataset that was read, or an error about the first of its problems."""
    arguments = reading.arguments
    for line in absent(arguments):
        raise UserError(f"{arguments['name']}: {line}")
    try:
        return Dataset(**arguments)
    except UserError:
        for defect in reading.defects():  # which knows names and lines
            raise UserError(f"{arguments['name']}: {defect.line}") from None
        raise


def read(source: str | Path | Mapping[str, ArrayLike], options: LogOptions) -> Reading:
    """A source with its columns as they are in the file, prepared, with the ends of its episodes."""
    try:
        log = open_log(source, options.columns)
        columns = decode(log, options.max_bytes)
    except MemoryError as error:
        raise UserError(f"{'arrays' if isinstance(source, Mapping) else source}: does not fit into memory") from error
    description = described(log.description, options)
    whole = "actions" in log.columns and log.columns["actions"].dtype.kind in "iub"
    prepared = prepare(columns, options.missing, options.continuous, whole, str(description["name"]))
    description["notes"] = [*description["notes"], *prepared.notes]
    names = names_of_log(log.names, _widths(log)) | log.description["columns"]
    if (extras := prepared.columns.pop("extras", None)) is not None:
        members = [printable(member) for member in log.names["extras"]]
        if product(extras.shape[1:]) != len(members):
            raise UserError(f"{description['name']}: extras: expected one number per row in each of {members}")
        description["extras"] = dict(zip(members, extras.reshape(len(extras), len(members)).T, strict=True))
    if not np.array_equal(prepared.rows, np.arange(len(columns.get("terminals", [])))):  # ends may have moved
        description = {key: value for key, value in description.items() if key not in SIDE_ARRAYS}
    arguments = with_time_limits(prepared.columns | description, options.horizon, log.longest_episode)
    lines = log.line_of
    line_of: LineOf = None if lines is None else lambda row: lines(int(prepared.rows[row]))
    return Reading(arguments, names, line_of, options.missing == "hold")


def _widths(log: Log) -> dict[str, int]:
    return {field: column.shape[1] for field, column in log.columns.items() if len(column.shape) == 2}


class FrameColumns(dict[str, NDArray[Any]]):
    """The columns of a DataFrame: of single numbers, of which a vector may have one."""


def log_in_memory(source: Mapping[str, ArrayLike], columns: ColumnMap | None) -> Log:
    """The log of arrays by name, or of a table's columns."""
    names = match(source, columns, "arrays")
    arrays: dict[str, NDArray[Any]] = {}
    for field, members in names.items():
        for name in members:
            for line in masked(name, source[name]):
                raise UserError(f"arrays: {line}")
            array = as_array(source[name])
            if field == "episode" and array.dtype.kind not in "fiub":  # of any type
                numbers = {value: number for number, value in enumerate(dict.fromkeys(array.tolist()))}
                array = np.array([numbers[value] for value in array.tolist()])
            elif field == "time" and array.dtype.kind == "M":
                array = array.astype("datetime64[us]").astype(np.float64) / 1e6
            elif field in VECTORS and isinstance(source, FrameColumns) and len(members) == 1:
                array = array.reshape(-1, 1)
            arrays[name] = array
    declared = {name: Column(array.shape, array.dtype) for name, array in arrays.items()}
    beside = {key: source[key] for key in ("name", "kind", "task", *BOUNDS, *SIDE_ARRAYS) if key in source}
    size = sum(array.nbytes for array in arrays.values())
    opened = nullcontext({name: partial(_slice, array) for name, array in arrays.items()})
    return log_of_arrays(Path("arrays"), size, names, declared, lambda _: opened, beside)


def _slice(array: NDArray[Any], start: int, stop: int) -> NDArray[Any]:
    return array[start:stop]


def open_log(source: str | Path | Mapping[str, ArrayLike], columns: ColumnMap | None) -> Log:
    """The log of any format that a source is, opened and not decoded, with what its name says about it."""
    if isinstance(source, Mapping):
        log, told = log_in_memory(source, columns), dict[str, str]()
    else:
        located = locate(source)
        log, told = format_of(located.path).open(located.path, columns), located.description
    notes: list[str] = []
    text = (columns or {}).get("rewards")
    if isinstance(text, str) and is_sum(text, log.names.get("rewards", ())):
        log = _with_one_number(log, "rewards", np.dtype(np.float64), lambda values: summed(values, text))
        notes = [f"rewards: the sum {printable(text)}"]
    if "episode" in log.columns and len(log.columns["episode"].shape) == 2:
        log = _with_one_number(log, "episode", np.dtype(np.int64), _one_key)
    called = names_of_log(log.names, _widths(log))
    names: dict[str, Any] = {field: called[field] for field in UNNAMED if field in called}
    stored = parse(Named, log.description.get("columns") or {}, f"{log.path}: columns")
    kept = [field for field in UNNAMED if getattr(stored, field) is not None and field not in (columns or {})]
    names |= {field: getattr(stored, field) for field in kept}
    description = {"name": log.path.name, **log.description, **told, "columns": names, "notes": notes}
    return replace(log, description=description)


def _with_one_number(
    log: Log, field: str, dtype: np.dtype[Any], number_of: Callable[[NDArray[Any]], NDArray[Any]]
) -> Log:
    """The log with one number a row for a field of several columns."""

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        for block in log.read(fields, start, stop, most):
            yield block | ({field: number_of(block[field])} if field in block else {})

    return replace(log, columns={**log.columns, field: Column(log.columns[field].shape[:1], dtype)}, read=read)


def _one_key(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """64 bits of several numbers, equal for equal ones."""
    whole = numbers.astype(np.int64) if numbers.dtype.kind in "iub" else numbers.astype(np.float64).view(np.int64)
    key = np.zeros(len(whole), np.uint64)
    for part in whole.astype(np.uint64).T:
        key = (key ^ (key >> np.uint64(29)) ^ part) * np.uint64(0x9E3779B97F4A7C15)
    return key.astype(np.int64)


def described(description: Mapping[str, Any], options: LogOptions) -> dict[str, Any]:
    """The arguments of `Dataset` beside the columns.

    The bounds of the actions are as the caller gives them, else as the file does, else as the environment does.
    """
    task = None if options.task is None else find_task(options.task).name
    environment = options.environment if isinstance(options.environment, str) else None
    given = dict(task=task, environment=environment, action_low=options.action_low, action_high=options.action_high)
    arguments = {key: value for layer in (description, given) for key, value in layer.items() if value is not None}
    is_bounded = description.get("kind") in ("D4RL", "made", "embedded") or arguments.keys() >= set(BOUNDS)
    if options.environment is None or is_bounded:
        return arguments
    return dict(zip(BOUNDS, action_bounds(options.environment), strict=True)) | arguments
