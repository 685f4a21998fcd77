"""A log of decisions as transitions, with the rules that decide which s' and a' belong to which row.

- Episodes end at a terminal, at a time limit (`timeouts`), or at the last row. An unfinished last episode counts as
  cut by a time limit.
- A time limit is not a terminal. A row flagged as both is a time limit: D4RL gives it priority, and logs that call
  every end of an episode "done" flag their time limits in this way.
- Stored `next_observations` are taken as the true s'. Without them s' is the next row of the same episode; the last
  row of an episode cut by a time limit has no known s', and a terminal row needs none: its s' is masked.
- a' is the action of the next row of the same episode.
- The s' of terminal rows, which no value needs, may lie beside the columns as `terminal_observations`: the judge
  learns from it what an end looks like. It belongs neither to the rows nor to the hash.
- Where `timeouts` is left out and `next_observations` is given, a row whose s' is not the next row's observation ends
  its episode.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import BLOCK, as_array, defects
from sbac.data.naming import column_names
from sbac.environments.tasks import find_task
from sbac.errors import UserError, finite, name_of, not_negative, path_of, unknown
from sbac.files import write_atomic
from sbac.records import Json

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

SOURCE_KINDS = ("D4RL", "Minari", "made", "embedded", "user")


def check_share(fraction: float) -> None:
    """Refuses a share of the episodes that would leave none for training."""
    if not 0.0 <= finite("validation", fraction) < 1.0:
        raise UserError(f"validation: expected a share of the episodes in [0, 1), got {fraction}")


class Dataset:
    """Columns of equal length, one row per decision, in the order of the decisions.

    observations, actions, rewards, next_observations: float32
    terminals, timeouts: bool, never both on one row; the last row of every episode has one of them
    has_next: s' is known, or the row is terminal and s' is masked
    has_next_action: a' lies in the same episode, or the row is terminal and a' is masked
    episodes: (count, 2), the first row of each and the row after its last
    kind: "D4RL" | "Minari" | "made" | "embedded" | "user"; task: the task whose returns it is scored with, or None
    environment: the Gymnasium id of the environment it is from, where it is known
    notes: what was done to the log when it was read, a line for each thing
    columns: the names of the observations and of the actions, in their order; the hash does not depend on them
    extras: columns that are none of these, by name, for what is watched beside the reward; nor does it on them
    terminal_observations: s' of each terminal row, in their order, where the log tells it

    Where s' is not known, `next_observations` repeats the row's own observation: never another episode's state.
    """

    source: str | None = None
    """The name or path that `sbac.load` was given for it."""
    reading: Mapping[str, Json] | None = None
    """What `sbac.load` was told of it beside that, to read it again."""

    def __init__(
        self,
        observations: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        terminals: ArrayLike,
        timeouts: ArrayLike | None = None,
        next_observations: ArrayLike | None = None,
        *,
        action_low: ArrayLike | None = None,
        action_high: ArrayLike | None = None,
        name: str = "arrays",
        kind: str = "user",
        task: str | None = None,
        environment: str | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        notes: Sequence[str] = (),
        extras: Mapping[str, ArrayLike] | None = None,
        terminal_observations: ArrayLike | None = None,
    ) -> None:
        if name_of("kind of data", kind) not in SOURCE_KINDS:
            raise unknown("kind of data", kind, SOURCE_KINDS)
        low = -1.0 if action_low is None else action_low
        high = 1.0 if action_high is None else action_high
        arrays = {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "terminals": terminals,
            "timeouts": timeouts,
            "next_observations": next_observations,
        }
        for defect in defects({k: v for k, v in arrays.items() if v is not None}, low, high, columns):
            raise UserError(f"{name}: {defect.line}")

        self.name, self.kind = name, kind
        self.task = find_task(task).name if task is not None else None
        self.environment = environment
        self.notes = list(notes)
        self.observations = _floats(observations)
        rows = len(self.observations)
        raw = np.asarray(actions)
        self.action_low = np.broadcast_to(_floats(low), raw.shape[1:])
        self.action_high = np.broadcast_to(_floats(high), raw.shape[1:])
        widths = {"observations": self.observations.shape[1], "actions": raw.shape[1]}
        self.columns = column_names(columns, widths, name)
        self.actions = _clipped(_floats(raw), self.action_low, self.action_high)
        self.rewards = _floats(rewards).reshape(rows)
        self.extras = {column: _extra(values, rows, f"{name}: {column}") for column, values in (extras or {}).items()}
        stored = None if next_observations is None else _floats(next_observations)

        ended = np.asarray(terminals).reshape(rows).astype(bool)
        if timeouts is not None:
            cut = np.asarray(timeouts).reshape(rows).astype(bool)
        else:
            cut = np.zeros(rows, bool) if stored is None else jumps(self.observations, stored) & ~ended
        self.terminals = ended & ~cut
        cut[-1] = not self.terminals[-1]
        self.timeouts = cut

        self._stored = stored
        beside = None if terminal_observations is None else _side_array(terminal_observations, ended, widths, name)
        self._beside = None if beside is None else beside[self.terminals[ended]]
        self.has_next = ~self.timeouts if stored is None else np.ones(rows, bool)
        self.has_next_action = ~self.timeouts
        stops = np.flatnonzero(self.terminals | self.timeouts) + 1
        self.episodes = np.stack([np.concatenate([[0], stops[:-1]]), stops], axis=1)

    def __len__(self) -> int:
        return len(self.observations)

    def __repr__(self) -> str:
        sizes = f"{self.observations.shape[1]} observations, {self.actions.shape[1]} actions"
        return f"Dataset({self.name!r}, {len(self)} rows, {len(self.episodes)} episodes, {sizes})"

    @property
    def stores_next(self) -> bool:
        """Whether the log stores s'."""
        return self._stored is not None

    @cached_property
    def next_observations(self) -> Floats:
        """s' of every row. Where the log does not store it, it is made when it is first asked for."""
        return self.next_states(0, len(self))

    def next_states(self, start: int, stop: int) -> Floats:
        """s' of the rows from `start` to `stop`, without making that of all rows."""
        if self._stored is not None:
            return self._stored[start:stop]
        last = self.terminals[start:stop] | self.timeouts[start:stop]
        return self.observations[np.arange(start, start + len(last)) + ~last]

    @cached_property
    def terminal_observations(self) -> Floats | None:
        """s' of the terminal rows, from the side array or else from the stored s'; None where neither tells it.

        A stored s' that mostly repeats one state, the row's own or the next episode's first is a filler.
        """
        rows = np.flatnonzero(self.terminals)
        if self._beside is not None or self._stored is None or not len(rows):
            return self._beside
        after = self._stored[rows]
        fillers = after[:1], self.observations[rows], self.observations[(rows + 1) % len(self)]
        return None if any((after == filler).all(1).mean() > 0.5 for filler in fillers) else after

    @cached_property
    def returns(self) -> NDArray[np.float64]:
        """The undiscounted return of every episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.episodes[:, 0])

    @property
    def initial_observations(self) -> Floats:
        """The first observation of every episode."""
        return self.observations[self.episodes[:, 0]]

    @property
    def score(self) -> float | None:
        """The normalised score of the mean return, where the task is known."""
        return None if self.task is None else find_task(self.task).score(float(self.returns.mean()))

    @cached_property
    def hash(self) -> str:
        """sha256 of the transitions and the bounds: the same data has the same hash in every format."""
        digest = hashlib.sha256()

        def add(array: NDArray[Any]) -> None:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)

        for array in (self.observations, self.actions, self.rewards):
            add(array)
        digest.update(f"{self.observations.dtype.str}{self.observations.shape}".encode())
        for start in range(0, len(self), BLOCK):
            digest.update(np.ascontiguousarray(self.next_states(start, start + BLOCK)).data)
        for array in (self.action_low, self.action_high, self.terminals, self.timeouts, self.has_next):
            add(array)
        return digest.hexdigest()

    def split(self, fraction: float, seed: int = 0) -> tuple["Dataset", "Dataset | None"]:
        """Whole episodes drawn for (training, validation). With one episode or fraction 0 there is no validation."""
        rows = self.held_out_rows(fraction, seed)
        return (self, None) if rows is None else (self._rows(~rows), self._rows(rows))

    def held_out_rows(self, fraction: float, seed: int = 0) -> Flags | None:
        """The rows that `split` puts into validation, or None if there is none."""
        check_share(fraction)
        not_negative("seed", seed)
        count = len(self.episodes)
        if fraction == 0.0 or count < 2:
            return None
        held_out = np.zeros(count, bool)
        size = min(max(round(fraction * count), 1), count - 1)
        held_out[np.random.default_rng(seed).permutation(count)[:size]] = True
        return np.repeat(held_out, np.diff(self.episodes, axis=1)[:, 0])

    def cut(self, steps: int) -> "Dataset":
        """The same rows, where long episodes are cut, as by a time limit, into blocks of about `steps` rows."""
        timeouts = self.timeouts.copy()
        for first, stop in self.episodes:
            length, parts = stop - first, max(1, (stop - first) // steps)
            timeouts[first + np.arange(1, parts) * length // parts - 1] = True
        return self._rows(np.ones(len(self), bool), timeouts)

    def _rows(self, chosen: Flags, timeouts: Flags | None = None) -> "Dataset":
        arrays = self.arrays() | ({} if timeouts is None else {"timeouts": timeouts})
        return Dataset(
            **{name: column[chosen] for name, column in arrays.items()},
            **self.bounds,
            extras={name: column[chosen] for name, column in self.extras.items()},
            columns=self.columns,
            notes=self.notes,
            name=self.name,
            kind=self.kind,
            task=self.task,
            environment=self.environment,
            terminal_observations=None if self._beside is None else self._beside[chosen[self.terminals]],
        )

    @property
    def bounds(self) -> dict[str, Floats]:
        """The bounds of the actions, by name."""
        return {"action_low": self.action_low, "action_high": self.action_high}

    @property
    def is_named(self) -> bool:
        """Whether its columns have names of their own."""
        widths = {field: len(names) for field, names in self.columns.items()}
        return self.columns != column_names(None, widths, self.name)

    def arrays(self) -> dict[str, Any]:
        """The columns of the log; s' only where the log stores it."""
        names = ["observations", "actions", "rewards", "terminals", "timeouts"]
        return {name: getattr(self, name) for name in names + ["next_observations"] * self.stores_next}

    def side_arrays(self) -> dict[str, Floats]:
        """What lies beside the columns, by name."""
        return {} if self._beside is None else {"terminal_observations": self._beside}

    def blocks(self, rows: int = BLOCK) -> Iterator[dict[str, Any]]:
        """The columns of the log in blocks of rows."""
        columns = self.arrays()
        for start in range(0, len(self), rows):
            yield {name: column[start : start + rows] for name, column in columns.items()}

    def save(self, path: str | Path) -> None:
        """Writes an npz file that `sbac.load` reads back as the same dataset."""
        path = path_of("path", path)
        if path.suffix != ".npz":
            raise UserError(f"{path}: datasets are saved as .npz")
        texts = {key: np.array(getattr(self, key) or "") for key in ("name", "kind", "task", "environment")}
        if self.is_named:
            texts["columns"] = np.array(json.dumps(self.columns))
        arrays = self.arrays() | self.side_arrays() | self.bounds | texts
        write_atomic(path, lambda file: np.savez(file, allow_pickle=False, **arrays))


def jumps(observations: Floats, next_observations: Floats) -> Flags:
    """Rows whose s' is not the observation of the next row; the last row is always one of them."""
    apart = np.ones(len(observations), bool)
    for start in range(0, len(observations) - 1, BLOCK):
        following = observations[start + 1 : start + BLOCK + 1]
        distance = np.abs(next_observations[start : start + len(following)] - following)
        far = (distance > 1e-6 * np.maximum(1.0, np.abs(following))).any(axis=1)
        apart[start : start + len(following)] = far
    return apart


def _floats(values: ArrayLike) -> Floats:
    return np.ascontiguousarray(np.asarray(values), dtype=np.float32)


def _extra(values: ArrayLike, rows: int, where: str) -> Floats:
    """A column that is none of a dataset's own, checked."""
    array = as_array(values)
    if array.shape != (rows,) or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise UserError(f"{where}: expected {rows} finite numbers, got {array.dtype} of shape {array.shape}")
    return _floats(array)


def _side_array(values: ArrayLike, ended: Flags, widths: Mapping[str, int], name: str) -> Floats:
    """The s' of the terminal rows, checked."""
    array, shape = as_array(values), (int(ended.sum()), widths["observations"])
    if array.shape != shape or array.dtype.kind not in "fiub" or not np.isfinite(array).all():
        raise UserError(
            f"{name}: terminal_observations: expected finite numbers of shape {shape}, a row for each terminal row, "
            f"got {array.dtype} of shape {array.shape}"
        )
    return _floats(array)


def _clipped(actions: Floats, low: Floats, high: Floats) -> Floats:
    inside = (actions >= low).all() and (actions <= high).all()
    return actions if inside else np.clip(actions, low, high)
