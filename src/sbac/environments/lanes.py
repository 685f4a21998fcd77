"""Lanes: instances of one environment, stepped together. Online training, made data and evaluation step them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.environments.opening import Environment, open_environment
from sbac.policy import FORMULAS, Floats

Act = Callable[[Floats], Floats]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


class Steps(NamedTuple):
    """One step of every lane asked for. A fall in the last step before the time limit sets both flags."""

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats
    terminals: Flags
    timeouts: Flags


class Lanes:
    """Instances of one environment, with actions in [-1, 1]. `step` begins a new episode where one has ended."""

    def __init__(self, env_id: str, count: int, seed: int | Sequence[int]) -> None:
        import gymnasium

        self.instances: list[Environment] = [make(env_id) for _ in range(count)]
        self.horizon = gymnasium.spec(env_id).max_episode_steps or 2**62
        self.actions = self.instances[0].action_space.shape[0]
        low, high = self.instances[0].action_space.low, self.instances[0].action_space.high
        self._centre, self._reach = (high + low) / 2, (high - low) / 2
        self.all_lanes = np.arange(count)
        self.ages = np.zeros(count, np.int64)
        self.observations = np.zeros((count, self.instances[0].observation_space.shape[0]), np.float32)
        self.begin(lane_seeds(seed, count))

    def begin(self, seeds: Sequence[int]) -> None:
        """Begins an episode in every lane, each from its own seed of the environment."""
        for lane, seed in enumerate(seeds):
            self.observations[lane] = self.instances[lane].reset(seed=seed)[0]
        self.ages[:] = 0

    def step(self, actions: Floats, lanes: Indices | None = None) -> Steps:
        """Steps all lanes once, or only those in `lanes`, with an action for each."""
        lanes = self.all_lanes if lanes is None else lanes
        before = self.observations[lanes]
        after, rewards, terminals = self.advance(actions, lanes)
        self.ages[lanes] += 1
        timeouts = self.ages[lanes] >= self.horizon
        self.observations[lanes] = after
        for lane in lanes[terminals | timeouts]:
            self.observations[lane] = self.instances[int(lane)].reset()[0]
            self.ages[lane] = 0
        return Steps(before, actions, rewards.astype(np.float32), after, terminals, timeouts)

    def advance(self, actions: Floats, lanes: Indices) -> tuple[Floats, Doubles, Flags]:
        """Simulates one step of the lanes: observations, rewards and falls. It begins no new episode."""
        after = np.empty((len(lanes), self.observations.shape[1]), np.float32)
        rewards, terminals = np.empty(len(lanes)), np.empty(len(lanes), np.bool_)
        scaled = self._centre + self._reach * actions
        for i, lane in enumerate(lanes):
            after[i], rewards[i], terminals[i], _, _ = self.instances[int(lane)].step(scaled[i])
        return after, rewards, terminals


def lane_seeds(seed: int | Sequence[int], count: int) -> list[int]:
    """A seed of the environment for every lane, from one seed for all."""
    return np.random.SeedSequence(seed).generate_state(count).tolist()


class Body(NamedTuple):
    """The differences between Gymnasium's -v4 bodies: the reward, and the ranges outside which a body has fallen."""

    control_cost: float
    alive: float
    height: tuple[float, float]
    angle: tuple[float, float]
    greatest_state: float
    greatest_speed: float


class Simulator(NamedTuple):
    """A MuJoCo simulation: its model, its data, and the arrays of the data that a step reads and writes."""

    model: object
    data: object
    control: Doubles
    position: Doubles
    velocity: Doubles


ANY = (-math.inf, math.inf)
BODIES = {
    "HalfCheetah-v4": Body(0.1, 0.0, ANY, ANY, math.inf, math.inf),
    "Hopper-v4": Body(1e-3, 1.0, (0.7, math.inf), (-0.2, 0.2), 100.0, 10.0),
    "Walker2d-v4": Body(1e-3, 1.0, (0.8, 2.0), (-1.0, 1.0), math.inf, 10.0),
}


class BodyLanes(Lanes):
    """The -v4 bodies with Gymnasium's own models and resets; its arithmetic is done for all lanes at once.

    The numbers equal Gymnasium's bit for bit, in two thirds of the time.
    """

    def __init__(self, env_id: str, count: int, seed: int | Sequence[int]) -> None:
        import mujoco

        super().__init__(env_id, count, seed)
        self._simulate: Callable[[object, object, int], None]
        self._simulate = mujoco.mj_step  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self.body = BODIES[env_id]
        bodies: list[Any] = list(self.instances)
        self._simulators = [Simulator(b.model, b.data, b.data.ctrl, b.data.qpos, b.data.qvel) for b in bodies]
        self._repeat, self._seconds = int(bodies[0].frame_skip), float(bodies[0].dt)
        model = bodies[0].model
        self._qpos, self._qvel = np.empty((count, model.nq)), np.empty((count, model.nv))

    def advance(self, actions: Floats, lanes: Indices) -> tuple[Floats, Doubles, Flags]:
        body, qpos, qvel = self.body, self._qpos[: len(lanes)], self._qvel[: len(lanes)]
        start = np.empty(len(lanes))
        for i, lane in enumerate(lanes):
            model, data, control, position, velocity = self._simulators[int(lane)]
            start[i] = position[0]
            control[:] = actions[i]
            self._simulate(model, data, self._repeat)
            qpos[i], qvel[i] = position, velocity
        speed = (qpos[:, 0] - start) / self._seconds
        cost = body.control_cost * np.sum(np.square(actions), axis=1)
        rewards = speed + body.alive - cost
        height, angle = qpos[:, 1], qpos[:, 2]
        healthy = (height > body.height[0]) & (height < body.height[1])
        healthy &= (angle > body.angle[0]) & (angle < body.angle[1])
        if body.greatest_state < math.inf:
            healthy &= (np.abs(qpos[:, 2:]) < body.greatest_state).all(1)
            healthy &= (np.abs(qvel) < body.greatest_state).all(1)
        seen = np.clip(qvel, -body.greatest_speed, body.greatest_speed)
        return np.concatenate([qpos[:, 1:], seen], axis=1).astype(np.float32), rewards, ~healthy


def open_lanes(env_id: str, count: int, seed: int | Sequence[int]) -> Lanes:
    """Lanes of the fastest class that fits the environment."""
    return (BodyLanes if env_id in BODIES else Lanes)(env_id, count, seed)


def make(env_id: str) -> Any:
    """The bare environment: the wrappers of `gymnasium.make` cost a third of a step and are not needed."""
    return open_environment(env_id, disable_env_checker=True).unwrapped


def acting(kind: str, arrays: Mapping[str, Floats], rng: np.random.Generator, noise: float = 0.0) -> Act:
    """How a policy acts while it gathers data: by its samples, with Gaussian noise added where `noise` is not 0."""
    formula = FORMULAS[kind]

    def act(observations: Floats) -> Floats:
        actions = formula.sample(arrays, observations, rng)
        if noise:
            actions = np.clip(actions + noise * rng.standard_normal(actions.shape, np.float32), -1.0, 1.0)
        return actions

    return act


def uniform(size: int, rng: np.random.Generator) -> Act:
    return lambda observations: rng.uniform(-1.0, 1.0, (len(observations), size)).astype(np.float32)
