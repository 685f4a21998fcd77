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
