"""`sbac.select`: which policy of a run to take, from the log alone.

Nothing here reads an environment or an evaluation: the run's policies, its record and the log are all there is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sbac import files
from sbac.algorithms import find
from sbac.config import fields_of
from sbac.data import Dataset, load
from sbac.errors import UserError, not_negative
from sbac.policy import Policy
from sbac.records import Setting, Settings, as_json, parse
from sbac.runs import Run, RunRecord, policy_record, policy_setting
from sbac.trust.estimates import Estimate, judge
from sbac.trust.estimators import BESIDE
from sbac.trust.evidence import Effort, Facts, OnProgress, Question, find_effort
from sbac.trust.log import JudgedLog, read_log

CAN_TELL = 0.5
"""In standard deviations of the log's returns: by how much a policy must promise more than the preset's to be taken.
A smaller advantage is within what the estimates get wrong. Found on development runs."""
PESSIMISM = 0.5
"""Of the model's members: how many of their standard deviations a promise lies below their mean. Found on the same."""
CHOICE_FILE = "selection.json"
CHOICE_FORMAT = 1
NUMBERS = ("value", "low", "high", "gain", "gain_low", "gain_high")
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
    episode_spread: float | None = None
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


DIVERGED = Estimate(*(math.nan,) * 8, warnings=["its training has diverged"], diagnostics=Facts())
"""Of a policy whose networks are no longer numbers."""


def candidate_record(
    label: str, seed: int, setting: Settings, estimate: Estimate, policy: str | None = None
) -> CandidateRecord:
    def finite(numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: number for name, number in numbers.items() if math.isfinite(number)}

    numbers = finite({name: getattr(estimate, name) for name in (*NUMBERS, "episode", "episode_spread")})
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
class ChoiceRecord:
    """selection.json of a run's folder: what `sbac select` says."""

    format: int
    label: str
    decided: bool
    reason: str
    log: float
    discount: float
    candidates: list[CandidateRecord]


class Choice:
    """The policy that is taken, and what is known of all of them.

    best: the policy. label: its name in the run. decided: whether the estimates could tell it from the preset's.
    reason: why it was taken, in a sentence. table: a dictionary for each policy, best first: label, alpha, seed, value,
    low, high, gain, gain_low, gain_high (None: no interval), warnings, set_aside. log: the log's mean discounted
    return. candidates: the same with all diagnostics.
    """

    def __init__(self, best: Policy, record: ChoiceRecord) -> None:
        self.best, self.record = best, record
        self.label, self.decided, self.reason = record.label, record.decided, record.reason
        self.log, self.discount, self.candidates = record.log, record.discount, record.candidates

    @property
    def table(self) -> list[dict[str, Any]]:
        shown = ("label", "alpha", "seed", *NUMBERS, "warnings", "set_aside")
        rows = [{"alpha": row.setting.get("alpha"), **vars(row)} for row in self.candidates]
        return [{name: row[name] for name in shown} for row in rows]

    @property
    def warnings(self) -> list[str]:
        """Of the policy that is taken."""
        return self.candidates[0].warnings

    def __repr__(self) -> str:
        return f"Choice({self.label!r}: {self.reason})"


def label_of(policy: Policy) -> str:
    return policy_record(policy).label


# --- Choosing ---------------------------------------------------------------------------------------------------------


def select(
    run: Run | str | Path,
    data: Dataset | str | None = None,
    *,
    effort: str | Effort | None = None,
    seed: int = 0,
    beside: Sequence[str] = BESIDE,
    progress: OnProgress | None = None,
) -> Choice:
    """Ranks the policies of a run without an environment, and takes one.

    run: a Run, or its folder. data: the log to judge them on; None: the one that the run learned from.
    effort: "quick", "full" or an `Effort`; None: quick for a run of preset quick, full for others.
    beside: the estimators that judge them beside fitted Q evaluation; their disagreement widens the intervals. "model"
        is a learned model, "weighted" makes the weighted estimates, where the effective sample size allows.
    progress: is told what is being done, how far it is, and how far it goes.
    """
    not_negative("seed", seed)
    run = run if isinstance(run, Run) else Run.load(run)
    if not run.policies:
        raise UserError(f"{run.folder or 'the run'}: it has no policies yet; finish it with sbac train --resume")
    log = read_log(log_of(run, data), discount_of(run.record))
    spent, preset = find_effort(default_effort(run.record) if effort is None else effort), preset_setting(run.record)
    candidates = judged_candidates(run, log, spent, seed, beside, progress)
    verdict = decide(candidates, preset)
    candidates.sort(key=lambda row: (row.label != verdict.label, row.set_aside, -row.promise))
    best = next(policy for policy in run.policies if label_of(policy) == verdict.label)
    mean, (label, decided, reason) = float(log.returns.mean()), verdict
    return Choice(best, ChoiceRecord(CHOICE_FORMAT, label, decided, reason, mean, log.discount, candidates))


def judged_candidates(
    run: Run,
    log: JudgedLog,
    effort: Effort,
    seed: int = 0,
    beside: Sequence[str] = BESIDE,
    progress: OnProgress | None = None,
) -> list[CandidateRecord]:
    """All policies of the run with their estimates; one that has diverged has none."""
    check_sizes(log, run.policies[0])
    policies = list(run.policies)
    whole = [policy for policy in policies if policy.is_finite]
    estimates = judge(Question(log, whole, effort, seed, progress), beside, learned=True) if whole else []
    by_label = dict(zip(map(label_of, whole), estimates, strict=True))
    candidates: list[CandidateRecord] = []
    for policy in policies:
        record = policy_record(policy)
        setting = policy_setting(policy, record.grid)
        estimate = by_label.get(record.label, DIVERGED)
        candidates.append(candidate_record(record.label, record.seed, setting, estimate, policy.hash))
    return candidates


def decide(candidates: Sequence[CandidateRecord], preset: Settings) -> Verdict:
    """Takes the largest promise of the policies that nothing speaks against, if it is clearly above the preset's.

    Where the estimates cannot tell them apart, or something speaks against every one, the preset's setting is taken.
    """
    usual = usual_candidate(candidates, preset)
    sound = [candidate for candidate in candidates if not candidate.set_aside]
    if not sound:
        return Verdict(
            usual.label, False, "no estimate can be believed: the preset's setting is taken, without a promise"
        )
    best = max(sound, key=lambda candidate: candidate.promise)
    if best.label == usual.label:
        return Verdict(best.label, True, "the preset's setting also promises the most")
    if usual.set_aside:
        return Verdict(best.label, True, "it promises the most; the preset's setting is set aside")
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


def log_of(run: Run, data: Dataset | str | None) -> Dataset:
    """The log that the policies are judged on: the one that is named, or the run's own."""
    if data is not None:
        return load(data)
    where = run.folder or "the run"
    if run.record.data is None:
        raise UserError(f"{where}: it learned in an environment and has no log; name one with --data")
    try:
        named = load(run.record.data.name)
    except UserError as error:
        raise UserError(
            f"{where}: its log {run.record.data.name!r} is not found ({error}); name it with --data"
        ) from None
    if named.hash != run.record.data.hash:
        raise UserError(
            f"{where}: {run.record.data.name!r} is not the log that the run learned from; name it with --data"
        )
    return named


def check_sizes(log: JudgedLog, policy: Policy) -> None:
    have = log.data.observations.shape[1], log.data.actions.shape[1]
    want = len(policy.arrays["scale/observation_mean"]), len(policy.arrays["scale/action_low"])
    if have != want:
        raise UserError(f"data {log.data.name}: (observations, actions) are {have}; the run's policies expect {want}")


# --- The file ---------------------------------------------------------------------------------------------------------


def write_choice(folder: Path, record: ChoiceRecord) -> None:
    """Writes selection.json: `sbac export`, `sbac compare` and the policy card take the policy that it names."""
    files.write_json(folder / CHOICE_FILE, as_json(record))


def read_choice(folder: Path, policies: Sequence[Policy]) -> ChoiceRecord | None:
    """What was decided last, if anything was; refused where it is not about these policies, those of the run."""
    path = folder / CHOICE_FILE
    if not path.exists():
        return None
    record = parse(ChoiceRecord, files.read_json(path), str(path))
    if record.format != CHOICE_FORMAT:
        raise UserError(f"{path}: not a choice of this version of sbac (expected format {CHOICE_FORMAT})")
    if record.label not in {candidate.label for candidate in record.candidates}:
        raise UserError(f"{path}: it takes {record.label!r}, which it does not list; run sbac select again")
    if {row.label: row.policy for row in record.candidates} != {label_of(policy): policy.hash for policy in policies}:
        raise UserError(f"{path}: it is about other policies than those of the run; run sbac select again")
    return record
