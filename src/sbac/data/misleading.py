"""What in a log misleads a method, or a person who believes its answer. A warning is one line of `RULES`.

Every warning says what is seen and what to do about it. A log of ten million rows takes seconds: what needs more than
one look at every row is asked of a sample of whole stretches of episodes.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import BLOCK, FIRST, SATURATED
from sbac.data.dataset import Dataset, Flags, jumps
from sbac.text import counted

Array = NDArray[Any]
Floats = NDArray[np.float64]
Place = Callable[[int], str]
"""Where a row stands, as a user finds it: `row 7`, `line 9`."""

FEWEST_ROWS = 1_000
LONG = 2_000
"""Rows from which on a log is expected to have more than one episode."""
SAMPLED = 20_000
"""Rows of the stretches that are looked at more than once."""
STRETCH = 1_000
"""The most rows of a stretch."""
SAME = 0.95
"""Of the rows: the share from which on a thing holds mostly."""
MOST = 0.5
WIDER = 10.0
HEAP = 10
"""Episodes that end at the longest length, and times as many as end at another one: fewer may be chance."""
COMPARABLE = 5
"""The fewest episodes, and rows of one, that are compared with each other."""
LOOKED_AT = 50
"""Rows of an episode by which its units are told."""
UNITS = 100.0
"""How many times larger or smaller an episode is than the others before its units are doubted."""
ALIKE = 3.0
"""How many times larger or smaller nine of ten episodes are than the middle one at most, where units can be told."""
HUGE, TINY = 1e5, 1e-5
"""Rewards beyond these are out of the range in which settings were chosen."""
HALF_AS_WRONG = 0.5
"""Of one row's error: two rows have less where a process has memory. Curved dynamics without memory reach 0.6."""
UNTOLD = 0.01
"""Of the variance of a change: what one row must leave open before it matters that two leave less."""
UNRELATED = 0.9
"""Of the variance inside a stretch: what one row leaves open of the next one where rows do not follow each other."""
DEVIATIONS = 20.0
LEAP = 5.0
"""How many times as far from the middle as the next value a far one lies; of lognormal columns, one of 500 has such."""
CENTRAL = 3.29
"""In standard deviations of a normal distribution: the width of its central nine tenths."""
FEWEST_VALUES = 10
"""A column of fewer different values has codes, of which none is far from another."""
NAMED = 5
"""Columns that are named of one kind of warning; the rest are counted."""


@dataclass(frozen=True)
class Prediction:
    """How well the next observation follows from what comes before it, for each of its columns."""

    one: Floats
    """The mean squared error of a ridge regression on one row, in stretches that it was not fitted to."""
    two: Floats
    """The same on two rows."""
    change: Floats
    """The variance of the change from a row to the next."""
    within: Floats
    """The variance inside a stretch."""

    @property
    def of_two(self) -> Floats:
        """The error on two rows, as a share of that on one; 1 where one row leaves hardly anything open."""
        return np.where(self.one > UNTOLD * self.change, np.sqrt(self.two / self.one), 1.0)

    @property
    def tells_nothing(self) -> bool:
        """Whether neither one row nor two tell anything of the next."""
        unrelated = self.within.any() and (self.one >= UNRELATED * self.within).all()
        return bool(unrelated and self.of_two.min() >= HALF_AS_WRONG)


class View:
    """A log, and what several rules ask about it."""

    def __init__(self, data: Dataset, place: Place) -> None:
        self.data = data
        self.place = place
        self.names = data.columns["observations"]
        self.actions = dict(zip(data.columns["actions"], data.actions.T, strict=True))
        self.lengths = np.diff(data.episodes, axis=1)[:, 0]
        self.terminal = data.terminals[data.episodes[:, 1] - 1]

    def places(self, rows: Sequence[int] | Array) -> str:
        """The first of some rows."""
        more = ", ..." if len(rows) > FIRST else ""
        return f"the first: {', '.join(self.place(int(row)) for row in rows[:FIRST])}{more}"

    @cached_property
    def stretches(self) -> list[tuple[int, int]]:
        """Rows of single episodes, drawn at random, in all about as many as are looked at."""
        random = np.random.default_rng(0)
        drawn = random.permutation(len(self.lengths))[:SAMPLED]
        episodes: list[list[int]] = self.data.episodes[drawn].tolist()
        length = min(STRETCH, max(2 * COMPARABLE, len(self.data) // 20))
        starts = [(first, end) for begin, end in episodes for first in range(begin, end, length)]
        kept: list[tuple[int, int]] = []
        rows = 0
        for number in map(int, random.permutation(len(starts))):
            begin, end = starts[number][0], min(starts[number][0] + length, starts[number][1])
            if end - begin >= COMPARABLE and rows < SAMPLED:
                kept.append((begin, end))
                rows += end - begin
        return kept

    @cached_property
    def prediction(self) -> Prediction | None:
        """None where there are too few rows for a regression."""
        data, stretches = self.data, self.stretches
        features = 2 * (len(self.names) + len(self.actions)) + 1
        if len(stretches) < COMPARABLE or sum(end - begin for begin, end in stretches) < 10 * features:
            return None
        parts = [np.arange(begin + 1, end - 1) for begin, end in stretches]
        rows = np.concatenate(parts)
        held_out = np.repeat(np.arange(len(parts)) % 4 == 0, [len(part) for part in parts])

        def row(number: Array) -> Floats:
            return np.concatenate([data.observations[number], data.actions[number]], axis=1, dtype=np.float64)

        one = row(rows)
        change = data.observations[rows + 1] - one[:, : len(self.names)]
        within = [data.observations[begin:end].var(axis=0, ddof=1, dtype=np.float64) for begin, end in stretches]
        return Prediction(
            _ridge_error(one, change, held_out),
            _ridge_error(np.concatenate([one, row(rows - 1)], axis=1), change, held_out),
            change.var(axis=0),
            np.mean(within, axis=0),
        )

    @cached_property
    def far(self) -> dict[str, tuple[Array, Array, tuple[float, float]]]:
        """Single cells far from the others of their column: their rows, their values, and the range of the others."""
        data = self.data
        rewards = np.where(data.terminals | data.timeouts, np.nan, data.rewards)  # what ends an episode may cost much
        found: dict[str, tuple[Array, Array, tuple[float, float]]] = {}
        for name, column in [*zip(self.names, data.observations.T, strict=True), ("rewards", rewards)]:
            unusual, far, others = _far(column)
            episode = np.searchsorted(data.episodes[:, 1], unusual, side="right")
            count = np.bincount(episode, minlength=len(self.lengths))
            rows = unusual[far & (2 * count <= self.lengths)[episode]]  # else it is the whole episode, and not a cell
            if len(rows):
                found[name] = rows, column[rows], others
        return found

    @cached_property
    def clocks(self) -> dict[str, bool]:
        """The observations that count time, and whether their rows are in order."""
        values = [self.data.observations[begin:end].astype(np.float64) for begin, end in self.stretches]
        if not values:
            return {}
        steps = np.concatenate([np.diff(part, axis=0) for part in values])
        # Sorted, so that rows in disorder show; the time of day comes again, so that it counts nothing.
        ascending = np.concatenate([np.diff(np.sort(part, axis=0), axis=0) for part in values])
        slack = np.spacing(np.abs(self.data.observations[::STRETCH]).max(axis=0)).astype(np.float64)
        in_order = np.abs(np.sign(steps).sum(axis=0)) == len(steps)
        told = zip(self.names, _equal(ascending, slack), in_order, strict=True)
        return {name: bool(order) for name, tick, order in told if tick and name not in self.far}


def misleading(data: Dataset, place: Place = "row {}".format) -> list[str]:
    """What misleads in a log, one sentence each.

    place: tells a row as the user finds it, such as by its file's line.
    """
    view = View(data, place)
    with np.errstate(all="ignore"):
        return [sentence for rule in RULES.values() for sentence in rule(view)]


# --- Rows and episodes --------------------------------------------------------------------------------------------


def few_rows(view: View) -> Iterator[str]:
    if len(view.data) < FEWEST_ROWS:
        yield (
            f"the log has {counted(len(view.data), 'row')}: too few for more than imitation; "
            f"gather {FEWEST_ROWS:,} at least"
        )


def one_long_episode(view: View) -> Iterator[str]:
    if len(view.lengths) == 1 and len(view.data) >= LONG:
        yield (
            f"all {len(view.data):,} rows are one episode: if the log has days, batches or devices, name the column "
            "that tells them with --columns episode=COLUMN"
        )


def ends_at_one_length(data: Dataset) -> Iterator[str]:
    """Time limits that are flagged as terminals."""
    terminal = data.terminals[data.episodes[:, 1] - 1]
    lengths = np.diff(data.episodes, axis=1)[:, 0]
    longest, ended = lengths.max(), lengths[terminal]
    cut = lengths[~terminal]
    unfinished = len(cut) == 1 and not data.terminals[-1]
    if len(ended) < 2 or longest == 1 or (len(cut) and not unfinished) or ended.max() < longest:
        return
    heap, others = int((ended == longest).sum()), int(((ended < longest) & (ended >= longest / 2)).sum())
    if heap == len(ended):
        seen = f"all {heap} episodes have {longest} steps and end in a terminal"
    elif heap >= HEAP * max(1.0, others / (longest / 2)):
        seen = f"{heap} of {len(ended)} episodes end in a terminal after {longest} steps, and none later"
    else:
        return
    yield (
        f"{seen}; if that is a time limit, give --horizon {longest} (horizon={longest}), or values will be wrong at "
        "its end"
    )


def no_ends(view: View) -> Iterator[str]:
    inside = view.lengths[1:-1]  # the first and the last may be cut by the recording
    if not view.terminal.any() and len(inside) > 1 and inside.min() < inside.max():
        yield (
            f"no row is terminal, but episodes have {inside.min():,} to {inside.max():,} steps: if some ended by "
            "themselves, such as by a fall or an alarm, and not at a gap in the recording, say which rows end them "
            "with --columns terminals=COLUMN, or their ends count for nothing"
        )


def repeated_episodes(view: View) -> Iterator[str]:
    """Episodes that agree in return are compared by the hash of their rows."""
    data = view.data
    _, group, count = np.unique(data.returns, return_inverse=True, return_counts=True)
    seen: set[bytes] = set()
    again: list[int] = []
    for begin, end in data.episodes[(count[group] > 1) & (view.lengths >= COMPARABLE)]:
        digest = hashlib.sha256(np.ascontiguousarray(data.observations[begin:end]).data)
        digest.update(np.ascontiguousarray(data.actions[begin:end]).data)
        if digest.digest() in seen:
            again.append(int(begin))
        seen.add(digest.digest())
    if again:
        yield (
            f"{len(again)} of {counted(len(view.lengths), 'episode')} repeat an earlier one, {view.places(again)}; "
            "leave them out, or they count twice"
        )


def one_episode_pays(view: View) -> Iterator[str]:
    size = np.abs(view.data.returns)
    best = int(size.argmax())
    share = float(size[best] / max(size.sum(), np.finfo(float).tiny))
    if len(size) >= 2 * COMPARABLE and share > MOST:
        where = view.place(int(view.data.episodes[best, 0]))
        yield (
            f"one of {len(size)} episodes, from {where} on, has {_percent(share)} of the log's return: look whether "
            "its rewards are right; what is learned rests on it"
        )


def out_of_order(view: View) -> Iterator[str]:
    data = view.data
    single = (view.lengths == 1) & ~view.terminal
    sort = "sort them, or name their columns with --columns episode=COLUMN time=COLUMN"
    if len(single) >= 2 * COMPARABLE and single.mean() > MOST:
        yield f"{int(single.sum()):,} of {len(single):,} episodes have one row: rows are out of order; {sort}"
        return
    if data.stores_next:
        inside = ~(data.terminals | data.timeouts)
        apart = jumps(data.observations, data.next_observations) & inside
        if apart.sum() > (1 - SAME) * max(1, inside.sum()):
            share = _percent(apart.sum() / inside.sum())
            yield f"in {share} of the rows the stored next state is not the next row's: rows are out of order; {sort}"
            return
    if back := [name for name, in_order in view.clocks.items() if not in_order]:
        yield f"{back[0]} counts time, but goes back inside episodes: rows are out of order; {sort}"
    elif view.prediction is not None and view.prediction.tells_nothing:
        yield f"no row tells anything of the next one: rows may be out of order; {sort}"


# --- Actions and rewards ------------------------------------------------------------------------------------------


def hardly_varying(view: View) -> Iterator[str]:
    for name, column in view.actions.items():
        value, share = _commonest(column)
        if share >= SAME:
            yield (
                f"{name}: {_percent(share)} of the actions are {value:.4g}: the log does not show what others do; "
                "gather rows in which it varies, or leave it out of the actions"
            )


def wide_bounds(view: View) -> Iterator[str]:
    data = view.data
    for (name, column), low, high in zip(view.actions.items(), data.action_low, data.action_high, strict=True):
        least, greatest = float(column.min()), float(column.max())
        if 0 < WIDER * (greatest - least) <= high - low:
            yield (
                f"{name}: its bounds, {low:.4g} to {high:.4g}, are {(high - low) / (greatest - least):,.0f} times as "
                f"wide as its actions, {least:.4g} to {greatest:.4g}; give the true ones (--action-low, --action-high)"
            )


def at_the_bounds(view: View) -> Iterator[str]:
    data = view.data
    for (name, column), low, high in zip(view.actions.items(), data.action_low, data.action_high, strict=True):
        near = SATURATED * (high - low)
        bounds = [bound for bound in (low, high) if bound]  # zero is nothing done, and not cut off
        share = sum(float((np.abs(column - bound) <= near).mean()) for bound in bounds)
        if share > MOST and _commonest(column)[1] < SAME:
            yield (
                f"{name}: {_percent(share)} of the actions lie at a bound, {low:.4g} or {high:.4g}: look whether these "
                "are the true ones (--action-low, --action-high); if so, little is shown of what lies between"
            )


def size_of_rewards(view: View) -> Iterator[str]:
    rewards = view.data.rewards[view.data.rewards != 0]
    size = float(np.sqrt(np.mean(np.square(rewards, dtype=np.float64)))) if len(rewards) else 1.0
    if size >= HUGE or size <= TINY:
        factor = 10.0 ** -round(np.log10(size))
        yield f"rewards are about {size:.0e}: bring them near 1, as with --columns rewards={factor:.0e}*COLUMN"


# --- Observations -------------------------------------------------------------------------------------------------


def other_units(view: View) -> Iterator[str]:
    """Episodes in which a column is a hundred times larger or smaller than in the others, which are alike."""
    data = view.data
    chosen = np.flatnonzero(view.lengths >= COMPARABLE)
    if len(chosen) < COMPARABLE:
        return
    sizes = [_sizes(data, chosen[i : i + BLOCK]) for i in range(0, len(chosen), BLOCK)]
    usual, largest = np.concatenate(sizes, axis=1)
    sentences: list[str] = []
    for i, name in enumerate([*view.names, *view.actions, "rewards"]):
        # Larger by the usual value, smaller by the largest one: any column may pass through zero.
        larger, smaller = _against_others(usual[:, i]), 1 / _against_others(largest[:, i])
        for word, ratio in (("larger", larger), ("smaller", smaller)):
            if len(other := np.flatnonzero(ratio > UNITS)):
                sentences.append(
                    f"{name}: in {counted(len(other), 'episode')} of {len(chosen)} its values are "
                    f"{ratio[other[0]]:,.0f} times {word} than in the others, "
                    f"{view.places(data.episodes[chosen[other], 0])}; look at their units"
                )
    yield from _shortened(sentences, "have episodes in other units")


def _sizes(data: Dataset, episodes: Array) -> Floats:
    """The usual and the largest size of every column in some episodes, by a few rows of each."""
    begin, end = data.episodes[episodes].T
    rows = (begin[:, None] + np.linspace(0, 1, LOOKED_AT) * (end - 1 - begin)[:, None]).astype(int)
    columns = data.observations[rows], data.actions[rows], data.rewards[rows][..., None]
    sizes = np.abs(np.concatenate(columns, axis=2, dtype=np.float64))
    return np.stack([np.median(sizes, axis=1), sizes.max(axis=1)])


def _against_others(sizes: Floats) -> Floats:
    """How many times the middle one each size is; 1 for zero, and for all where most are not alike."""
    ratio = sizes / np.median(sizes)
    ratio[~np.isfinite(ratio) | (ratio == 0)] = 1.0
    return ratio if np.quantile(np.abs(np.log(ratio)), 0.9) < np.log(ALIKE) else np.ones_like(ratio)


def counts_time(view: View) -> Iterator[str]:
    for name in (name for name, in_order in view.clocks.items() if in_order):
        yield f"{name} counts time: leave it out of the observations, unless the process itself goes by the clock"


def _equal(steps: Floats, slack: Floats) -> Flags:
    """Whether nearly all steps of a column are equal, and not zero."""
    usual = np.median(steps, axis=0)
    near = np.abs(steps - usual) <= 0.1 * np.abs(usual) + slack
    return (np.abs(usual) > slack) & (near.mean(axis=0) >= SAME)


def has_memory(view: View) -> Iterator[str]:
    if (told := view.prediction) is None:
        return
    if (ratio := told.of_two).min() < HALF_AS_WRONG:
        name = view.names[int(ratio.argmin())]
        yield (
            f"two rows tell the next {name} with {_percent(ratio.min())} of one row's error: "
            "the process has memory, but a policy sees one row; add values of the row before, or changes since then, "
            "to the observations (or name the devices, if rows of several lie mixed: --columns episode=COLUMN)"
        )


def _ridge_error(inputs: Floats, targets: Floats, held_out: Flags) -> Floats:
    """The mean squared error of a ridge regression on the rows that it was not fitted to."""
    mean, deviation = inputs[~held_out].mean(axis=0), inputs[~held_out].std(axis=0)
    scaled = (inputs - mean) / np.where(deviation > 0, deviation, 1.0)
    offset = targets[~held_out].mean(axis=0)
    fitted = scaled[~held_out]
    squares = fitted.T @ fitted + 1e-4 * len(fitted) * np.eye(fitted.shape[1])
    factors = cast(Floats, np.linalg.solve(squares, fitted.T @ (targets[~held_out] - offset)))
    return np.square(scaled[held_out] @ factors + offset - targets[held_out]).mean(axis=0)


def far_values(view: View) -> Iterator[str]:
    sentences: list[str] = []
    for name, (rows, values, others) in view.far.items():
        such = f"{values.min():.6g}" if values.min() == values.max() else f"{values.min():.6g} to {values.max():.6g}"
        sentences.append(
            f"{name}: {counted(len(rows), 'value')} ({such}) far from the others ({others[0]:.4g} to {others[1]:.4g}), "
            f"{view.places(rows)}; if they stand for missing ones, empty these cells and give --missing hold or cut"
        )
    yield from _shortened(sentences, "have values far from the others")


def _shortened(sentences: Sequence[str], what: str) -> Iterator[str]:
    """Sentences about single columns; of many, the first."""
    yield from sentences[:NAMED]
    if len(sentences) > NAMED:
        yield f"{counted(len(sentences) - NAMED, 'more column')} {what}"


def _far(column: Array) -> tuple[Array, Flags, tuple[float, float]]:
    """Rows with unusual values; which of these lie apart, far from the middle or alone; and the range of the others."""
    column = np.ascontiguousarray(column)
    sample = column[:: max(1, len(column) // SAMPLED)]
    sample = sample[np.isfinite(sample)]
    none = np.empty(0, int), np.empty(0, bool), (0.0, 0.0)
    if len(np.unique(sample)) < FEWEST_VALUES:
        return none
    low, middle, high = np.quantile(sample, [0.05, 0.5, 0.95])
    width = high - low
    inside = (column >= low - width) & (column <= high + width)
    rows = np.flatnonzero(~inside & np.isfinite(column))
    if not len(rows):
        return none
    beyond = column[rows].astype(np.float64)
    edges = column.min(where=inside, initial=np.inf), column.max(where=inside, initial=-np.inf)
    ordered = np.unique(np.append(beyond, edges))
    far = np.isin(beyond, _alone(ordered, beyond))
    for side in (-1, 1) if width else ():  # 0: mostly one value, and pulses
        # A long tail thins out, and a process that goes far passes through what lies between: a wrong number leaps.
        distance = np.sort(side * (ordered - middle))
        leaps = distance[1:] > LEAP * np.maximum(distance[:-1], 0)
        least = distance[1:][leaps & (distance[1:] > DEVIATIONS * width / CENTRAL)]
        far |= side * (beyond - middle) >= least.min(initial=np.inf)
    others = ordered[~np.isin(ordered, beyond[far])]
    return rows, far, (float(others[0]), float(others[-1]))


def _alone(ordered: Floats, beyond: Floats) -> list[float]:
    """The values that recur, and that are farther from the others than these are from each other."""
    alone: list[float] = []
    while len(ordered) > 2:
        gaps = ordered[1] - ordered[0], ordered[-1] - ordered[-2]
        value, others = (ordered[-1], ordered[:-1]) if gaps[1] > gaps[0] else (ordered[0], ordered[1:])
        recurs = (beyond == value).sum() > 1 or set(f"{abs(value):g}") == {"9"}
        if not recurs or max(gaps) <= others[-1] - others[0]:
            break
        alone.append(float(value))
        ordered = others
    return alone


def _commonest(column: Array) -> tuple[float, float]:
    """The commonest of some values, and its share."""
    values, counts = np.unique(column[:: max(1, len(column) // SAMPLED)], return_counts=True)
    return float(values[counts.argmax()]), float(counts.max() / counts.sum())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


RULES: dict[str, Callable[[View], Iterator[str]]] = {
    "few rows": few_rows,
    "no episodes": one_long_episode,
    "rows out of order": out_of_order,
    "time limits as terminals": lambda view: ends_at_one_length(view.data),
    "no ends": no_ends,
    "repeated episodes": repeated_episodes,
    "one episode pays": one_episode_pays,
    "actions hardly vary": hardly_varying,
    "bounds too wide": wide_bounds,
    "actions at the bounds": at_the_bounds,
    "size of rewards": size_of_rewards,
    "other units": other_units,
    "far values": far_values,
    "counts time": counts_time,
    "memory": has_memory,
}
