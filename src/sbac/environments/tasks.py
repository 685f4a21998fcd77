"""The tasks: environments, reference returns, D4RL's file names."""

import re
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.errors import UserError, name_of, unknown

Value = TypeVar("Value", float, NDArray[np.float64])


@dataclass(frozen=True)
class Task:
    """An environment with a dataset's name. A score is 100 (return - min) / (max - min), as in D4RL."""

    name: str
    env_id: str
    sizes: tuple[int, int]
    """Numbers of an observation and of an action."""
    horizon: int
    reference_min: float
    reference_max: float

    @property
    def base(self) -> str:
        """The name without its version: hopper-medium."""
        return self.name.rsplit("-", 1)[0].removesuffix("-td3")

    @property
    def suite(self) -> str:
        """MuJoCo or Adroit; the paper gives a mean for each."""
        return "Adroit" if "Adroit" in self.env_id else "MuJoCo"

    @property
    def files(self) -> tuple[str, ...]:
        """The names of D4RL's own file, in the order in which they are tried; a stand-in has none.

        They are hopper_medium_replay-v2.hdf5, door-human-v1.hdf5; those of v0 follow other rules.
        """
        match = re.fullmatch(r"([^-]+)-(.+)-(v\d)", self.name)
        if match is None:
            return ()
        environment, tier, version = match.groups()
        if tier == "human":
            d4rl = f"{environment}-v0_demos_clipped" if version == "v0" else self.name
        elif version == "v0":
            mixed = tier == "medium-replay"
            body = "walker" if mixed and environment == "walker2d" else environment
            d4rl = f"{body}_{'mixed' if mixed else tier.replace('-', '_')}"
        else:
            d4rl = f"{environment}_{tier.replace('-', '_')}-{version}"
        return tuple(f"{stem}.hdf5" for stem in dict.fromkeys((d4rl, self.name)))

    def score(self, value: Value) -> Value:
        """The normalised score of a return, or of several."""
        return 100.0 * (value - self.reference_min) / (self.reference_max - self.reference_min)


def normalised_score(task: str | Task, returns: ArrayLike) -> NDArray[np.float64]:
    at = find_task(task) if isinstance(task, str) else task
    return at.score(np.asarray(returns, np.float64))


# Gymnasium id, numbers of an observation and of an action, horizon, returns at the scores 0 and 100
HALFCHEETAH = ("HalfCheetah-v4", (17, 6), 1000, -280.178953, 12135.0)
HOPPER = ("Hopper-v4", (11, 3), 1000, -20.272305, 3234.3)
WALKER2D = ("Walker2d-v4", (17, 6), 1000, 1.629008, 4592.3)
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("halfcheetah-random-v2", *HALFCHEETAH),
        Task("walker2d-random-v2", *WALKER2D),
        Task("hopper-random-v2", *HOPPER),
        Task("halfcheetah-medium-v2", *HALFCHEETAH),
        Task("walker2d-medium-v2", *WALKER2D),
        Task("hopper-medium-v2", *HOPPER),
        Task("halfcheetah-medium-replay-v2", *HALFCHEETAH),
        Task("walker2d-medium-replay-v2", *WALKER2D),
        Task("hopper-medium-replay-v2", *HOPPER),
        Task("halfcheetah-expert-v2", *HALFCHEETAH),
        Task("walker2d-expert-v2", *WALKER2D),
        Task("hopper-expert-v2", *HOPPER),
        Task("halfcheetah-medium-expert-v2", *HALFCHEETAH),
        Task("walker2d-medium-expert-v2", *WALKER2D),
        Task("hopper-medium-expert-v2", *HOPPER),
        Task("pen-human-v1", "sbac/AdroitPen-v1", (45, 24), 100, 96.262799, 3076.8331017826877),
        Task("hammer-human-v1", "sbac/AdroitHammer-v1", (46, 26), 200, -274.856578, 12794.134825156867),
        Task("door-human-v1", "sbac/AdroitDoor-v1", (39, 28), 200, -56.512833, 2880.5693087298737),
        Task("relocate-human-v1", "sbac/AdroitRelocate-v1", (39, 30), 200, -6.425911, 4233.877797728884),
    )
}
"""In the order in which tables show them."""
TD3_TIERS = ("-medium-v2", "-medium-replay-v2", "-medium-expert-v2")
"""Those of the second ladder, by TD3, on which nothing is tuned: hopper-medium-td3-made."""
EMBEDDED = {"hopper-demo": "hopper-medium-replay-v2"}
"""Datasets that come with the package, and the task whose environment and references they are scored with."""


def _other_versions(task: Task) -> list[Task]:
    """The task by its other names: other versions of D4RL's data, and the stand-in that is made where there is one."""
    if task.name.endswith("-human-v1"):
        return [replace(task, name=f"{task.base}-v0")]
    versions = ["v0", "v1", "made"] + ["td3-made"] * any(tier in task.name for tier in TD3_TIERS)
    return [replace(task, name=f"{task.base}-{version}") for version in versions]


_BY_NAME: dict[str, Task] = {
    **TASKS,
    **{name: replace(TASKS[task], name=name) for name, task in EMBEDDED.items()},
    **{other.name: other for task in TASKS.values() for other in _other_versions(task)},
}


def find_task(name: str) -> Task:
    """The task behind a name: hopper-medium-v2 (v0, v1), its stand-in hopper-medium-made, the embedded hopper-demo."""
    if name_of("task", name) in _BY_NAME:
        return _BY_NAME[name]
    if (human := f"{name.rsplit('-', 1)[0]}-v1") in TASKS:
        base = TASKS[human].base
        raise UserError(f"unknown task {name!r}; {base} has the versions v0 and v1, and no stand-in is made of it")
    raise unknown("task", name, [task for task in _BY_NAME if task in TASKS or not re.search(r"-v\d$", task)])


def is_task(name: str) -> bool:
    return name in _BY_NAME


def task_of_file(filename: str) -> str | None:
    """The task whose D4RL file has this name, or None."""
    return next((task.name for task in _BY_NAME.values() if filename in task.files), None)
