"""A world: a simulated process that is not MuJoCo, with a controller that writes its log and another one to judge."""

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbac.data import Dataset
from sbac.environments.opening import Environment
from sbac.errors import UserError
from sbac.files import write_atomic
from sbac.policy import Floats

Controller = Callable[[Floats], Floats]
"""Actions for a batch of observations, both in the process's units."""


@dataclass(frozen=True)
class World:
    """What a file of this folder says of its process."""

    name: str
    episode: str
    """What an episode is called in the log."""
    end: str | None
    """What an early end is called in the log; None: the process never ends."""
    observations: tuple[str, ...]
    """The log's headers, with units."""
    actions: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    steps: int
    """Of a whole episode."""
    make: Callable[[], Environment]
    writer: Callable[[np.random.Generator], Controller]
    """Controller A as it acts in one episode, with that episode's disturbances."""
    other: Controller
    """Controller B, which the log never saw."""
    watched: tuple[str, ...]
    """Beside the return: what a user watches, as rules that `--watch` takes."""
    episodes: int
    """Of the log."""
    gaps: int = 0
    """How often a sensor fails while the log is written."""

    @property
    def columns(self) -> dict[str, list[str]]:
        return {"observations": [*self.observations], "actions": [*self.actions]}


def write_log(world: World, episodes: int, seed: int) -> Dataset:
    """The log of controller A; episode k starts from the process's seed `seed + k`."""
    environment, rows = world.make(), list[tuple[Floats, Floats, float, bool, bool]]()
    for episode in range(seed, seed + episodes):
        controller = world.writer(np.random.default_rng(episode))
        observation, _ = environment.reset(seed=episode)
        terminal = cut = False
        while not (terminal or cut):
            action = np.clip(controller(observation[None])[0], world.low, world.high)
            following, reward, terminal, cut, _ = environment.step(action)
            rows.append((observation, action, reward, terminal, cut))
            observation = following
    observations, actions, rewards, terminals, timeouts = map(np.array, zip(*rows, strict=True))
    return Dataset(
        observations,
        actions,
        rewards,
        terminals,
        timeouts,
        action_low=world.low,
        action_high=world.high,
        name=world.name,
        columns=world.columns,
    )


def write_csv(world: World, data: Dataset, path: Path) -> None:
    """The log as a stranger has it: the world's own headers, no bounds, and blank cells where the sensor failed."""
    rows, rng = len(data), np.random.default_rng(world.gaps)
    failed = rng.integers(rows, size=world.gaps)[:, None] + np.arange(3) * rng.integers(0, 2, (world.gaps, 3))
    observations = data.observations.copy()
    observations[np.setdiff1d(failed[failed < rows], data.episodes[:, 0]), 0] = np.nan  # each starts with a reading
    episodes = np.repeat(np.arange(len(data.episodes)), np.diff(data.episodes, axis=1)[:, 0])
    ends = [] if world.end is None else [data.terminals]
    text = io.StringIO()
    np.savetxt(
        text,
        np.column_stack([episodes, observations, data.actions, data.rewards, *ends]),
        fmt="%.6g",
        delimiter=",",
        header=",".join([world.episode, *world.observations, *world.actions, "reward", *filter(None, [world.end])]),
        comments="",
    )
    write_atomic(path, text.getvalue().replace("nan", "").encode())


def csv_columns(world: World) -> dict[str, str | list[str]]:
    """What `--columns` says of the file above."""
    ends = {} if world.end is None else {"terminals": world.end}
    return {**world.columns, "rewards": "reward", "episode": world.episode, **ends}


def package(module: str) -> Any:
    """A module of a world's package, which is no part of this one's installation."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = f"{module}: not installed ({error})"
        raise UserError(f"{reason}; lab-notes/worlds/install.sh installs what the worlds need") from None
