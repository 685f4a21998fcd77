"""The answer of `sbac learn`: which policy, what it gains, what speaks against it, what to do next; in plain words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from sbac import files
from sbac.data import Dataset
from sbac.errors import UserError
from sbac.learning.plan import LearnPlan
from sbac.policy import Policy
from sbac.records import parse
from sbac.report.verdict import policy_name, verdict_lines
from sbac.text import counted, counted_policies
from sbac.trust.choice import CLONE, CandidateRecord, Choice, Promise
from sbac.trust.describe import watched_text, worse

ANSWER_FILE, POLICY_FILE, ONNX_FILE = "answer.json", "policy.safetensors", "policy.onnx"
CARD_FILE, REPORT_FILE = "card.html", "report.html"
ANSWER_FORMAT = 1
MOST_LINES, MOST_WATCHED = 12, 3
CLEAR = 2.0
"""Standard errors by which real episodes are to show a gain."""
FEWEST_TRIES, MOST_TRIES = 5, 1_000
"""Real episodes: fewer say nothing of their own spread, and more than that nobody plays."""
UNPROMISED = 0.5
"""Deviations of the log's returns: the difference that real episodes are to show where nothing is promised."""


@dataclass(frozen=True)
class AnswerRecord:
    """answer.json. `label` and `method` are of the policy that is handed over; None: keep what you have."""

    format: int
    label: str | None
    method: str | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    warnings: list[str]
    keep: bool
    watched: list[Any]
    minutes: float
    minutes_taken: float
    plan: LearnPlan
    lines: list[str]


@dataclass(frozen=True, eq=False)
class Answer:
    """What `sbac.learn` returns.

    policy: what to use; None: keep what you have. gain, gain_low, gain_high: what an episode earns more than the log's,
    undiscounted, with its 90 % interval; None where nothing can be promised. warnings: what speaks against believing
    it. keep: whether no policy is better than what wrote the log. watched: what becomes of the watched columns. text:
    the answer in at most twelve lines. folder: where everything lies; None: nowhere.
    """

    policy: Policy | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    warnings: list[str]
    keep: bool
    watched: list[Any]
    text: str
    folder: Path | None

    def __str__(self) -> str:
        return self.text


def as_answer(record: AnswerRecord, policy: Policy | None, folder: Path | None) -> Answer:
    gains, text = (record.gain, record.gain_low, record.gain_high), "\n".join(record.lines)
    return Answer(policy, *gains, record.warnings, record.keep, record.watched, text, folder)


def read_answer(folder: Path) -> AnswerRecord | None:
    """The answer of a finished folder."""
    path = folder / ANSWER_FILE
    if not path.exists():
        return None
    record = parse(AnswerRecord, files.read_json(path), str(path))
    if record.format != ANSWER_FORMAT:
        raise UserError(f"{path}: not an answer of this version of sbac (expected format {ANSWER_FORMAT})")
    return record


# --- What is taken ----------------------------------------------------------------------------------------------------


class Decision(NamedTuple):
    """The candidate that is handed over, None to keep what there is; whether estimates support it, and why."""

    row: CandidateRecord | None
    believed: bool
    reason: str


def decide_on(choice: Choice, enough_rows: bool = True) -> Decision:
    """Of the candidates that nothing speaks against, the judge's choice, if it is above the log.

    Where none of them is above the log, what there is is kept. Where something speaks against all of them, the clone is
    handed over. Where the judge cannot tell settings apart, all seeds of its choice act together: on development logs
    that was better than one of them more often than not.
    """
    believed = [row for row in choice.candidates if enough_rows and not row.set_aside]
    if not believed:
        clone = next(row for row in choice.candidates if row.label == CLONE)
        return Decision(clone, False, "no estimate can be believed")
    above = [row for row in believed if is_above(row, choice)]
    if not above:
        return Decision(None, True, "no candidate is above the log")
    taken = next((row for row in above if row.label == choice.label), None)
    if taken is not None and not choice.decided:
        together = [row for row in above if row.setting == taken.setting and row.label.startswith("committee")]
        return Decision(together[0] if together else taken, True, "the estimates cannot tell the best policies apart")
    return Decision(taken or max(above, key=lambda row: row.promise), True, "it promises the most")


def is_above(row: CandidateRecord, choice: Choice) -> bool:
    """Whether the estimate puts a candidate above the log, by whole episodes where they are told."""
    if row.episode is None:
        return row.gain is not None and row.gain > 0
    return row.episode > choice.record.log.episode


# --- What is said -----------------------------------------------------------------------------------------------------


def answer_lines(
    choice: Choice,
    decision: Decision,
    *,
    notes: Sequence[str] = (),
    warnings: Sequence[str] = (),
    dropped: Sequence[str] = (),
    next_step: str,
    last: Sequence[str],
) -> list[str]:
    """At most twelve lines; warnings that find no place are counted.

    notes: of the log, and of how it was judged. dropped: candidates that were not trained. last: what ends the text.
    """
    row = decision.row
    end = [
        *(f"{note}." for note in notes),
        *([f"Not trained, for lack of time: {', '.join(dropped)}."] if dropped else []),
        next_step,
        *last,
    ]
    begin = opening_lines(choice, decision)
    shown = choice.candidates[0] if row is None else row
    begin += [f"Watched: {watched_text(each)}." for each in shown.watched[:MOST_WATCHED]]
    doubt = "Doubt" if decision.believed else "What is missing"
    doubts = [f"{doubt}: {text}." for text in (*([] if row is None else worse(row)), *warnings)]
    room = MOST_LINES - len(begin) - len(end)
    if len(doubts) > room:
        rest = len(doubts) - room + 1
        doubts = [*doubts[: room - 1], f"{doubt}: {counted(rest, 'reason')} more, in {ANSWER_FILE}."]
    return [*begin, *doubts, *end]


def opening_lines(choice: Choice, decision: Decision) -> list[str]:
    """Whether to use a policy, what it is expected to earn, and which one it is."""
    row, log = decision.row, choice.record.log
    judged = f"{len(choice.candidates)} policies were judged"
    if row is None:
        best = choice.candidates[0]
        return [
            "Keep what you have: no policy is expected to earn more than the log.",
            f"{judged}. The best is {policy_name(best)}. {verdict_lines(best, log)[-1]}",
            *set_aside_lines(choice),
        ]
    if not decision.believed:
        return [f"Nothing can be promised from this log. The policy is {policy_name(row)}."]
    return [*verdict_lines(row, log), f"It is {policy_name(row)}. {judged}: {decision.reason}."]


def set_aside_lines(choice: Choice) -> list[str]:
    """How many were set aside where what there is is kept, and the one that may be better all the same."""
    aside = [row for row in choice.candidates if row.set_aside]
    if not aside:
        return []
    disputed = [row for row in aside if contradicted(row)]
    text = f"{counted_policies(len(aside))} set aside: {CARD_FILE} says why."
    if not disputed:
        return [text]
    likeliest = max(disputed, key=lambda row: row.diagnostics["fitted_gain"] + row.diagnostics["model_gain"])
    return [f"{text} By one of two estimates {likeliest.label} is better than the log: only real episodes tell."]


def contradicted(row: CandidateRecord) -> bool:
    """Whether one estimator puts it above the log, and the other below."""
    fitted, model = (row.diagnostics.get(f"{name}_gain", 0.0) for name in ("fitted", "model"))
    return fitted * model < 0


def next_step(decision: Decision, promise: Promise | None, data: Dataset, folder: Path | None) -> str:
    """How many real episodes would settle it, with the command that plays them where there is a simulator."""
    if decision.row is None:
        return "Next: record episodes in which other actions are tried, or give more --minutes."
    deviation = decision.row.diagnostics.get("episode_deviation", float(data.returns.std()))
    gain = UNPROMISED if promise is None or deviation == 0 else promise.gain / deviation
    tries = episodes_to_settle(gain)
    environment, played = data.task or data.environment, min(tries, MOST_TRIES)
    if folder is None:
        command = f"sbac.evaluate(answer.policy, {environment or 'ID'!r}, episodes={played})"
    else:
        command = f"sbac evaluate {quote(str(folder / POLICY_FILE))} --env {environment or 'ID'} --episodes {played}"
    how = command if environment else f"let it act in them, or in a simulator: {command}"
    if tries > MOST_TRIES:
        return f"Next: more than {MOST_TRIES:,} real episodes would settle it. To play some: {command}"
    return f"Next: {counted(tries, 'real episode')} would settle it: {how}"


def episodes_to_settle(gain: float) -> int:
    """So many that a gain, in deviations of an episode's return, stands out of them. The deviation is the log's."""
    return max(FEWEST_TRIES, math.ceil(min((CLEAR / gain) ** 2, MOST_TRIES + 1))) if gain else MOST_TRIES + 1
