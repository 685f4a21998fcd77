"""A plant under a load that nobody chooses: the Industrial Benchmark of Siemens, 100 steps an episode.

Three steerings trade wear against consumption. Costs come with a delay and wear builds up unseen, so that one
observation does not say everything. The plant never ends: its episodes are cut by time.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sbac.lab.worlds.world import Controller, World, package
from sbac.policy import Floats

STEPS = 100
FULL_STEP = np.array([1.0, 10.0, 5.75])
"""By how much an action of 1 moves velocity, gain and shift."""


class Shift:
    """An episode as a Gymnasium environment. Its load is drawn when it starts."""

    def __init__(self) -> None:
        from gymnasium.spaces import Box

        self.observation_space: Any = Box(-np.inf, np.inf, (len(PLANT.observations),))
        self.action_space: Any = Box(np.array(PLANT.low), np.array(PLANT.high), dtype=np.float64)

    def reset(self, *, seed: int | None = None) -> tuple[Floats, dict[str, object]]:
        benchmark = package("industrial_benchmark_python.IDS")
        setattr(np, "float", float)  # noqa: B010  # numpy gave up the name, and the package calls it
        load = np.random.default_rng(seed).uniform(20, 80)
        self._noise = np.random.RandomState(seed).get_state()
        with self._own_noise():
            self._plant: Any = benchmark.IDS(load, inital_seed=seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, object]]:
        with self._own_noise():
            self._plant.step(np.asarray(action, np.float64))
        self._step += 1
        return self._observation(), -float(self._plant.state["cost"]) / 100, False, self._step == STEPS, {}

    def close(self) -> None: ...

    @contextmanager
    def _own_noise(self) -> Generator[None]:
        """The package draws from numpy's one global state: this one's lies there only while it draws."""
        outside = np.random.get_state()
        np.random.set_state(self._noise)
        yield
        self._noise = np.random.get_state()
        np.random.set_state(outside)

    def _observation(self) -> Floats:
        return self._plant.visibleState()[: len(PLANT.observations)]


def towards(settings: Floats, observations: Floats) -> Floats:
    """The action that moves velocity, gain and shift to these settings, as far as one step goes."""
    return np.clip((settings - observations[:, 1:4]) / FULL_STEP, -1, 1)


def operator(rng: np.random.Generator) -> Controller:
    """Controller A: holds what this shift's operator believes in, whatever the load, with a hand that is not steady."""
    settings = rng.normal([45, 50, 50], [12, 20, 15])

    def act(observations: Floats) -> Floats:
        return towards(settings, observations) + rng.normal(0, 0.5, (len(observations), 3))

    return act


def by_load(observations: Floats) -> Floats:
    """Controller B: settings that follow the load."""
    observations = np.asarray(observations, np.float64)
    load = observations[:, 0]
    return towards(np.stack([55 - 0.25 * load, 85 - 0.7 * load, 25 + 0.5 * load], axis=-1), observations)


PLANT = World(
    name="plant",
    episode="shift",
    end=None,
    observations=("load", "velocity", "gain", "calibration", "fatigue", "consumption"),
    actions=("velocity change", "gain change", "calibration change"),
    low=(-1.0, -1.0, -1.0),
    high=(1.0, 1.0, 1.0),
    steps=STEPS,
    make=Shift,
    writer=operator,
    other=by_load,
    episodes=400,
    watched=("fatigue > 40",),
)
