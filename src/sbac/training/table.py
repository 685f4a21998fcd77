"""Datasets on the device: one packed array of transitions, drawn from by index.

The rows of a dataset are ordered by how much is known of them: first those with s' and a', then those with s' alone,
then those that serve for cloning only. A draw from a prefix therefore never returns a row that lacks what the phase
needs. Several datasets of equal shape lie one after the other, and each run draws from its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt

from sbac.algorithms.base import Batch, Needs, Rows
from sbac.config import Config
from sbac.data.dataset import Dataset
from sbac.errors import UserError
from sbac.nn import take

NEEDS: tuple[Needs, ...] = ("next_action", "next_state", "row")
"""In the order in which the rows lie: every prefix serves the kinds from its own on."""


class Scaling(NamedTuple):
    """Between the environment's units and the networks': recorded, and baked into every policy."""

    observation_mean: np.ndarray
    observation_std: np.ndarray
    action_low: np.ndarray
    action_high: np.ndarray
    reward_shift: float
    reward_scale: float

    @classmethod
    def of(cls, data: Dataset, config: Config) -> "Scaling":
        size = data.observations.shape[1]
        mean, std = np.zeros(size, np.float32), np.ones(size, np.float32)
        if config.standardise_states:
            mean = data.observations.mean(0, dtype=np.float64).astype(np.float32)
            std = (data.observations.std(0, dtype=np.float64) + 1e-3).astype(np.float32)
        shift, scale = 0.0, 1.0
        if config.reward_scale == "unit":
            shift, span = float(data.rewards.min()), float(np.ptp(data.rewards))
            scale = 1.0 / span if span > 0 else 1.0
        elif config.reward_scale == "return-range":
            span = float(np.ptp(data.returns))
            scale = 1000.0 / span if span > 0 else 1.0
        elif config.reward_scale != "none":
            raise UserError(f"reward_scale {config.reward_scale!r}: expected none, unit or return-range")
        return cls(mean, std, data.action_low, data.action_high, shift, scale)

    def states(self, observations: np.ndarray) -> np.ndarray:
        return (observations - self.observation_mean) / self.observation_std

    def actions(self, actions: np.ndarray) -> np.ndarray:
        center, half = 0.5 * (self.action_high + self.action_low), 0.5 * (self.action_high - self.action_low)
        return (actions - center) / half

    def rewards(self, rewards: np.ndarray) -> np.ndarray:
        return (rewards - self.reward_shift) * self.reward_scale

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that a policy needs."""
        names = ("observation_mean", "observation_std", "action_low", "action_high")
        return {f"scale/{n}": np.asarray(getattr(self, n), np.float32) for n in names}


class Place(NamedTuple):
    """Where a dataset lies in a table: how many rows from its first one on serve each of NEEDS; its initial states."""

    first: UInt[Array, "*datasets"]
    counts: UInt[Array, "*datasets 3"]
    first_initial: UInt[Array, "*datasets"]
    initials: UInt[Array, "*datasets"]


class Table(NamedTuple):
    """`packed` columns: s, a, r, s', a', terminal."""

    packed: Float[Array, "rows columns"]
    initial: Float[Array, "episodes obs"]
    places: Place

    def place(self, dataset: int | Array) -> Place:
        """The place of one dataset."""
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
    rows, initials = ([len(part) for part in parts] for parts in zip(*(t[:2] for t in tables), strict=True))
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
        jnp.concatenate([t.initial for t in tables]),
        jax.tree.map(lambda *x: jnp.concatenate(x), *places),
    )


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths)[:-1].tolist()]


def build_table(data: Dataset, scaling: Scaling) -> Table:
    """Scales, packs and orders the rows."""
    states = scaling.states(data.observations)
    actions = scaling.actions(data.actions)
    # a' is the next row's action; rows without one carry their own, which is never read unmasked.
    following = np.minimum(np.arange(len(data)) + 1, len(data) - 1)
    own = ~data.has_next_action | data.terminals
    next_actions = np.where(own[:, None], actions, actions[following])
    packed = np.concatenate(
        [
            states,
            actions,
            scaling.rewards(data.rewards)[:, None],
            scaling.states(data.next_observations),
            next_actions,
            data.terminals[:, None],
        ],
        axis=1,
        dtype=np.float32,
    )
    with_state = data.has_next | data.terminals
    with_action = with_state & data.has_next_action
    rank = np.where(with_action, 0, np.where(with_state, 1, 2))
    initial = scaling.states(data.initial_observations)
    counts = np.cumsum(np.bincount(rank, minlength=3))
    return Table(
        jnp.asarray(packed[np.argsort(rank, kind="stable")]),
        jnp.asarray(initial, jnp.float32),
        Place(*(jnp.asarray([value], jnp.uint32) for value in (0, counts, 0, len(initial)))),
    )


def draw(table: Table, place: Place, key: PRNGKeyArray, size: int, needs: Needs, actions: int) -> Batch:
    """A batch of rows of the dataset at `place`, uniform with replacement.

    An index is 32 random bits modulo the number of rows: uniform up to a relative error of rows / 2^32.
    """
    row_key, initial_key = jax.random.split(key)
    bits = jax.random.bits(row_key, (size,), jnp.uint32)
    main = table.packed[place.first + bits % place.counts[NEEDS.index(needs)]]
    rows = table.packed[place.first + bits % place.counts[2]]
    starts = place.first_initial + jax.random.bits(initial_key, (size,), jnp.uint32) % place.initials
    obs = table.initial.shape[1]
    cuts = np.cumsum([obs, actions, 1, obs, actions])
    s, a, r, s2, a2, done = jnp.split(main, cuts, axis=1)
    return Batch(
        s, a, r[:, 0], s2, a2, done[:, 0], Rows(rows[:, :obs], rows[:, obs : obs + actions]), table.initial[starts]
    )
