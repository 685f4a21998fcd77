"""The rule of the choice: which candidate is taken, from its estimates and the preset alone."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from sbac.records import Setting, Settings
from sbac.trust.choice import CLONE, CandidateRecord

STRAYS = 1.1
"""Times as far as the clone: beyond, a policy's rollouts leave the states of the log. Found on development logs."""
CAN_TELL = 0.5
"""In standard deviations of the log's returns: by how much a policy must promise more than the preset's to be taken.
A smaller advantage is within what the estimates get wrong. Found on development runs."""


class Verdict(NamedTuple):
    """Which candidate is taken, whether the estimates decided it, and why, in a sentence."""

    label: str
    decided: bool
    reason: str


def decide(
    candidates: Sequence[CandidateRecord],
    preset: Settings,
    first: Sequence[CandidateRecord] | None = None,
    near: bool = False,
) -> Verdict:
    """Takes the largest promise of the policies that nothing speaks against, if it is clearly above the preset's.

    Where the estimates cannot tell them apart, or something speaks against every one, the preset's setting is taken,
    of those in `first` (None: of all). What does not promise more than the clone of the log, if that is among the
    candidates and nothing speaks against it, is not taken.

    near: whether a policy whose rollouts leave the log's states early is taken only where all do.
    """
    usual = usual_candidate(first or [each for each in candidates if each.label != CLONE], preset)
    sound = [candidate for candidate in candidates if not candidate.set_aside]
    if not sound:
        return Verdict(
            usual.label, False, "no estimate can be believed: the preset's setting is taken, without a promise"
        )
    least = max((clone.expected for clone in sound if clone.label == CLONE), default=-math.inf)
    better = [candidate for candidate in sound if candidate.expected > least]
    if not better:
        return Verdict(CLONE, True, "no policy that can be believed promises more than the clone of the log")
    if near:
        better = those_near(better, candidates) or better
    best = max(better, key=lambda candidate: candidate.promise)
    if best.label == usual.label:
        return Verdict(best.label, True, "the preset's setting also promises the most")
    if usual.set_aside:
        return Verdict(best.label, True, "it promises the most; the preset's setting is set aside")
    if usual not in better:
        why = "promises no more than the clone" if usual.expected <= least else "leaves the states"
        return Verdict(best.label, True, f"it promises the most; the preset's {why} of the log")
    if best.promise - usual.promise > CAN_TELL * best.unit:
        return Verdict(best.label, True, "it promises clearly more than the preset's setting")
    return Verdict(
        usual.label, False, "the estimates cannot tell the best policies apart: the preset's setting is taken"
    )


def those_near(those: Sequence[CandidateRecord], candidates: Sequence[CandidateRecord]) -> list[CandidateRecord]:
    """Those whose rollouts stay nearly as close to the log's states as the clone's do."""
    most = min((STRAYS * strays(each) for each in candidates if each.label == CLONE), default=math.inf)
    return [each for each in those if strays(each) <= most]


def strays(candidate: CandidateRecord) -> float:
    return candidate.diagnostics.get("model_strays", math.inf)


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
