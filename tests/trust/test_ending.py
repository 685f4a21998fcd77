"""Rules of the end: what a user gives, what speaks against it, and what a log suggests."""

from typing import Any

import numpy as np
import pytest

import sbac
from sbac.trust.ending import contradictions, end_rule, suggested_end


def falling(episodes: int = 60, noise: float = 0.0, seed: int = 0, stored: bool = True) -> sbac.Dataset:
    """A height that sinks and a column that tells nothing; an episode ends below 0.7, in a share `noise` elsewhere."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[float, float, float, bool]] = []
    for _ in range(episodes):
        height = rng.uniform(1.0, 1.5)
        for _ in range(200):
            following = height - rng.uniform(0.0, 0.1)
            ended = bool(following < 0.7) if rng.random() >= noise else bool(rng.random() < 0.5)
            rows.append((height, rng.normal(), following, ended))
            height = following
            if ended:
                break
    height, other, following, ended = (np.array(column) for column in zip(*rows, strict=True))
    pair = np.stack([height, other], 1), np.stack([following, rng.normal(size=len(other))], 1)
    return sbac.Dataset(
        pair[0],
        np.zeros((len(other), 1)),
        np.ones(len(other)),
        ended,
        next_observations=pair[1] if stored else None,
        columns={"observations": ["height [m]", "other"], "actions": ["push"]},
    )


def test_the_logs_own_ends_suggest_their_threshold() -> None:
    text = suggested_end(falling())
    assert text is not None and text.startswith("`height [m]` < ")
    assert float(text.split("<")[1]) == pytest.approx(0.7, abs=0.01)


def test_what_held_out_episodes_do_not_confirm_is_not_suggested() -> None:
    assert suggested_end(falling(noise=0.3)) is None
    assert suggested_end(falling(episodes=20)) is None  # six held-out ends
    assert suggested_end(falling(stored=False)) is None  # what follows an end is not in the log


def test_a_magnitude_is_suggested() -> None:
    rng = np.random.default_rng(0)
    angle = rng.uniform(-1, 1, 4_000)
    ended = np.abs(angle) > 0.9
    columns: dict[str, Any] = {"actions": np.zeros((4_000, 1)), "rewards": np.ones(4_000), "terminals": ended}
    data = sbac.Dataset(rng.normal(size=(4_000, 1)), next_observations=angle[:, None], timeouts=~ended, **columns)
    text = suggested_end(data)
    assert text is not None and text.startswith("abs(o0) > 0.9")


def test_how_often_a_rule_contradicts_the_log() -> None:
    data = falling(noise=0.02)
    rule, following = "`height [m]` < 0.7", data.next_observations[:, 0]
    ended = data.terminals
    missed, passed = int((ended & (following >= 0.7)).sum()), int((~ended & (following < 0.7)).sum())
    assert missed > 0 and passed > 0
    (line,) = contradictions(data, rule)
    assert f"false at {missed} of {ended.sum()} ends" in line and f"true at {passed} of {(~ended).sum():,} rows" in line
    assert contradictions(falling(), rule) == []
    assert contradictions(falling(stored=False), rule) == []  # nothing is known behind the ends, the others agree


def test_a_rule_reads_next_observations_of_any_shape() -> None:
    ends_by = end_rule(falling(), "`height [m]` < 0.7 or abs(other) > 2")
    states = np.array([[[0.6, 0.0], [0.8, 0.0]], [[0.8, -3.0], [0.8, 1.0]]])
    np.testing.assert_array_equal(ends_by(states), [[True, False], [True, False]])
    for text in ("push > 0", "reward < 0"):
        with pytest.raises(sbac.UserError, match="^ends .*unknown column"):
            end_rule(falling(), text)
