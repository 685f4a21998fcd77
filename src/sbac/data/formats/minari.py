"""Reading Minari datasets: a folder with data/metadata.json and episodes of n steps and n + 1 observations.

Datasets stored as HDF5 are read here; those stored as arrow are read by the minari package.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sbac.data.formats import hdf5
from sbac.data.formats.arrays import one_line, refuse_larger
from sbac.environments.tasks import TASKS
from sbac.errors import UserError
from sbac.records import Json

Episode = dict[str, NDArray[Any]]
FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


def root() -> Path:
    """The folder of Minari's datasets."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets").expanduser()


def is_id(name: str) -> bool:
    """Whether a name has the form of a Minari id, such as D4RL/door/human-v2."""
    return re.fullmatch(r"(\w[\w-]*/)*\w[\w-]*-v\d+", name) is not None


def installed(name: str) -> Path | None:
    """The folder of an installed Minari dataset."""
    folder = root() / name
    return folder if is_id(name) and (folder / "data" / "metadata.json").is_file() else None


def read_folder(folder: Path) -> dict[str, Any]:
    """The columns of a Minari dataset. It stores the true s' of every row. Terminations outrank truncations."""
    about = _metadata(folder / "data" / "metadata.json")
    low, high = _action_bounds(about, folder)
    reader = _hdf5_episodes if about.get("data_format", "hdf5") == "hdf5" else _minari_episodes
    episodes: list[Episode] = []
    for episode in reader(folder):
        _check(episode, episodes[0] if episodes else episode, f"{folder}: episode {len(episodes)}")
        episodes.append(episode)
    if not episodes:
        raise UserError(f"{folder}: zero episodes")
    return {
        **_joined(episodes),
        "action_low": low,
        "action_high": high,
        "name": str(about.get("dataset_id", folder.name)),
        "kind": "Minari",
        "task": _task(str(about.get("dataset_id", ""))),
    }


def _joined(episodes: list[Episode]) -> dict[str, NDArray[Any]]:
    """The columns of episodes, one after the other."""
    terminations = np.concatenate([e["terminations"] for e in episodes])
    cut = np.concatenate([np.append(np.zeros(len(e["rewards"]) - 1, bool), True) for e in episodes])
    return {
        "observations": np.concatenate([e["observations"][:-1] for e in episodes]),
        "actions": np.concatenate([e["actions"] for e in episodes]),
        "rewards": np.concatenate([e["rewards"] for e in episodes]),
        "terminals": terminations,
        "timeouts": (cut | np.concatenate([e["truncations"] for e in episodes])) & ~terminations.astype(bool),
        "next_observations": np.concatenate([e["observations"][1:] for e in episodes]),
    }


def _metadata(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > 2**24:
            raise UserError(f"{path}: expected Minari's metadata, got {path.stat().st_size:,} bytes")
        about: Json = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not readable as JSON: {one_line(error)}") from error
    if not isinstance(about, dict):
        raise UserError(f"{path}: expected Minari's metadata, got {type(about).__name__}")
    return about


def _action_bounds(about: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    """The bounds of a Box of actions; -1 and 1 where it has none."""
    _box(about, "observation_space", folder)
    box = _box(about, "action_space", folder)
    try:
        low, high = (np.asarray(box.get(key, default), np.float64) for key, default in (("low", -1.0), ("high", 1.0)))
    except (TypeError, ValueError) as error:
        raise UserError(f"{folder}: action_space: expected bounds as numbers: {one_line(error)}") from error
    return np.where(np.isfinite(low), low, -1.0), np.where(np.isfinite(high), high, 1.0)


def _box(about: dict[str, Any], key: str, folder: Path) -> dict[str, Any]:
    """A space as Minari describes it, JSON within JSON."""
    stored: Json = about.get(key, {"type": "Box"})
    try:
        space: Json = json.loads(stored) if isinstance(stored, str) else stored
    except (ValueError, RecursionError):
        space = None
    if not isinstance(space, dict):
        raise UserError(f"{folder}: {key} is not readable")
    if space.get("type") != "Box":
        raise UserError(f"{folder}: {key} is {space.get('type')}; only flat continuous spaces (Box) are supported")
    return space


def _hdf5_episodes(folder: Path) -> Iterator[Episode]:
    path = folder / "data" / "main_data.hdf5"
    with hdf5.opened(path) as file:
        episodes = [_members(file, f"episode_{number}", path) for number in _episode_numbers(file)]
        refuse_larger(path, sum(hdf5.claimed_bytes(dataset) for fields in episodes for dataset in fields.values()))
        for fields in episodes:
            yield {field: hdf5.values(dataset) for field, dataset in fields.items()}


def _episode_numbers(file: h5py.File) -> list[int]:
    matches = [re.fullmatch(r"episode_(\d{1,9})", name) for name in hdf5.names_in(file)]
    return sorted(int(found[1]) for found in matches if found)


def _members(file: h5py.File, name: str, path: Path) -> dict[str, h5py.Dataset]:
    group = hdf5.subgroup(file, name)
    if group is None:
        raise UserError(f"{path}: {name}: expected an episode stored in this file")
    for field in FIELDS:
        if field not in group:
            raise UserError(f"{path}: {name}: {field} is missing; a Minari episode has {', '.join(FIELDS)}")
    return {field: hdf5.member(group, field, path) for field in FIELDS}


def _minari_episodes(folder: Path) -> Iterator[Episode]:
    try:
        import minari
    except ImportError as error:
        raise UserError(f"{folder}: reading this kind of Minari dataset needs: pip install 'sbac[minari]'") from error
    try:
        for episode in minari.MinariDataset(folder / "data").iterate_episodes():
            yield {field: np.asarray(getattr(episode, field)) for field in FIELDS}
    except Exception as error:  # whatever minari and the libraries below it raise over a damaged or unknown kind
        raise UserError(f"{folder}: minari cannot read it: {one_line(error)}") from error


def _check(episode: Episode, first: Episode, where: str) -> None:
    """An episode has one observation more than rewards, and the same features as the first."""
    steps = len(episode["rewards"]) if episode["rewards"].ndim else 0
    if steps == 0:
        raise UserError(f"{where}: zero steps")
    for field, array in episode.items():
        expected = (steps + (field == "observations"), *first[field].shape[1:])
        if array.shape != expected:
            raise UserError(f"{where}: {field} has shape {array.shape}, expected {expected}")


def _task(dataset_id: str) -> str | None:
    """The paper's task for D4RL's human demonstrations; Minari's mujoco datasets are not D4RL's."""
    found = re.fullmatch(r"D4RL/(\w+)/human-v\d+", dataset_id)
    return f"{found[1]}-human-v1" if found and f"{found[1]}-human-v1" in TASKS else None


class EpisodeBlocks:
    """The rows of a Minari dataset stored as HDF5, read from one episode to another."""

    def __init__(self, folder: Path) -> None:
        about = _metadata(folder / "data" / "metadata.json")
        if about.get("data_format", "hdf5") != "hdf5":
            raise UserError(f"{folder}: stored as {about['data_format']}; only Minari's HDF5 can be streamed")
        low, high = _action_bounds(about, folder)
        name = str(about.get("dataset_id", folder.name))
        self.about = {"action_low": low, "action_high": high, "name": name, "kind": "Minari", "task": _task(name)}
        self._path = folder / "data" / "main_data.hdf5"
        with hdf5.opened(self._path) as file:
            self._numbers = _episode_numbers(file)
            rewards = [_members(file, f"episode_{number}", self._path)["rewards"] for number in self._numbers]
            steps = [hdf5.length(dataset) for dataset in rewards]
        if not steps or min(steps) == 0:
            raise UserError(f"{folder}: {'zero episodes' if not steps else 'an episode without steps'}")
        self._starts = [0, *np.cumsum(steps).tolist()]
        self.rows: int = self._starts[-1]

    def ranges(self, size: int) -> list[tuple[int, int]]:
        """Whole episodes, as many as reach the size."""
        found, first = list[tuple[int, int]](), 0
        for stop in self._starts[1:]:
            if stop - first >= size or stop == self.rows:
                found.append((first, stop))
                first = stop
        return found

    def read(self, start: int, stop: int) -> dict[str, NDArray[Any]]:
        first, last = self._starts.index(start), self._starts.index(stop)
        episodes: list[Episode] = []
        with hdf5.opened(self._path) as file:
            for number in self._numbers[first:last]:
                fields = _members(file, f"episode_{number}", self._path)
                episodes.append({field: hdf5.values(dataset) for field, dataset in fields.items()})
                _check(episodes[-1], episodes[0], f"{self._path}: episode {number}")
        return _joined(episodes)
