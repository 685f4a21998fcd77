"""Minari's datasets: a folder with data/metadata.json and episodes of n steps and n + 1 observations.

Datasets stored as HDF5 are read here; those stored as arrow are read by the minari package.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.dataset import Dataset
from sbac.data.formats import hdf5
from sbac.data.formats.episodes import RowsOfEpisode, check_steps, log_of_episodes, refuse_jumps
from sbac.data.formats.log import Column, Format, Log, Rows, Written, one_line, read_description
from sbac.data.naming import ColumnMap
from sbac.environments.tasks import TASKS
from sbac.errors import UserError
from sbac.files import in_home, write_json
from sbac.records import Json

MINARI_VERSION = "0.5.0"
"""The version whose layout is written."""
FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")
METADATA = Path("data") / "metadata.json"
EpisodeArrays = Mapping[str, h5py.Dataset | NDArray[Any]]
"""The arrays of an episode."""
Episodes = tuple[Callable[[], Sequence[int]], Callable[[int], EpisodeArrays]]
"""Lists the numbers of the episodes, and gives the arrays of each."""


def root() -> Path:
    """The folder of Minari's datasets."""
    return in_home(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets")


def is_id(name: str) -> bool:
    """Whether a name has the form of a Minari id, such as D4RL/door/human-v2."""
    return re.fullmatch(r"(\w[\w-]*/)*\w[\w-]*-v\d+", name) is not None


def installed(name: str) -> Path | None:
    """The folder of an installed Minari dataset."""
    folder = root() / name
    return folder if is_id(name) and (folder / METADATA).is_file() else None


def folder_of(path: Path) -> Path:
    """The dataset's folder, of which its file may be given too."""
    return path if path.is_dir() else path.parent.parent


def recognises(path: Path) -> bool:
    """Whether a path is a Minari dataset, or its file."""
    inside = path.is_dir() or (path.suffix in hdf5.SUFFIXES and path.parent.name == "data")
    return inside and (folder_of(path) / METADATA).is_file()


def open_dataset(path: Path, columns: ColumnMap | None) -> Log:
    """A Minari dataset. It has Minari's names, and the true s' of every row. Terminations outrank truncations."""
    folder = folder_of(path)
    metadata = read_description(folder / METADATA, "Minari's metadata")
    description = _described(metadata, folder)
    is_hdf5 = metadata.get("data_format", "hdf5") == "hdf5"
    opened_episodes = _hdf5_episodes if is_hdf5 else _minari_episodes
    with opened_episodes(folder) as (listed, episode):
        numbers = listed()
        declared: list[dict[str, Column]] = []
        work = 0
        for position, number in enumerate(numbers):
            stored = episode(number)
            declared.append(_declared(stored, f"{folder}: episode {position}"))
            work = max(work, sum(map(hdf5.chunk_bytes, stored.values())))

    @contextlib.contextmanager
    def opened() -> Generator[RowsOfEpisode]:
        with opened_episodes(folder) as (_, episode):
            yield lambda position, fields, start, stop: _rows(episode(numbers[position]), fields, start, stop)

    files = [folder / "data" / "main_data.hdf5"] if is_hdf5 else folder.rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    return log_of_episodes(folder, size, declared, opened, description, work)


def _described(metadata: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the metadata say beside the columns."""
    low, high = _action_bounds(metadata, folder)
    return {
        "action_low": low,
        "action_high": high,
        "name": str(metadata.get("dataset_id", folder.name)),
        "kind": "Minari",
        "task": _task(str(metadata.get("dataset_id", ""))),
        "environment": _environment(metadata),
    }


@contextlib.contextmanager
def _hdf5_episodes(folder: Path) -> Generator[Episodes]:
    path = folder / "data" / "main_data.hdf5"
    with hdf5.opened(path) as file:

        def listed() -> list[int]:
            names = [re.fullmatch(r"episode_(\d{1,9})", name) for name in hdf5.names_in(file)]
            return sorted(int(name[1]) for name in names if name)

        yield listed, lambda number: _members(file, number, path)


@contextlib.contextmanager
def _minari_episodes(folder: Path) -> Generator[Episodes]:
    try:
        import minari
    except ImportError as error:
        raise UserError(f"{folder}: reading this kind of Minari dataset needs: pip install 'sbac[minari]'") from error
    try:
        dataset = minari.MinariDataset(folder / "data")

        def episode(number: int) -> EpisodeArrays:
            [arrays] = dataset.iterate_episodes([number])
            return {field: np.asarray(getattr(arrays, field)) for field in FIELDS}

        yield lambda: range(dataset.total_episodes), episode
    except UserError:
        raise
    except Exception as error:  # whatever minari and the libraries below it raise over a damaged or unknown kind
        raise UserError(f"{folder}: minari cannot read it: {one_line(error)}") from error


def _declared(stored: EpisodeArrays, where: str) -> dict[str, Column]:
    """An episode has one observation more than rewards."""
    columns = {name: hdf5.column(array) for name, array in stored.items()}
    steps = check_steps(columns, ("observations",), where)
    observations = Column((steps, *columns["observations"].shape[1:]), columns["observations"].dtype)
    return {
        "observations": observations,
        "actions": columns["actions"],
        "rewards": columns["rewards"],
        "terminals": columns["terminations"],
        "timeouts": Column((steps,), np.dtype(bool)),
        "next_observations": observations,
    }


def _rows(stored: EpisodeArrays, fields: Collection[str], start: int, stop: int) -> Rows:
    """Some rows of an episode."""
    block: Rows = {name: hdf5.rows_of(stored[name], start, stop) for name in ("actions", "rewards") if name in fields}
    if "observations" in fields or "next_observations" in fields:
        states = hdf5.rows_of(stored["observations"], start, stop + 1)
        block |= {"observations": states[:-1], "next_observations": states[1:]}
    if "terminals" in fields or "timeouts" in fields:
        ended = hdf5.rows_of(stored["terminations"], start, stop)
        cut = hdf5.rows_of(stored["truncations"], start, stop).reshape(-1).astype(bool)
        cut[-1] |= stop == len(stored["rewards"])
        block |= {"terminals": ended, "timeouts": cut & ~ended.reshape(-1).astype(bool)}
    return {name: block[name] for name in fields}


def _action_bounds(description: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """The bounds of a Box of actions; -1 and 1 where it has none."""
    _box(description, "observation_space", folder)
    box = _box(description, "action_space", folder)
    try:
        low, high = (np.asarray(box.get(key, default), np.float64) for key, default in (("low", -1.0), ("high", 1.0)))
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder}: action_space: expected bounds as numbers: {one_line(error)}") from error
    return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)


def _box(description: dict[str, Any], key: str, folder: Path) -> dict[str, Any]:
    """A space as Minari describes it, JSON within JSON."""
    stored: Json = description.get(key, {"type": "Box"})
    try:
        space: Json = json.loads(stored) if isinstance(stored, str) else stored
    except (ValueError, RecursionError):
        space = None
    if not isinstance(space, dict):
        raise UserError(f"{folder}: {key} is not readable")
    if space.get("type") != "Box":
        raise UserError(f"{folder}: {key} is {space.get('type')}; only flat continuous spaces (Box) are supported")
    return space


def _environment(metadata: dict[str, Any]) -> str | None:
    """The id of the dataset's own evaluation environment, or of the one it was recorded in.

    Only a plain id is taken: one that names a module, or an environment with options of its own, is left out.
    """
    for key in ("eval_env_spec", "env_spec"):
        stored: Json = metadata.get(key)
        try:
            spec: Json = json.loads(stored) if isinstance(stored, str) else stored
        except (ValueError, RecursionError):
            continue
        if isinstance(spec, dict) and isinstance(env_id := spec.get("id"), str):
            return env_id if ":" not in env_id and not spec.get("kwargs") else None
    return None


def _members(file: h5py.File, number: int, path: Path) -> dict[str, h5py.Dataset]:
    name = f"episode_{number}"
    group = hdf5.subgroup(file, name)
    if group is None:
        raise UserError(f"{path}: {name}: expected an episode stored in this file")
    for field in FIELDS:
        if field not in group:
            raise UserError(f"{path}: {name}: {field} is missing; a Minari episode has {', '.join(FIELDS)}")
    return {field: hdf5.member(group, field, path) for field in FIELDS}


def _task(dataset_id: str) -> str | None:
    """The paper's task for D4RL's human demonstrations; Minari's mujoco datasets are not D4RL's."""
    human = re.fullmatch(r"D4RL/(\w+)/human-v\d+", dataset_id)
    return f"{human[1]}-human-v1" if human and f"{human[1]}-human-v1" in TASKS else None


def write_dataset(data: Dataset, folder: Path) -> Written:
    """Writes a Minari dataset (HDF5) into an empty folder.

    Minari holds the observation after the last step. Where a log cut by a time limit does not store it, the last row
    gives its observation for this, and its action and reward are left out. After a terminal it is never read: there the
    last observation is repeated.
    """
    refuse_jumps(data, "Minari")
    kept = [(start, stop if data.has_next[stop - 1] else stop - 1) for start, stop in data.episodes.tolist()]
    kept = [(start, stop) for start, stop in kept if stop > start]
    if not kept:
        raise UserError(f"{data.name}: no episode has two rows or a stored s'; Minari cannot hold it")

    def arrays() -> Iterator[tuple[str, NDArray[Any]]]:
        for number, (start, stop) in enumerate(kept):
            group = f"episode_{number}"
            following = data.next_states(stop - 1, stop)
            yield f"{group}/observations", np.concatenate([data.observations[start:stop], following])
            yield f"{group}/actions", data.actions[start:stop]
            yield f"{group}/rewards", data.rewards[start:stop]
            yield f"{group}/terminations", data.terminals[start:stop]
            cut = np.zeros(stop - start, bool)
            cut[-1] = not data.terminals[stop - 1]
            yield f"{group}/truncations", cut

    attributes = {f"episode_{i}": {"id": i, "total_steps": stop - start} for i, (start, stop) in enumerate(kept)}
    steps = sum(stop - start for start, stop in kept)
    (folder / "data").mkdir()
    hdf5.write(folder / "data" / "main_data.hdf5", arrays(), attributes)
    name = folder.name
    metadata = {
        "dataset_id": name if is_id(name) else f"{re.sub(r'[^0-9A-Za-z_-]', '-', name) or 'log'}-v0",
        "minari_version": MINARI_VERSION,
        "data_format": "hdf5",
        "total_episodes": len(kept),
        "total_steps": steps,
        "observation_space": json.dumps(_space(data.observations.shape[1], -np.inf, np.inf)),
        "action_space": json.dumps(_space(data.actions.shape[1], data.action_low, data.action_high)),
    }
    if data.environment is not None and ":" not in data.environment:
        import gymnasium

        with contextlib.suppress(gymnasium.error.Error):
            metadata["env_spec"] = gymnasium.spec(data.environment).to_json()
    write_json(folder / METADATA, metadata)
    lost = len(data) - steps
    note = f"Minari needs the state after the last step: {lost:,} rows at time limits are left out"
    return Written(steps, [note] * bool(lost))


def _space(size: int, low: ArrayLike, high: ArrayLike) -> dict[str, Any]:
    """A Box as Minari writes it."""
    bounds = {key: np.broadcast_to(np.asarray(b, float), size).tolist() for key, b in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": "float32", "shape": [size], **bounds}


MINARI = Format(
    recognises,
    open_dataset,
    write_dataset,
    suffixes=("",),
    folder="a Minari dataset (data/metadata.json)",
    streams=True,
)
