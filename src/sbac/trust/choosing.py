"""`sbac.select`: which policy of a run to take, from the log alone.

Nothing here reads an environment or an evaluation: the run's policies, its record and the log are all there is.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.data import Dataset
from sbac.data.misleading import misleading
from sbac.errors import UserError, listed, not_negative
from sbac.policy import Policy
from sbac.records import Settings
from sbac.runs import Run
from sbac.trust.behaviour import clone_policy
from sbac.trust.choice import (
    CHOICE_FORMAT,
    CLONE,
    CLONE_FILE,
    NUMBERS,
    CandidateRecord,
    Choice,
    ChoiceRecord,
    LogRecord,
)
from sbac.trust.contenders import (
    Contender,
    Judged,
    contenders,
    default_effort,
    discount_of,
    learned_elsewhere,
    log_of,
    preset_setting,
    read_runs,
)
from sbac.trust.deciding import decide
from sbac.trust.ending import contradictions, suggested_end
from sbac.trust.estimates import Estimate, judge
from sbac.trust.estimators import BESIDE
from sbac.trust.evidence import Effort, Facts, OnProgress, Question, find_effort
from sbac.trust.fitting import fit
from sbac.trust.log import JudgedLog, read_log
from sbac.trust.walking import episode_returns


def select(
    run: Judged | Sequence[Judged],
    data: Dataset | str | None = None,
    *,
    effort: str | Effort | None = None,
    seed: int = 0,
    beside: Sequence[str] = BESIDE,
    progress: OnProgress | None = None,
    watch: Sequence[str] = (),
    ends: str | None = None,
) -> Choice:
    """Ranks policies without an environment, and takes one.

    run: a Run, or its folder; also a policy, or a function from observations to actions; or a list of these, which are
        judged together. Where the estimates cannot tell, the setting of the first run's preset is taken. The clone of
        the log is judged beside them: what does not promise more than it is not taken.
    data: the log to judge them on; None: the one that the runs learned from.
    effort: "quick", "full" or an `Effort`; None: quick for runs of preset quick, full for others.
    beside: the estimators that judge them beside fitted Q evaluation; their disagreement widens the intervals. "model"
        is a learned model.
    progress: is told what is being done, how far it is, and how far it goes.
    watch: what is evaluated beside the reward: columns, rules such as "glucose < 70", which count as bad things, and
        "end", the episodes that end early, which is watched wherever a log has ends.
    ends: when an episode ends, as a rule of the state that follows: "height < 0.8 or abs(angle) > 1".
    """
    not_negative("seed", seed)
    watch = listed("watch", watch)
    judged = read_runs(run)
    runs = [each for each in judged if isinstance(each, Run)]
    preset = preset_setting(runs[0].record) if runs else {}
    data = log_of(runs, data, watch)
    log = read_log(data, max((discount_of(each.record) for each in runs), default=0.99), watch, ends)
    presets = {default_effort(each.record) for each in runs}
    spent = find_effort(("full" if "full" in presets else "quick") if effort is None else effort)
    question = Question(log, [], spent, seed, progress)
    home = runs[0].folder if runs else None
    clone = clone_policy(question)
    judged = [*contenders(judged), Contender(CLONE, clone, None if home is None else home / CLONE_FILE)]
    question = replace(question, policies=[each.policy for each in judged if each.is_finite])
    candidates = [
        replace(row, path=None if home is None or each.file is None else os.path.relpath(each.file, home))
        for row, each in zip(judged_candidates(question, judged, beside), judged, strict=True)
    ]
    first = [row for row, each in zip(candidates, judged, strict=True) if each.run is (runs[0] if runs else None)]
    # Of rollouts with noise it is not known yet whether their states tell anything.
    near = not spent.model_noise
    label, decided, reason = decide(candidates, preset, [row for row in first if row.label != CLONE], near)
    candidates.sort(key=lambda row: (row.label != label, row.set_aside, -row.promise))
    best = next(each.policy for each in judged if each.label == label)
    logged = replace(
        log_record(log, question.once(fit).returns),
        learned_elsewhere=learned_elsewhere(runs, log),
        warnings=[*misleading(data), *([] if ends is None else contradictions(data, ends))],
        suggested_end=suggested_end(data) if ends is None else None,
    )
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


def check_sizes(log: JudgedLog, policy: Policy) -> None:
    have = log.data.observations.shape[1], log.data.actions.shape[1]
    want = len(policy.arrays["scale/observation_mean"]), len(policy.arrays["scale/action_low"])
    if have != want:
        raise UserError(f"data {log.data.name}: (observations, actions) are {have}; the run's policies expect {want}")


DIVERGED = Estimate(*(math.nan,) * 10, warnings=["its training has diverged"], watched=[], diagnostics=Facts())
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
        watched=estimate.watched,
        left_out=estimate.left_out,
    )


def log_record(log: JudgedLog, returns: NDArray[np.float64]) -> LogRecord:
    lengths, ended = np.diff(log.data.episodes, axis=1), log.data.terminals[log.data.episodes[:, 1] - 1]
    earned = episode_returns(log)
    cut = f"few episodes: the log is judged in {log.episodes} blocks of about {log.block} steps, each as an episode"
    return LogRecord(
        log.data.name,
        log.hash,
        float(returns.mean()),
        float(earned.mean()),
        float(lengths.mean()),
        float(ended.mean()),
        np.quantile(returns, np.linspace(0, 1, 100)).tolist(),
        steps=log.longest,
        episode_deviation=float(earned.std()),
        notes=[*log.data.notes, *[cut] * bool(log.block)],
    )
