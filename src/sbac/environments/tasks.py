"""The paper's 19 tasks: environment, horizon, reference returns, D4RL's file names, scores of the paper's Table 1."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.errors import UserError, name_of, unknown

Score = tuple[float, float | None]
"""Mean and standard deviation over seeds; the paper gives no deviation for scores it took from elsewhere."""


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
    paper_scores: Mapping[str, Score] = field(default_factory=dict[str, Score])
    files: tuple[str, ...] = ()
    """The names of D4RL's own file, in the order in which they are tried."""

    @property
    def suite(self) -> str:
        """MuJoCo or Adroit; the paper gives a mean for each."""
        return "Adroit" if "Adroit" in self.env_id else "MuJoCo"

    def score(self, value: float) -> float:
        """The normalised score of a return."""
        return 100.0 * (value - self.reference_min) / (self.reference_max - self.reference_min)

    def score_deviation(self, deviation: float) -> float:
        """The standard deviation of scores, from the standard deviation of returns: only the scale applies."""
        return 100.0 * deviation / (self.reference_max - self.reference_min)


def normalised_score(task: str | Task, returns: ArrayLike) -> NDArray[np.float64]:
    """The normalised scores of some returns."""
    known = find_task(task) if isinstance(task, str) else task
    return 100.0 * (np.asarray(returns, np.float64) - known.reference_min) / (known.reference_max - known.reference_min)


# environment: (Gymnasium id, numbers of an observation and of an action, horizon, returns at the scores 0 and 100)
_ENVIRONMENTS = {
    "halfcheetah": ("HalfCheetah-v4", (17, 6), 1000, -280.178953, 12135.0),
    "hopper": ("Hopper-v4", (11, 3), 1000, -20.272305, 3234.3),
    "walker2d": ("Walker2d-v4", (17, 6), 1000, 1.629008, 4592.3),
    "pen": ("sbac/AdroitPen-v1", (45, 24), 100, 96.262799, 3076.8331017826877),
    "hammer": ("sbac/AdroitHammer-v1", (46, 26), 200, -274.856578, 12794.134825156867),
    "door": ("sbac/AdroitDoor-v1", (39, 28), 200, -56.512833, 2880.5693087298737),
    "relocate": ("sbac/AdroitRelocate-v1", (39, 30), 200, -6.425911, 4233.877797728884),
}

# The paper's Table 1, in its order; "-" where it has no number. Its baselines are D4RL v0 figures.
_TABLE_1 = """
task                       bcq    bear   brac-p brac-v brac-plus  sbac      algae-dice  cql    fisher-brc
halfcheetah-random         2.2    25.1   24.1   31.2   26.4±1.0   28.7±1.2  -0.3        35.4   33.3±1.3
walker2d-random            4.9    7.3    -0.2   1.9    16.7±2.3   1.3±1.7   0.5         7.0    1.5±0.7
hopper-random              10.6   11.4   11.0   12.2   12.5±0.3   16.7±1.3  0.9         10.8   11.3±0.2
halfcheetah-medium         40.7   41.7   43.8   46.3   46.6±0.6   51.4±0.3  -2.2        44.4   41.3±0.3
walker2d-medium            53.1   59.1   77.5   81.1   75.1±3.5   81.1±1.1  0.3         79.2   78.8±1.0
hopper-medium              54.5   52.1   32.7   31.1   53.2±3.1   99.6±1.7  1.2         58.0   99.4±0.3
halfcheetah-medium-replay  38.2   38.6   45.4   47.7   46.1±0.2   48.2±0.2  -2.1        46.2   43.2±1.5
walker2d-medium-replay     15.0   19.2   -0.3   0.9    39.0±4.6   78.3±1.2  0.6         26.7   41.8±7.9
hopper-medium-replay       33.1   33.7   0.6    0.6    72.7±18.9  98.9±0.8  1.1         48.6   35.6±1.0
halfcheetah-expert         -      108.2  3.8    -1.1   -          98.7±0.1  -           104.8  108.4±0.5
walker2d-expert            -      106.1  -0.2   0.0    -          113.7±0.2 -           153.9  103.0±5.3
hopper-expert              -      110.3  6.6    3.7    -          112.2±0.1 -           109.9  112.3±0.1
halfcheetah-medium-expert  64.7   53.4   44.2   41.9   61.2±2.8   93.1±0.8  -0.8        62.4   93.3±10.2
walker2d-medium-expert     57.5   40.1   76.9   81.6   95.3±5.9   112.4±1.5 0.4         98.7   105.2±3.9
hopper-medium-expert       110.9  96.3   1.9    0.8    112.9±0.1  112.8±2.3 1.1         111.0  112.4±0.3
pen-human                  68.9   -1.0   8.1    0.6    64.9±1.6   78.8±2.0  -3.3        55.8   -
hammer-human               0.5    0.3    0.3    0.2    3.9±0.9    7.7±1.1   0.3         2.1    -
door-human                 0.0    -0.3   -0.3   -0.3   11.5±1.2   10.1±3.5  -0.0        9.1    -
relocate-human             -0.1   -0.3   -0.3   -0.3   0.2±0.11   0.6±0.3   -0.1        0.4    -
"""


def _paper_scores() -> dict[str, dict[str, Score]]:
    head, *lines = (line.split() for line in _TABLE_1.strip().splitlines())
    table: dict[str, dict[str, Score]] = {}
    for task, *cells in lines:
        parts = {name: cell.split("±") for name, cell in zip(head[1:], cells, strict=True) if cell != "-"}
        table[task] = {name: (float(p[0]), float(p[1]) if len(p) > 1 else None) for name, p in parts.items()}
    return table


def _task(base: str, version: str, scores: Mapping[str, Score]) -> Task:
    environment, tier = base.split("-", 1)
    env_id, sizes, horizon, low, high = _ENVIRONMENTS[environment]
    return Task(f"{base}-{version}", env_id, sizes, horizon, low, high, scores, _files(environment, tier, version))


def _files(environment: str, tier: str, version: str) -> tuple[str, ...]:
    """D4RL's file names: hopper_medium_replay-v2.hdf5, door-human-v1.hdf5; those of v0 follow other rules."""
    spelled = f"{environment}-{tier}-{version}"
    if tier == "human":
        d4rl = f"{environment}-v0_demos_clipped" if version == "v0" else spelled
    elif version == "v0":
        mixed = tier == "medium-replay"
        body = "walker" if mixed and environment == "walker2d" else environment
        d4rl = f"{body}_{'mixed' if mixed else tier.replace('-', '_')}"
    else:
        d4rl = f"{environment}_{tier.replace('-', '_')}-{version}"
    return tuple(f"{stem}.hdf5" for stem in dict.fromkeys((d4rl, spelled)))


_SCORES = _paper_scores()
TASKS: dict[str, Task] = {
    task.name: task
    for task in (_task(base, "v1" if base.endswith("-human") else "v2", scores) for base, scores in _SCORES.items())
}
EMBEDDED = {"hopper-demo": "hopper-medium-replay"}
"""Datasets that come with the package, and the task whose environment and references they are scored with."""


def find_task(name: str) -> Task:
    """The task behind a name: hopper-medium-v2 (v0, v1), its stand-in hopper-medium-made, the embedded hopper-demo."""
    if name_of("task", name) in TASKS:
        return TASKS[name]
    if name in EMBEDDED:
        base = EMBEDDED[name]
        return replace(_task(base, "v2", {}), name=name, files=())
    match = re.fullmatch(r"(.+)-(v0|v1|v2|made)", name)
    if match and match[1] in _SCORES:
        base, version = match.groups()
        human = base.endswith("-human")
        if version == "made" and not human:
            return replace(_task(base, "v2", _SCORES[base]), name=name, files=())
        if version in ("v0", "v1", "v2") and not (human and version == "v2"):
            return _task(base, version, _SCORES[base])
        raise UserError(f"unknown task {name!r}; {base} has the versions v0 and v1, and no stand-in is made of it")
    raise unknown("task", name, [*TASKS, *EMBEDDED, *(f"{base}-made" for base in _SCORES if "human" not in base)])


def is_task(name: str) -> bool:
    """Whether `find_task` knows the name."""
    try:
        find_task(name)
    except UserError:
        return False
    return True


def task_of_file(filename: str) -> str | None:
    """The task whose D4RL file has this name, or None."""
    for base in _SCORES:
        for version in ("v0", "v1") if base.endswith("-human") else ("v0", "v1", "v2"):
            task = _task(base, version, _SCORES[base])
            if filename in task.files:
                return task.name
    return None
