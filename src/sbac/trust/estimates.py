"""Estimates of J(p) with an interval for the gain over the log: here the evidence of all estimators comes together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from sbac.data import Dataset, load
from sbac.errors import UserError, not_negative, unknown
from sbac.trust.doubts import believed, doubts, episode_goes_beyond, student
from sbac.trust.estimators import ALWAYS, ESTIMATORS
from sbac.trust.evidence import AS_LOGGED, Effort, Facts, Question, explained, facts_of, find_effort
from sbac.trust.log import Acts, read_log
from sbac.trust.watching import Watched, WatchedRate

OPTIMISM = 1.0
"""By how much the gain of a policy that was learned from the same log may lie too high, in deviations of the log's
returns for each of the log's own deviations that the policy departs from it. Found on development runs."""
DISSENT = 0.5
"""Of what another estimator differs by from the learned model: it widens the interval. Fitted Q evaluation is often
fooled by policies that fall; with the model's word in the middle more intervals hold, and they are no wider
(`lab-notes/judge`)."""
UNKNOWN = 0.2
"""In deviations of the log's returns: the error of such a gain that no resampling shows. Found on the same runs."""


AT_STAKE = {"return_deviation": "model_departure_discounted", "episode_deviation": "model_departure"}
"""Of the log's deviations, what a departure by one deviation of the clone costs in the learned model."""


@dataclass(frozen=True)
class Estimate:
    """J(p), discounted, in the log's reward units, from its first states; the interval has a nominal 90 %.

    `gain` is `value` less the log's value, diagnostics["log"]: the mean discounted return of its episodes, with what is
    estimated to come behind a time limit, as in `value`. Where a warning says that the estimate should
    not be believed there is no interval: its bounds are infinite.
    """

    value: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    episode: float
    """What a whole episode earns, undiscounted; not a number where no estimator says it."""
    episode_low: float
    episode_high: float
    episode_spread: float
    warnings: list[str]
    watched: list[WatchedRate]
    diagnostics: Facts
    """All that the estimators say; optimism, episode_optimism: by how much the gain, and what a whole
    episode earns, may be less of a policy that learned from the log."""
    left_out: list[str] = field(default_factory=list[str])
    """A sentence for each estimator that does not know the log itself; nothing of what it says is in the estimate."""

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
    spent = find_effort(effort)
    not_negative("seed", seed)
    if not callable(policy):
        raise UserError(f"policy {policy!r}: expected a Policy or a function from observations to actions")
    return judge(Question(read_log(load(data), discount), [policy], spent, seed))[0]


def judge(question: Question, beside: Sequence[str] = (), learned: bool = False) -> list[Estimate]:
    """An estimate of every policy. `beside`: the estimators besides those that are always asked.

    learned: whether the policies were learned from the same log.
    """
    for name in beside:
        if name not in ESTIMATORS:
            raise unknown("estimator", name, ESTIMATORS)
    said = {name: ESTIMATORS[name].evidence(question) for name in ESTIMATORS if name in (*ALWAYS, *beside)}
    return [
        conclude(
            facts_of(question.log, {name: evidence[number] for name, evidence in said.items()}),
            learned,
            question.log.watches,
        )
        for number in range(len(question.policies))
    ]


def conclude(facts: Facts, learned: bool = False, watches: Sequence[Watched] = ()) -> Estimate:
    """The estimate from all that is known of a policy.

    The value is the log's own plus the gain. The interval is Student's t for the spreads, widened by how far the
    estimators are apart, by how far the networks miss the log's own value, and for a policy that was learned from the
    same log by what no resampling shows and, to below, by its optimism. That of a whole episode is built alike, of
    what is said of episodes, in deviations of what the log's earn, less what the model gives the log itself too much.
    """
    said, (facts, left_out) = facts, believed(facts)
    unit, episode_unit = (at_stake(facts, name) if learned else 0.0 for name in AT_STAKE)
    optimism, unknown_error = OPTIMISM * facts["distance"] * unit, UNKNOWN * unit
    gain = combined(facts, "gain")
    quantile = student(facts["fitted_gain_draws"] if "fitted_gain" in facts else fewest(facts, "gain"))
    drawn, baseline = quantile * gain.deviation, student(math.inf) * facts.get("model_baseline_spread", 0.0)
    gain_half = math.hypot(drawn, baseline, gain.apart, facts.get("missed", 0.0), unknown_error)
    value = facts["log"] + gain.mean
    value_half = math.hypot(gain_half, quantile * facts.get("fitted_log_spread", 0.0))
    episode = combined(facts, "episode")
    episode_half = math.hypot(
        student(fewest(facts, "episode")) * episode.deviation, episode.apart, UNKNOWN * episode_unit
    )
    warnings = doubts(facts)
    if warnings and not math.isfinite(gain.mean):  # nobody is left: what was said may still be looked at
        gain, warnings = combined(said, "gain"), left_out + warnings
        value, episode = facts["log"] + gain.mean, combined(said, "episode")
    episode_optimism = OPTIMISM * facts["distance"] * episode_unit
    possible = facts.get("lowest_episode", -math.inf), facts.get("highest_episode", math.inf)
    # A model without the world's disturbances gives the log more than it earned, and a policy no less.
    generous = max(0.0, facts.get("model_missed", 0.0))
    mean, low, high = np.clip(
        episode.mean - generous + np.array([0.0, -episode_half - episode_optimism, episode_half]), *possible
    ).tolist()
    if episode_goes_beyond(facts):
        mean = math.nan
    if warnings:
        gain_half = value_half = high = math.inf
        low = -math.inf
    return Estimate(
        value, value - value_half - optimism, value + value_half,
        gain.mean, gain.mean - gain_half - optimism, gain.mean + gain_half,
        mean, low, high, said["model_episode_spread"],
        warnings,
        [watched_rate(each, facts, learned, not warnings, gain.mean) for each in watches],
        Facts(said, optimism=optimism, episode_optimism=episode_optimism),
        left_out,
    )  # fmt: skip


def at_stake(facts: Facts, name: str) -> float:
    """What the deductions are counted in: a deviation of the log, or what a lasting departure costs, if that is more.

    Where the log's episodes are all alike their deviation says nothing of what other behaviour leads to.
    """
    return max(explained(facts, name), facts.get(AT_STAKE[name], 0.0))


def watched_rate(watched: Watched, facts: Facts, learned: bool, believed: bool, gain: float) -> WatchedRate:
    """The rate of what is watched under a policy: the log's plus the change, with an interval built as the gain's."""
    change, unit = combined(facts, watched.quantity), float(watched.rates.std())
    if math.isnan(change.mean):
        return WatchedRate(watched.name, watched.kind, watched.rate, None, None, None, False)
    drawn = student(fewest(facts, watched.quantity)) * change.deviation
    missed = facts.get(f"missed {watched.quantity}", 0.0)
    half = math.hypot(drawn, change.apart, missed, UNKNOWN * unit if learned else 0.0)
    rate, low, high = np.clip(watched.rate + change.mean + half * np.array([0.0, -1.0, 1.0]), *watched.bounds).tolist()
    worse = watched.kind != "column" and gain > 0 and rate - watched.rate > UNKNOWN * unit
    told = WatchedRate(watched.name, watched.kind, watched.rate, rate, low, high, worse)
    return told if believed and not told.is_rare else replace(told, low=None, high=None)


def fewest(facts: Facts, quantity: str) -> float:
    """The least number of draws of a quantity that an estimator has."""
    return min((count for name, count in facts.items() if name.endswith(f"_{quantity}_draws")), default=math.nan)


class Combined(NamedTuple):
    """A quantity by all estimators that say something of it."""

    mean: float
    deviation: float
    """Standard deviation of the mean."""
    apart: float
    """By how much the estimators differ, as far as it widens the interval."""


def combined(facts: Facts, quantity: str) -> Combined:
    """What the model says, where it is asked, else the first of the estimators, and by how much others differ from it.

    The log's own episodes are too short in the model, or too long, and so may others be. So the mean lies in the middle
    between what it says and what it would say `AS_LOGGED`, and the whole difference widens the interval.
    """
    names = [f"{name}_{quantity}" for name in ESTIMATORS if f"{name}_{quantity}" in facts]
    if not names:
        return Combined(math.nan, math.nan, math.nan)
    leading = f"model_{quantity}" if f"model_{quantity}" in names else names[0]
    apart = DISSENT * max(abs(facts[name] - facts[leading]) for name in names)
    right = leading + AS_LOGGED if leading + AS_LOGGED in facts else leading
    mean, deviation = ((facts[leading + part] + facts[right + part]) / 2 for part in ("", "_spread"))
    return Combined(mean, deviation, math.hypot(apart, facts[right] - facts[leading]))
