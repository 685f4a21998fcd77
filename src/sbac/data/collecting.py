"""Environments stepped in lock-step by a policy in numpy: what online training and made data are collected with."""

import functools
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sbac.policy import KINDS, Floats

HORIZON = 1000  # of the MuJoCo tasks

Act = Callable[[Floats], Floats]


class Steps(NamedTuple):
    """One step of every instance. An episode ends with a terminal or a timeout, never with both."""

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats
    terminals: NDArray[np.bool_]
    timeouts: NDArray[np.bool_]


class Envs:
    """Instances of one MuJoCo environment; an episode that ends starts again by itself."""

    def __init__(self, env_id: str, count: int, seed: int) -> None:
        self.instances = [make(env_id) for _ in range(count)]
        seeds = np.random.SeedSequence(seed).generate_state(count)
        first = [env.reset(seed=int(s))[0] for env, s in zip(self.instances, seeds, strict=True)]
        self.observations = np.array(first, np.float32)
        self.ages = np.zeros(count, np.int64)

    def step(self, actions: Floats) -> Steps:
        """Steps every instance once."""
        before = self.observations
        after = np.empty_like(before)
        count = len(self.instances)
        rewards = np.empty(count, np.float32)
        terminals = np.empty(count, np.bool_)
        for i, env in enumerate(self.instances):
            after[i], rewards[i], terminals[i], _, _ = env.step(actions[i])
        self.ages += 1
        timeouts = (self.ages >= HORIZON) & ~terminals
        self.observations = after
        if (ended := terminals | timeouts).any():
            self.observations = after.copy()
            for i in np.flatnonzero(ended):
                self.observations[i] = self.instances[i].reset()[0]
            self.ages[ended] = 0
        return Steps(before, actions, rewards, after, terminals, timeouts)


def make(env_id: str) -> Any:
    """The bare environment: the wrappers of `gymnasium.make` cost a third of a step and are not needed."""
    import warnings

    import gymnasium

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return gymnasium.make(env_id, disable_env_checker=True).unwrapped


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


@functools.cache
def kept(env_id: str, count: int) -> list[Any]:
    """Instances that a process uses again and again."""
    return [make(env_id) for _ in range(count)]


def returns(env_id: str, kind: str, arrays: Mapping[str, Floats], episodes: int, seed: int) -> tuple[Floats, Floats]:
    """Returns of whole episodes with the policy's mode, and with its samples."""
    formula = KINDS[kind]
    rng = np.random.default_rng(seed)
    seeds = np.random.SeedSequence(seed).generate_state(2 * episodes)
    envs = kept(env_id, 2 * episodes)
    observations = np.array([env.reset(seed=int(s))[0] for env, s in zip(envs, seeds, strict=True)], np.float32)
    totals = np.zeros(2 * episodes)
    running = np.arange(2 * episodes)
    for _ in range(HORIZON):
        seen = observations[running]
        calm = running < episodes
        actions = np.concatenate([formula.mode(arrays, seen[calm]), formula.sample(arrays, seen[~calm], rng)])
        ended = np.zeros(len(running), np.bool_)
        for j, i in enumerate(running):
            observations[i], reward, ended[j], _, _ = envs[i].step(actions[j])
            totals[i] += reward
        running = running[~ended]
        if not len(running):
            break
    return totals[:episodes].astype(np.float32), totals[episodes:].astype(np.float32)


class Request(NamedTuple):
    """A round asked of a collector: steps of every instance, by a policy or (without arrays) uniform."""

    steps: int
    kind: str
    arrays: Mapping[str, Floats] | None
    noise: float


def received(connection: Connection) -> Request | None:
    """The next request; none when the other side has ended, in whatever way."""
    try:
        return connection.recv()
    except (EOFError, ConnectionError):
        return None


def collector(connection: Connection, env_id: str, count: int, seed: int) -> None:
    """The body of a collector's process: answers requests with rows (s, a, r, terminal, s') until there are none."""
    rng = np.random.default_rng(seed)
    envs = Envs(env_id, count, seed)
    size = envs.instances[0].action_space.shape[0]
    while (request := received(connection)) is not None:
        act = uniform(size, rng)
        if request.arrays is not None:
            act = acting(request.kind, request.arrays, rng, request.noise)
        rounds: list[Floats] = []
        for _ in range(request.steps):
            s, a, r, after, terminals, _ = envs.step(act(envs.observations))
            rounds.append(np.concatenate([s, a, r[:, None], terminals[:, None].astype(np.float32), after], axis=1))
        connection.send(np.concatenate(rounds))
