"""Environments stepped in lock-step by a policy in numpy: what online training and made data are collected with."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.environments.opening import open_environment
from sbac.policy import KINDS, Floats

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
    """Instances of one environment, with actions in [-1, 1]; an episode that ends starts again by itself."""

    def __init__(self, env_id: str, count: int, seed: int | Sequence[int]) -> None:
        import gymnasium

        self.instances = [make(env_id) for _ in range(count)]
        self.horizon = gymnasium.spec(env_id).max_episode_steps or 2**62
        self.actions = self.instances[0].action_space.shape[0]
        low, high = self.instances[0].action_space.low, self.instances[0].action_space.high
        self._centre, self._reach = (high + low) / 2, (high - low) / 2
        self.everyone = np.arange(count)
        self.ages = np.zeros(count, np.int64)
        self.observations = np.zeros((count, self.instances[0].observation_space.shape[0]), np.float32)
        self.restart(seed)

    def restart(self, seed: int | Sequence[int]) -> None:
        """Begins anew in every lane, each from its own seed."""
        self.begin(np.random.SeedSequence(seed).generate_state(len(self.instances)).tolist())

    def begin(self, seeds: Sequence[int]) -> None:
        """Begins anew in every lane, from the environment's seeds given."""
        for lane, seed in enumerate(seeds):
            self.observations[lane] = self.instances[lane].reset(seed=seed)[0]
        self.ages[:] = 0

    def step(self, actions: Floats, lanes: Indices | None = None) -> Steps:
        """Steps the lanes once, or only those named, with an action for each."""
        lanes = self.everyone if lanes is None else lanes
        before = self.observations[lanes]
        after, rewards, terminals = self.advance(actions, lanes)
        self.ages[lanes] += 1
        timeouts = self.ages[lanes] >= self.horizon
        self.observations[lanes] = after
        for lane in lanes[terminals | timeouts]:
            self.observations[lane] = self.instances[lane].reset()[0]
            self.ages[lane] = 0
        return Steps(before, actions, rewards.astype(np.float32), after, terminals, timeouts)

    def advance(self, actions: Floats, lanes: Indices) -> tuple[Floats, Doubles, Flags]:
        """Simulates one step of the lanes: observations, rewards and falls, with nothing started anew."""
        after = np.empty((len(lanes), self.observations.shape[1]), np.float32)
        rewards, terminals = np.empty(len(lanes)), np.empty(len(lanes), np.bool_)
        scaled = self._centre + self._reach * actions
        for i, lane in enumerate(lanes):
            after[i], rewards[i], terminals[i], _, _ = self.instances[lane].step(scaled[i])
        return after, rewards, terminals


class Body(NamedTuple):
    """What Gymnasium's -v4 bodies differ in: reward and the ranges outside which they have fallen."""

    control_cost: float
    alive: float
    height: tuple[float, float]
    angle: tuple[float, float]
    greatest_state: float
    greatest_speed: float


ANY = (-math.inf, math.inf)
BODIES = {
    "HalfCheetah-v4": Body(0.1, 0.0, ANY, ANY, math.inf, math.inf),
    "Hopper-v4": Body(1e-3, 1.0, (0.7, math.inf), (-0.2, 0.2), 100.0, 10.0),
    "Walker2d-v4": Body(1e-3, 1.0, (0.8, 2.0), (-1.0, 1.0), math.inf, 10.0),
}


class BodyLanes(Lanes):
    """The -v4 bodies with Gymnasium's own models and resets, and its arithmetic done for all lanes at once.

    The numbers are those of Gymnasium, bit by bit; a third of the time is saved.
    """

    def __init__(self, env_id: str, count: int, seed: int | Sequence[int]) -> None:
        import mujoco

        super().__init__(env_id, count, seed)
        self._simulate = mujoco.mj_step  # pyright: ignore[reportAttributeAccessIssue]
        self.body = BODIES[env_id]
        self._simulators = [(e.model, e.data, e.data.ctrl, e.data.qpos, e.data.qvel) for e in self.instances]
        self._repeat, self._seconds = self.instances[0].frame_skip, self.instances[0].dt
        model = self.instances[0].model
        self._qpos, self._qvel = np.empty((count, model.nq)), np.empty((count, model.nv))

    def advance(self, actions: Floats, lanes: Indices) -> tuple[Floats, Doubles, Flags]:
        body, qpos, qvel = self.body, self._qpos[: len(lanes)], self._qvel[: len(lanes)]
        start = np.empty(len(lanes))
        for i, lane in enumerate(lanes):
            model, data, control, position, velocity = self._simulators[lane]
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
    """Lanes of the fastest kind that an environment has."""
    return (BodyLanes if env_id in BODIES else Lanes)(env_id, count, seed)


def make(env_id: str) -> Any:
    """The bare environment: the wrappers of `gymnasium.make` cost a third of a step and are not needed."""
    return open_environment(env_id, disable_env_checker=True).unwrapped


def acting(kind: str, arrays: Mapping[str, Floats], rng: np.random.Generator, noise: float = 0.0) -> Act:
    """How a policy acts while it gathers data: its own samples, plus Gaussian noise where the method adds some."""
    formula = KINDS[kind]

    def act(observations: Floats) -> Floats:
        actions = formula.sample(arrays, observations, rng)
        if noise:
            actions = np.clip(actions + noise * rng.standard_normal(actions.shape, np.float32), -1.0, 1.0)
        return actions

    return act


def uniform(size: int, rng: np.random.Generator) -> Act:
    """Uniform actions."""
    return lambda observations: rng.uniform(-1.0, 1.0, (len(observations), size)).astype(np.float32)


def play(lanes: Lanes, act: Act) -> Floats:
    """The return of one whole episode in every lane."""
    totals = np.zeros(len(lanes.everyone))
    running = lanes.everyone
    while len(running):
        steps = lanes.step(act(lanes.observations[running]), running)
        totals[running] += steps.rewards
        running = running[~(steps.terminals | steps.timeouts)]
    return totals.astype(np.float32)


@functools.cache
def kept(env_id: str, count: int) -> Lanes:
    """Lanes that a process uses again and again."""
    return open_lanes(env_id, count, 0)


def returns(env_id: str, kind: str, arrays: Mapping[str, Floats], episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Returns of whole episodes with the policy's mode, and with its samples."""
    lanes = kept(env_id, episodes)
    lanes.restart(seed)
    mode = play(lanes, functools.partial(KINDS[kind].mode, arrays))
    return mode, sampled_returns(env_id, kind, arrays, episodes, seed)


def sampled_returns(env_id: str, kind: str, arrays: Mapping[str, Floats], episodes: int, seed: int) -> Floats:
    """Returns of whole episodes with the policy's samples."""
    lanes = kept(env_id, episodes)
    lanes.restart(seed)
    return play(lanes, acting(kind, arrays, np.random.default_rng(seed)))
