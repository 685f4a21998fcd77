"""`sbac.load`: a Dataset from a name, a file, a folder or arrays. What is not clear is refused, never guessed."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import BOUNDS, OPTIONAL, REQUIRED, SIDE_ARRAYS, VECTORS, Defect, LineOf, as_array, defects
from sbac.data.columns import missing as absent
from sbac.data.dataset import Dataset
from sbac.data.ends import with_time_limits
from sbac.data.formats import format_of
from sbac.data.formats.log import Column, Log, Rows, decode, side_by_side
from sbac.data.locating import Located, locate, parts_of
from sbac.data.misleading import ends_at_one_length
from sbac.data.naming import UNNAMED, ColumnMap, Named, match, names_of_log, printable
from sbac.data.preparing import Missing, prepare
from sbac.data.sums import is_sum, summed
from sbac.environments.opening import EnvSource, action_bounds
from sbac.environments.tasks import find_task
from sbac.errors import UserError, positive, unknown
from sbac.records import parse


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
        table = _columns_of(source)
        if table is None:
            raise UserError(f"expected a name, a path, arrays by name, a DataFrame or a Dataset, got {type(source)}")
        source = table
    bounds = action_low, action_high
    options = LogOptions(task, columns, horizon, *bounds, environment, max_bytes, missing, continuous)
    data = joined_logs([dataset_of(read(part, options)) for part in parts_of(source)])
    data.source = str(source) if isinstance(source, str | Path) else None
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
    notes = [f"{len(parts)} files read as one log: {', '.join(printable(part.name) for part in parts)}"]
    for note in dict.fromkeys(note for part in parts for note in part.notes):
        noted = [printable(part.name) for part in parts if note in part.notes]
        notes.append(note if len(noted) == len(parts) else f"{', '.join(noted)}: {note}")
    about["extras"] = {name: np.concatenate([part.extras[name] for part in parts]) for name in first.extras}
    beside = {name: np.concatenate([part.side_arrays()[name] for part in parts]) for name in shared_side_arrays(parts)}
    name = f"{first.name} and {len(parts) - 1} more"
    return Dataset(**columns, **beside, **first.bounds, **about, name=name, notes=notes)


def shared_side_arrays(parts: Sequence[Dataset]) -> list[str]:
    """The names of what lies beside the columns of every part."""
    return [name for name in SIDE_ARRAYS if all(name in part.side_arrays() for part in parts)]


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


@dataclass(frozen=True)
class Reading:
    """A source that was read: the arguments of `Dataset`, and what its problems are told with."""

    arguments: dict[str, Any]
    names: Mapping[str, Sequence[str]]
    """What the source calls the single columns of each field, where it has names."""
    line_of: LineOf = None
    """The line of the file that a row is from."""

    def defects(self) -> Iterator[Defect]:
        """Every problem for which it is not a dataset."""
        columns = {key: value for key, value in self.arguments.items() if key in REQUIRED + OPTIONAL}
        low, high = self.arguments.get("action_low", -1.0), self.arguments.get("action_high", 1.0)
        return defects(columns, low, high, self.names, self.line_of)


def dataset_of(reading: Reading) -> Dataset:
    """The dataset that was read, or an error about the first of its problems."""
    arguments = reading.arguments
    for line in absent(arguments):
        raise UserError(f"{arguments['name']}: {line}")
    try:
        return Dataset(**arguments)
    except UserError:
        for defect in reading.defects():  # which knows names and lines
            raise UserError(f"{arguments['name']}: {defect.lines[0]}") from None
        raise


def read(source: str | Path | Mapping[str, ArrayLike], options: LogOptions) -> Reading:
    """A source with its columns as they are in the file, and what is said about it."""
    if isinstance(source, Mapping):
        names = match(source, options.columns, "arrays")
        columns = {field: _joined(source, field, members) for field, members in names.items()}
        if (text := _sum_of(names, options.columns)) is not None:
            columns["rewards"] = summed(as_array(columns["rewards"]), text)
        beside: dict[str, Any] = {
            key: source[key] for key in ("name", "kind", "task", *BOUNDS, *SIDE_ARRAYS) if key in source
        }
        fields = *UNNAMED, "extras"
        widths = {field: column.shape[1] for field in fields if (column := as_array(columns.get(field, []))).ndim == 2}
        called = names_of_log(names, widths)
        beside["columns"] = {field: called[field] for field in UNNAMED if field in called}
        whole = as_array(columns.get("actions", [])).dtype.kind in "iub"
        beside["notes"] = _notes_of(text)
        return _ready(columns, described({"name": "arrays", **beside}, options), options, called, whole)
    located = locate(source)
    try:
        log = open_log(located, options.columns)
        rows = decode(log, options.max_bytes)
    except MemoryError as error:
        raise UserError(f"{located.path}: does not fit into memory") from error
    whole = "actions" in log.columns and log.columns["actions"].dtype.kind in "iub"
    called = names_of_log(log.names, _widths(log)) | log.description["columns"]
    return _ready(rows, described(log.description, options), options, called, whole, log)


def _ready(
    columns: Mapping[str, ArrayLike],
    description: Mapping[str, Any],
    options: LogOptions,
    names: Mapping[str, Sequence[str]],
    whole_actions: bool,
    log: Log | None = None,
) -> Reading:
    """Columns that were read, prepared, with the ends of their episodes."""
    name = str(description["name"])
    prepared = prepare(columns, options.missing, options.continuous, whole_actions, name)
    described = {**description, "notes": [*description["notes"], *prepared.notes]}
    if (extras := prepared.columns.pop("extras", None)) is not None:
        described["extras"] = dict(zip(names.get("extras", ["extras"]), extras.reshape(len(extras), -1).T, strict=True))
    if not np.array_equal(prepared.rows, np.arange(len(as_array(columns.get("terminals", []))))):
        described = {key: value for key, value in described.items() if key not in SIDE_ARRAYS}  # ends may have moved
    longest = None if log is None else log.longest_episode
    arguments = with_time_limits(prepared.columns | described, options.horizon, longest)
    lines = None if log is None else log.line_of
    return Reading(arguments, names, None if lines is None else lambda row: lines(int(prepared.rows[row])))


def _widths(log: Log) -> dict[str, int]:
    return {field: column.shape[1] for field, column in log.columns.items() if len(column.shape) == 2}


def _columns_of(frame: Any) -> "Table | None":
    """The columns of a DataFrame by name; None of anything else."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        return None
    return Table({str(name): np.asarray(frame[name]) for name in frame.columns})


class Table(dict[str, NDArray[Any]]):
    """Columns of single numbers, of which a vector may have one."""


def _joined(source: Mapping[str, ArrayLike], field: str, members: Sequence[str]) -> ArrayLike:
    """One array as it is, or two and more as a matrix."""
    if len(members) == 1:
        single = source[members[0]]
        return as_array(single).reshape(-1, 1) if isinstance(source, Table) and field in VECTORS else single
    arrays = {name: as_array(source[name]) for name in members}
    if field == "episode":  # of any type
        arrays = {name: np.unique(array, return_inverse=True)[1] for name, array in arrays.items()}
    declared = {name: Column(array.shape, array.dtype) for name, array in arrays.items()}
    side_by_side({field: members}, declared, "arrays")
    joined = np.column_stack([*arrays.values()])
    return _one_key(joined) if field == "episode" else joined


def open_log(located: Located, columns: ColumnMap | None) -> Log:
    """The log of any format that a source is, opened and not decoded, with what its name says about it."""
    log = format_of(located.path).open(located.path, columns)
    notes = _notes_of(_sum_of(log.names, columns))
    log = _with_one_key(_with_sum(log, columns))
    called = names_of_log(log.names, _widths(log))
    names: dict[str, Any] = {field: called[field] for field in UNNAMED if field in called}
    stored = parse(Named, log.description.get("columns") or {}, f"{located.path}: columns")
    kept = [field for field in UNNAMED if getattr(stored, field) is not None and field not in (columns or {})]
    names |= {field: getattr(stored, field) for field in kept}
    description = {
        "name": located.path.name,
        **log.description,
        **located.description,
        "columns": names,
        "notes": notes,
    }
    return replace(log, description=description)


def _sum_of(names: Mapping[str, Sequence[str]], columns: ColumnMap | None) -> str | None:
    """The sum of columns that the caller gives for the rewards; None where it is a column as it is."""
    text = (columns or {}).get("rewards")
    return text if isinstance(text, str) and is_sum(text, names.get("rewards", ())) else None


def _notes_of(reward: str | None) -> list[str]:
    return [] if reward is None else [f"rewards: the sum {printable(reward)}"]


def _with_sum(log: Log, columns: ColumnMap | None) -> Log:
    """The log with rewards that are summed, where the caller gives a sum."""
    if (text := _sum_of(log.names, columns)) is None:
        return log

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        for block in log.read(fields, start, stop, most):
            yield block | ({"rewards": summed(block["rewards"], text)} if "rewards" in block else {})

    rows = log.columns["rewards"].shape[:1]
    return replace(log, columns={**log.columns, "rewards": Column(rows, np.dtype(np.float64))}, read=read)


def _with_one_key(log: Log) -> Log:
    """The log with one number for an episode, where several columns tell it."""
    column = log.columns.get("episode")
    if column is None or len(column.shape) != 2:
        return log

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        for block in log.read(fields, start, stop, most):
            yield block | ({"episode": _one_key(block["episode"])} if "episode" in block else {})

    return replace(log, columns={**log.columns, "episode": Column(column.shape[:1], np.dtype(np.int64))}, read=read)


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
