"""`sbac.load`: a Dataset from a name, a file, a folder or arrays. What is not clear is refused, never guessed."""

import glob
import os
import re
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
from sbac.data.formats import format_of, is_log, suffixes
from sbac.data.formats.log import Column, Log, Rows, decode, is_file, one_line, side_by_side
from sbac.data.naming import UNNAMED, ColumnMap, Named, match, names_of_log
from sbac.data.preparing import Missing, prepare
from sbac.data.sums import is_sum, summed
from sbac.environments.opening import EnvSource, action_bounds
from sbac.environments.tasks import EMBEDDED, TASKS, TD3_TIERS, find_task, is_task, task_of_file
from sbac.errors import UserError, positive, unknown
from sbac.files import in_home
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
    data = _joined_logs([dataset_of(read(part, options)) for part in parts_of(source)])
    data.source = str(source) if isinstance(source, str | Path) else None
    for line in doubts(data):
        warnings.warn(line, stacklevel=2)
    return data


def parts_of(source: Any) -> list[Any]:
    """The sources that a source stands for: those of a list, the files of a pattern or of a folder, or itself."""
    if isinstance(source, list | tuple):
        items: list[Any] = [*source]
        for item in items:
            if not isinstance(item, str | Path):
                raise UserError(f"expected names of files, got {type(item).__name__}")
        if not items:
            raise UserError("expected at least one file, got an empty list")
        return [part for item in items for part in parts_of(item)]
    if not isinstance(source, str | Path):
        return [source]
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            files = [file for file in sorted(path.iterdir()) if is_file(file, *suffixes()) and file.is_file()]
            return files if files and not is_log(path) else [source]
        if path.exists() or not any(sign in str(source) for sign in "*?["):
            return [source]
        matches = [Path(match) for match in sorted(glob.glob(str(path)))]
    except (OSError, ValueError, RuntimeError):
        return [source]  # `locate` says what is wrong with it
    if not matches:
        raise UserError(f"{source}: no file matches the pattern")
    return [*matches]


def _joined_logs(parts: Sequence[Dataset]) -> Dataset:
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
    notes = [f"{part.name}: {note}" for part in parts for note in part.notes]
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


def doubts(data: Dataset) -> Iterator[str]:
    """What is probably not as the log says it."""
    ended = data.episodes[data.terminals[data.episodes[:, 1] - 1]]
    lengths = np.unique(np.diff(ended, axis=1))
    cut = len(data.episodes) - len(ended)
    unfinished = cut == 1 and not data.terminals[-1]
    if len(ended) > 1 and len(lengths) == 1 and lengths[0] > 1 and (cut == 0 or unfinished):
        yield (
            f"{data.name}: all {len(ended)} episodes have {lengths[0]} steps and end in a terminal; if that is a time "
            f"limit, give --horizon {lengths[0]} (horizon={lengths[0]}), or values will be wrong at its end"
        )


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
        text = (options.columns or {}).get("rewards")
        if isinstance(text, str) and is_sum(text, names.get("rewards", ())):
            columns["rewards"] = summed(as_array(columns["rewards"]), text)
        beside: dict[str, Any] = {
            key: source[key] for key in ("name", "kind", "task", *BOUNDS, *SIDE_ARRAYS) if key in source
        }
        fields = *UNNAMED, "extras"
        widths = {field: column.shape[1] for field in fields if (column := as_array(columns.get(field, []))).ndim == 2}
        called = names_of_log(names, widths)
        beside["columns"] = {field: called[field] for field in UNNAMED if field in called}
        whole = as_array(columns.get("actions", [])).dtype.kind in "iub"
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
    described = {**description, "notes": prepared.notes}
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


def open_log(located: "Located", columns: ColumnMap | None) -> Log:
    """The log of any format that a source is, opened and not decoded, with what its name says about it."""
    log = _with_one_key(_with_sum(format_of(located.path).open(located.path, columns), columns))
    called = names_of_log(log.names, _widths(log))
    names: dict[str, Any] = {field: called[field] for field in UNNAMED if field in called}
    stored = parse(Named, log.description.get("columns") or {}, f"{located.path}: columns")
    kept = [field for field in UNNAMED if getattr(stored, field) is not None and field not in (columns or {})]
    names |= {field: getattr(stored, field) for field in kept}
    description = {"name": located.path.name, **log.description, **located.description, "columns": names}
    return replace(log, description=description)


def _with_sum(log: Log, columns: Mapping[str, str | Sequence[str]] | None) -> Log:
    """The log with rewards that are summed, where the caller gives a sum."""
    text = (columns or {}).get("rewards")
    if not isinstance(text, str) or not is_sum(text, log.names.get("rewards", ())):
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


@dataclass(frozen=True)
class Located:
    """The path of a source, and the arguments of `Dataset` that follow from its name."""

    path: Path
    description: dict[str, str]


def data_folder() -> Path:
    """The folder of the datasets: $SBAC_DATA, or `data` in the current folder."""
    return Path(os.environ.get("SBAC_DATA") or "data")


def embedded_file(name: str) -> Path:
    """The file of a dataset that comes with the package."""
    return Path(__file__).parent / "embedded" / f"{name}.npz"


def d4rl_folders() -> list[Path]:
    """The folders in which D4RL's files are looked for: the data folder, the current one, and D4RL's own cache."""
    cache = os.environ.get("D4RL_DATASET_DIR") or "~/.d4rl/datasets"
    return [data_folder(), Path("."), in_home(cache)]


def locate(source: str | Path) -> Located:
    """Finds a source by its name, or as a path."""
    name = str(source)
    if name in EMBEDDED:
        path = embedded_file(name)
        if not path.is_file():
            raise UserError(f"{name}: this installation lacks its embedded dataset; reinstall the package")
        return Located(path, {"name": name, "kind": "embedded", "task": name})
    if is_task(name):
        return _locate_made(name) if name.endswith("-made") else _locate_d4rl(name)
    try:
        path = Path(source).expanduser()
        exists = path.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{name!r}: not a path: {one_line(error)}") from error
    if exists:
        d4rl = task_of_file(path.name)
        return Located(path, {"kind": "D4RL", "task": d4rl} if d4rl else {})
    from sbac.data.formats import minari  # and h5py, which the names above do not need

    if (folder := minari.installed(name)) is not None:
        return Located(folder, {"name": name})
    if is_file(path, *suffixes()) or isinstance(source, Path) or name.startswith((".", "/", "~")):
        raise UserError(f"{name}: no such file or folder")
    if "/" in name and minari.is_id(name):
        raise UserError(
            f"{name}: not among the Minari datasets in {minari.root()}; get it with `minari download {name}` "
            "(pip install 'sbac[minari]')"
        )
    raise unknown("dataset (and no such file)", name, [*EMBEDDED, *TASKS, *made_names()])


def stand_ins() -> list[str]:
    """Made data in place of D4RL's: hopper-medium-made."""
    return [name.replace("-v2", "-made") for name in TASKS if name.endswith("-v2")]


def made_names() -> list[str]:
    """What `sbac data make` makes: the stand-ins, then the logs of the second ladder, hopper-medium-td3-made."""
    return stand_ins() + [name.replace("-v2", "-td3-made") for name in TASKS if name.endswith(TD3_TIERS)]


def _locate_made(name: str) -> Located:
    path = data_folder() / f"{name}.npz"
    if not path.is_file():
        raise UserError(f"{name}: not made yet (no {path}); make it with `sbac data make {name}`")
    return Located(path, {"name": name, "kind": "made", "task": name})


def _locate_d4rl(name: str) -> Located:
    task = find_task(name)
    for folder in d4rl_folders():
        for file in task.files:
            if (folder / file).is_file():
                return Located(folder / file, {"name": name, "kind": "D4RL", "task": name})
    made = re.sub(r"-v\d$", "-made", name)
    stand_in = f", or make its stand-in with `sbac data make {made}` and load {made}" if is_task(made) else ""
    if replayed := re.fullmatch(r"(\w+)-human-v1", name):
        same = f"D4RL/{replayed[1]}/human-v2"
        stand_in = f", or get Minari's replay of it with `minari download {same}` and load {same}"
    raise UserError(f"{name}: put D4RL's file {task.files[0]} into {data_folder()} ($SBAC_DATA){stand_in}")
