"""A log with a known best action, and a plan of seconds."""

from typing import Any

import numpy as np

import sbac
from sbac.learning.plan import LearnCandidate, PlanRow, sbac_candidate
from sbac.trust.evidence import Effort

TINY = Effort(2, 2, (16,), 32, (50, 50), 1e-3, 0.1, (16,), 50)


def small_row(candidates: list[LearnCandidate] | None = None, **changes: Any) -> PlanRow:
    few = candidates or [sbac_candidate("pi", 1.0, 5.0), sbac_candidate("mu", 1.0, 2.0, "pi-1")]
    options = {"hidden": [8], "ratio_hidden": [8], "batch_size": 16, "critics": 2}
    return PlanRow("small", "any", "quick", [20, 20], 2, few, TINY, 5.0, options=options, **changes)


def point_log(episodes: int = 40, length: int = 30, seed: int = 0, **changes: Any) -> sbac.Dataset:
    """A point is pushed about; the reward is highest at 0."""
    rng = np.random.default_rng(seed)
    states, actions, rewards = [], [], []
    for _ in range(episodes):
        x = rng.normal()
        for _ in range(length):
            a = float(np.clip(-0.3 * x + 0.4 * rng.normal(), -1, 1))
            states.append([x, 1.0])
            actions.append([a])
            rewards.append(-x * x)
            x = 0.9 * x + 0.5 * a + 0.05 * rng.normal()
    rows = len(states)
    columns: dict[str, Any] = {
        "observations": np.array(states),
        "actions": np.array(actions),
        "rewards": np.array(rewards),
        "terminals": np.zeros(rows, bool),
        "timeouts": np.arange(1, rows + 1) % length == 0,
    }
    return sbac.Dataset(**(columns | changes), name="point")
