"""From what the user asked for to the runs of a launch: presets, overrides, and the grid of all lists.

A run is a config and a seed. Runs that differ only in float fields train in one program; a difference in any
other field (widths, batch size, names) puts them into separate groups.
"""

import dataclasses
import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from sbac.algorithms.base import Algorithm
from sbac.config import Config, check_choice, is_per_run
from sbac.errors import UserError, unknown
from sbac.text import setting_label


@dataclass(frozen=True)
class Member:
    """One run of a launch: its seed, its config, and the fields that tell it from the others."""

    seed: int
    config: Config
    grid: dict[str, Any]
    dataset: int = 0
    """Which of the datasets of its program it learns from."""

    @property
    def label(self) -> str:
        """A name for files: the grid's values and the seed."""
        parts = [f"{name}={setting_label(value)}" for name, value in self.grid.items()]
        return "_".join([*parts, f"seed={self.seed}"])

    def record(self) -> dict[str, Any]:
        """The config as JSON, with the seed."""
        return {"seed": self.seed, **dataclasses.asdict(self.config)}


def members(
    algorithm: Algorithm,
    preset: str,
    seeds: int | Sequence[int],
    overrides: Mapping[str, Any],
    task: str | None = None,
) -> list[Member]:
    """Every run of the launch, in a fixed order: the grid's fields as given, seeds innermost."""
    if preset not in algorithm.presets:
        raise unknown(f"preset of {algorithm.name}", preset, algorithm.presets)
    settings = dict(algorithm.presets[preset])
    if preset == "paper" and task is not None:
        settings |= _published(algorithm, task)
    fields = {f.name: f for f in dataclasses.fields(algorithm.config)}
    for name in overrides:
        if name not in fields:
            raise unknown(f"option of {algorithm.name}", name, fields)
    phases = len(algorithm.phases)
    axes: dict[str, list[Any]] = {}
    for name, value in overrides.items():
        if name == "steps":
            settings["steps"] = _steps(value, phases)
        elif _is_list_of_values(fields[name], value):
            axes[name] = [_convert(fields[name], v) for v in value]
            if not axes[name] or len(set(axes[name])) != len(axes[name]):
                raise UserError(f"{name} {list(value)}: expected at least one value, and each of them once")
        else:
            settings[name] = _convert(fields[name], value)
    base = algorithm.config(**settings)
    if "alpha" in fields and "alpha" not in axes:
        axes["alpha"] = [dataclasses.asdict(base)["alpha"]]
    wanted = _seeds(seeds)
    return [
        Member(
            seed, dataclasses.replace(base, **dict(zip(axes, point, strict=True))), dict(zip(axes, point, strict=True))
        )
        for point in itertools.product(*axes.values())
        for seed in wanted
    ]


def _published(algorithm: Algorithm, task: str) -> Mapping[str, Any]:
    """What was published for a task, in whichever version its data come: hopper-medium-v0, -v2 or -made."""

    def kind(name: str) -> str:
        return name.rpartition("-")[0]

    found = [settings for name, settings in algorithm.task_settings.items() if kind(name) == kind(task)]
    return found[0] if found else {}


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    given = _integers(seeds)
    wanted = list(range(given)) if isinstance(given, int) else given
    if not wanted or min(wanted) < 0 or max(wanted) >= 2**32 or len(set(wanted)) != len(wanted):
        raise UserError(f"seeds {seeds!r}: expected a positive number, or a list of different seeds from 0 to 2^32 - 1")
    return wanted


def _steps(value: Any, phases: int) -> tuple[int, ...]:
    given = _integers(value)
    steps = [given] * phases if isinstance(given, int) else given
    if steps is not None and len(steps) == 1:
        steps *= phases
    if steps is None or len(steps) != phases or min(steps) < 0 or max(steps) >= 2**31:
        raise UserError(f"steps {value!r}: expected one number from 0 to 2^31 - 1, or one for each of {phases} phases")
    return tuple(steps)


def _integers(value: Any) -> int | list[int] | None:
    """A whole number of any kind, or a list of them; None for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        pass
    try:
        return None if isinstance(value, str) else [operator.index(item) for item in value]
    except TypeError:
        return None


def _is_list_of_values(f: "dataclasses.Field[Any]", value: Any) -> bool:
    if not isinstance(value, list | tuple | np.ndarray):
        return False
    values: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    if get_origin(f.type) is tuple:
        return any(isinstance(v, list | tuple) for v in values)
    if f.metadata.get("shared", False):
        raise UserError(f"{f.name}: one value for the whole launch, not a list")
    return True


def _convert(f: "dataclasses.Field[Any]", value: Any) -> Any:
    """The value in the field's type, from Python or from the command line's text, if it is in the field's range."""
    converted = _typed(f, value)
    lowest, highest = _range(f)
    items: Any = converted if isinstance(converted, tuple) else [converted]
    if any(isinstance(item, int | float) and not lowest <= item <= highest for item in items):
        bounds = f"at least {lowest:g}" if highest == math.inf else f"{lowest:g} to {highest:g}"
        raise UserError(f"{f.name} {value!r}: expected {bounds}")
    return converted


def _range(f: "dataclasses.Field[Any]") -> tuple[float, float]:
    """What a field may be: counts from 1 on, steps and rates from 0 on, shares from 0 to 1."""
    if f.name in ("discount", "target_rate", "validation", "dropout"):
        return 0.0, 1.0
    if f.name.endswith(("_steps", "learning_rate")):
        return 0.0, math.inf
    counts = f.type is int or (get_origin(f.type) is tuple and get_args(f.type)[0] is int)
    return (1.0, math.inf) if counts else (-math.inf, math.inf)


def _typed(f: "dataclasses.Field[Any]", value: Any) -> Any:
    check_choice(f, value)
    if get_origin(f.type) is Literal:
        return value
    try:
        if get_origin(f.type) is tuple:
            item = get_args(f.type)[0]
            return tuple(item(v) for v in (value if isinstance(value, list | tuple) else [value]))
        if f.type is bool:
            if isinstance(value, str):
                return {"true": True, "false": False, "1": True, "0": False}[value.lower()]
            return bool(value)
        if f.type is int and float(value) != int(value):
            raise ValueError
        converted = f.type(value)  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
        if f.type is float and not abs(converted) < np.finfo(np.float32).max:
            raise ValueError
        return converted
    except (ValueError, TypeError, KeyError, OverflowError):
        kind = getattr(f.type, "__name__", str(f.type))
        raise UserError(f"{f.name}: {value!r} is not a valid {kind}") from None


def groups(runs: Sequence[Member]) -> list[list[int]]:
    """Indices of the runs that share one program, by the values of their static fields."""
    by_static: dict[Any, list[int]] = {}
    for i, run in enumerate(runs):
        by_static.setdefault(static_fields(run.config), []).append(i)
    return list(by_static.values())


def static_fields(config: Config) -> tuple[Any, ...]:
    """What runs must agree in to share a program."""
    return tuple(getattr(config, f.name) for f in dataclasses.fields(config) if not is_per_run(f))


def stack(configs: Iterable[Config]) -> Config:
    """One config whose float fields are arrays with an entry per run."""
    return jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *configs)


class Recorder:
    """Stands in for a config while a phase is traced once, and notes which per-run fields it reads."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._per_run = {f.name for f in dataclasses.fields(config) if is_per_run(f)}
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in self._per_run:
            self.read.add(name)
        return getattr(self._config, name)
