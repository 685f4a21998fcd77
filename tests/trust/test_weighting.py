"""Weighted estimates against a linear world, and that they are refused where a few rows would carry them."""

import math
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.policy import Policy
from sbac.trust.evidence import Effort, Question
from sbac.trust.log import read_log
from sbac.trust.weighting import effective_share, evidence
from truth.logged import Linear


def linear_policy(world: Linear, gain: np.ndarray, deviation: float) -> Policy:
    """N(gain s, deviation^2) as a tanh-Gaussian: bounds of 30 make the tanh a straight line."""
    raw = math.atanh((math.log(deviation / 30) + 5) / 3.5 - 1)
    weights = np.concatenate([gain.T / 30, np.zeros_like(gain.T)], axis=1)
    scale = {
        "observation_mean": np.zeros(3),
        "observation_std": np.ones(3),
        "action_low": [-30.0],
        "action_high": [30.0],
    }
    arrays = {f"scale/{name}": np.asarray(value, np.float32) for name, value in scale.items()}
    arrays |= {"policy/weights/0": weights, "policy/biases/0": np.array([0.0, raw])}
    return Policy("tanh-gaussian", arrays, {"algorithm": "sbac", "seed": 0, "label": "x", "grid": []})


def linear_log(world: Linear, episodes: int):
    columns: dict[str, Any] = world.log(episodes, 0) | {"action_low": [-30.0], "action_high": [30.0]}
    return read_log(sbac.Dataset(**columns), world.discount)


def test_the_effective_share() -> None:
    assert effective_share(np.zeros(10)) == pytest.approx(1.0)
    assert effective_share(np.array([0.0] * 9 + [50.0])) == pytest.approx(0.1)


def test_a_sharp_policy_gets_its_share_and_no_estimates() -> None:
    world = Linear.random(0)
    effort = Effort(2, 2, (32,), 32, (500, 500), 1e-3, 0.1)
    far = linear_policy(world, world.gain + 60, 0.21)
    function, said = (
        each.diagnostics for each in evidence(Question(linear_log(world, 40), [lambda x: x, far], effort))
    )
    assert set(said) == {"effective_share"} and said["effective_share"] < 0.02
    assert function == {}  # it has no density


@pytest.mark.slow
def test_three_weighted_estimates_agree_with_the_truth() -> None:
    world = Linear.random(0)
    gain = world.better(0.2)
    log = linear_log(world, 400)
    policy = linear_policy(world, gain, world.deviation)
    effort = Effort(2, 2, (64, 64), 128, (1_500, 3_000), 2e-3, 0.1)
    said = evidence(Question(log, [policy], effort))[0].diagnostics
    truth = world.value(gain, world.deviation)
    assert said["effective_share"] > 0.3
    for name in ("weighted_rewards", "doubly_robust", "weighted_advantages"):
        assert said[name] == pytest.approx(truth, rel=0.03), name
