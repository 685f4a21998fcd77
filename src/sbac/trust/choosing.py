"""`sbac.select`: which policy of a run to take, from the log alone.

Nothing here reads an environment or an evaluation: the run's policies, its record and the log are all there is.
"""

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac import files
from sbac.algorithms import find
from sbac.config import fields_of
from sbac.data import Dataset, load
from sbac.errors import UserError, not_negative
from sbac.evaluation.rollout import Acts
from sbac.policy import Policy
from sbac.records import Setting, Settings, as_json, parse
from sbac.runs import Run, RunRecord, policy_file, policy_record, policy_setting, read_policy
from sbac.trust.behaviour import clone_policy, cloned
from sbac.trust.estimates import Estimate, judge
from sbac.trust.estimators import BESIDE
from sbac.trust.evidence import Effort, Facts, OnProgress, Question, find_effort
from sbac.trust.fitting import fit
from sbac.trust.log import JudgedLog, read_log
from sbac.trust.model import episode_returns

CAN_TELL = 0.5
"""In standard deviations of the log's returns: by how much a policy must promise more than the preset's to be taken.
A smaller advantage is within what the estimates get wrong. Found on development runs."""
PESSIMISM = 0.5
"""Of the model's members: how many of their standard deviations a promise lies below their mean. Found on the same."""
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

    @property
    def promise(self) -> float:
        """What it is ranked by, on the safe side: what a whole episode earns in the learned model, undiscounted.

        An episode that ends early shows there, and hardly in a discounted value. Without a model it is the gain less
        what may be optimism.
        """
        if self.gain is None:
            return -math.inf
        if self.episode is None or self.episode_spread is None:
            return self.gain - self.diagnostics["optimism"]
        return self.episode - PESSIMISM * self.episode_spread

    @property
    def unit(self) -> float:
        """The standard deviation of the log's returns, in the units of the promise."""
        return self.diagnostics.get("return_deviation" if self.episode is None else "episode_deviation", math.inf)


DIVERGED = Estimate(*(math.nan,) * 10, warnings=["its training has diverged"], diagnostics=Facts())
"""Of a policy whose networks are no longer numbers."""


def candidate_record(
    label: str, seed: int, setting: Settings, estimate: Estimate, policy: str | None = None
) -> CandidateRecord:
    def finite(numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: number for name, number in numbers.items() if math.isfinite(number)}

    numbers: dict[str, Any] = finite({name: getattr(estimate, name) for name in (*NUMBERS, "episode_spread")})
    return CandidateRecord(
        label,
        seed,
        setting,
        **(dict.fromkeys(NUMBERS) | numbers),
        warnings=estimate.warnings,
        set_aside=bool(estimate.warnings),
        diagnostics=finite(estimate.diagnostics),
        policy=policy,
    )


class Verdict(NamedTuple):
    """Which candidate is taken, whether the estimates decided it, and why, in a sentence."""

    label: str
    decided: bool
    reason: str


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


def log_record(log: JudgedLog, returns: NDArray[np.float64]) -> LogRecord:
    lengths, ended = np.diff(log.data.episodes, axis=1), log.data.terminals[log.data.episodes[:, 1] - 1]
    return LogRecord(
        log.data.name,
        log.data.hash,
        float(returns.mean()),
        float(episode_returns(log).mean()),
        float(lengths.mean()),
        float(ended.mean()),
        np.quantile(returns, np.linspace(0, 1, 100)).tolist(),
    )


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
    values are larger than gains. log_row: the log as a row of the table. candidates: the rows with all diagnostics.
    """

    def __init__(self, best: Any, record: ChoiceRecord, clone: Policy) -> None:
        self.best, self.record, self.clone = best, record, clone
        self.label, self.decided, self.reason = record.label, record.decided, record.reason
        self.log, self.discount, self.candidates = record.log.value, record.discount, record.candidates

    @property
    def table(self) -> list[dict[str, Any]]:
        shown = ("label", "alpha", "seed", *NUMBERS, "warnings", "set_aside")
        rows = [{"alpha": row.setting.get("alpha"), **vars(row)} for row in self.candidates]
        return [{name: row[name] for name in shown} for row in rows]

    @property
    def log_row(self) -> dict[str, Any]:
        """What a policy is to improve on."""
        log = self.record.log
        numbers = {"value": log.value, "gain": 0.0, "episode": log.episode, "length": log.length, "ends": log.ends}
        return {"label": LOG, **numbers}

    @property
    def warnings(self) -> list[str]:
        """Of the policy that is taken."""
        return self.candidates[0].warnings

    def __repr__(self) -> str:
        return f"Choice({self.label!r}: {self.reason})"


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


# --- What is judged ---------------------------------------------------------------------------------------------------

Judged = Run | str | Path | Acts
"""A run or its folder, a policy, or a function from observations to actions, both in the environment's units."""


class Contender(NamedTuple):
    """A policy that is judged: what it is called in the answer, its file, and the run that it comes from."""

    label: str
    policy: Acts
    file: Path | None = None
    run: Run | None = None

    @property
    def is_finite(self) -> bool:
        return not isinstance(self.policy, Policy) or self.policy.is_finite

    @property
    def hash(self) -> str | None:
        return self.policy.hash if isinstance(self.policy, Policy) else None

    @property
    def seed(self) -> int:
        return int(self.policy.config.get("seed", 0)) if isinstance(self.policy, Policy) else 0

    @property
    def setting(self) -> dict[str, Setting]:
        return (
            policy_setting(self.policy, self.policy.config.get("grid", [])) if isinstance(self.policy, Policy) else {}
        )


def read_runs(judged: Judged | Sequence[Judged]) -> list[Run | Acts]:
    """The runs, policies and functions, folders as the runs that they hold."""
    several = [judged] if isinstance(judged, Run | str | Path) or callable(judged) else list(judged)
    if not several:
        raise UserError("no run: expected a run, a policy or a function, or a list of them")
    read = [Run.load(each) if isinstance(each, str | Path) else each for each in several]
    for each in read:
        if isinstance(each, Run) and not each.policies:
            raise UserError(f"{each.folder or 'the run'}: it has no policies yet; finish it with sbac train --resume")
        if not isinstance(each, Run) and not callable(each):
            raise UserError(f"{each!r}: expected a run, a policy or a function from observations to actions")
    return read


def contenders(judged: Sequence[Run | Acts]) -> list[Contender]:
    """All policies. Where several are given, a run's policies are called by its folder too."""
    named: list[Contender] = []
    folders = [each.folder.name for each in judged if isinstance(each, Run) and each.folder is not None]
    for each in judged:
        if isinstance(each, Run):
            folder = each.folder
            name = each.record.algorithm if folder is None else folder.name
            name = str(folder) if folders.count(name) > 1 else name
            for policy in each.policies:
                label = label_of(policy)
                file = None if folder is None else policy_file(folder, label)
                named.append(Contender(label if len(judged) == 1 else f"{name}/{label}", policy, file, each))
        else:
            name = each.config.get("label") if isinstance(each, Policy) else getattr(each, "__name__", None)
            named.append(Contender(str(name or "policy"), each))
    labels = distinct([CLONE, *(each.label for each in named)])[1:]
    return [each._replace(label=label) for each, label in zip(named, labels, strict=True)]


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with a number where one stands before."""
    numbered: list[str] = []
    for label in labels:
        tries = (label if count == 1 else f"{label} ({count})" for count in itertools.count(1))
        numbered.append(next(each for each in tries if each not in numbered))
    return numbered


# --- Choosing ---------------------------------------------------------------------------------------------------------


def select(
    run: Judged | Sequence[Judged],
    data: Dataset | str | None = None,
    *,
    effort: str | Effort | None = None,
    seed: int = 0,
    beside: Sequence[str] = BESIDE,
    progress: OnProgress | None = None,
) -> Choice:
    """Ranks policies without an environment, and takes one.

    run: a Run, or its folder; also a policy, or a function from observations to actions; or a list of these, which are
        judged together. Where the estimates cannot tell, the setting of the first run's preset is taken. The clone of
        the log is judged beside them: what does not promise more than it is not taken.
    data: the log to judge them on; None: the one that the runs learned from.
    effort: "quick", "full" or an `Effort`; None: quick for runs of preset quick, full for others.
    beside: the estimators that judge them beside fitted Q evaluation; their disagreement widens the intervals. "model"
        is a learned model, "weighted" makes the weighted estimates, where the effective sample size allows.
    progress: is told what is being done, how far it is, and how far it goes.
    """
    not_negative("seed", seed)
    judged = read_runs(run)
    runs = [each for each in judged if isinstance(each, Run)]
    preset = preset_setting(runs[0].record) if runs else {}
    log = read_log(log_of(runs, data), max((discount_of(each.record) for each in runs), default=0.99))
    presets = {default_effort(each.record) for each in runs}
    spent = find_effort(("full" if "full" in presets else "quick") if effort is None else effort)
    question = Question(log, [], spent, seed, progress)
    home = runs[0].folder if runs else None
    clone = clone_policy(log, question.once(cloned), seed)
    judged = [*contenders(judged), Contender(CLONE, clone, None if home is None else home / CLONE_FILE)]
    question = replace(question, policies=[each.policy for each in judged if each.is_finite])
    candidates = [
        replace(row, path=None if home is None or each.file is None else os.path.relpath(each.file, home))
        for row, each in zip(judged_candidates(question, judged, beside), judged, strict=True)
    ]
    first = [row for row, each in zip(candidates, judged, strict=True) if each.run is (runs[0] if runs else None)]
    label, decided, reason = decide(candidates, preset, [row for row in first if row.label != CLONE])
    candidates.sort(key=lambda row: (row.label != label, row.set_aside, -row.promise))
    best = next(each.policy for each in judged if each.label == label)
    logged = replace(log_record(log, question.once(fit).returns), learned_elsewhere=learned_elsewhere(runs, log.data))
    record = ChoiceRecord(CHOICE_FORMAT, label, decided, reason, logged, log.discount, candidates)
    return Choice(best, record, clone)


def judged_candidates(
    question: Question, judged: Sequence[Contender], beside: Sequence[str] = BESIDE
) -> list[CandidateRecord]:
    """All contenders with their estimates; one that has diverged has none. The question is about the others."""
    for each in judged:
        if isinstance(each.policy, Policy):
            check_sizes(question.log, each.policy)
    estimates = iter(judge(question, beside, learned=True))
    return [
        candidate_record(
            each.label, each.seed, each.setting, next(estimates) if each.is_finite else DIVERGED, each.hash
        )
        for each in judged
    ]


def decide(
    candidates: Sequence[CandidateRecord], preset: Settings, first: Sequence[CandidateRecord] | None = None
) -> Verdict:
    """Takes the largest promise of the policies that nothing speaks against, if it is clearly above the preset's.

    Where the estimates cannot tell them apart, or something speaks against every one, the preset's setting is taken,
    of those in `first` (None: of all). What does not promise more than the clone of the log, if that is among the
    candidates and nothing speaks against it, is not taken.
    """
    usual = usual_candidate(first or [each for each in candidates if each.label != CLONE], preset)
    sound = [candidate for candidate in candidates if not candidate.set_aside]
    if not sound:
        return Verdict(
            usual.label, False, "no estimate can be believed: the preset's setting is taken, without a promise"
        )
    least = max((clone.promise for clone in sound if clone.label == CLONE), default=-math.inf)
    better = [candidate for candidate in sound if candidate.promise > least]
    if not better:
        return Verdict(CLONE, True, "no policy that can be believed promises more than the clone of the log")
    best = max(better, key=lambda candidate: candidate.promise)
    if best.label == usual.label:
        return Verdict(best.label, True, "the preset's setting also promises the most")
    if usual.set_aside:
        return Verdict(best.label, True, "it promises the most; the preset's setting is set aside")
    if usual not in better:
        return Verdict(
            best.label, True, "it promises the most; the preset's promises no more than the clone of the log"
        )
    if best.promise - usual.promise > CAN_TELL * best.unit:
        return Verdict(best.label, True, "it promises clearly more than the preset's setting")
    return Verdict(
        usual.label, False, "the estimates cannot tell the best policies apart: the preset's setting is taken"
    )


def usual_candidate(candidates: Sequence[CandidateRecord], preset: Settings) -> CandidateRecord:
    """Among the policies whose setting is nearest to the preset's, the one that promises the most."""

    def distance(candidate: CandidateRecord) -> float:
        return sum(apart(value, preset.get(name)) for name, value in candidate.setting.items())

    nearest = min(map(distance, candidates))
    near = [candidate for candidate in candidates if distance(candidate) <= nearest + 1e-9]
    return max(near, key=lambda candidate: (not candidate.set_aside, candidate.promise))


def apart(value: Setting, usual: Setting) -> float:
    """How far two values of a setting are from each other: positive numbers by their ratio."""
    if value == usual:
        return 0.0
    if isinstance(value, int | float) and isinstance(usual, int | float):
        return abs(math.log(value / usual)) if value > 0 and usual > 0 else abs(value - usual)
    return 1.0


# --- What a run says --------------------------------------------------------------------------------------------------


def preset_setting(record: RunRecord) -> dict[str, Setting]:
    """The values that the run's preset gives to the method's options."""
    method = find(record.algorithm)
    defaults = {name: field.default for name, field in fields_of(method.config).items()}
    return {**defaults, **method.presets.get(record.preset, {})}


def discount_of(record: RunRecord) -> float:
    """gamma of the run; the largest, where it is a grid's field."""
    given = [run.get("discount") for run in record.runs]
    return max((float(value) for value in given if isinstance(value, int | float)), default=0.99)


def default_effort(record: RunRecord) -> str:
    return "quick" if record.preset == "quick" else "full"


def log_of(runs: Sequence[Run], data: Dataset | str | None) -> Dataset:
    """The log that the policies are judged on: the one that is named, or the one that all runs learned from."""
    if data is not None:
        return load(data)
    if not runs:
        raise UserError("policies that come from no run have no log; name one (data=)")
    log = own_log(runs[0])
    for run in runs[1:]:
        if run.record.data is None or run.record.data.hash != log.hash:
            raise UserError(
                f"{run.folder or 'a run'}: it did not learn from {log.name}, as {runs[0].folder or 'the first run'} "
                "did; name the log to judge all of them on with --data"
            )
    return log


def own_log(run: Run) -> Dataset:
    """The log that a run learned from, by the path that it was given; its hash tells that it is the same."""
    where, learned = run.folder or "the run", run.record.data
    if learned is None:
        raise UserError(f"{where}: it learned in an environment and has no log; name one with --data")
    problem = ""
    sources: list[str] = [*(run.record.paths or []), learned.name]
    for source in dict.fromkeys(sources):
        try:
            log = load(source)
        except UserError as error:
            problem = problem or f"its log {source!r} is not found ({error})"
            continue
        if log.hash == learned.hash:
            return log
        problem = f"{source!r} is not the log that the run learned from, or was read with other options"
    raise UserError(f"{where}: {problem}; name it with --data")


def learned_elsewhere(runs: Sequence[Run], log: Dataset) -> list[str]:
    """The names of the logs that the runs learned from, as far as they are others."""
    learned = [run.record.data for run in runs if run.record.data is not None]
    return list(dict.fromkeys(data.name for data in learned if data.hash != log.hash))


def check_sizes(log: JudgedLog, policy: Policy) -> None:
    have = log.data.observations.shape[1], log.data.actions.shape[1]
    want = len(policy.arrays["scale/observation_mean"]), len(policy.arrays["scale/action_low"])
    if have != want:
        raise UserError(f"data {log.data.name}: (observations, actions) are {have}; the run's policies expect {want}")


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
