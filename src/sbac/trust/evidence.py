"""What an estimator is asked, and what it answers. Nothing here belongs to one of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sbac.errors import name_of, unknown
from sbac.trust.acting import Actors
from sbac.trust.log import Acts, JudgedLog

Result = TypeVar("Result")
AS_LOGGED = "_as_logged"
"""Behind the name of a quantity: what it would be if the learned model ended the log's own episodes as often as they
end, and saw there what is watched as often as it was. What it gets wrong adds up, so that it tends to end them too
soon; without the world's disturbances it misses what is rare."""
OnProgress = Callable[[str, int, int], None]
"""Is told what is being done, how far it is, and how far it goes."""


@dataclass(frozen=True)
class Effort:
    """How much is spent on an estimate."""

    replicates: int
    """Of the bootstrap: how often the episodes are drawn anew."""
    folds: int
    hidden: tuple[int, ...]
    batch_size: int
    steps: tuple[int, int]
    """For the log's own value, and from there for that of the policies."""
    learning_rate: float
    target_rate: float
    """Values settle in about 1 / (rate (1 - gamma)) steps."""
    model_hidden: tuple[int, ...] = (64, 64)
    model_steps: int = 4_000
    model_members: int = 10
    model_noise: bool = True
    """Whether rollouts draw from a member's deviation. What a member has not learned yet counts as noise: after few
    steps it ends episodes too soon."""


EFFORTS = {
    "quick": Effort(4, 2, (64, 64), 128, (3_000, 4_000), 1e-3, 0.1, (128, 128), 4_000, model_noise=False),
    "full": Effort(5, 2, (256, 256), 256, (10_000, 15_000), 3e-4, 0.02, (256, 256, 256, 256), 60_000),
}


def find_effort(effort: str | Effort) -> Effort:
    if isinstance(effort, Effort):
        return effort
    if name_of("effort", effort) not in EFFORTS:
        raise unknown("effort", effort, EFFORTS)
    return EFFORTS[effort]


@dataclass(frozen=True)
class Question:
    """The log, the policies to judge on it, and what may be spent. Every estimator is asked the same one."""

    log: JudgedLog
    policies: Sequence[Acts]
    effort: Effort
    seed: int = 0
    progress: OnProgress | None = None
    _results: dict[Callable[..., object], Any] = field(default_factory=dict[Callable[..., object], Any])

    @cached_property
    def actors(self) -> Actors:
        return Actors(self.log, self.policies)

    def once(self, compute: Callable[["Question"], Result]) -> Result:
        """The result of a function of this question, which several estimators need and one computes."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        return self._results[compute]

    def reached(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


@dataclass(frozen=True)
class Evidence:
    """What one estimator says of one policy, in the log's reward units."""

    draws: Mapping[str, NDArray[np.float64]] = field(default_factory=dict[str, NDArray[np.float64]])
    """By quantity, one number for each replicate or member: their mean is what it says, their spread how sure it is.

    gain: J(p) less the log's value, its mean discounted return. log: that value. episode: what a whole episode earns,
    undiscounted. rate of ...: by how much the rate of what is watched (`sbac.trust.watching`) is larger than the log's.
    """
    diagnostics: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the warnings and the reader need besides, by names that no other estimator uses."""


class Facts(dict[str, float]):
    """All that is known of one policy, by name. What nobody said is not a number: no comparison with it holds."""

    def __missing__(self, name: str) -> float:
        return math.nan


def facts_of(log: JudgedLog, evidence: Mapping[str, Evidence]) -> Facts:
    """The log's own numbers and the evidence of each estimator, by its name.

    The draws of a quantity become three numbers, such as model_gain, model_gain_spread and model_gain_draws.
    """
    low, high = log.bounds
    lowest_episode, highest_episode = log.episode_bounds
    facts = Facts(
        episodes=log.episodes,
        return_deviation=float(log.returns.std()),
        lowest_possible=low,
        highest_possible=high,
        lowest_episode=lowest_episode,
        highest_episode=highest_episode,
    )
    for name, said in evidence.items():
        facts.update(said.diagnostics)
        for quantity, draws in said.draws.items():
            facts.update(summary(f"{name}_{quantity}", draws))
    return facts


def summary(name: str, draws: NDArray[np.float64]) -> dict[str, float]:
    """The mean of the draws, their standard deviation, which one draw does not tell, and their number."""
    spread = float(draws.std(ddof=1)) if len(draws) > 1 else math.inf
    return {name: float(draws.mean()), f"{name}_spread": spread, f"{name}_draws": len(draws)}


LUCK = {"return_deviation": "model_luck_discounted", "episode_deviation": "model_luck"}
"""What of the log's deviations is chance in single rewards, by the learned model."""


def explained(facts: Mapping[str, float], deviation: str) -> float:
    """A deviation of what the log's episodes earn without what chance adds to single rewards: no policy earns that."""
    luck = facts.get(LUCK[deviation], 0.0)
    return math.sqrt(max(facts.get(deviation, math.nan) ** 2 - luck**2, 0.0))
