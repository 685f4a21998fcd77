"""What is taken and what is said, on made-up estimates."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sbac.learning.answer import (
    MOST_LINES,
    MOST_TRIES,
    Decision,
    answer_lines,
    decide_on,
    episodes_to_settle,
    next_step,
)
from sbac.trust.choice import CLONE, CandidateRecord, Choice, promise_of
from sbac.trust.watching import WatchedRate
from tests.learning.small import point_log

LOG, DEVIATION = 100.0, 40.0
"""What the log earns in an episode, and its deviation."""


def candidate(label: str, gain: float, half: float = 10.0, warnings: tuple[str, ...] = (), **setting: Any) -> Any:
    """A candidate that earns so much more than the log in an episode."""
    low, high = (None, None) if warnings else (LOG + gain - half, LOG + gain + half)
    return CandidateRecord(
        label, 0, setting, 5.0, 4.0, 6.0, 1.0, 0.5, 1.5, list(warnings), bool(warnings),
        LOG + gain, low, high, 0.0, diagnostics={"episode_deviation": DEVIATION},
    )  # fmt: skip


def choice(*candidates: CandidateRecord, decided: bool = True) -> Choice:
    log = SimpleNamespace(episode=LOG, value=50.0, episode_deviation=DEVIATION)
    taken = candidates[0]
    made = SimpleNamespace(
        candidates=candidates, label=taken.label, decided=decided, reason="it promises the most",
        record=SimpleNamespace(log=log),
    )  # fmt: skip
    return cast("Choice", made)


def words(of: Choice, decision: Decision, folder: Path | None = Path("runs/point"), **changes: Any) -> list[str]:
    promise = promise_of(decision.row, of.record.log) if decision.row is not None and decision.believed else None
    step = next_step(decision, promise, changes.pop("data", point_log()), folder)
    return answer_lines(of, decision, next_step=step, last=["It took 4.6 minutes."], **changes)


POLICY, BETTER = candidate("pi-1/seed=0", 30.0, alpha=1.0), candidate("committee of 2 (alpha=1)", 25.0, alpha=1.0)
COPY = candidate(CLONE, 5.0)
WORSE = candidate("mu-1/seed=0", -3.0)
DOUBTED = candidate("pi-1/seed=1", 90.0, warnings=("no data there",))


def test_a_clear_gain() -> None:
    of = choice(POLICY, BETTER, COPY)
    decision = decide_on(of)
    assert decision.row is POLICY and decision.believed
    assert words(of, decision) == [
        "Use the policy: it is expected to be better than the log.",
        "It is expected to earn 130 an episode where the log earns 100: +30 (+30 %), with 90 % between +20 and +40.",
        "It is a single policy (alpha=1, seed=0). 3 policies were judged: it promises the most.",
        "Next: 8 real episodes would settle it: let it act in them, or in a simulator: "
        "sbac evaluate runs/point/policy.safetensors --env ID --episodes 8",
        "It took 4.6 minutes.",
    ]


def test_a_gain_that_may_be_none() -> None:
    of = choice(candidate("committee of 2 (alpha=1)", 4.0), COPY)
    lines = words(of, decide_on(of))
    assert lines[0] == "The policy may be better than the log, or worse: try it before you rely on it."
    assert lines[1].endswith("the log earns 100: +4 (+4 %), with 90 % between -6 and +14.")
    assert lines[2].startswith("It is a committee of 2 (alpha=1), which does the mean of what its members would do. 2 ")


def test_keep_only_if_what_can_be_believed_is_not_above_the_log() -> None:
    of = choice(WORSE, candidate(CLONE, -5.0), DOUBTED)
    decision = decide_on(of)
    assert decision.row is None and decision.believed
    lines = words(of, decision)
    assert lines[0] == "Keep what you have: no policy is expected to earn more than the log."
    assert lines[1] == (
        "3 policies were judged. The best is a single policy (seed=0). "
        "It is expected to earn 97 an episode where the log earns 100: -3 (-3 %), with 90 % between -13 and +7."
    )
    assert lines[2] == "1 policy set aside: card.html says why."
    assert decide_on(choice(WORSE, COPY)).row is COPY  # the clone is above the log


def test_keep_names_the_policy_that_the_estimators_disagree_on() -> None:
    disputed = replace(DOUBTED, diagnostics={"fitted_gain": 3.0, "model_gain": -1.0})
    agreed = replace(DOUBTED, label="pi-1/seed=2", diagnostics={"fitted_gain": -3.0, "model_gain": -9.0})
    of = choice(WORSE, candidate(CLONE, -5.0), agreed, disputed)
    assert words(of, decide_on(of))[2] == (
        "2 policies set aside: card.html says why. "
        "By one of two estimates pi-1/seed=1 is better than the log: only real episodes tell."
    )
    assert "set aside" not in "".join(words(choice(WORSE, COPY), decide_on(choice(WORSE, candidate(CLONE, -5.0)))))


def test_keep_says_what_becomes_of_what_is_watched() -> None:
    watched = WatchedRate("glucose < 70", "rule", 0.2, 0.3, 0.25, 0.35, False)
    of = choice(replace(WORSE, watched=[watched]), candidate(CLONE, -5.0))
    said = "Watched: glucose < 70: the log 20.0 % of the steps, the policy 30.0 % [25.0 %, 35.0 %]."
    assert said in words(of, decide_on(of))


def test_what_the_judge_takes_by_default_must_be_above_the_log_too() -> None:
    assert decide_on(choice(WORSE, POLICY, decided=False)).row is POLICY


def test_where_nothing_can_be_told_the_seeds_act_together() -> None:
    assert decide_on(choice(POLICY, BETTER, decided=False)).row is BETTER
    assert decide_on(choice(POLICY, replace(BETTER, setting={"alpha": 4.0}), decided=False)).row is POLICY
    assert decide_on(choice(POLICY, replace(BETTER, set_aside=True), decided=False)).row is POLICY


def test_where_nothing_is_believable_the_clone_is_handed_over_without_a_promise() -> None:
    copy = candidate(CLONE, 5.0, warnings=("the log has 4 episodes; at least 20 are needed for an interval",))
    of = choice(DOUBTED, copy)
    decision = decide_on(of)
    assert decision.row is copy and not decision.believed
    lines = words(of, decision, warnings=copy.warnings)
    assert lines[0] == (
        "Nothing can be promised from this log. "
        "The policy is the clone of the log, which does what the log does on average."
    )
    assert "What is missing: the log has 4 episodes; at least 20 are needed for an interval." in lines
    assert "Next: 16 real episodes would settle it" in lines[2]  # half a deviation is seen by then


def test_of_too_few_rows_nothing_is_believed() -> None:
    decision = decide_on(choice(POLICY, COPY), enough_rows=False)
    assert decision.row is COPY and not decision.believed


def test_a_discounted_gain_where_an_episode_cannot_be_promised() -> None:
    only = replace(POLICY, episode=None, episode_low=None, episode_high=None, episode_spread=None)
    only = replace(only, diagnostics={"optimism": 0.2})
    of = choice(only, COPY)
    decision = decide_on(of)
    assert decision.row is only and promise_of(only, of.record.log) is None
    assert words(of, decision)[1] == (
        "A whole episode cannot be promised. "
        "Discounted, it is expected to earn 51.0 over 50.0: +1.0, with 90 % between +0.5 and +1.5."
    )


@pytest.mark.parametrize("count", range(12))
def test_never_more_than_twelve_lines(count: int) -> None:
    of = choice(POLICY, COPY)
    reasons = [f"reason {number}" for number in range(count)]
    lines = words(of, decide_on(of), warnings=reasons, notes=["a note", "another"], dropped=["mu-1"])
    assert len(lines) <= MOST_LINES
    shown = sum(line.startswith("Doubt: reason") for line in lines)
    if shown < count:
        assert f"Doubt: {count - shown} reasons more, in answer.json." in lines
    assert "Not trained, for lack of time: mu-1." in lines


def test_episodes_to_settle() -> None:
    assert episodes_to_settle(0.25) == 64 == episodes_to_settle(-0.25)
    assert episodes_to_settle(25.0) == 5
    assert episodes_to_settle(0.0) == episodes_to_settle(1e-9) == MOST_TRIES + 1


def test_the_next_step_can_be_pasted() -> None:
    of = choice(POLICY, COPY)
    spaced = words(of, decide_on(of), folder=Path("runs/odd log"), data=point_log(environment="Hopper-v4"))
    assert (
        "Next: 8 real episodes would settle it: sbac evaluate 'runs/odd log/policy.safetensors' --env Hopper-v4 "
        in ("".join(spaced))
    )
    assert "sbac.evaluate(answer.policy, 'ID', episodes=8)" in "".join(words(of, decide_on(of), folder=None))
