"""d3rlpy's replay buffers (version 2): an HDF5 file with the columns of every episode by themselves.

The last row of an episode that did not terminate has no s', as in d3rlpy itself.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sbac.data.dataset import Dataset
from sbac.data.formats import hdf5
from sbac.data.formats.episodes import Episode, check_steps, log_of_episodes
from sbac.data.formats.log import Column, Log, Rows
from sbac.errors import UserError

MARKS = ("columns", "num_episodes", "version")
FIELDS = ("observations", "actions", "rewards", "terminated")
VERSION = "2.1"


def is_buffer(names: Collection[str]) -> bool:
    """Whether a file with these datasets is a buffer of d3rlpy."""
    return all(name in names for name in MARKS)


def open_buffer(path: Path) -> Log:
    """The episodes of a buffer."""
    with hdf5.opened(path) as file:
        count = _count(file, path)
        declared = [_members(file, number, path) for number in range(count)]
        episodes = [_declared(fields, f"{path}: episode {i}") for i, fields in enumerate(declared)]
        work = max((sum(map(hdf5.chunk_bytes, fields.values())) for fields in declared), default=0)
        about = hdf5.bounds(file, path)

    def read(chosen: Collection[str]) -> Iterator[Callable[[int, int], Rows]]:
        with hdf5.opened(path) as file:
            for number, episode in enumerate(episodes):
                yield _reader(_members(file, number, path), episode.steps, chosen)

    return log_of_episodes(path, path.stat().st_size, episodes, read, about, work)


def _count(file: h5py.File, path: Path) -> int:
    stored = hdf5.member(file, "num_episodes", path)
    declared = hdf5.column(stored)
    if declared.shape != () or declared.dtype.kind not in "iu":
        raise UserError(f"{path}: num_episodes: expected a whole number")
    count = int(hdf5.values(stored))
    if not 0 <= count <= len(hdf5.names_in(file)):
        raise UserError(f"{path}: num_episodes: {count}, but the file has {len(hdf5.names_in(file))} arrays")
    return count


def _members(file: h5py.File, number: int, path: Path) -> dict[str, h5py.Dataset]:
    for field in FIELDS:
        if f"{field}_{number}" not in file:
            several = "several arrays an observation are not supported" if f"{field}_{number}_0" in file else "missing"
            raise UserError(f"{path}: {field}_{number}: {several}; an episode of d3rlpy has {', '.join(FIELDS)}")
    return {field: hdf5.member(file, f"{field}_{number}", path) for field in FIELDS}


def _declared(fields: dict[str, h5py.Dataset], where: str) -> Episode:
    columns = {name: hdf5.column(fields[name]) for name in ("observations", "actions", "rewards")}
    steps = columns["rewards"].shape[0] if columns["rewards"].shape else 0
    check_steps({name: column.shape for name, column in columns.items()}, steps, (), where)
    flag = Column((steps,), np.dtype(bool))
    return Episode(steps, {**columns, "terminals": flag, "timeouts": flag})


def _reader(fields: dict[str, h5py.Dataset], steps: int, chosen: Collection[str]) -> Callable[[int, int], Rows]:
    terminated = bool(np.any(hdf5.values(fields["terminated"])))

    def rows(start: int, stop: int) -> Rows:
        block: Rows = {
            name: hdf5.rows_of(fields[name], start, stop)
            for name in ("observations", "actions", "rewards")
            if name in chosen
        }
        last = np.arange(start, stop) == steps - 1
        own = {"terminals": last & terminated, "timeouts": last & (not terminated)}
        return block | {name: flags for name, flags in own.items() if name in chosen}

    return rows


def write_buffer(file: IO[bytes], data: Dataset) -> None:
    """Writes a buffer that d3rlpy's `ReplayBuffer.load` reads. It holds no s' of its own."""

    def arrays() -> Iterator[tuple[str, NDArray[Any] | list[bytes] | bytes]]:
        yield "columns", [name.encode() for name in FIELDS]
        yield "num_episodes", np.asarray(len(data.episodes))
        for number, (start, stop) in enumerate(data.episodes):
            yield f"observations_{number}", data.observations[start:stop]
            yield f"actions_{number}", data.actions[start:stop]
            yield f"rewards_{number}", data.rewards[start:stop, None]
            yield f"terminated_{number}", np.asarray(data.terminals[stop - 1])
        yield "version", VERSION.encode()

    hdf5.write(file, arrays(), {"": {"action_low": data.action_low, "action_high": data.action_high}})
