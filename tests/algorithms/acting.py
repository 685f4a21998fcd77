"""An actor in numpy, for states and actions of any size."""

import numpy as np

from sbac.algorithms.base import Actor
from sbac.policy import Policy
from tests.algorithms import harness


def policy(actor: Actor, observations: int = 3, actions: int = 2) -> Policy:
    """In the networks' own units."""
    made = harness.policy(actor)
    scale = {f"scale/observation_{name}": np.full(observations, v) for name, v in (("mean", 0.0), ("std", 1.0))}
    scale |= {f"scale/action_{name}": np.full(actions, v) for name, v in (("low", -1.0), ("high", 1.0))}
    return Policy(made.kind, made.arrays | scale, {})


def assert_best(actions: np.ndarray, candidates: np.ndarray, values: np.ndarray) -> None:
    """Each action is one of the candidates (count, states, act), and none has a higher value by more than rounding."""
    distances = np.abs(candidates - actions).max(-1)
    assert (distances.min(0) < 2e-5).all()
    taken = np.where(distances < 2e-5, values, -np.inf).max(0)
    np.testing.assert_allclose(taken, values.max(0), rtol=1e-5, atol=1e-5)
