"""Estimates of J(p) with an interval for the gain over the log, and the reasons not to believe them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sbac.data import Dataset, load
from sbac.errors import UserError, not_negative
from sbac.nn import GaussianPolicy
from sbac.trust.acting import Actors
from sbac.trust.behaviour import STEPS, clone, compared_rows, departed
from sbac.trust.fitting import Effort, Fitted, Reporter, find_effort, fit
from sbac.trust.log import Acts, Log, read_log, resample
from sbac.trust.model import Rollouts

LEVEL = 0.9
"""The nominal coverage of an interval."""

# --- When not to believe. Thresholds in units that do not depend on the task. -----------------------------------------

FEWEST_EPISODES = 20
"""Below, resampling whole episodes says little about other episodes."""
BEYOND = 0.05
"""How far, as a share of its width, a value may lie outside of [r_min, r_max] / (1 - gamma): networks are not exact."""
MOVING = 0.5
"""Of half the interval's width: a gain that moved more than this in the last fifth of training has not settled."""
MISSED = 0.5
"""In standard deviations of the log's returns: by how much the method may miss the log's own value, which is known."""
FAR = 1.5
"""In the log's own deviations, the mean over states: farther from its mean action there is next to no data."""
FAR_AT_TIMES = 3.0
"""The same for one state in ten: a policy that stays near the log mostly may still leave it where it matters."""
APART = 3.0
"""Of both estimators' deviations together, and half a deviation of the log's returns on top: if they differ by more,
they do not confirm each other."""
FOLLOWED = 0.8
"""Of the discounted time: where the model's rollouts are cut sooner, what they say is mostly fitted Q evaluation's own
word, which cannot confirm it."""
OPTIMISM = 1.0
"""By how much the gain of a policy that was learned from the same log may lie too high, in deviations of the log's
returns for each of the log's own deviations that the policy departs from it. Found on development runs."""
UNKNOWN = 0.2
"""In deviations of the log's returns: the error of such a gain that no resampling shows. Found on the same runs."""


@dataclass(frozen=True)
class Diagnostics:
    """The numbers that the warnings rest on, in the log's reward units except where said."""

    episodes: int
    largest: float
    """The largest value at a first state."""
    least: float
    highest_possible: float
    lowest_possible: float
    moved: float
    """By how much the gain moved in the last fifth of training."""
    missed: float
    """The value of the log's own behaviour by the same networks, less the mean return of the log."""
    return_deviation: float
    """Standard deviation of the log's discounted returns."""
    distance: float
    """Of the policy from the log's mean action, in the log's own deviations: the mean over states."""
    model_gain: float | None = None
    """The gain by the learned model, where it was asked for."""
    model_share: float | None = None
    """The share of the discounted time that its rollouts lasted before they were cut."""
    model_spread: float = 0.0
    """The standard deviation of the gain over the model's members."""
    episode: float | None = None
    """What a whole episode earns in the learned model, undiscounted: the mean over its members."""
    episode_spread: float = 0.0
    """The standard deviation of that over the members."""
    episode_deviation: float = 0.0
    """The standard deviation of what the log's episodes earn, undiscounted."""
    reach: float = 0.0
    """The distance that one state in ten exceeds."""
    optimism: float = 0.0
    """By how much the gain may lie too high because the policy was learned from the same log."""
    unknown: float = 0.0
    """The error to either side that no resampling shows, for such a policy."""
    effective_share: float | None = None
    """Of the log's rows that carry the weights of p.sample, where they were computed."""


@dataclass(frozen=True)
class Estimate:
    """J(p), discounted, in the log's reward units, from its first states; the interval has a nominal 90 %.

    `gain` is J(p) less the mean discounted return of the log's episodes. Where a warning says that the estimate should
    not be believed there is no interval: its bounds are infinite.
    """

    value: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    warnings: list[str]
    diagnostics: Diagnostics
    gains: list[float]
    """Of every replicate; a pair of policies is compared replicate by replicate."""
    weighted: Mapping[str, float] | None = None
    """The weighted estimates of J(p.sample), where they were asked for and the effective share allows them."""

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.gain_low)


def fqe(
    data: Dataset | str,
    policy: Acts,
    discount: float = 0.99,
    seed: int = 0,
    *,
    effort: str | Effort = "quick",
) -> Estimate:
    """Estimates J(p), the discounted return of p from the first states of the log, by fitted Q evaluation.

    data: a Dataset, or anything `sbac.load` takes.
    policy: a Policy, or any function from observations to actions, both in the environment's units. It is judged as it
        acts when called: a policy of the package by its mode.
    discount: gamma.
    effort: "quick" for minutes on two cores, "full" for a GPU, or an `Effort`.
    """
    spent = effort if isinstance(effort, Effort) else find_effort(effort)
    not_negative("seed", seed)
    if not callable(policy):
        raise UserError(f"policy {policy!r}: expected a Policy or a function from observations to actions")
    return judge(read_log(load(data), discount), [policy], spent, seed).estimates[0]


@dataclass(frozen=True)
class Judged:
    """The estimates of several policies from one log, and what they were made with."""

    log: Log
    estimates: list[Estimate]
    fitted: Fitted
    behaviour: GaussianPolicy


def judge(log: Log, policies: Sequence[Acts], effort: Effort, seed: int, progress: Reporter | None = None) -> Judged:
    """Estimates the values of several policies in one program."""
    report = Reporter() if progress is None else progress
    sample = resample(log, effort.replicates, effort.folds, np.random.default_rng(seed))
    actors = Actors(log, policies)
    after, first = actors.tables()
    fitted = fit(log, sample, after, first, effort, seed, report)
    behaviour = clone(log, effort.hidden, seed, min(STEPS, sum(effort.steps)))
    rows = compared_rows(log)
    distances = departed(log, behaviour, actors.at_rows(rows), rows)
    estimates = [estimate(log, fitted, number, found) for number, found in enumerate(distances, 1)]
    return Judged(log, estimates, fitted, behaviour)


def estimate(log: Log, fitted: Fitted, number: int, distances: NDArray[np.float64]) -> Estimate:
    """The estimate of the policy with this number; 0 is the log's own behaviour."""
    gains = fitted.values[:, number] - fitted.values[:, 0]  # (records, replicates)
    missed = float((fitted.values[-1, 0] - fitted.own).mean())
    before = gains[max(int(0.8 * len(gains)) - 1, 0)].mean()
    low, high = log.bounds
    diagnostics = Diagnostics(
        log.episodes,
        float(fitted.largest[number]),
        float(fitted.least[number]),
        high,
        low,
        float(gains[-1].mean() - before),
        missed,
        float(log.returns.std()),
        float(distances.mean()),
        reach=float(np.quantile(distances, 0.9)),
    )
    return from_replicates(fitted.own, gains[-1], diagnostics)


def from_replicates(own: NDArray[np.float64], gains: NDArray[np.float64], diagnostics: Diagnostics) -> Estimate:
    """The estimate from the replicates' values of the log and their gains; `diagnostics` widen or forbid an interval.

    The value is the log's own mean return, which is known, plus the gain, which is a difference of two networks that
    share their episodes, their batches and their first weights. Where a learned model was asked as well, the gain is
    the mean of both. The interval is Student's t for the spreads, widened by how far the two are apart, by how far the
    networks miss the log's own value, and for a policy that was learned from the same log by what no resampling shows
    and, to below, by its optimism.
    """
    gain, deviation, apart = combined(gains, diagnostics)
    quantile = float(stdtrit(len(gains) - 1, 0.5 + LEVEL / 2)) if len(gains) > 1 else math.inf
    value = float(own.mean()) + gain
    of_the_log = float(own.std(ddof=1)) if len(own) > 1 else math.inf
    gain_half = math.hypot(quantile * deviation, apart, diagnostics.missed, diagnostics.unknown)
    value_half = math.hypot(gain_half, quantile * of_the_log)
    below = diagnostics.optimism
    warnings = doubts(diagnostics, float(gains.mean()), half_width(gains))
    if warnings:
        gain_half = value_half = math.inf
    return Estimate(
        value, value - value_half - below, value + value_half, gain, gain - gain_half - below, gain + gain_half,
        warnings, diagnostics, gains.tolist(),
    )  # fmt: skip


def combined(gains: NDArray[np.float64], found: Diagnostics) -> tuple[float, float, float]:
    """The gain by both estimators, its standard deviation, and how far each is from it.

    They weigh the same: what is wrong with either is not what their spreads show.
    """
    gain = float(gains.mean())
    spread = float(gains.std(ddof=1)) if len(gains) > 1 else math.inf
    if found.model_gain is None:
        return gain, spread, 0.0
    apart = 0.5 * (found.model_gain - gain)
    return gain + apart, 0.5 * math.hypot(spread, found.model_spread), abs(apart)


def half_width(replicates: NDArray[np.float64]) -> float:
    """Half the width of the interval that the spread of the replicates gives."""
    if len(replicates) < 2:
        return math.inf
    return float(stdtrit(len(replicates) - 1, 0.5 + LEVEL / 2) * replicates.std(ddof=1))


def doubts(found: Diagnostics, gain: float, half: float) -> list[str]:
    """The reasons not to believe an estimate, in plain words."""
    reasons: list[str] = []
    if found.episodes < FEWEST_EPISODES:
        reasons.append(f"the log has {found.episodes} episodes; at least {FEWEST_EPISODES} are needed for an interval")
    slack = BEYOND * (found.highest_possible - found.lowest_possible)
    if found.largest > found.highest_possible + slack or found.least < found.lowest_possible - slack:
        reasons.append(
            f"values from {found.least:.4g} to {found.largest:.4g} go beyond what the rewards allow, "
            f"{found.lowest_possible:.4g} to {found.highest_possible:.4g}"
        )
    floor = 0.05 * found.return_deviation
    if abs(found.moved) > max(MOVING * half, floor):
        reasons.append(f"the value was still moving at the end of training, by {found.moved:+.3g} in the last fifth")
    if abs(found.missed) > MISSED * found.return_deviation + floor:
        reasons.append(f"the method misses the log's own mean return, which is known, by {found.missed:+.3g}")
    if found.distance > FAR:
        reasons.append(f"the policy acts {found.distance:.1f} of the log's deviations away from it: no data there")
    elif found.reach > FAR_AT_TIMES:
        reasons.append(
            f"in one state of ten the policy acts {found.reach:.1f} or more of the log's deviations away from it: "
            "no data there"
        )
    if found.model_share is not None and found.model_share < FOLLOWED:
        reasons.append(
            f"in a learned model the policy leaves what the log shows after {100 * found.model_share:.0f} % of the "
            "discounted time: nothing confirms the estimate"
        )
    spreads = half / 2 + found.model_spread
    apart = APART * spreads + 0.5 * found.return_deviation
    if found.model_gain is not None and abs(found.model_gain - gain) > apart:
        reasons.append(
            f"the learned model puts the gain at {found.model_gain:.4g}, fitted Q evaluation at {gain:.4g}: "
            "they do not confirm each other"
        )
    return reasons


def with_model(found: Estimate, own: NDArray[np.float64], said: Rollouts, number: int, deviation: float) -> Estimate:
    """The estimate with what the members of a model say of the policy with this number, from 0 on.

    `deviation`: of what the log's episodes earn, undiscounted.
    """
    gains, episodes = said.gains[number], said.episodes[number]
    diagnostics = replace(
        found.diagnostics,
        model_gain=float(gains.mean()),
        model_share=float(said.shares[number]),
        model_spread=float(gains.std(ddof=1)),
        episode=float(episodes.mean()),
        episode_spread=float(episodes.std(ddof=1)),
        episode_deviation=deviation,
    )
    return replace(from_replicates(own, np.asarray(found.gains), diagnostics), weighted=found.weighted)


def learned_from(found: Estimate, own: NDArray[np.float64]) -> Estimate:
    """The estimate of a policy that was learned from the same log: wider, and its lower bound allows for optimism."""
    unit = found.diagnostics.return_deviation
    optimism = OPTIMISM * found.diagnostics.distance * unit
    diagnostics = replace(found.diagnostics, optimism=optimism, unknown=UNKNOWN * unit)
    return replace(from_replicates(own, np.asarray(found.gains), diagnostics), weighted=found.weighted)
