"""What is to be said first of a policy that was judged: whether to use it, and what it is expected to earn."""

from sbac.text import setting_text
from sbac.trust.choice import CLONE, CandidateRecord, LogRecord, promise_of
from sbac.trust.describe import decimals


def verdict_lines(row: CandidateRecord, log: LogRecord) -> list[str]:
    """Two sentences, by whole episodes where they are promised; one where nothing is."""
    promise = promise_of(row, log)
    if row.gain is None:
        return ["Do not use the policy: its training has diverged."]
    if promise is not None:
        low, high = promise.low, promise.high
        level, earned, gain, least, most = amounts(log.episode, promise.gain, low, high)
        percent = "" if promise.percent is None else f" ({promise.percent:+.0f} %)"
        expected = f"It is expected to earn {earned} an episode where the log earns {level}: {gain}{percent}"
    elif row.gain_low is not None and row.gain_high is not None:
        low, high = row.gain_low, row.gain_high
        level, earned, gain, least, most = amounts(log.value, row.gain, low, high)
        expected = (
            f"A whole episode cannot be promised. Discounted, it is expected to earn {earned} over {level}: {gain}"
        )
    else:
        return ["Nothing can be promised of the policy from this log alone."]
    if low > 0:
        verdict = "Use the policy: it is expected to be better than the log."
    elif high < 0:
        verdict = "Do not use the policy: it is expected to be worse than the log."
    else:
        verdict = "The policy may be better than the log, or worse: try it before you rely on it."
    return [verdict, f"{expected}, with 90 % between {least} and {most}."]


def amounts(level: float, gain: float, *changes: float) -> list[str]:
    """The log's level, the policy's, the gain and other differences, with as many decimals as three digits need."""
    digits = max(decimals(max(map(abs, (level, gain, *changes)))) - 1, 0)
    return [
        *(f"{value:,.{digits}f}" for value in (level, level + gain)),
        *(f"{value:+,.{digits}f}" for value in (gain, *changes)),
    ]


def policy_name(row: CandidateRecord) -> str:
    """Which policy it is, as a part of a sentence."""
    if row.label == CLONE:
        return "the clone of the log, which does what the log does on average"
    if row.label.startswith("committee"):
        return f"a {row.label}, which does the mean of what its members would do"
    setting = {**row.setting, "seed": row.seed}
    return f"a single policy ({', '.join(f'{name}={setting_text(value)}' for name, value in setting.items())})"
