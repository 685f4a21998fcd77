"""What is watched beside the reward: its columns, the log's rates, and a policy's from what the estimators say.

The rate of a rule is the share of the steps at which it holds, that of a column its mean over steps, and that of `end`,
which is no column, the share of the episodes that end early, before a time limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sbac.data.dataset import Dataset
from sbac.data.rules import COMPARE, parse
from sbac.errors import name_of, unknown

Floats = NDArray[np.floating[Any]]
Kind = Literal["rule", "column", "end"]
END, REWARD = "end", "reward"
RATE = "rate of "
"""How the name of a watched quantity begins."""
RARE = 0.05
"""A rule or an end that is rarer in the log gets no interval: the networks have seen too little of it. On two logs with
such a thing, ten of 25 policies had it more often than the interval said (`lab-notes/worlds`)."""


@dataclass(frozen=True)
class Watched:
    name: str
    """As the user wrote it."""
    kind: Kind
    values: Floats
    """A number for each row of the log; a rule has zeros and ones."""
    rates: NDArray[np.float64]
    """Of each episode of the log."""
    rate: float
    """Of the log."""

    @property
    def quantity(self) -> str:
        """What the draws of an estimator are called: by how much the rate of a policy is larger than the log's."""
        return RATE + self.name

    @property
    def bounds(self) -> tuple[float, float]:
        """What a rate can be."""
        return (float(self.values.min()), float(self.values.max())) if self.kind == "column" else (0.0, 1.0)


@dataclass(frozen=True)
class WatchedRate:
    """A watched thing under a policy, beside the log; None where no estimate, or no interval, is to be believed."""

    name: str
    kind: Kind
    log: float
    rate: float | None
    low: float | None
    high: float | None
    worse: bool
    """Whether a rule or an early end, which are bad things, becomes more frequent while the return rises."""

    @property
    def is_rare(self) -> bool:
        return self.kind != "column" and self.log < RARE


def columns_of(data: Dataset) -> dict[str, Floats]:
    """The columns of a log that a rule may name."""
    columns: dict[str, Floats] = {**data.extras, REWARD: data.rewards}
    for field in ("actions", "observations"):
        columns |= dict(zip(data.columns[field], getattr(data, field).T, strict=True))
    return columns


def watched_things(data: Dataset, watch: Sequence[str]) -> list[Watched]:
    """The columns and rules that are watched; then `end`, where it is asked for or the log has ends.

    Decisions of one step all end with it, so that their ends are not watched unasked.
    """
    columns, first = columns_of(data), data.episodes[:, 0]
    lengths = np.diff(data.episodes, axis=1)[:, 0]
    things: list[Watched] = []
    for text in dict.fromkeys(name_of("watch", each) for each in watch if each != END):
        if text in columns:
            kind, values = "column", columns[text]
        elif any(sign in text for sign in COMPARE):
            kind, values = "rule", parse(text, columns, "watch").holds(columns).astype(np.float32)
        else:
            raise unknown("column to watch", text, [*columns, END])
        sums = np.add.reduceat(values.astype(np.float64), first)
        things.append(Watched(text, kind, values, sums / lengths, float(sums.sum() / len(data))))
    if END in watch or (data.terminals.any() and lengths.max() > 1):
        ended = data.terminals[data.episodes[:, 1] - 1].astype(np.float64)
        things.append(Watched(END, "end", data.terminals.astype(np.float32), ended, float(ended.mean())))
    return things


def watched_draws(
    watches: Sequence[Watched],
    sums: NDArray[np.float64],
    steps: NDArray[np.float64],
    ended: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """What an estimator that follows whole episodes says: draws by quantity.

    sums: (draws, columns), of the columns and rules in an episode. steps: (draws,), those that were summed over. ended:
    (draws,), the share of the episodes that end early.
    """
    rates = iter(sums.T / steps)
    return {each.quantity: (ended if each.kind == "end" else next(rates)) - each.rate for each in watches}
