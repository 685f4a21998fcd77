"""d3rlpy's replay buffers (version 2): an HDF5 file with the columns of every episode by themselves.

The last row of an episode that did not terminate has no s', as in d3rlpy itself.
"""

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from sbac.data.dataset import Dataset
from sbac.data.formats import hdf5
from sbac.data.formats.episodes import RowsOfEpisode, check_steps, log_of_episodes, refuse_jumps
from sbac.data.formats.log import Column, Format, Log, Rows, Written, is_file
from sbac.data.naming import ColumnMap
from sbac.errors import UserError

MARKS = {"columns", "num_episodes", "version"}
FIELDS = ("observations", "actions", "rewards", "terminated")
VERSION = "2.1"


def recognises(path: Path) -> bool:
    """Whether an HDF5 file is a buffer of d3rlpy."""
    if not is_file(path, *hdf5.SUFFIXES):
        return False
    with hdf5.opened(path) as file:
        return set(hdf5.names_in(file)) >= MARKS


def open_buffer(path: Path, columns: ColumnMap | None) -> Log:
    """The episodes of a buffer. Their columns have d3rlpy's names, whatever the caller's are."""
    with hdf5.opened(path) as file:
        members = [_members(file, number, path) for number in range(_count(file, path))]
        episodes = [_declared(fields, f"{path}: episode {i}") for i, fields in enumerate(members)]
        work = max((sum(map(hdf5.chunk_bytes, fields.values())) for fields in members), default=0)
        description = hdf5.bounds(file, path)

    @contextmanager
    def opened() -> Generator[RowsOfEpisode]:
        with hdf5.opened(path) as file:

            def rows_of(number: int, fields: Collection[str], start: int, stop: int) -> Rows:
                stored = _members(file, number, path)
                last = np.arange(start, stop) == episodes[number]["rewards"].shape[0] - 1
                terminated = bool(np.any(hdf5.values(stored["terminated"])))
                flags = {"terminals": last & terminated, "timeouts": last & (not terminated)}
                return {
                    name: flags[name] if name in flags else hdf5.rows_of(stored[name], start, stop) for name in fields
                }

            yield rows_of

    return log_of_episodes(path, path.stat().st_size, episodes, opened, description, work)


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


def _declared(fields: dict[str, h5py.Dataset], where: str) -> dict[str, Column]:
    columns = {name: hdf5.column(fields[name]) for name in ("observations", "actions", "rewards")}
    flag = Column((check_steps(columns, (), where),), np.dtype(bool))
    return {**columns, "terminals": flag, "timeouts": flag}


def write_buffer(data: Dataset, path: Path) -> Written:
    """Writes a buffer that d3rlpy's `ReplayBuffer.load` reads. It holds no s' of its own."""
    refuse_jumps(data, "d3rlpy")

    def arrays() -> Iterator[tuple[str, NDArray[Any] | list[bytes] | bytes]]:
        yield "columns", [name.encode() for name in FIELDS]
        yield "num_episodes", np.asarray(len(data.episodes))
        for number, (start, stop) in enumerate(data.episodes):
            yield f"observations_{number}", data.observations[start:stop]
            yield f"actions_{number}", data.actions[start:stop]
            yield f"rewards_{number}", data.rewards[start:stop, None]
            yield f"terminated_{number}", np.asarray(data.terminals[stop - 1])
        yield "version", VERSION.encode()

    hdf5.write(path, arrays(), {"": data.bounds})
    lost = int(data.timeouts.sum()) if data.stores_next else 0
    return Written(len(data), [f"d3rlpy holds no s' at a time limit: that of {lost:,} rows is left out"] * bool(lost))


D3RLPY = Format(recognises, open_buffer, write_buffer, streams=True)
