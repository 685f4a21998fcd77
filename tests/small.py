"""The small log, training and policy that tests share: one shape, so that they also share compiled programs."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import sbac

TINY: dict[str, Any] = {"steps": 4, "hidden": (4,), "batch_size": 8, "progress": False}
"""A training of milliseconds."""


def make_log(
    rows: int = 60, episode: int = 10, seed: int = 0, observations: int = 3, stores_next: bool = False
) -> sbac.Dataset:
    """Random rows in episodes that time cut; actions from -2 to 2, as Pendulum's.

    Heavier tails with the seed: of another shape even when standardised.
    """
    rng = np.random.default_rng(seed)
    states = rng.normal(loc=seed, scale=1.0 + seed, size=(rows, observations)) ** (1 + 2 * seed)
    return sbac.Dataset(
        observations=states,
        actions=rng.uniform(-2, 2, (rows, 1)),
        rewards=rng.normal(size=rows),
        terminals=np.zeros(rows, bool),
        timeouts=np.arange(1, rows + 1) % episode == 0,
        next_observations=states + 1 if stores_next else None,
        action_low=[-2.0],
        action_high=[2.0],
    )


def linear_policy(**config: Any) -> sbac.Policy:
    """Three observations times 1, into actions from -2 to 2."""
    arrays = {"policy/weights/0": np.ones((3, 1)), "policy/biases/0": np.zeros(1)}
    scale = {"observation_mean": np.zeros(3), "observation_std": np.ones(3)}
    scale |= {"action_low": np.full(1, -2.0), "action_high": np.full(1, 2.0)}
    about = {"algorithm": "bc", "seed": 0, "label": "seed=0", "grid": [], **config}
    return sbac.Policy("deterministic", arrays | {f"scale/{name}": a for name, a in scale.items()}, about)


def pendulum() -> gymnasium.Env[Any, Any]:
    """An environment that is a function: its episodes are played in this process, and no other is started."""
    return gymnasium.make("Pendulum-v1")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
