"""What a bench consists of: cells, each a method on a dataset with all its settings and seeds, and one protocol."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sbac.algorithms import REGISTRY, find
from sbac.environments.tasks import find_task, is_task
from sbac.errors import UserError, unknown
from sbac.lab.protocol import Protocol
from sbac.records import Setting, Settings
from sbac.training.grid import Member, members


@dataclass(frozen=True, eq=False)
class Cell:
    """A method on a dataset. `settings` may hold lists: their grid and the seeds train in one run."""

    data: str
    """What it learns from; for a method that learns in an environment, that environment."""
    algorithm: str
    preset: str = "quick"
    seeds: tuple[int, ...] = (0,)
    length: tuple[int, ...] | None = None
    """Gradient steps, for every phase or one number each; None: the preset's."""
    settings: Settings = field(default_factory=dict[str, Setting])
    environment: str | None = None
    """Where it is evaluated, if not in the environment of the data's task."""

    @property
    def name(self) -> str:
        return f"{self.data} {self.algorithm}"

    @property
    def method(self) -> str:
        """The algorithm with its preset: a column of the bench's view."""
        return f"{self.algorithm}@{self.preset}"

    @property
    def training(self) -> str:
        """What cells must agree in to train together; their datasets may differ."""
        return json.dumps([self.algorithm, self.preset, self.seeds, self.length, self.settings])

    @property
    def online(self) -> bool:
        return find(self.algorithm).online

    def runs(self, task: str | None) -> list[Member]:
        """The policies to be trained, with every option resolved."""
        steps = {} if self.length is None else {"steps": list(self.length)}
        return members(find(self.algorithm), self.preset, list(self.seeds), {**self.settings, **steps}, task)

    def key(self, task: str | None, data: str, protocol: Protocol, code: Mapping[str, str]) -> str:
        """The cell's identity: what was trained, on which data, by which code, and how it was watched."""
        identity = {
            "algorithm": self.algorithm,
            "runs": [run.record() for run in self.runs(task)],
            "data": data,
            "environment": self.environment,
            "code": code,
            "watched": [protocol.episodes, protocol.seed, protocol.every],
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def plan(
    tasks: Sequence[str],
    algorithms: Sequence[str],
    *,
    seeds: int | Sequence[int] = 5,
    preset: str = "quick",
    length: Sequence[int] | None = None,
    grids: Mapping[str, Settings] | None = None,
    environment: str | None = None,
) -> list[Cell]:
    """The cells of a bench, task by task.

    An algorithm may be written NAME@PRESET; without it the common preset holds, or `paper` for a method that lacks
    that one. `grids` replaces the settings that the methods it names come with. A method that learns online has one
    cell for each environment of the tasks. Two methods that come to the same, as `sbac` and `sbac-no-w` do in a preset
    without w, are refused.
    """
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    steps = None if length is None else tuple(length)
    methods = [_method(spec, preset) for spec in algorithms]
    replaced = grids or {}
    asked = [name for name, _ in methods]
    for name, given in replaced.items():
        if given and name not in asked:
            raise unknown("algorithm of this bench, in --grid,", name, asked)
    for names in (tasks, methods):
        if len(set(names)) != len(names):
            raise UserError("the same task or algorithm was named twice; expected different ones")
    cells: dict[tuple[str, str, str], Cell] = {}
    for task in tasks:
        for name, kind in methods:
            data, where = _online_place(task, environment) if find(name).online else (task, environment)
            settings = replaced[name] if name in replaced else find(name).settings_to_try(kind)
            cell = Cell(data, name, kind, chosen, steps, dict(settings), where)
            cells.setdefault((data, name, kind), cell)
    _check_runs(cells.values())
    return list(cells.values())


def _check_runs(cells: Iterable[Cell]) -> None:
    """Looks at every option before anything is trained, and refuses two methods that would train the same policy."""
    trained: dict[object, Cell] = {}
    for cell in cells:
        for run in cell.runs(None):
            first = trained.setdefault((cell.data, find(cell.algorithm).phases, json.dumps(run.record())), cell)
            if first is not cell:
                raise UserError(
                    f"{first.method} and {cell.method} are the same here: with equal phases and settings they would "
                    "train the same policies twice; name one of them"
                )


def _online_place(task: str, environment: str | None) -> tuple[str, str]:
    """The environment that a task's online methods learn in, and the name they are evaluated under."""
    name = environment or task
    if not is_task(name) and environment is None:
        raise UserError(f"{task}: no environment is known for it to learn in; name one with --env")
    return find_task(name).env_id if is_task(name) else name, name


def parse_grids(words: Sequence[str], no_grid: bool) -> dict[str, dict[str, Setting]]:
    """`sbac.alpha=0.2,2` as {"sbac": {"alpha": [0.2, 2]}}; with `no_grid`, methods not named have no settings."""
    grids: dict[str, dict[str, Setting]] = {}
    for word in words:
        name, dot, rest = word.partition(".")
        field_name, equals, text = rest.partition("=")
        if not (name and dot and field_name and equals and text):
            raise UserError(f"--grid {word!r}: expected NAME.FIELD=V,V, such as sbac.alpha=0.2,0.5")
        grids.setdefault(name, {})[field_name.replace("-", "_")] = _values(text)
    return {**{name: {} for name in REGISTRY}, **grids} if no_grid else grids


def _values(text: str) -> Setting:
    """One value, or several between commas; a list may stand in brackets, as the tables write it."""
    if text.startswith("["):
        return _value(text)
    values = [_value(part) for part in text.split(",")]
    return values if len(values) > 1 else values[0]


def _value(text: str) -> Setting:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _method(spec: str, preset: str) -> tuple[str, str]:
    name, _, chosen = spec.partition("@")
    return name, chosen or (preset if preset in find(name).presets else "paper")
