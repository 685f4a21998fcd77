"""The log as the estimators read it: transitions on the device, episodes that are resampled whole, returns.

Rows that a time limit ended are left out: what the log did next is not known there. Networks learn q = (Q - centre) /
spread; in these units the Bellman equation keeps its form, with the reward (r - centre (1 - gamma m)) / spread, where m
is 0 on terminal rows and 1 elsewhere. What is watched beside the reward is summed and scaled in the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from sbac.data.dataset import Dataset
from sbac.errors import UserError, inside_unit
from sbac.evaluation.rollout import Acts
from sbac.trust.ending import end_rule
from sbac.trust.watching import Watched, watched_things

FEWEST_EPISODES = 20
"""Below, resampling whole episodes says little about other episodes: a log of fewer is cut into blocks."""
LONGEST = 1_000
"""Steps that a whole episode has at most: of a log that never ends the beginning must do."""
BLOCKS, SHORTEST_BLOCK = 40, 10
"""How many blocks a log of few episodes is cut into, and the steps that one has at least."""
Floats = NDArray[np.floating[Any]]


class Transitions(NamedTuple):
    """The rows that values are learned from, on the device, in the networks' units."""

    states: Float[Array, "rows obs"]
    actions: Float[Array, "rows act"]
    going_on: Float[Array, " rows"]
    """0 where the episode ended, 1 elsewhere."""
    next_states: Float[Array, "rows obs"]


@dataclass(frozen=True)
class Units:
    """Between the environment's units and the networks'."""

    observation_mean: Floats
    observation_std: Floats
    action_mean: Floats
    action_std: Floats
    action_centre: Floats
    """Of the bounds."""
    action_half: Floats
    centre: float
    """Of the values Q."""
    spread: float

    def states(self, observations: Floats) -> NDArray[np.float32]:
        return ((observations - self.observation_mean) / self.observation_std).astype(np.float32)

    def observations(self, states: Floats) -> NDArray[np.float32]:
        """The inverse of `states`."""
        return (states * self.observation_std + self.observation_mean).astype(np.float32)

    def actions(self, actions: Floats) -> NDArray[np.float32]:
        """Standardised: a log that keeps to a small part of the bounds would else be a point to a network."""
        return ((actions - self.action_mean) / self.action_std).astype(np.float32)

    def within_bounds(self, actions: Floats) -> NDArray[np.float32]:
        """Standardised actions as numbers in [-1, 1], which is what the tanh of a Gaussian gives."""
        raw = actions * self.action_std + self.action_mean
        return np.clip((raw - self.action_centre) / self.action_half, -1.0, 1.0).astype(np.float32)

    def values(self, q: Floats | Array) -> NDArray[np.float64]:
        """What the networks give as values Q, in the log's reward units."""
        return self.centre + self.spread * np.asarray(q, np.float64)


@dataclass(frozen=True)
class JudgedLog:
    """A dataset at one discount."""

    data: Dataset
    discount: float
    units: Units
    rows: NDArray[np.int64]
    """The rows of the dataset that `transitions` holds."""
    transitions: Transitions
    episode: NDArray[np.int64]
    """Of each row of `transitions`."""
    starts: Float[Array, "episodes obs"]
    returns: NDArray[np.float64]
    """The discounted return of every episode, as far as the log goes: nothing behind a time limit."""
    hash: str
    """Of the log as it was given."""
    block: int
    """The steps of the blocks that the log of few episodes is cut into, each judged as an episode; 0: it is not."""
    watches: Sequence[Watched]
    """What is watched beside the reward; the ends of episodes, if they are, come last."""
    watched: Float[Array, "rows columns"]
    """The numbers of its columns and rules, without the ends, at each row of `transitions`, in the log's units."""
    ends_by: Callable[[Array], Array] | None
    """The user's rule of the end: from next observations (..., obs), in the environment's units, to truths."""

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the largest value that any policy can have, given the rewards of the log."""
        low, high = float(self.data.rewards.min()), float(self.data.rewards.max())
        ends = bool(self.data.terminals.any())  # an episode that ends earns nothing more
        low, high = (min(low, 0.0), max(high, 0.0)) if ends else (low, high)
        return low / (1 - self.discount), high / (1 - self.discount)

    @property
    def longest(self) -> int:
        """The steps of a whole episode: those of the log's longest one, and at most `LONGEST`."""
        return min(int(np.diff(self.data.episodes, axis=1).max()), LONGEST)

    @property
    def episode_bounds(self) -> tuple[float, float]:
        """The least and the most that a whole episode can earn, given the log's rewards and its longest one."""
        low, high = float(self.data.rewards.min()), float(self.data.rewards.max())
        lengths = np.diff(self.data.episodes, axis=1)
        if lengths.min() < lengths.max():  # a shorter one earns less, or costs less
            low, high = min(low, 0.0), max(high, 0.0)
        return self.longest * low, self.longest * high

    def own_actions(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The log's actions after each row of `transitions`, and at the start of each episode."""
        actions = self.units.actions(self.data.actions)
        following = np.minimum(self.rows + 1, len(self.data) - 1)
        return actions[following], actions[self.data.episodes[:, 0]]

    def act(self, policy: Acts, observations: Floats) -> NDArray[np.float32]:
        """A policy's actions in the networks' units, in blocks: the layers of a million rows take much memory."""
        blocks = [observations[i : i + BLOCK] for i in range(0, len(observations), BLOCK)]
        parts = [np.asarray(policy(block), np.float32) for block in blocks]
        size = self.data.actions.shape[1]
        for block, part in zip(blocks, parts, strict=True):
            if part.shape != (len(block), size):
                raise UserError(
                    f"policy: actions of shape {part.shape} for {len(block)} states; expected {(len(block), size)}"
                )
            if not np.isfinite(part).all():
                raise UserError("policy: actions that are not finite; its training has diverged")
        return self.units.actions(np.clip(np.concatenate(parts), self.data.action_low, self.data.action_high))


BLOCK = 65_536


def read_log(data: Dataset, discount: float, watch: Sequence[str] = (), ends: str | None = None) -> JudgedLog:
    """Scales the data and puts it on the device. `watch` and `ends`: columns and rules, as `sbac.select` takes them."""
    inside_unit("discount", discount)
    given, block = data.hash, block_length(data)
    data = data.cut(block) if block else data
    rows = np.flatnonzero(data.has_next_action)
    if len(rows) == 0:
        raise UserError(f"dataset {data.name}: no row has a known next action, nothing to learn values from")
    watches = watched_things(data, watch)
    watched = [each.values[rows] for each in watches if each.kind != "end"]
    rewarded = summed(data, data.rewards, discount, rows)
    half = 0.5 * (data.action_high - data.action_low)
    units = Units(
        data.observations.mean(0, dtype=np.float64),
        data.observations.std(0, dtype=np.float64) + 1e-3,
        data.actions.mean(0, dtype=np.float64),
        np.maximum(data.actions.std(0, dtype=np.float64), 0.01 * half),
        0.5 * (data.action_high + data.action_low),
        half,
        rewarded.centre,
        rewarded.spread,
    )
    columns = (
        units.states(data.observations[rows]),
        units.actions(data.actions[rows]),
        1.0 - data.terminals[rows],
        units.states(data.next_observations[rows]),
    )
    lengths = np.diff(data.episodes, axis=1)[:, 0]
    return JudgedLog(
        data,
        discount,
        units,
        rows,
        Transitions(*(jnp.asarray(column, jnp.float32) for column in columns)),
        np.repeat(np.arange(len(lengths)), lengths)[rows],
        jnp.asarray(units.states(data.initial_observations)),
        discounted_sums(data, data.rewards, discount)[data.episodes[:, 0]],
        given,
        block,
        watches,
        jnp.asarray(np.column_stack([np.empty((len(rows), 0), np.float32), *watched])),
        None if ends is None else end_rule(data, ends),
    )


def block_length(data: Dataset) -> int:
    """The steps of the blocks that a log of few episodes is cut into; 0 of a log with enough of them."""
    steps = int(np.clip(len(data) // BLOCKS, SHORTEST_BLOCK, LONGEST))
    long = bool((np.diff(data.episodes, axis=1) >= 2 * steps).any())
    return steps if long and len(data.episodes) < FEWEST_EPISODES else 0


class Summed(NamedTuple):
    """A column whose discounted sums are learned, in the networks' units, and what turns these into the log's."""

    rewards: NDArray[np.float64]
    returns: NDArray[np.float64]
    """To the end of the episode; where a time limit cut it, as if it had gone on as it was."""
    centre: float
    spread: float
    values: Floats
    """The column itself, at all rows of the log."""


def summed(data: Dataset, column: Floats, discount: float, rows: NDArray[np.int64]) -> Summed:
    """A column of the dataset at the rows that values are learned from."""
    after = np.where(data.timeouts, _episode_means(data, column) / (1 - discount), 0.0)
    sums = discounted_sums(data, column, discount, after)[rows]
    centre, spread = float(sums.mean()), float(sums.std())
    spread = spread if spread > 1e-8 * max(1.0, abs(centre)) else 1.0
    kept = 1 - discount * (1.0 - data.terminals[rows])
    return Summed(
        (column[rows].astype(np.float64) - centre * kept) / spread, (sums - centre) / spread, centre, spread, column
    )


def discounted_sums(data: Dataset, column: Floats, discount: float, after: Floats | None = None) -> NDArray[np.float64]:
    """For every row the discounted sum of a column to the end of its episode; `after` comes behind the last row.

    All episodes are summed together, one step at a time from their ends.
    """
    sums = column.astype(np.float64)
    first, stop = data.episodes[:, 0], data.episodes[:, 1]
    if after is not None:
        sums[stop - 1] += discount * after[stop - 1]
    order = np.argsort(first - stop, kind="stable")  # the longest first
    first, stop = first[order], stop[order]
    for back in range(2, int((stop - first).max()) + 1):
        at = (stop - back)[: np.searchsorted(-(stop - first), -back, side="right")]
        sums[at] += discount * sums[at + 1]
    return sums


def _episode_means(data: Dataset, column: Floats) -> NDArray[np.float64]:
    """The mean of a column over each row's episode."""
    lengths = np.diff(data.episodes, axis=1)[:, 0]
    return np.repeat(np.add.reduceat(column.astype(np.float64), data.episodes[:, 0]) / lengths, lengths)


class Resampling(NamedTuple):
    """Episodes drawn for every member: its share of the log to learn from, and the episodes that its value is read at.

    A replicate gives each episode a weight, Poisson(1). It has one member for each fold, which learns from the other
    folds' episodes with these weights, and is read at the first states of its own fold.
    """

    weights: NDArray[np.int64]
    """(replicates, episodes)"""
    rows: Int[Array, "members most"]
    """The rows that a member draws from, each as often as its weight says; the first `counts` of them are real."""
    counts: Int[Array, " members"]
    reading: Float[Array, "members episodes"]
    """The weights at which a member's values at the first states are averaged; they sum to 1."""
    folds: int


def resample(log: JudgedLog, replicates: int, folds: int, rng: np.random.Generator) -> Resampling:
    """Draws the weights and the folds. With fewer episodes than folds each member learns from all of them."""
    folds = folds if log.episodes >= 2 * folds else 1
    reading = np.stack([_draw(log, folds, rng) for _ in range(replicates)])
    members = reading.reshape(-1, log.episodes)
    drawn = [_learned_rows(log, times) for times in _learned(reading).reshape(members.shape)]
    counts = np.array([len(rows) for rows in drawn], np.int32)
    padded = np.stack([np.pad(rows, (0, counts.max() - len(rows))) for rows in drawn])
    shares = jnp.asarray(members / members.sum(1, keepdims=True), jnp.float32)
    return Resampling(reading.sum(1), jnp.asarray(padded, jnp.int32), jnp.asarray(counts), shares, folds)


def _draw(log: JudgedLog, folds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """The weights of one replicate, (folds, episodes): a row has those of its own fold's episodes, and 0 elsewhere.

    They are drawn again until every member has rows to learn from and episodes to be read at.
    """
    fold = rng.permutation(np.arange(log.episodes) % folds)
    for _ in range(MOST_DRAWS):
        reading = rng.poisson(1.0, log.episodes) * (fold == np.arange(folds)[:, None])
        if reading.any(1).all() and all(len(_learned_rows(log, times)) for times in _learned(reading)):
            return reading
    raise UserError(f"dataset {log.data.name}: too few episodes to resample ({log.episodes})")


def _learned(reading: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often a member learns from each episode: from those of the other folds, if there are others."""
    return reading.sum(-2, keepdims=True) - reading if reading.shape[-2] > 1 else reading


def _learned_rows(log: JudgedLog, times: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(log.episode)), times[log.episode])


MOST_DRAWS = 1_000
