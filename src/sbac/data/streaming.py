"""`sbac.stream`: a log that is larger than memory, read in blocks of rows.

A block is a Dataset like any other. One more row follows its rows, the first of the next block, so that s' and a' of
the last one are those of the whole log. One pass over the log, before training, finds what a program needs of all rows:
their scale, the ends of their episodes, and the first row of every block.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import BOUNDS, missing
from sbac.data.dataset import Dataset, Floats
from sbac.data.formats import format_of, those_that
from sbac.data.formats.log import Log, Rows
from sbac.data.loading import LogOptions, described, open_log
from sbac.data.locating import locate
from sbac.data.naming import UNNAMED, ColumnMap, ColumnNames, column_names
from sbac.errors import UserError, finite, path_of, positive

BLOCK_ROWS = 2**14
"""Rows of a block, where the format leaves the choice: a row group or an episode is read whole."""
RING_ROWS = 2**21
REUSE = 4
INITIALS = 2**17
"""The most initial states that are kept; of more a uniform sample."""
SAMPLE = 1000


@dataclass(frozen=True)
class Survey:
    """What one pass over a log finds."""

    hash: str
    mean: NDArray[np.float64]
    std: NDArray[np.float64]
    rewards: tuple[float, float]
    """The lowest and the highest."""
    returns: NDArray[np.float64]
    """Of every episode."""
    initial_observations: Floats
    sample: Floats
    """Observations of rows that lie evenly over the log."""
    first_rows: list[Rows]
    """Of every block."""


class StreamedLog:
    """A log that is read in blocks. `ring_rows` rows lie on the device at a time, and each is drawn about `reuse` times
    before the next block takes its place."""

    def __init__(self, log: Log, ring_rows: int = RING_ROWS, reuse: float = REUSE) -> None:
        positive("ring_rows", ring_rows)
        if finite("reuse", reuse) <= 0:
            raise UserError(f"reuse {reuse}: expected a number above 0")
        self._log, description = log, log.description
        self.name: str = description["name"]
        self.kind: str = description.get("kind", "user")
        self.task: str | None = description.get("task")
        self.environment: str | None = description.get("environment")
        self.ring_rows, self.reuse = ring_rows, reuse
        self.notes: list[str] = description.get("notes", [])
        self._names = description.get("columns")
        self._bounds: dict[str, Any] = {name: description[name] for name in BOUNDS if name in description}
        for line in missing(log.columns):
            raise UserError(f"{self.name}: {line}")
        if "timeouts" not in log.columns and "episode" not in log.columns:
            raise UserError(f"{self.name}: timeouts: missing; a log that is streamed has timeouts, or episode numbers")
        if "time" in log.columns:
            raise UserError(f"{self.name}: time: a log that is streamed is read in its own order")
        if log.columns["actions"].dtype.kind in "iub":
            raise UserError(f"{self.name}: actions: whole numbers; a log that is streamed has floats")
        lengths = {column.shape[:1] for column in log.columns.values()}
        if len(lengths) > 1:
            raise UserError(f"{log.path}: columns of {len(lengths)} different lengths; expected one")
        self.ranges = log.ranges(BLOCK_ROWS)
        if not self.ranges:
            raise UserError(f"{self.name}: zero rows; expected at least one episode")

    def __len__(self) -> int:
        return len(self._log)

    @property
    def longest(self) -> int:
        """The rows of the largest block."""
        return max(stop - start for start, stop in self.ranges)

    def block(self, number: int) -> Dataset:
        """The rows of a block, and one row behind them."""
        following = self.survey.first_rows[number + 1] if number + 1 < len(self.ranges) else None
        return self._dataset(number, self._read(number), following)

    @cached_property
    def survey(self) -> Survey:
        """Reads the whole log once."""
        counts = _Counts(len(self))
        first_rows: list[Rows] = []
        waiting = self._read(0)
        for number in range(len(self.ranges)):
            following = self._read(number + 1) if number + 1 < len(self.ranges) else None
            first_rows.append({field: column[:1].copy() for field, column in waiting.items()})
            after = None if following is None else {field: column[:1] for field, column in following.items()}
            counts.add(self._dataset(number, waiting, after), self.ranges[number][0])
            if following is not None:
                waiting = following
        return counts.survey(first_rows)

    @property
    def returns(self) -> NDArray[np.float64]:
        """The undiscounted return of every episode."""
        return self.survey.returns

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Of an observation and of an action."""
        first = self.survey.first_rows[0]
        return first["observations"].shape[1], first["actions"].shape[1]

    @cached_property
    def columns(self) -> ColumnNames:
        """The names of the observations and of the actions."""
        return column_names(self._names, dict(zip(UNNAMED, self.sizes, strict=True)), self.name)

    @cached_property
    def action_bounds(self) -> tuple[Floats, Floats]:
        block = self.block(0)
        return block.action_low, block.action_high

    def _read(self, number: int) -> Rows:
        start, stop = self.ranges[number]
        rows = self._log.rows(start, stop)
        for field, column in rows.items():
            if len(column) < stop - start:
                raise UserError(f"{self.name}: rows {start} to {stop}: {field} has fewer rows than the file declares")
        return rows

    def _dataset(self, number: int, rows: Rows, following: Rows | None) -> Dataset:
        """A block as a dataset. Behind the last block stands a copy of its last row, which nothing refers to."""
        after = following or {field: column[-1:] for field, column in rows.items()}
        columns = {field: np.concatenate([column, after[field]]) for field, column in rows.items()}
        ended = columns["terminals"].reshape(-1) != 0
        cut = columns["timeouts"].reshape(-1) != 0 if "timeouts" in columns else np.zeros(len(ended), bool)
        if (episode := columns.pop("episode", None)) is not None:
            cut[:-1] |= (episode[1:] != episode[:-1]).reshape(-1) & ~ended[:-1]
        if following is None:
            cut[-2] |= not ended[-2]
        start, stop = self.ranges[number]
        return Dataset(
            **columns | {"timeouts": cut},
            **self._bounds,
            name=f"{self.name}: rows {start} to {stop}",
            kind=self.kind,
            task=self.task,
        )


class _Counts:
    """Sums over the blocks of a log, in their order."""

    def __init__(self, rows: int) -> None:
        self._digest = hashlib.sha256()
        self._rows, self._mean, self._squares = 0, np.zeros(()), np.zeros(())
        self._rewards = [np.inf, -np.inf]
        self._returns: list[NDArray[np.float64]] = []
        self._running, self._begins = 0.0, True
        self._sampled = np.linspace(0, rows - 1, SAMPLE).astype(int)
        self._sample: list[Floats] = []
        self._initial: Floats | None = None
        self._lots = np.empty(0)
        self._random = np.random.default_rng(0)

    def add(self, data: Dataset, first: int) -> None:
        """The block that begins at the row `first`; its last row belongs to the next block."""
        rows = len(data) - 1
        for column in (data.observations, data.actions, data.rewards, data.terminals, data.timeouts):
            self._digest.update(np.ascontiguousarray(column[:rows]).data)
        if data.stores_next:
            self._digest.update(np.ascontiguousarray(data.next_observations[:rows]).data)
        self._add_moments(data.observations[:rows])
        rewards = data.rewards[:rows].astype(np.float64)
        self._rewards = [min(self._rewards[0], rewards.min()), max(self._rewards[1], rewards.max())]
        ends = np.flatnonzero((data.terminals | data.timeouts)[:rows])
        self._add_returns(rewards, ends)
        starts = np.concatenate([[0] if self._begins else [], ends[ends < rows - 1] + 1]).astype(int)
        self._begins = len(ends) > 0 and ends[-1] == rows - 1
        self._add_initial(data.observations[starts])
        sampled = self._sampled[(self._sampled >= first) & (self._sampled < first + rows)] - first
        self._sample.append(data.observations[sampled])

    def _add_moments(self, observations: Floats) -> None:
        """Means and squared deviations of two parts, put together (Chan's formula)."""
        exact = observations.astype(np.float64)
        count, mean = len(exact), exact.mean(0)
        total = self._rows + count
        apart = mean - self._mean
        self._squares = self._squares + ((exact - mean) ** 2).sum(0) + apart**2 * self._rows * count / total
        self._mean = self._mean + apart * count / total
        self._rows = total

    def _add_returns(self, rewards: NDArray[np.float64], ends: NDArray[np.intp]) -> None:
        so_far = self._running + np.cumsum(rewards)
        self._returns.append(np.diff(so_far[ends], prepend=0.0))
        self._running = float(so_far[-1] - (so_far[ends[-1]] if len(ends) else 0.0))

    def _add_initial(self, states: Floats) -> None:
        """Every initial state draws a lot; those with the lowest are kept."""
        lots = np.concatenate([self._lots, self._random.random(len(states))])
        initial = states if self._initial is None else np.concatenate([self._initial, states])
        kept = np.sort(np.argpartition(lots, INITIALS)[:INITIALS]) if len(lots) > INITIALS else slice(None)
        self._initial, self._lots = initial[kept], lots[kept]

    def survey(self, first_rows: list[Rows]) -> Survey:
        assert self._initial is not None
        return Survey(
            hash=self._digest.hexdigest(),
            mean=self._mean,
            std=np.sqrt(self._squares / self._rows),
            rewards=(float(self._rewards[0]), float(self._rewards[1])),
            returns=np.concatenate(self._returns),
            initial_observations=self._initial,
            sample=np.concatenate(self._sample),
            first_rows=first_rows,
        )


def stream(
    source: str | Path,
    *,
    task: str | None = None,
    columns: ColumnMap | None = None,
    action_low: ArrayLike | None = None,
    action_high: ArrayLike | None = None,
    ring_rows: int = RING_ROWS,
    reuse: float = REUSE,
) -> StreamedLog:
    """A log for `sbac.train` that is never in memory as a whole: Parquet, HDF5, Minari, LeRobot or d3rlpy.

    task, columns, action_low, action_high: as in `sbac.load`.
    ring_rows: rows that lie on the device at a time.
    reuse: how often a row is drawn, on average, while it lies there; more makes less to read.
    """
    path_of("source", source)
    options = LogOptions(task, columns, action_low=action_low, action_high=action_high)
    located = locate(source)
    if not format_of(located.path).streams:
        able = ", ".join(those_that("streams"))
        raise UserError(f"{located.path}: cannot be streamed; expected one of these formats: {able}")
    log = open_log(source, options.columns)
    return StreamedLog(replace(log, description=described(log.description, options)), ring_rows, reuse)
