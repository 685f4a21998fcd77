"""Reading Minari datasets: a folder with data/metadata.json and episodes of n steps and n + 1 observations.

Datasets stored as HDF5 are read here; those stored as arrow are read by the minari package.
"""

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.dataset import Dataset, jumps
from sbac.data.formats import hdf5
from sbac.data.formats.arrays import one_line
from sbac.data.formats.episodes import Episode, check_steps, log_of_episodes
from sbac.data.formats.log import Column, Log, Rows, refuse_larger, whole_parts
from sbac.environments.tasks import TASKS
from sbac.errors import UserError
from sbac.files import in_home, write_atomic, write_json
from sbac.records import Json

MINARI_VERSION = "0.5.0"
"""The version whose layout is written."""
FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")
BLOCK_FIELDS = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")


def root() -> Path:
    """The folder of Minari's datasets."""
    return in_home(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets")


def is_id(name: str) -> bool:
    """Whether a name has the form of a Minari id, such as D4RL/door/human-v2."""
    return re.fullmatch(r"(\w[\w-]*/)*\w[\w-]*-v\d+", name) is not None


def installed(name: str) -> Path | None:
    """The folder of an installed Minari dataset."""
    folder = root() / name
    return folder if is_id(name) and (folder / "data" / "metadata.json").is_file() else None


def open_folder(folder: Path, limit: int | None) -> Log:
    """A Minari dataset. It stores the true s' of every row. Terminations outrank truncations."""
    metadata = _metadata(folder / "data" / "metadata.json")
    about = _about(metadata, folder)
    if metadata.get("data_format", "hdf5") == "hdf5":
        return _hdf5_log(folder, about)
    return _minari_log(folder, about, limit)


def _about(metadata: dict[str, Any], folder: Path) -> dict[str, Any]:
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


def _hdf5_log(folder: Path, about: dict[str, Any]) -> Log:
    path = folder / "data" / "main_data.hdf5"
    with hdf5.opened(path) as file:
        members = [_members(file, number, path) for number in _numbers(file)]
        declared = [{name: hdf5.column(dataset) for name, dataset in fields.items()} for fields in members]
        work = max((sum(map(hdf5.chunk_bytes, fields.values())) for fields in members), default=0)

    def read(chosen: Collection[str]) -> Iterator[Callable[[int, int], Rows]]:
        with hdf5.opened(path) as file:
            for number, columns in zip(_numbers(file), declared, strict=True):
                fields = _members(file, number, path)
                steps = columns["rewards"].shape[0]
                yield lambda start, stop, f=fields, n=steps: _rows(
                    lambda name, a, b: hdf5.rows_of(f[name], a, b), n, start, stop, chosen
                )

    episodes = [_declared(columns, f"{folder}: episode {i}") for i, columns in enumerate(declared)]
    return log_of_episodes(folder, path.stat().st_size, episodes, read, about, work)


def _minari_log(folder: Path, about: dict[str, Any], limit: int | None) -> Log:
    """A dataset that minari reads. It says nothing of sizes beforehand, so they are added up on the way."""
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    stored: list[dict[str, NDArray[Any]]] = []
    taken = 0
    for episode in _minari_episodes(folder):
        taken += sum(array.nbytes for array in episode.values())
        refuse_larger(folder, size, taken, limit)
        stored.append(episode)
    declared = [{name: Column(array.shape, array.dtype) for name, array in fields.items()} for fields in stored]

    def read(chosen: Collection[str]) -> Iterator[Callable[[int, int], Rows]]:
        for fields in stored:
            yield lambda start, stop, f=fields: _rows(
                lambda name, a, b: f[name][a:b], len(f["rewards"]), start, stop, chosen
            )

    episodes = [_declared(columns, f"{folder}: episode {i}") for i, columns in enumerate(declared)]
    return log_of_episodes(folder, size, episodes, read, about)


def _declared(columns: dict[str, Column], where: str) -> Episode:
    """An episode has one observation more than rewards."""
    rewards = columns["rewards"].shape
    steps = rewards[0] if rewards else 0
    check_steps({name: column.shape for name, column in columns.items()}, steps, ("observations",), where)
    observations = Column((steps, *columns["observations"].shape[1:]), columns["observations"].dtype)
    return Episode(
        steps,
        {
            "observations": observations,
            "actions": columns["actions"],
            "rewards": columns["rewards"],
            "terminals": columns["terminations"],
            "timeouts": Column((steps,), np.dtype(bool)),
            "next_observations": observations,
        },
    )


def _rows(
    read: Callable[[str, int, int], NDArray[Any]], steps: int, start: int, stop: int, chosen: Collection[str]
) -> Rows:
    """Some rows of an episode."""
    block: Rows = {name: read(name, start, stop) for name in ("actions", "rewards") if name in chosen}
    if "observations" in chosen or "next_observations" in chosen:
        states = read("observations", start, stop + 1)
        own = {"observations": states[:-1], "next_observations": states[1:]}
        block |= {name: part for name, part in own.items() if name in chosen}
    if "terminals" in chosen or "timeouts" in chosen:
        ended = read("terminations", start, stop)
        cut = read("truncations", start, stop).reshape(-1).astype(bool)
        cut[-1] |= stop == steps
        own = {"terminals": ended, "timeouts": cut & ~ended.reshape(-1).astype(bool)}
        block |= {name: part for name, part in own.items() if name in chosen}
    return block


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


def _numbers(file: h5py.File) -> list[int]:
    matches = [re.fullmatch(r"episode_(\d{1,9})", name) for name in hdf5.names_in(file)]
    return sorted(int(found[1]) for found in matches if found)


def _members(file: h5py.File, number: int, path: Path) -> dict[str, h5py.Dataset]:
    name = f"episode_{number}"
    group = hdf5.subgroup(file, name)
    if group is None:
        raise UserError(f"{path}: {name}: expected an episode stored in this file")
    for field in FIELDS:
        if field not in group:
            raise UserError(f"{path}: {name}: {field} is missing; a Minari episode has {', '.join(FIELDS)}")
    return {field: hdf5.member(group, field, path) for field in FIELDS}


def _minari_episodes(folder: Path) -> Iterator[dict[str, NDArray[Any]]]:
    try:
        import minari
    except ImportError as error:
        raise UserError(f"{folder}: reading this kind of Minari dataset needs: pip install 'sbac[minari]'") from error
    try:
        for episode in minari.MinariDataset(folder / "data").iterate_episodes():
            yield {field: np.asarray(getattr(episode, field)) for field in FIELDS}
    except Exception as error:  # whatever minari and the libraries below it raise over a damaged or unknown kind
        raise UserError(f"{folder}: minari cannot read it: {one_line(error)}") from error


def _task(dataset_id: str) -> str | None:
    """The paper's task for D4RL's human demonstrations; Minari's mujoco datasets are not D4RL's."""
    found = re.fullmatch(r"D4RL/(\w+)/human-v\d+", dataset_id)
    return f"{found[1]}-human-v1" if found and f"{found[1]}-human-v1" in TASKS else None


# --- In blocks of any order -------------------------------------------------------------------------------------------


class EpisodeBlocks:
    """The rows of a Minari dataset stored as HDF5, read from any episode to any other."""

    def __init__(self, folder: Path) -> None:
        metadata = _metadata(folder / "data" / "metadata.json")
        if metadata.get("data_format", "hdf5") != "hdf5":
            raise UserError(f"{folder}: stored as {metadata['data_format']}; only Minari's HDF5 can be streamed")
        self.about = _about(metadata, folder)
        self._path = folder / "data" / "main_data.hdf5"
        steps: list[int] = []
        with hdf5.opened(self._path) as file:
            self._numbers = _numbers(file)
            for number in self._numbers:
                members = _members(file, number, self._path)
                columns = {name: hdf5.column(dataset) for name, dataset in members.items()}
                steps.append(_declared(columns, f"{folder}: episode {number}").steps)
        if not steps:
            raise UserError(f"{folder}: zero episodes")
        self._starts: list[int] = [0, *np.cumsum(steps).tolist()]
        self.rows = self._starts[-1]

    def ranges(self, size: int) -> list[tuple[int, int]]:
        return whole_parts(self._starts, size)

    def read(self, start: int, stop: int) -> Rows:
        first, last = self._starts.index(start), self._starts.index(stop)
        parts: list[Rows] = []
        with hdf5.opened(self._path) as file:
            for episode in range(first, last):
                fields = _members(file, self._numbers[episode], self._path)
                steps = self._starts[episode + 1] - self._starts[episode]

                def read(name: str, a: int, b: int, own: dict[str, h5py.Dataset] = fields) -> NDArray[Any]:
                    return hdf5.rows_of(own[name], a, b)

                parts.append(_rows(read, steps, 0, steps, BLOCK_FIELDS))
        return {name: np.concatenate([part[name] for part in parts]) for name in BLOCK_FIELDS}


# --- Writing ----------------------------------------------------------------------------------------------------------


def write_folder(folder: Path, data: Dataset, name: str) -> int:
    """Writes a Minari dataset (HDF5) into an empty folder; the number of rows that were left out.

    Minari holds the observation after the last step. Where a log cut by a time limit does not store it, the last row
    gives its observation for this, and its action and reward are left out. After a terminal it is never read: there the
    last observation is repeated.
    """
    if data.stores_next:
        inside = jumps(data.observations, data.next_observations) & ~(data.terminals | data.timeouts)
        if inside.any():
            raise UserError(f"{data.name}: row {inside.argmax()}: its s' is not the next row; Minari cannot hold it")
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
    write_atomic(folder / "data" / "main_data.hdf5", lambda file: hdf5.write(file, arrays(), attributes))
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
    write_json(folder / "data" / "metadata.json", metadata)
    return len(data) - steps


def _space(size: int, low: ArrayLike, high: ArrayLike) -> dict[str, Any]:
    """A Box as Minari writes it."""
    bounds = {key: np.broadcast_to(np.asarray(b, float), size).tolist() for key, b in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": "float32", "shape": [size], **bounds}
