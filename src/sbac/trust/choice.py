"""What is known of the policies that were compared and which one is taken: the records, and their file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sbac import files
from sbac.errors import UserError
from sbac.policy import Policy
from sbac.records import Settings, as_json, parse
from sbac.runs import Run, policy_record, read_policy
from sbac.trust.evidence import explained
from sbac.trust.watching import WatchedRate

PESSIMISM = 0.5
"""Of the model's members: how many of their standard deviations a promise lies below their mean. Found on development
runs."""
CHOICE_FILE, CLONE_FILE = "selection.json", "clone.safetensors"
CHOICE_FORMAT = 2
LOG, CLONE = "the log", "clone"
NUMBERS = ("value", "low", "high", "gain", "gain_low", "gain_high", "episode", "episode_low", "episode_high")
"""What the table says of a policy."""


@dataclass(frozen=True)
class CandidateRecord:
    """A policy of a run, and what the estimators say of it; numbers are None where there is none that is finite."""

    label: str
    seed: int
    setting: Settings
    value: float | None
    low: float | None
    high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    warnings: list[str]
    set_aside: bool
    """Whether it is not to be chosen on these estimates."""
    episode: float | None = None
    episode_low: float | None = None
    episode_high: float | None = None
    episode_spread: float | None = None
    path: str | None = None
    """Of its file, from the folder that the choice is written into."""
    diagnostics: Mapping[str, float] = field(default_factory=dict[str, float])
    policy: str | None = None
    """The hash of the policy."""
    watched: list[WatchedRate] = field(default_factory=list[WatchedRate])
    """What is watched beside the return."""
    left_out: list[str] = field(default_factory=list[str])
    """A sentence for each estimator that does not know the log itself, and has no part in the estimate."""

    @property
    def promise(self) -> float:
        """What it is ranked by, on the safe side: what a whole episode earns in the learned model, undiscounted.

        An episode that ends early shows there, and hardly in a discounted value. What may be optimism is taken off: it
        grows with the distance from the log. Without a model the same is done with the gain.
        """
        return self.expected - self.diagnostics.get("optimism" if self.episode is None else "episode_optimism", 0.0)

    @property
    def expected(self) -> float:
        """The promise without what may be optimism. The clone has none: others are compared with it by this."""
        if self.gain is None:
            return -math.inf
        if self.episode is None or self.episode_spread is None:
            return self.gain
        # As the model says it: put right as the log's own episodes end, it ranks policies no better.
        return self.diagnostics.get("model_episode", self.episode) - PESSIMISM * self.episode_spread

    @property
    def unit(self) -> float:
        """The standard deviation of the log's returns without mere chance, in the units of the promise."""
        return explained(self.diagnostics, "return_deviation" if self.episode is None else "episode_deviation")


@dataclass(frozen=True)
class LogRecord:
    """The log itself, in the units in which its policies are judged."""

    name: str
    hash: str
    value: float
    """Its mean discounted return. Behind a time limit an episode counts as going on, as it does for the policies."""
    episode: float
    """What an episode earns, undiscounted."""
    length: float
    """The steps of an episode."""
    ends: float
    """The share of the episodes that end early, before a time limit."""
    returns: list[float]
    """The discounted returns of its episodes, whose mean is `value`, from the least to the largest: 100 quantiles."""
    learned_elsewhere: list[str] = field(default_factory=list[str])
    """The names of the logs that policies learned from, where they are others than this one."""
    steps: int = 1_000
    """Of a whole episode, at most: what a promise is about."""
    episode_deviation: float = 0.0
    """The standard deviation of what its episodes earn, undiscounted."""
    notes: list[str] = field(default_factory=list[str])
    """What was done to it before it was judged."""
    warnings: list[str] = field(default_factory=list[str])
    """What about it misleads."""
    suggested_end: str | None = None
    """A rule that tells its ends from its other rows, where one column does."""


@dataclass(frozen=True)
class Promise:
    """By how much an episode of the policy earns more than one of the log, undiscounted, with its 90 % interval."""

    gain: float
    low: float
    high: float
    percent: float | None
    """The gain in percent of what the log's episodes earn; None where that is not clearly away from 0."""


@dataclass(frozen=True)
class ChoiceRecord:
    """selection.json of a run's folder: what `sbac select` says."""

    format: int
    label: str
    decided: bool
    reason: str
    log: LogRecord
    discount: float
    candidates: list[CandidateRecord]


class Choice:
    """The policy that is taken, and what is known of all of them.

    best: the policy, or the function where one was given and taken. label: its name. decided: whether the estimates
    could tell it from the preset's. reason: why it was taken, in a sentence. table: a dictionary for each policy, best
    first: label, alpha, seed, value, low, high, gain, gain_low, gain_high, episode, episode_low, episode_high (whole
    episodes, undiscounted; None: no interval), warnings, set_aside. log: the log's mean discounted return, by which
    values are larger than gains. log_row: the log as a row of the table. promise: what is promised of the policy, for a
    whole episode; None where nothing can be. watched: a dictionary for each thing that is watched, under the policy:
    name, kind, log, rate, low, high, worse. candidates: the rows with all diagnostics.
    """

    def __init__(self, best: Any, record: ChoiceRecord, clone: Policy) -> None:
        self.best, self.record, self.clone = best, record, clone
        self.label, self.decided, self.reason = record.label, record.decided, record.reason
        self.log, self.discount, self.candidates = record.log.value, record.discount, record.candidates

    @property
    def table(self) -> list[dict[str, Any]]:
        shown = ("label", "alpha", "seed", *NUMBERS, "warnings", "set_aside", "watched")
        rows = [
            {"alpha": row.setting.get("alpha"), **vars(row), "watched": [asdict(each) for each in row.watched]}
            for row in self.candidates
        ]
        return [{name: row[name] for name in shown} for row in rows]

    @property
    def log_row(self) -> dict[str, Any]:
        """What a policy is to improve on."""
        log = self.record.log
        numbers = {"value": log.value, "gain": 0.0, "episode": log.episode, "length": log.length, "ends": log.ends}
        return {"label": LOG, **numbers}

    @property
    def promise(self) -> Promise | None:
        return promise_of(self.candidates[0], self.record.log)

    @property
    def watched(self) -> list[dict[str, Any]]:
        return self.table[0]["watched"]

    @property
    def warnings(self) -> list[str]:
        """Of the policy that is taken."""
        return self.candidates[0].warnings

    def __repr__(self) -> str:
        return f"Choice({self.label!r}: {self.reason})"


def promise_of(row: CandidateRecord, log: LogRecord) -> Promise | None:
    """What is promised of a policy; None without an estimate of whole episodes that can be believed."""
    if row.episode is None or row.episode_low is None or row.episode_high is None:
        return None
    gain, low, high = (number - log.episode for number in (row.episode, row.episode_low, row.episode_high))
    percent = 100 * gain / abs(log.episode) if abs(log.episode) > log.episode_deviation else None
    return Promise(gain, low, high, percent)


def policy_of(run: Run, candidate: CandidateRecord) -> Policy:
    """The policy of a candidate: one of the run's, or what its file holds."""
    for policy in run.policies:
        if label_of(policy) == candidate.label:
            return policy
    if run.folder is None or candidate.path is None:
        raise UserError(f"{candidate.label}: not a policy of the run, and it has no file")
    policy = read_policy(run.folder / candidate.path)
    if policy.hash != candidate.policy:
        raise UserError(f"{run.folder / candidate.path}: not the policy that was judged; run sbac select again")
    return policy


def label_of(policy: Policy) -> str:
    return policy_record(policy).label


# --- The file ---------------------------------------------------------------------------------------------------------


def write_choice(folder: Path, record: ChoiceRecord, clone: Policy | None = None) -> None:
    """Writes selection.json and the clone: `sbac export`, `sbac compare` and the card take the policy that it names."""
    if clone is not None:
        clone.save(folder / CLONE_FILE)
    files.write_json(folder / CHOICE_FILE, as_json(record))


def read_choice(folder: Path, policies: Sequence[Policy]) -> ChoiceRecord | None:
    """What was decided last, if anything was; refused where it is not about these policies, those of the run.

    Candidates of other runs and the clone are compared when they are read.
    """
    path = folder / CHOICE_FILE
    if not path.exists():
        return None
    record = parse(ChoiceRecord, files.read_json(path), str(path))
    if record.format != CHOICE_FORMAT:
        raise UserError(f"{path}: not a choice of this version of sbac (expected format {CHOICE_FORMAT})")
    if record.label not in {candidate.label for candidate in record.candidates}:
        raise UserError(f"{path}: it takes {record.label!r}, which it does not list; run sbac select again")
    of_the_run = [
        row for row in record.candidates if row.label != CLONE and Path(row.path or "policies").parts[0] != ".."
    ]
    if {row.policy for row in of_the_run} - {None} != {policy.hash for policy in policies}:
        raise UserError(f"{path}: it is about other policies than those of the run; run sbac select again")
    return record
