"""`sbac.load`: a Dataset from a name, a file, a folder or arrays. What is not clear is refused, never guessed."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sbac.data.columns import missing
from sbac.data.dataset import SOURCE_KINDS, Dataset, jumps, time_limits
from sbac.data.formats import arrays, hdf5, minari, tables
from sbac.data.naming import ColumnMap, match, side_by_side
from sbac.environments.tasks import EMBEDDED, TASKS, find_task, is_task, task_of_file
from sbac.errors import UserError, positive, unknown
from sbac.files import in_home

Source = str | Path | Dataset | Mapping[str, ArrayLike]

BESIDE = ("action_low", "action_high", "name", "kind", "task")
"""What `Dataset.save` writes beside the columns."""
HDF5 = (".hdf5", ".h5")
SUFFIXES = (*HDF5, ".npz", ".parquet", ".csv")
LONGEST_LIMIT = 1000
"""The longest time limit of a D4RL task. A longer stretch without a flag means that a D4RL file lacks flags."""


def load(
    source: Source, *, task: str | None = None, columns: ColumnMap | None = None, horizon: int | None = None
) -> Dataset:
    """The dataset behind a name, a file, a folder, a Minari id or a mapping of arrays.

    task: the task whose environment and reference returns belong to the data, where the name does not say it.
    columns: which column of a file is which, e.g. {"observations": "obs", "rewards": "r"}.
    horizon: the time limit of the episodes, for logs that do not flag it (default: the task's).
    """
    if isinstance(source, Dataset):
        return source
    if not isinstance(source, str | Path | Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UserError(f"expected a name, a path, a mapping of arrays or a Dataset, got {type(source)}")
    positive("horizon", horizon)
    known = read(source, task=task, columns=columns, horizon=horizon)
    for line in missing(known):
        raise UserError(f"{known['name']}: {line}")
    return Dataset(**known)


def read(
    source: str | Path | Mapping[str, ArrayLike],
    *,
    task: str | None = None,
    columns: ColumnMap | None = None,
    horizon: int | None = None,
) -> dict[str, Any]:
    """The arguments of `Dataset` for a source: its columns as they are in the file, and its name, kind and task."""
    is_hdf5 = False
    if isinstance(source, Mapping):
        about = {key: source[key] for key in ("name", "kind", "task") if key in source}
        known: dict[str, Any] = {"name": "arrays"} | _named(source, columns, "arrays") | about
    else:
        found = locate(source)
        is_hdf5 = found.path.suffix in HDF5
        known = {"name": found.path.name} | _read_path(found.path, columns) | found.about
    if task is not None:
        known["task"] = find_task(task).name
    known = {key: value for key, value in known.items() if value is not None}
    horizon = horizon or (find_task(known["task"]).horizon if "task" in known else None)
    return _with_time_limits(known, horizon, is_hdf5)


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


def _read_path(path: Path, columns: ColumnMap | None) -> dict[str, Any]:
    """The columns of a file or folder of any format."""
    try:
        if path.is_dir():
            return _read_folder(path, columns)
        if path.suffix in HDF5:
            return _read_hdf5(path, columns)
        if path.suffix == ".npz":
            return _read_npz(path, columns)
        if path.suffix in (".parquet", ".csv"):
            return tables.read_table(path, columns)
    except MemoryError as error:
        raise UserError(f"{path}: does not fit into memory") from error
    raise UserError(f"{path}: unknown kind of file; expected {', '.join(SUFFIXES)} or a folder")


def _read_folder(path: Path, columns: ColumnMap | None) -> dict[str, Any]:
    if (path / "data" / "metadata.json").is_file():
        return minari.read_folder(path)
    if any(path.glob("*.npy")):
        return _named(arrays.read_npy_folder(path, lambda names: _wanted(names, columns, path)), columns, str(path))
    raise UserError(f"{path}: expected a Minari dataset (data/metadata.json) or npy files (observations.npy, ...)")


def _read_hdf5(path: Path, columns: ColumnMap | None) -> dict[str, Any]:
    if path.parent.name == "data" and (path.parent / "metadata.json").is_file():
        return minari.read_folder(path.parent.parent)
    return dict(hdf5.read_columns(path, columns))


def _named(stored: Mapping[str, Any], columns: ColumnMap | None, where: str) -> dict[str, Any]:
    """The arrays by field, with the bounds of the actions."""
    chosen = match(stored, columns, where)
    known = {field: side_by_side(stored, names, where) for field, names in chosen.items()}
    return known | {key: stored[key] for key in ("action_low", "action_high") if key in stored}


def _wanted(names: Collection[str], columns: ColumnMap | None, path: Path) -> list[str]:
    """The arrays of a file that make up a dataset; others are not read."""
    fields = [name for parts in match(names, columns, str(path)).values() for name in parts]
    return fields + [name for name in BESIDE if name in names]


def _read_npz(path: Path, columns: ColumnMap | None) -> dict[str, Any]:
    """The arrays of an npz file, and what `Dataset.save` wrote about them."""
    stored = arrays.read_npz(path, lambda names: _wanted(names, columns, path))
    known = _named(stored, columns, str(path))
    texts = {key: stored[key] for key in ("name", "kind", "task") if key in stored}
    about = {key: str(text) for key, text in texts.items() if text.dtype.kind == "U" and text.shape == ()}
    if about.get("kind") in SOURCE_KINDS and (not about.get("task") or is_task(about["task"])):
        known |= {key: value for key, value in about.items() if value}
    if known.get("kind", "user") == "user":
        known["name"] = path.name
    return known


def _with_time_limits(known: dict[str, Any], horizon: int | None, is_hdf5: bool) -> dict[str, Any]:
    """Fills in `timeouts` where episode numbers, the horizon or the stored s' tell where episodes end."""
    episode = known.pop("episode", None)
    ended = np.asarray(known.get("terminals", [])).reshape(-1)
    if ("timeouts" in known and episode is None) or not len(ended) or ended.dtype.kind not in "fiub":
        return known
    name, running = known["name"], ended == 0
    if episode is not None:
        number = np.asarray(episode).reshape(-1)
        if len(number) != len(ended):
            raise UserError(f"{name}: episode: {len(number)} rows, but terminals has {len(ended)}")
        if number.dtype.kind == "f" and np.isnan(number).any():
            raise UserError(f"{name}: episode: row {int(np.isnan(number).argmax())} has no number")
        flagged = np.asarray(known.get("timeouts", np.zeros(len(ended)))).reshape(-1)
        last = np.append(number[1:] != number[:-1], True)
        return known | {"timeouts": (last & running) | (flagged != 0)} if len(flagged) == len(ended) else known
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
            "say where episodes end with horizon= or task="
        )
    return known
