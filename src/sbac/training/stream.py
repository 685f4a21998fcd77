"""A log larger than memory, as the device holds it: a ring of blocks of rows, refilled while training goes on.

The table that batches are drawn from has a fixed number of slots, each for one block. The blocks come in a random
order, a new one for every pass over the log; a block takes the place of the oldest. Which blocks lie in the ring
depends on the step alone, so a run that is taken up again reads those of its step and goes on to the same bits. Threads
read ahead, several blocks at a time, and put them on the device.
"""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbac.config import Config
from sbac.data.streaming import StreamedLog
from sbac.nn.typed import jit, on_device
from sbac.training.table import NEEDS, Extent, Scaling, Table, pack, ranks, reward_units, width

AHEAD = 4
"""Blocks that are read before they are needed, and the most that are read at once."""
AHEAD_BYTES = 2**28
"""Fewer are, where they would take more than this."""
CALM = 16
"""Slots for each block that is replaced at one time: the more blocks at a time, the seldomer training has to pause."""


class Read(NamedTuple):
    """A block, and the ring once it lies there: its rows by rank, and how many serve each of NEEDS."""

    rows: Array
    order: Array
    counts: np.ndarray


class Stream:
    """The table of a streamed log at any step of a training."""

    def __init__(self, log: StreamedLog, config: Config, order_seed: int = 0) -> None:
        self.scaling = _scaling(log, config)
        self.states = self.scaling.states(log.survey.sample)
        self._log, self._seed = log, order_seed
        self._blocks = len(log.ranges)
        self._rows = log.longest + 1  # of a slot: the row behind a block's last one has s' and a' of it
        self._slots = max(1, min(self._blocks, log.ring_rows // log.longest))
        mean_rows = len(log) / self._blocks
        obs, actions = log.sizes
        self._ahead = max(1, min(AHEAD, AHEAD_BYTES // (4 * self._rows * (2 * obs + actions + 3))))
        self._at_once = max(1, min(self._ahead, self._slots // CALM))  # blocks that are replaced together
        self._every = max(1, round(self._at_once * log.reuse * mean_rows / config.batch_size))
        initial = self.scaling.states(log.survey.initial_observations)
        self._initial = jnp.asarray(initial, jnp.float32)
        self._pass = -1, np.empty(0, np.int64)
        self._packed: Array | None = None
        self._inserted: int = 0
        self._reader: _Reader | None = None
        self._table: Table | None = None

    @property
    def holds_all(self) -> bool:
        return self._slots == self._blocks

    def cuts(self, start: int, stop: int, block: int) -> Iterator[tuple[int, int]]:
        """The stretches of steps from `start` to `stop` that train on one content of the ring; `block` divides them."""
        every = stop if self.holds_all else -(-self._every // block) * block
        while start < stop:
            end = min(stop, (start // every + 1) * every)
            yield start, end
            start = end

    def table(self, step: int) -> Table:
        """The table at a step, counted over all phases."""
        wanted = self._slots + (0 if self.holds_all else step // self._every * self._at_once)
        if self._table is not None and wanted == self._inserted:
            return self._table
        if self._reader is None or wanted < self._inserted:
            self.close()
            self._inserted = wanted - self._slots
            first = self._inserted
            self._reader = _Reader(lambda: self._read(first), self._ahead)
        last: Read | None = None
        while self._inserted < wanted:
            last = self._reader.next()
            if self._packed is None:
                self._packed = jnp.zeros((self._slots * self._rows, last.rows.shape[1]), jnp.float32)
            at = self._inserted % self._slots * self._rows
            self._packed = _insert(self._packed, last.rows, np.int32(at))
            self._inserted += 1
        assert self._packed is not None and last is not None
        numbers = (0, last.counts, 0, len(self._initial))
        place = Extent(*(jnp.asarray([number], jnp.uint32) for number in numbers))
        self._table = Table(self._packed, last.order, self._initial, place)
        return self._table

    def number(self, position: int) -> int:
        """The block that is read at a position: every pass over the log has an order of its own."""
        number = position // self._blocks
        if self._pass[0] != number:
            self._pass = number, np.random.default_rng([self._seed, number]).permutation(self._blocks)
        return int(self._pass[1][position % self._blocks])

    def _read(self, position: int) -> Generator[Read]:
        """The blocks from a position on; the first ones fill the ring."""
        ranked = [by_rank(np.empty(0, np.uint8))] * self._slots
        order, counts = jnp.zeros(0, jnp.uint32), np.zeros(len(NEEDS), np.uint32)
        readers = min(self._ahead, max(1, (os.cpu_count() or 1) // 2))
        with ThreadPoolExecutor(readers, "sbac-blocks") as pool:
            ahead: deque[Future[tuple[Array, np.ndarray]]] = deque()
            for number in range(position, position + readers):
                ahead.append(pool.submit(self._load, self.number(number)))
            filled = position + self._slots
            while True:
                rows, rank = ahead.popleft().result()
                ahead.append(pool.submit(self._load, self.number(position + readers)))
                slot = position % self._slots
                ranked[slot] = [part + np.uint32(slot * self._rows) for part in by_rank(rank)]
                position += 1
                if position >= filled and (position - filled) % self._at_once == 0:
                    whole, counts = in_order(ranked, self._slots * self._rows)
                    order = on_device(whole)
                yield Read(rows, order, counts)

    def _load(self, number: int) -> tuple[Array, np.ndarray]:
        """A block on the device, packed and filled up to the size of a slot, and the ranks of its rows."""
        data = self._log.block(number)
        rows = np.zeros((self._rows, width(data)), np.float32)
        pack(rows[: len(data)], data, self.scaling)
        return on_device(rows), ranks(data)[:-1]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Reader:
    """A thread that reads blocks ahead, in their order. An error is raised where its block is asked for."""

    def __init__(self, blocks: Callable[[], Generator[Read]], ahead: int) -> None:
        self._blocks = blocks
        self._ready: queue.Queue[Read | BaseException] = queue.Queue(ahead)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def next(self) -> Read:
        block = self._ready.get()
        if isinstance(block, BaseException):
            raise block
        return block

    def close(self) -> None:
        self._ended.set()
        while self._thread.is_alive():
            try:
                self._ready.get(timeout=0.05)
            except queue.Empty:
                continue

    def _read(self) -> None:
        try:
            with closing(self._blocks()) as blocks:
                for block in blocks:
                    self._ready.put(block)
                    if self._ended.is_set():
                        return
        except BaseException as error:
            self._ready.put(error)


def _put(packed: Array, rows: Array, at: np.int32) -> Array:
    return jax.lax.dynamic_update_slice(packed, rows, (at, np.int32(0)))


_insert = jit(_put, donate=(0,))
"""Writes a block into its slot."""


def by_rank(rank: np.ndarray) -> list[np.ndarray]:
    """The rows of each rank, as their numbers."""
    return [np.flatnonzero(rank == kind).astype(np.uint32) for kind in range(len(NEEDS))]


def in_order(ranked: Sequence[Sequence[np.ndarray]], size: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all slots in the order of their rank, filled up to `size`, and how many serve each of NEEDS."""
    order, counts = np.zeros(size, np.uint32), np.zeros(len(NEEDS), np.uint32)
    end = 0
    for kind in range(len(NEEDS)):
        for parts in ranked:
            order[end : end + len(parts[kind])] = parts[kind]
            end += len(parts[kind])
        counts[kind] = end
    return order, counts


def _scaling(log: StreamedLog, config: Config) -> Scaling:
    """As `Scaling.of`, from what the pass over the log has found."""
    survey, size = log.survey, log.sizes[0]
    mean, std = np.zeros(size, np.float32), np.ones(size, np.float32)
    if config.standardise_states:
        mean, std = survey.mean.astype(np.float32), (survey.std + 1e-3).astype(np.float32)
    least, largest = survey.rewards
    return Scaling(mean, std, *log.action_bounds, *reward_units(config, least, largest - least, survey.returns))
