"""A few real episodes: which policy to try next, and which one to keep.

What was tried stands in trials.jsonl of the run's folder, a line for each try: {"label": ..., "returns": [...]}. A user
without an environment that can be opened here writes the lines. The next policy follows from the lines alone, so that
trying can stop and go on at any time.

The rule is UCB: the policy with the largest mean return so far plus a bonus for having been tried little. Before that
each candidate is tried once, in the order of the estimates from the log. With a budget of N episodes there are N / 2
candidates, the best by these estimates: each can then be tried twice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbac import files
from sbac.environments.opening import EnvSource
from sbac.errors import UserError, positive, unknown
from sbac.evaluation.rollout import Evaluator
from sbac.policy import Policy
from sbac.records import as_json, parse

TRIALS_FILE = "trials.jsonl"
FIRST_SEED = 20_000
"""Of the environment, for the first try; the others count on. Evaluations during training begin at 10,000."""


@dataclass(frozen=True)
class Trial:
    """A line of trials.jsonl."""

    label: str
    returns: list[float]
    policy: str | None = None
    """The hash of the policy that played; a line that a user writes need not have it."""


@dataclass(frozen=True)
class Tried:
    """The best policy after the tries, with all returns by label."""

    label: str
    returns: dict[str, list[float]]

    @property
    def episodes(self) -> int:
        return sum(map(len, self.returns.values()))


def read_trials(folder: Path, policies: Mapping[str, Policy], labels: Sequence[str]) -> dict[str, list[float]]:
    """The returns by label, in the order in which they came; refused where another policy of that label played."""
    path = folder / TRIALS_FILE
    returns: dict[str, list[float]] = {label: [] for label in labels}
    hashes = {label: policies[label].hash for label in labels}
    for number, row in enumerate(files.read_rows(path), 1):
        trial = parse(Trial, row, f"{path}: line {number}")
        if trial.label not in returns:
            raise UserError(f"{path}: line {number}: {unknown('label', trial.label, labels)}")
        if trial.policy not in (None, hashes[trial.label]):
            raise UserError(f"{path}: line {number}: another policy than the run's {trial.label}; remove the line")
        if not all(map(math.isfinite, trial.returns)):
            raise UserError(f"{path}: line {number}: returns are not finite; expected numbers")
        returns[trial.label] += trial.returns
    return returns


def candidates(ranked: Sequence[str], budget: int) -> list[str]:
    """The policies that are tried with so many episodes; `ranked` has the best by the estimates first."""
    return list(ranked[: max(1, min(len(ranked), budget // 2))])


def next_label(ranked: Sequence[str], returns: dict[str, list[float]], budget: int) -> str | None:
    """The policy to try next; None when the budget is spent."""
    tries = sum(len(returns[label]) for label in ranked)
    if tries >= budget:
        return None
    tried = candidates(ranked, budget)
    fresh = [label for label in tried if not returns[label]]
    if fresh:
        return fresh[0]
    spread = deviation([returns[label] for label in tried])

    def promise(label: str) -> float:
        return float(np.mean(returns[label])) + spread * math.sqrt(2 * math.log(tries) / len(returns[label]))

    return max(tried, key=promise)


def deviation(groups: Sequence[Sequence[float]]) -> float:
    """The standard deviation of a policy's episodes, over all policies; of all returns where each has only one."""
    residuals = np.concatenate([np.asarray(group) - np.mean(group) for group in groups])
    freedom = len(residuals) - len(groups)
    return float(np.sqrt((residuals**2).sum() / freedom) if freedom > 0 else np.concatenate(groups).std())


def best_tried(ranked: Sequence[str], returns: dict[str, list[float]]) -> str:
    """The largest mean return among the policies that were tried at least as often as the average one."""
    tried = [label for label in ranked if returns[label]]
    if not tried:
        return ranked[0]
    average = np.mean([len(returns[label]) for label in tried])
    often = [label for label in tried if len(returns[label]) >= average]
    return max(often, key=lambda label: float(np.mean(returns[label])))


def try_policies(
    folder: Path, policies: dict[str, Policy], ranked: Sequence[str], environment: EnvSource, budget: int
) -> Tried:
    """Plays episodes one at a time until the folder holds `budget` of them. Each is on disk before the next begins."""
    positive("try", budget)
    evaluator = Evaluator(environment)
    while True:
        returns = read_trials(folder, policies, ranked)
        label = next_label(ranked, returns, budget)
        if label is None:
            return Tried(best_tried(ranked, returns), returns)
        seed = FIRST_SEED + sum(map(len, returns.values()))
        played = evaluator(policies[label], 1, seed)
        files.append_rows(folder / TRIALS_FILE, [as_json(Trial(label, played.returns, policies[label].hash))])
