"""How an episode ends: the rule that a user gives, what speaks against it in the log, and what the log itself suggests.

All of it is about the states that follow rows: terminal ones, where the log tells their s', and those that went on.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.data.dataset import Dataset
from sbac.data.rules import parse

Floats = NDArray[np.floating[Any]]
HELD_OUT = 0.3
"""Of the episodes: the share on which a suggested rule must hold."""
CONFIRMED = 0.95
"""Of the held-out ends, and of the held-out rows that went on: the share that a rule must tell right."""
MOST_ROWS = 100_000
"""Rows that went on, about, that are looked at, spread evenly over the log."""
FEWEST_ENDS = 10
"""Held-out ends: of fewer nothing is confirmed."""


def end_rule(data: Dataset, text: str) -> Callable[[Any], Any]:
    """A rule as a function from next observations (..., obs), in the environment's units, to truths."""
    names = data.columns["observations"]
    rule = parse(text, names, "ends")
    places = {name: names.index(name) for name in rule.columns}
    return lambda observations: rule.holds({name: observations[..., place] for name, place in places.items()})


class Following(NamedTuple):
    """The states that follow rows of a log, and the rows."""

    ended: Floats | None
    """Of the terminal rows; None where the log does not tell them."""
    went_on: Floats
    ended_rows: NDArray[np.intp]
    went_on_rows: NDArray[np.intp]


def following_states(data: Dataset) -> Following:
    ended, went_on = np.flatnonzero(data.terminals), np.flatnonzero(data.has_next & ~data.terminals)
    went_on = went_on[:: max(1, len(went_on) // MOST_ROWS)]
    return Following(data.terminal_observations, data.next_observations[went_on], ended, went_on)


def contradictions(data: Dataset, text: str) -> list[str]:
    """A line of how often the log is not as the user's rule says; none where it always is."""
    ends_by, states = end_rule(data, text), following_states(data)
    missed = 0 if states.ended is None else int((~ends_by(states.ended)).sum())
    passed = int(ends_by(states.went_on).sum())
    parts = [f"it is false at {missed:,} of {len(states.ended_rows):,} ends"] * bool(missed)
    parts += [f"it is true at {passed:,} of {len(states.went_on):,} rows that went on"] * bool(passed)
    return [f"the rule of the end, {text}, contradicts the log: {', and '.join(parts)}"] if parts else []


def suggested_end(data: Dataset, seed: int = 0) -> str | None:
    """The threshold of one column that tells the log's ends from its other rows, confirmed on held-out episodes."""
    states, held_out = following_states(data), data.held_out_rows(HELD_OUT, seed)
    if states.ended is None or held_out is None:
        return None
    tested, passed = held_out[states.ended_rows], held_out[states.went_on_rows]
    if min(tested.sum(), (~tested).sum()) < FEWEST_ENDS or not passed.any() or passed.all():
        return None
    learned = states.ended[~tested], states.went_on[~passed]
    candidates = _thresholds(data.columns["observations"], *learned)
    best = max(candidates, key=lambda text: _told(end_rule(data, text), *learned), default=None)
    if best is None:
        return None
    told = _told(end_rule(data, best), states.ended[tested], states.went_on[passed])
    return best if told >= CONFIRMED else None


def _told(ends_by: Callable[[Any], Any], ended: Floats, went_on: Floats) -> float:
    """The share of the ends at which a rule holds, and of the other rows at which it does not: the less of both."""
    return min(float(ends_by(ended).mean()), float((~ends_by(went_on)).mean()))


def _thresholds(names: Sequence[str], ended: Floats, went_on: Floats) -> Iterator[str]:
    """Of every column below, above, and beyond by magnitude: where all ends but a few lie on one side."""
    for name, ends, others in zip(names, ended.T, went_on.T, strict=True):
        if "`" in name:
            continue
        column = name if name.isidentifier() else f"`{name}`"
        sides = (
            (f"{column} <", 1.0, ends, others),
            (f"{column} >", -1.0, ends, others),
            (f"abs({column}) >", -1.0, np.abs(ends), np.abs(others)),
        )
        for words, sign, inside, outside in sides:
            for share in (1.0, 0.99, 0.97, CONFIRMED):
                last = np.quantile(sign * inside, share)
                beyond = sign * outside[sign * outside > last]
                if len(beyond):
                    yield f"{words} {sign * (last + beyond.min()) / 2:.4g}"
