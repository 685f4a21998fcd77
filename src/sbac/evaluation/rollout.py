"""Episodes of a policy in an environment. All are stepped together, so that one pass of the network serves them."""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sbac.environments.lanes import BODIES, BodyLanes, Lanes
from sbac.environments.opening import Environment, EnvSource, check_spaces, environment_of
from sbac.environments.tasks import is_task, normalised_score
from sbac.errors import UserError, not_negative, positive
from sbac.runs import Episodes


class Acts(Protocol):
    """Anything that maps a batch of observations to actions."""

    def __call__(self, observations: Any, /) -> Any: ...


class Played(NamedTuple):
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    discounted: NDArray[np.float64]
    """The discounted returns; the undiscounted ones for a discount of 1."""

    @classmethod
    def nothing_yet(cls, episodes: int) -> "Played":
        return cls(np.zeros(episodes), np.zeros(episodes, np.int64), np.zeros(episodes))


def rollout(environments: Sequence[Environment], policy: Acts, seeds: Sequence[int], discount: float = 1.0) -> Played:
    """One episode per environment."""
    states = [env.reset(seed=int(seed))[0] for env, seed in zip(environments, seeds, strict=True)]
    played = Played.nothing_yet(len(states))
    returns, lengths, discounted = played
    running = list(range(len(states)))
    while running:
        actions = _actions(policy, np.stack([states[i] for i in running]), environments[0].action_space.shape[0])
        still: list[int] = []
        for i, action in zip(running, actions, strict=True):
            states[i], reward, terminated, truncated, _ = environments[i].step(action)
            returns[i] += reward
            discounted[i] += discount ** lengths[i] * float(reward)
            lengths[i] += 1
            if not (terminated or truncated):
                still.append(i)
        running = still
    return played


def _actions(policy: Acts, states: NDArray[Any], size: int) -> NDArray[Any]:
    """An action for each state. Actions of another size are refused: numpy would silently repeat one number."""
    actions = np.asarray(policy(states))
    if actions.shape != (len(states), size):
        raise UserError(f"actions of shape {actions.shape} for {len(states)} states; expected {(len(states), size)}")
    return actions


def rollout_lanes(lanes: Lanes, policy: Acts, seeds: Sequence[int], discount: float = 1.0) -> Played:
    """The same numbers as `rollout`, bit for bit, by lanes, which are faster."""
    lanes.begin(seeds)
    played = Played.nothing_yet(len(seeds))
    returns, lengths, discounted = played
    running, size = lanes.all_lanes, lanes.instances[0].action_space.shape[0]
    while len(running):
        actions = _actions(policy, lanes.observations[running], size)
        seen, rewards, fallen = lanes.advance(actions, running)
        lanes.observations[running] = seen
        returns[running] += rewards
        discounted[running] += discount ** lengths[running] * rewards
        lengths[running] += 1
        running = running[~fallen & (lengths[running] < lanes.horizon)]
    return played


class Evaluator:
    """Plays episodes. It keeps its environments: opening them takes longer than a short episode."""

    def __init__(self, source: EnvSource) -> None:
        self.name, self._make = environment_of(source)
        self._source = source
        self._environments: list[Environment] = []
        self._lanes: Lanes | None = None

    def __call__(self, policy: Acts, episodes: int, seed: int, discount: float | None = None) -> Episodes:
        """`episodes` episodes; episode k starts from the environment's seed `seed + k`.

        A policy with numbers that are not finite plays none: its returns are NaN.
        """
        not_negative("episodes", episodes)
        positive("episodes", episodes)
        not_negative("seed", seed)
        if not getattr(policy, "is_finite", True):  # an environment may refuse its actions, or worse
            nothing = [math.nan] * episodes
            scores = None if self._scores(np.zeros(1)) is None else nothing
            discounted = None if discount is None else nothing
            return Episodes(self.name, nothing, [0] * episodes, scores, versions(), discounted)
        seeds = range(seed, seed + episodes)
        if self.name in BODIES and not callable(self._source):
            if self._lanes is None or len(self._lanes.all_lanes) != episodes:
                self._lanes = BodyLanes(self.name, episodes, seed)
            played = rollout_lanes(self._lanes, policy, seeds, 1.0 if discount is None else discount)
        else:
            while len(self._environments) < episodes:
                self._environments.append(self._make())
            check_spaces(self._environments[0], self.name)
            played = rollout(self._environments[:episodes], policy, seeds, 1.0 if discount is None else discount)
        return Episodes(
            self.name,
            played.returns.tolist(),
            played.lengths.tolist(),
            self._scores(played.returns),
            versions(),
            None if discount is None else played.discounted.tolist(),
        )

    def _scores(self, returns: NDArray[np.float64]) -> list[float] | None:
        if callable(self._source) or not is_task(self._source):
            return None
        return normalised_score(self._source, returns).tolist()


def versions(packages: Iterable[str] = ("gymnasium", "mujoco")) -> dict[str, str]:
    """Of those packages that are installed; the returns depend on the two."""
    from importlib.metadata import PackageNotFoundError, version

    installed: dict[str, str] = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package)
    return installed


def evaluate(policy: Acts, environment: EnvSource, episodes: int = 10, seed: int = 0) -> Episodes:
    """Runs a policy: `environment` is a task name, a Gymnasium id or a function that makes an environment."""
    if not callable(policy):
        raise UserError(
            f"policy {type(policy).__name__}: expected one policy, or a function from observations to actions"
        )
    return Evaluator(environment)(policy, episodes, seed)
