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
from sbac.learning.plan import FEWEST_ROWS, LearnPlan
from sbac.policy import Policy
from sbac.records import parse
from sbac.text import counted
from sbac.trust.choice import CLONE, CandidateRecord, Choice, Promise
from sbac.trust.describe import decimals, watched_text, worse

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


def doubts_of(data: Dataset) -> list[str]:
    """Why nothing that is estimated from this log can be believed."""
    few = f"the log has {len(data)} rows; at least {FEWEST_ROWS:,} are needed to promise anything"
    return [few] if len(data) < FEWEST_ROWS else []


def decide_on(choice: Choice, log_doubts: Sequence[str] = ()) -> Decision:
    """Of the candidates that nothing speaks against, the judge's choice, if it is above the log.

    Where none of them is above the log, what there is is kept. Where something speaks against all of them, the clone is
    handed over. Where the judge cannot tell settings apart, all seeds of its choice act together: on development logs
    that was better than one of them more often than not.
    """
    believed = [row for row in choice.candidates if not (row.set_aside or log_doubts)]
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


class Circumstances(NamedTuple):
    """What the text says beside the choice itself."""

    data: Dataset
    folder: Path | None
    notes: Sequence[str]
    """Of the log, and of how it was judged."""
    warnings: Sequence[str]
    dropped: Sequence[str]
    files: Sequence[str]
    minutes: float
    minutes_taken: float
    memory: float
    """At most, in gigabytes."""


def answer_lines(choice: Choice, decision: Decision, promise: Promise | None, about: Circumstances) -> list[str]:
    """At most twelve lines; warnings that find no place are counted."""
    last = [
        *(f"{note}." for note in about.notes),
        *([f"Not trained, for lack of time: {', '.join(about.dropped)}."] if about.dropped else []),
        _next_step(decision, promise, about.data, about.folder),
        *([f"Written to {about.folder}: {', '.join(about.files)}."] if about.files else []),
        f"It took {about.minutes_taken:.1f} of {about.minutes:g} minutes and at most {about.memory:.1f} GB of memory.",
    ]
    first = [_verdict_line(choice, decision, promise), _chosen_line(choice, decision)]
    missing = "Against it" if decision.believed else "What is missing"
    if decision.row is not None:
        first += [f"Watched: {watched_text(each)}." for each in decision.row.watched[:MOST_WATCHED]]
    rising = [] if decision.row is None else worse(decision.row)
    against = [f"{missing}: {text}." for text in (*rising, *about.warnings)]
    room = MOST_LINES - len(first) - len(last)
    if len(against) > room:
        rest = len(against) - room + 1
        against = [*against[: room - 1], f"{missing}: {counted(rest, 'reason')} more, in answer.json."]
    return [*first, *against, *last]


def _verdict_line(choice: Choice, decision: Decision, promise: Promise | None) -> str:
    log, row = choice.record.log, decision.row
    if row is None:
        earns = _short(log.episode)[0]
        return f"Keep what you have: no policy is expected to be better than the log, which earns {earns} an episode."
    if not decision.believed:
        return (
            "Nothing can be promised from this log. The policy is its clone, which does what the log does on average."
        )
    value, gain, low, high = _short(log.value, row.gain, row.gain_low, row.gain_high)
    discounted = f"Discounted, it is expected to gain {gain} over the log's {value} (90 %: {low} to {high})."
    if promise is None:
        return f"The policy may be better than the log; a whole episode cannot be promised. {discounted}"
    earns, gain, low, high = _short(log.episode, promise.gain, promise.low, promise.high)
    gain += "" if promise.percent is None else f" ({promise.percent:+.0f} %)"
    if promise.low > 0:
        return (
            f"Use the policy: it is expected to earn {gain} an episode over the log's {earns} (90 %: {low} to {high})."
        )
    interval = f"(90 %: {low} to {high})"
    if promise.gain <= 0:
        return f"The policy may be worse than the log: {gain} an episode over its {earns} {interval}. {discounted}"
    line = f"The policy may be better than the log, {gain} an episode over its {earns}, or worse {interval}."
    return f"{line} {discounted}" if row.gain_low is not None and row.gain_low > 0 else line


def _short(level: float, *changes: float | None) -> list[str]:
    """A number and differences from it, all with as many decimals as the largest needs for three digits."""
    size = max(abs(value) for value in (level, *changes) if value is not None)
    digits = max(decimals(size) - 1, 0)
    return [f"{level:,.{digits}f}", *("?" if value is None else f"{value:+,.{digits}f}" for value in changes)]


def _chosen_line(choice: Choice, decision: Decision) -> str:
    judged = f"{len(choice.candidates)} policies were judged"
    if decision.row is None:
        best = choice.candidates[0].label
        return f"{judged}, the clone of the log among them. The best is {best}: {CARD_FILE} says what it would change."
    return f"It is {decision.row.label}; {judged}: {decision.reason}."


def _next_step(decision: Decision, promise: Promise | None, data: Dataset, folder: Path | None) -> str:
    if decision.row is None:
        return "Next: record episodes in which other actions are tried, or give more --minutes."
    deviation = decision.row.diagnostics.get("episode_deviation", float(data.returns.std()))
    gain = UNPROMISED if promise is None or deviation == 0 else promise.gain / deviation
    tries = episodes_to_settle(gain)
    environment, played = data.task or data.environment or "ID", min(tries, MOST_TRIES)
    if folder is None:
        command = f"sbac.evaluate(answer.policy, {environment!r}, episodes={played})"
    else:
        command = f"sbac evaluate {quote(str(folder / POLICY_FILE))} --env {environment} --episodes {played}"
    if tries > MOST_TRIES:
        return f"Next: it would take more than {MOST_TRIES:,} real episodes to settle it. To play some: {command}"
    return f"Next: {counted(tries, 'real episode')} would settle it: {command}"


def episodes_to_settle(gain: float) -> int:
    """So many that a gain, in deviations of an episode's return, stands out of them. The deviation is the log's."""
    return max(FEWEST_TRIES, math.ceil(min((CLEAR / gain) ** 2, MOST_TRIES + 1))) if gain else MOST_TRIES + 1
