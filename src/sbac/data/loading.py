"""`sbac.load`: a Dataset from a name, a file, a folder or arrays. What is not clear is refused, never guessed."""

import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sbac.data.columns import missing
from sbac.data.dataset import SOURCE_KINDS, Dataset, jumps, time_limits
from sbac.data.formats import arrays, csv_text, d3rlpy, hdf5, lerobot, minari, ogbench, parquet
from sbac.data.formats.log import Log, decode
from sbac.data.naming import ColumnMap, match, side_by_side
from sbac.environments.opening import EnvSource, action_bounds
from sbac.environments.tasks import EMBEDDED, TASKS, find_task, is_task, task_of_file
from sbac.errors import UserError, positive, unknown
from sbac.files import in_home

Source = str | Path | Dataset | Mapping[str, ArrayLike]

BOUNDS = ("action_low", "action_high")
TEXTS = ("name", "kind", "task", "environment")
"""What `Dataset.save` writes beside the columns and the bounds."""
HDF5 = (".hdf5", ".h5")
SUFFIXES = (*HDF5, ".npz", ".parquet", ".csv")
LONGEST_LIMIT = 1000
"""The longest time limit of a D4RL task. A longer stretch without a flag means that a D4RL file lacks flags."""


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
) -> Dataset:
    """The dataset behind a name, a file, a folder, a Minari id or a mapping of arrays.

    task: the task whose environment and reference returns belong to the data, where the name does not say it.
    columns: which column of a file is which, e.g. {"observations": "obs", "rewards": "r"}.
    horizon: the time limit of the episodes, for logs that do not flag it, or flag it as terminal (default: the task's).
    action_low, action_high: the bounds of the actions; by default those that the file holds, else those of
        `environment`, else -1 and 1.
    environment: the environment the log is from, a Gymnasium id or a function that makes one.
    max_bytes: the most memory that the decoded log may take (default: 100 times the file, at least 256 MiB).
    """
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | Path | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"expected a name, a path, a mapping of arrays or a Dataset, got {type(source)}")
    known = read(
        source,
        LogOptions(task, columns, horizon, action_low, action_high, environment, max_bytes),
    )
    for line in missing(known):
        raise UserError(f"{known['name']}: {line}")
    data = Dataset(**known)
    for line in doubts(data):
        warnings.warn(line, stacklevel=2)
    return data


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

    def __post_init__(self) -> None:
        for name, kind in (("task", str), ("columns", Mapping), ("horizon", int), ("max_bytes", int)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                expected = {str: "a name", Mapping: "a mapping from fields to columns", int: "a whole number"}[kind]
                raise UserError(f"{name}: expected {expected}, got {value!r}")
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


def read(source: str | Path | Mapping[str, ArrayLike], options: LogOptions) -> dict[str, Any]:
    """The arguments of `Dataset` for a source: its columns as they are in the file, and what is known of it."""
    is_hdf5 = False
    if isinstance(source, Mapping):
        about = {key: source[key] for key in ("name", "kind", "task") if key in source}
        known: dict[str, Any] = {"name": "arrays"} | _named(source, options.columns, "arrays") | about
    else:
        found = locate(source)
        is_hdf5 = found.path.suffix in HDF5
        try:
            known = decode(open_log(found.path, options.columns, options.max_bytes), options.max_bytes)
        except MemoryError as error:
            raise UserError(f"{found.path}: does not fit into memory") from error
        known = {"name": found.path.name} | known | found.about
    if options.task is not None:
        known["task"] = find_task(options.task).name
    known = {key: value for key, value in known.items() if value is not None}
    known = _with_bounds(known, options)
    return _with_time_limits(known, options.horizon, is_hdf5)


def _with_bounds(known: dict[str, Any], options: LogOptions) -> dict[str, Any]:
    """The bounds of the actions: as the caller gives them, else as the file does, else as the environment does."""
    given = {"action_low": options.action_low, "action_high": options.action_high}
    known = known | {key: bound for key, bound in given.items() if bound is not None}
    if options.environment is None:
        return known
    if isinstance(options.environment, str):
        known["environment"] = options.environment
    if known.get("kind") in ("D4RL", "made", "embedded") or {"action_low", "action_high"} <= known.keys():
        return known
    low, high = action_bounds(options.environment)
    return {"action_low": low, "action_high": high} | known


@dataclass(frozen=True)
class Located:
    """The path of a source, and the arguments of `Dataset` that follow from its name."""

    path: Path
    about: dict[str, str]


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
        raise UserError(f"{name!r}: not a path: {arrays.one_line(error)}") from error
    if exists:
        d4rl = task_of_file(path.name)
        return Located(path, {"kind": "D4RL", "task": d4rl} if d4rl else {})
    if (folder := minari.installed(name)) is not None:
        return Located(folder, {"name": name})
    if path.suffix in SUFFIXES or isinstance(source, Path) or name.startswith((".", "/", "~")):
        raise UserError(f"{name}: no such file or folder")
    if "/" in name and minari.is_id(name):
        raise UserError(
            f"{name}: not among the Minari datasets in {minari.root()}; get it with `minari download {name}` "
            "(pip install 'sbac[minari]')"
        )
    raise unknown("dataset (and no such file)", name, [*EMBEDDED, *TASKS, *made_names()])


def made_names() -> list[str]:
    """The stand-ins that `sbac data make` makes."""
    return [name.replace("-v2", "-made") for name in TASKS if name.endswith("-v2")]


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


def open_log(path: Path, columns: ColumnMap | None = None, max_bytes: int | None = None) -> Log:
    """A file or folder of any format, opened and not decoded."""
    if path.is_dir():
        return _open_folder(path, columns, max_bytes)
    if path.suffix in HDF5:
        return _open_hdf5(path, columns, max_bytes)
    if path.suffix == ".npz":
        return _open_npz(path, columns)
    if path.suffix == ".parquet":
        return parquet.open_parquet(path, [path], lambda names: match(names, columns, str(path)))
    if path.suffix == ".csv":
        return csv_text.open_csv(path, columns)
    raise UserError(f"{path}: unknown kind of file; expected {', '.join(SUFFIXES)} or a folder")


def _open_folder(path: Path, columns: ColumnMap | None, max_bytes: int | None) -> Log:
    if (path / "data" / "metadata.json").is_file():
        return minari.open_folder(path, max_bytes)
    if lerobot.is_dataset(path):
        return lerobot.open_dataset(path, columns)
    if any(path.glob("*.npy")):
        return arrays.open_npy_folder(path, lambda names: match(names, columns, str(path)), BOUNDS)
    raise UserError(
        f"{path}: expected a Minari dataset (data/metadata.json), a LeRobot dataset (meta/info.json) or npy files "
        "(observations.npy, ...)"
    )


def _open_hdf5(path: Path, columns: ColumnMap | None, max_bytes: int | None) -> Log:
    if path.parent.name == "data" and (path.parent / "metadata.json").is_file():
        return minari.open_folder(path.parent.parent, max_bytes)
    with hdf5.opened(path) as file:
        is_buffer = d3rlpy.is_buffer(hdf5.names_in(file))
    return d3rlpy.open_buffer(path) if is_buffer else hdf5.open_columns(path, columns)


def _open_npz(path: Path, columns: ColumnMap | None) -> Log:
    """An npz file, with what `Dataset.save` wrote about it, if it did."""

    def fields(names: Collection[str]) -> dict[str, list[str]]:
        return ogbench.fields(names, match(names, columns, str(path)), path)

    log = ogbench.with_masks(arrays.open_npz(path, fields, (*BOUNDS, *TEXTS)))
    texts = {key: log.about[key] for key in TEXTS if key in log.about}
    about = {key: str(text) for key, text in texts.items() if text.dtype.kind == "U" and text.shape == ()}
    known = {key: log.about[key] for key in BOUNDS if key in log.about}
    if about.get("kind") in SOURCE_KINDS and (not about.get("task") or is_task(about["task"])):
        if ":" in about.get("environment", ""):  # a module's name in a file is not followed
            del about["environment"]
        known |= {key: value for key, value in about.items() if value}
    if known.get("kind", "user") == "user":
        known["name"] = path.name
    return replace(log, about=known)


def _named(stored: Mapping[str, Any], columns: ColumnMap | None, where: str) -> dict[str, Any]:
    """The arrays by field, with the bounds of the actions."""
    chosen = match(stored, columns, where)
    known = {field: side_by_side(stored, names, where) for field, names in chosen.items()}
    return known | {key: stored[key] for key in BOUNDS if key in stored}


def _with_time_limits(known: dict[str, Any], horizon: int | None, is_hdf5: bool) -> dict[str, Any]:
    """Fills in `timeouts` where episode numbers, the horizon or the stored s' tell where episodes end.

    A horizon that the caller gives counts beside the flags of the log; that of a task only where there are none.
    """
    episode = known.pop("episode", None)
    ended = np.asarray(known.get("terminals", [])).reshape(-1)
    if not len(ended) or ended.dtype.kind not in "fiub":
        return known
    name, running = known["name"], ended == 0
    flagged = np.asarray(known["timeouts"]).reshape(-1) if "timeouts" in known else None
    if flagged is not None and (len(flagged) != len(ended) or flagged.dtype.kind not in "fiub"):
        return known
    if episode is not None:
        number = np.asarray(episode).reshape(-1)
        if len(number) != len(ended):
            raise UserError(f"{name}: episode: {len(number)} rows, but terminals has {len(ended)}")
        if number.dtype.kind == "f" and np.isnan(number).any():
            raise UserError(f"{name}: episode: row {int(np.isnan(number).argmax())} has no number")
        last = np.append(number[1:] != number[:-1], True)
        flagged = (last & running) | (flagged != 0 if flagged is not None else False)
    if flagged is not None:
        if horizon is None:
            return known if episode is None else known | {"timeouts": flagged}
        if not ((flagged == 0) | (flagged == 1)).all():
            return known
        cut = flagged != 0
        return known | {"timeouts": cut | time_limits(cut | ~running, horizon)}
    if horizon is None and "task" in known:
        horizon = find_task(known["task"]).horizon
    observations, next_observations = (np.asarray(known.get(key, 0)) for key in ("observations", "next_observations"))
    if horizon is not None:
        cut = time_limits(ended, horizon)
        numeric = observations.dtype.kind in "fiu" and next_observations.dtype.kind in "fiu"
        if next_observations.shape == observations.shape != () and len(next_observations) == len(ended) and numeric:
            cut |= jumps(observations, next_observations) & running
        return known | {"timeouts": cut}
    stretch = int(np.diff(np.flatnonzero(ended), prepend=-1, append=len(ended)).max()) - 1
    if is_hdf5 and next_observations.shape == () and stretch > LONGEST_LIMIT:
        raise UserError(
            f"{name}: no timeouts, and {stretch} rows in a row without a terminal; "
            "say where episodes end with horizon= or task= (--horizon, --task)"
        )
    return known
