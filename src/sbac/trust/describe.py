"""A choice in a few lines of text."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from sbac.text import counted, number, text_table, within
from sbac.trust.choice import LOG, CandidateRecord, Choice, LogRecord, promise_of
from sbac.trust.estimators import ALWAYS, ESTIMATORS
from sbac.trust.trials import Tried
from sbac.trust.watching import WatchedRate


def choice_text(choice: Choice) -> str:
    """The table, the policy that is taken, and what speaks against it and against others."""
    digits = decimals(choice.log)
    head = ["policy", "whole episode", "value", "gain over the log", ""]
    log = choice.record.log
    rows = [[LOG, *logged_text(log), "", ""]]
    rows += [
        [
            row.label,
            episode_text(row),
            "" if row.value is None else within(row.value, row.low, row.high, digits),
            "" if row.gain is None else within(row.gain, row.gain_low, row.gain_high, digits),
            "taken" if row.label == choice.label else "set aside" if row.set_aside else "",
        ]
        for row in choice.candidates
    ]
    lines = [
        f"the log: {log_text(log)}",
        f"values are discounted ({choice.discount:g}), behind a time limit as if the episode went on; a gain is the "
        "value less the log's",
        f"a whole episode: what it earns in the learned model, undiscounted, in at most {log.steps:,} steps",
        "in brackets 90 % intervals; a hidden cause, which the actions follow and no column shows, cannot be seen",
        text_table(head, rows),
        f"{choice.label}: {choice.reason}",
        promise_text(choice.candidates[0], log),
        *(f"watched: {watched_text(each)}" for each in choice.candidates[0].watched),
        *(
            f"note: {note}"
            for note in (*log.notes, *dict.fromkeys(t for row in choice.candidates for t in row.left_out))
        ),
    ]
    if log.suggested_end is not None:
        lines.append(f"note: the log's own ends are told by --ends {log.suggested_end!r}, on held-out episodes too")
    lines += [f"warning: the log: {text}" for text in log.warnings]
    lines += [f"warning: {row.label}: {text}" for row in choice.candidates for text in (*row.warnings, *worse(row))]
    return "\n".join(lines)


def promise_text(row: CandidateRecord, log: LogRecord) -> str:
    """What is promised of a policy, or in its place the discounted gain, or nothing."""
    promise, digits = promise_of(row, log), decimals(log.episode)
    if promise is not None:
        percent = "" if promise.percent is None else f" ({promise.percent:+.0f} %)"
        gain = f"{promise.gain:+.{digits}f} [{promise.low:.{digits}f}, {promise.high:.{digits}f}]{percent}"
        return f"promise: {gain} an episode, where the log earns {log.episode:.{digits}f}"
    if row.gain is None or row.gain_low is None:
        return "promise: none; the warnings say why"
    gain = within(row.gain, row.gain_low, row.gain_high, decimals(log.value))
    return f"promise: none for a whole episode; the discounted gain is {gain}"


def watched_text(watched: WatchedRate) -> str:
    """The log's rate and the policy's, with its interval."""

    def shown(number: float) -> str:
        return f"{number:.{decimals(watched.log)}f}" if watched.kind == "column" else f"{100 * number:.1f} %"

    if watched.low is None or watched.high is None:
        interval = ", too rare in the log for an interval" if watched.is_rare else ""
    else:
        interval = f" [{shown(watched.low)}, {shown(watched.high)}]"
    policy = "no estimate for the policy" if watched.rate is None else f"the policy {shown(watched.rate)}{interval}"
    if watched.kind == "end":
        return f"episodes that end early: the log {shown(watched.log)}, {policy}"
    of = "of the steps" if watched.kind == "rule" else "on average"
    return f"{watched.name}: the log {shown(watched.log)} {of}, {policy}"


def worse(row: CandidateRecord) -> list[str]:
    """A line for each watched thing that becomes more frequent while the return rises."""
    rising = [each for each in row.watched if each.worse]
    return [f"the return rises, and so does what is watched, {watched_text(each)}" for each in rising]


def logged_text(log: LogRecord) -> tuple[str, str]:
    """What an episode of the log earns, and its value."""
    return f"{log.episode:.{decimals(log.episode)}f}", f"{log.value:.{decimals(log.value)}f}"


def log_text(log: LogRecord) -> str:
    """How its episodes go, and whether others taught the policies."""
    return f"{log.length:,.0f} steps an episode on average, {100 * log.ends:.0f} % of the episodes end early" + (
        f"; NOT the log that policies learned from, {', '.join(log.learned_elsewhere)}" if log.learned_elsewhere else ""
    )


def episode_text(row: CandidateRecord) -> str:
    """What a whole episode of the policy earns in the learned model, with its interval."""
    if row.episode is None:
        return ""
    return within(row.episode, row.episode_low, row.episode_high, decimals(row.episode))


BASIS = {
    "episodes that were resampled": "{episodes:,.0f}",
    "the log's own value by the same networks, less its mean return": "{missed:+.{digits}f}",
    "gain, change in the last fifth of training": "{moved:+.{digits}f}",
    "values at the first states, and what the rewards allow": (
        "{least:.{digits}f} to {largest:.{digits}f}; {lowest_possible:.{digits}f} to {highest_possible:.{digits}f}"
    ),
    "distance from the log, in its deviations: the mean, and what one state in ten exceeds": (
        "{distance:.1f}; {reach:.1f}"
    ),
    **{
        f"gain by {ESTIMATORS[name].title}": f"{{{name}_gain:.{{digits}}f}}"
        for name in ESTIMATORS
        if name not in ALWAYS
    },
    "discounted time before its rollouts were cut": "{model_share:.0%}",
    "a whole episode in the learned model, undiscounted, and the deviation of its members": (
        "{model_episode:.{digits}f}; {model_episode_spread:.{digits}f}"
    ),
}
"""What a reader is told of the diagnostics, in words and numbers."""


def basis(row: CandidateRecord, digits: int) -> list[tuple[str, str]]:
    """What an estimate rests on, as far as the estimators that were asked say it."""
    lines: list[tuple[str, str]] = []
    for words, numbers in BASIS.items():
        with suppress(KeyError):  # nobody said it
            lines.append((words, numbers.format(**row.diagnostics, digits=digits).replace("%", " %")))
    return lines


def trials_text(tried: Tried, ranked: Sequence[str]) -> str:
    """What the real episodes say."""
    rows = [
        [label, str(len(tried.returns[label])), number(float(np.mean(tried.returns[label])))]
        for label in ranked
        if tried.returns[label]
    ]
    table = text_table(["policy", "episodes", "mean return"], rows, numbers=True)
    return f"{table}\nafter {counted(tried.episodes, 'episode')}: {tried.label}"


def decimals(size: float) -> int:
    """So many that a value of this size shows about four digits."""
    return int(np.clip(3 - np.floor(np.log10(max(abs(size), 1e-3))), 0, 5))
