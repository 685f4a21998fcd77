"""Datasets on the device: one packed array of rows, drawn from by index.

The rows lie in the order of the decisions, so a' is the action of the row below, and so is s' where the log does not
store it: no column is kept twice. `order` sorts the rows by how much is known of them: first those with s' and a', then
those with s' alone, then those that serve for cloning only. A draw from a prefix of it therefore never returns a row
that lacks what the phase needs. Several datasets of equal shape lie one after the other, and each run draws from its
own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt

from sbac.algorithms.base import Batch, Needs, Rows
from sbac.config import Config
from sbac.data.columns import BLOCK, moments
from sbac.data.dataset import Dataset, Flags
from sbac.errors import UserError
from sbac.nn import take
from sbac.nn.typed import on_device

NEEDS: tuple[Needs, ...] = ("next_action", "next_state", "row")
"""In the order in which the rows are sorted: every prefix serves the kinds from its own on."""
ALIGNMENT = 64
"""In bytes: what XLA asks of memory that it takes over."""


class Scaling(NamedTuple):
    """Between the environment's units and the networks': recorded, and baked into every policy."""

    observation_mean: np.ndarray
    observation_std: np.ndarray
    action_low: np.ndarray
    action_high: np.ndarray
    reward_shift: float
    reward_scale: float

    @classmethod
    def of(cls, data: Dataset, config: Config, chosen: Flags | None = None) -> "Scaling":
        """The scaling of the chosen rows, whole episodes; None: of all."""
        size = data.observations.shape[1]
        mean, std = np.zeros(size, np.float32), np.ones(size, np.float32)
        if config.standardise_states:
            exact_mean, exact_std = moments(data.observations, chosen)
            mean, std = exact_mean.astype(np.float32), (exact_std + 1e-3).astype(np.float32)
        rewards = data.rewards if chosen is None else data.rewards[chosen]
        returns = data.returns if chosen is None else data.returns[chosen[data.episodes[:, 0]]]
        units = reward_units(config, float(rewards.min()), float(np.ptp(rewards)), returns)
        return cls(mean, std, data.action_low, data.action_high, *units)

    def states(self, observations: np.ndarray) -> np.ndarray:
        return (observations - self.observation_mean) / self.observation_std

    def actions(self, actions: np.ndarray) -> np.ndarray:
        center, half = 0.5 * (self.action_high + self.action_low), 0.5 * (self.action_high - self.action_low)
        return (actions - center) / half

    def rewards(self, rewards: np.ndarray) -> np.ndarray:
        return (rewards - self.reward_shift) * self.reward_scale

    def arrays(self) -> dict[str, np.ndarray]:
        names = ("observation_mean", "observation_std", "action_low", "action_high")
        return {f"scale/{n}": np.asarray(getattr(self, n), np.float32) for n in names}


def reward_units(config: Config, least: float, span: float, returns: np.ndarray) -> tuple[float, float]:
    """What is taken from a reward, and what the rest is multiplied by; `span`: from the least reward to the largest."""
    if config.reward_scale == "unit":
        return least, 1.0 / span if span > 0 else 1.0
    width = float(np.ptp(returns))
    return 0.0, 1000.0 / width if config.reward_scale == "return-range" and width > 0 else 1.0


class Extent(NamedTuple):
    """Where a dataset lies in a table: how many rows from its first one on serve each of NEEDS; its initial states."""

    first: UInt[Array, "*datasets"]
    counts: UInt[Array, "*datasets 3"]
    first_initial: UInt[Array, "*datasets"]
    initials: UInt[Array, "*datasets"]


class Table(NamedTuple):
    """`packed` columns: s, a, r, terminal, whether the row below belongs to the same episode, and s' where stored."""

    packed: Float[Array, "rows columns"]
    order: UInt[Array, "rows"]
    initial: Float[Array, "episodes obs"]
    places: Extent

    def place(self, dataset: int | Array) -> Extent:
        return take(self.places, dataset)

    def require(self, needs: Needs, name: str) -> None:
        """Refuses data without a single row of the kind that a phase draws."""
        if int(self.places.counts[0, NEEDS.index(needs)]) == 0:
            raise UserError(
                f"dataset {name}: no row has a known {needs.replace('_', ' ')}, nothing to learn values from"
            )


def join(tables: Sequence[Table]) -> Table:
    """The datasets of all tables, in their order."""
    if len(tables) == 1:
        return tables[0]
    rows, initials = [len(t.packed) for t in tables], [len(t.initial) for t in tables]
    if sum(rows) >= 2**32:
        raise UserError(f"{sum(rows):,} transitions in one program; expected fewer than 2^32")
    places = [
        t.places._replace(
            first=t.places.first + np.uint32(row), first_initial=t.places.first_initial + np.uint32(initial)
        )
        for t, row, initial in zip(tables, _starts(rows), _starts(initials), strict=True)
    ]
    return Table(
        jnp.concatenate([t.packed for t in tables]),
        jnp.concatenate([t.order + np.uint32(row) for t, row in zip(tables, _starts(rows), strict=True)]),
        jnp.concatenate([t.initial for t in tables]),
        jax.tree.map(lambda *x: jnp.concatenate(x), *places),
    )


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths)[:-1].tolist()]


def build_table(data: Dataset, scaling: Scaling, chosen: Flags | None = None) -> Table:
    """Scales and packs the chosen rows, whole episodes (None: all), in blocks: nothing is copied at full length."""
    index = None if chosen is None else np.flatnonzero(chosen)
    rows = len(data) if index is None else len(index)
    packed = _aligned((rows, width(data)))
    pack(packed, data, scaling, index)
    rank = ranks(data)
    if chosen is not None:
        rank = rank[chosen]
    first = data.episodes[:, 0]
    initial = scaling.states(data.observations[first if chosen is None else first[chosen[first]]])
    counts = np.cumsum(np.bincount(rank, minlength=3))
    return Table(
        on_device(packed),
        jnp.asarray(np.argsort(rank, kind="stable").astype(np.uint32)),
        jnp.asarray(initial, jnp.float32),
        Extent(*(jnp.asarray([value], jnp.uint32) for value in (0, counts, 0, len(initial)))),
    )


def width(data: Dataset) -> int:
    """The columns of the packed rows."""
    obs, actions = data.observations.shape[1], data.actions.shape[1]
    return obs + actions + 3 + obs * data.stores_next


def pack(packed: np.ndarray, data: Dataset, scaling: Scaling, index: np.ndarray | None = None) -> None:
    """Scales rows of the data (None: all) into an array of as many."""
    obs, actions, rows = data.observations.shape[1], data.actions.shape[1], len(packed)
    for start in range(0, rows, BLOCK):
        part = slice(start, min(start + BLOCK, rows))
        chosen = part if index is None else index[part]
        block = packed[part]
        block[:, :obs] = scaling.states(data.observations[chosen])
        block[:, obs : obs + actions] = scaling.actions(data.actions[chosen])
        block[:, obs + actions] = scaling.rewards(data.rewards[chosen])
        block[:, obs + actions + 1] = data.terminals[chosen]
        block[:, obs + actions + 2] = ~(data.terminals[chosen] | data.timeouts[chosen])
        if data.stores_next:
            block[:, obs + actions + 3 :] = scaling.states(data.next_observations[chosen])


def ranks(data: Dataset) -> np.ndarray:
    """How much is known of every row: the first of NEEDS that it serves."""
    with_state = data.has_next | data.terminals
    with_action = with_state & data.has_next_action
    return np.where(with_action, np.uint8(0), np.where(with_state, np.uint8(1), np.uint8(2)))


def _aligned(shape: tuple[int, int]) -> np.ndarray:
    """An array whose memory a device that is the host's processor takes over as it is."""
    size = 4 * shape[0] * shape[1]
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(np.float32).reshape(shape)


def draw(table: Table, place: Extent, key: PRNGKeyArray, size: int, needs: Needs, actions: int) -> Batch:
    """A batch of rows of the dataset at `place`, uniform with replacement.

    An index is 32 random bits modulo the number of rows: uniform up to a relative error of rows / 2^32.
    """
    row_key, initial_key = jax.random.split(key)
    bits = jax.random.bits(row_key, (size,), jnp.uint32)
    index = table.order[place.first + bits % place.counts[NEEDS.index(needs)]]
    rows = table.packed[table.order[place.first + bits % place.counts[2]]]
    starts = place.first_initial + jax.random.bits(initial_key, (size,), jnp.uint32) % place.initials
    obs = table.initial.shape[1]
    s, a, r, done, goes_on, stored = jnp.split(table.packed[index], np.cumsum([obs, actions, 1, 1, 1]), axis=1)
    # The last row of an episode has no row below: it repeats its own s and a, which are never read unmasked.
    below = table.packed[index + goes_on[:, 0].astype(jnp.uint32)]
    return Batch(
        s,
        a,
        r[:, 0],
        stored if stored.shape[1] else below[:, :obs],
        below[:, obs : obs + actions],
        done[:, 0],
        Rows(rows[:, :obs], rows[:, obs : obs + actions]),
        table.initial[starts],
    )
