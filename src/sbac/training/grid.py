"""From what the user asked for to the policies of a run: presets, overrides, and the grid of all lists.

A run is a config and a seed. Runs that differ only in per-policy fields train in one program; a difference in any
shared field (widths, batch size, names) puts them into separate groups.
"""

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from sbac.algorithms.base import Algorithm
from sbac.config import Config, Field, Options, Value, changed, fields_of, static_fields, values_of
from sbac.errors import UserError, check_named, listed, name_of, unknown
from sbac.text import setting_label

MOST_RUNS = 10_000
"""Of one run. A larger number is a slip of the keyboard."""
AnyConfig = TypeVar("AnyConfig", bound=Options)


@dataclass(frozen=True)
class Member:
    """One policy of a run: its seed, its config, and the fields that tell it from the others."""

    seed: int
    config: Config
    grid: dict[str, Value]
    dataset: int = 0
    """Which of the datasets of its program it learns from."""

    @property
    def label(self) -> str:
        """A name for files: the grid's values and the seed."""
        parts = [f"{name}={setting_label(value)}" for name, value in self.grid.items()]
        return "_".join([*parts, f"seed={self.seed}"])

    def record(self) -> dict[str, Any]:
        return {"seed": self.seed, **values_of(self.config)}


def members(
    algorithm: Algorithm,
    preset: str,
    seeds: int | Sequence[int],
    overrides: Mapping[str, Any],
    task: str | None = None,
    settings: Iterable[Mapping[str, Any]] | None = None,
) -> list[Member]:
    """Every policy of the run, in a fixed order: the settings, the grid's fields as given, seeds innermost.

    `settings`: each is trained with all of `overrides`; one that lacks an option of another takes its usual value.
    """
    if name_of("preset", preset) not in algorithm.presets:
        raise unknown(f"preset of {algorithm.name}", preset, algorithm.presets)
    fields = fields_of(algorithm.config)
    published: Mapping[str, Any] = _published(algorithm, task) if preset == "paper" and task is not None else {}
    values = {name: fields[name].convert(value) for name, value in {**algorithm.presets[preset], **published}.items()}
    axes: dict[str, list[Value]] = {}
    for name, value in overrides.items():
        if name not in fields:
            raise unknown(f"option of {algorithm.name}", name, fields)
        if name == "steps":
            values["steps"] = _steps(value, len(algorithm.phases))
        elif fields[name].is_grid(value):
            axes[name] = [_converted(fields[name], item) for item in value]
            if not axes[name] or len(set(axes[name])) != len(axes[name]):
                raise UserError(f"{name} {list(value)}: expected at least one value, and each of them once")
        else:
            values[name] = _converted(fields[name], value)
    base = changed(algorithm.config(), values)
    together = _settings(algorithm, settings, base, overrides)
    if "alpha" in fields and "alpha" not in axes and "alpha" not in together[0]:
        axes["alpha"] = [values_of(base)["alpha"]]
    wanted = _seeds(seeds)
    count = len(wanted) * len(together) * math.prod(map(len, axes.values()))
    if count > MOST_RUNS:
        raise UserError(f"seeds {_short(seeds)}: {count:,} policies in one run; expected at most {MOST_RUNS:,}")
    products = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    points = [setting | point for setting in together for point in products]
    return [Member(seed, changed(base, point), point) for point in points for seed in wanted]


def _converted(field: Field, value: Any) -> Value:
    """The value in the field's type; widths of no layer at all are refused."""
    converted = field.convert(value)
    if converted == ():
        raise UserError(f"{field.name} {value!r}: expected at least one of the {field.expected}")
    return converted


def _settings(
    algorithm: Algorithm, settings: Iterable[Mapping[str, Any]] | None, base: Config, overrides: Mapping[str, Any]
) -> list[dict[str, Value]]:
    """Each with a value for every option that one of them names; a single one that names none where none is given."""
    if settings is None:
        return [{}]
    fields, usual = fields_of(algorithm.config), values_of(base)
    given: list[dict[str, Value]] = []
    for number, setting in enumerate(listed("settings", settings)):
        check_named(f"settings[{number}]", setting)
        for name in setting:
            if name not in fields:
                raise unknown(f"option of {algorithm.name}", name, fields)
            if name in overrides or name == "steps":
                raise UserError(
                    f"settings[{number}]: {name} is one for all settings; expected it outside of them alone"
                )
        given.append({name: _converted(fields[name], value) for name, value in setting.items()})
    names = dict.fromkeys(name for setting in given for name in setting)
    whole = [{name: setting.get(name, usual[name]) for name in names} for setting in given]
    if not whole or len({tuple(setting.values()) for setting in whole}) < len(whole):
        raise UserError("settings: expected at least one, and each of them once")
    return whole


def _published(algorithm: Algorithm, task: str) -> Mapping[str, Any]:
    """What was published for a task, in whichever version its data come: hopper-medium-v0, -v2 or -made."""

    def kind(name: str) -> str:
        return name.rpartition("-")[0].removesuffix("-td3")

    published = [settings for name, settings in algorithm.task_settings.items() if kind(name) == kind(task)]
    return published[0] if published else {}


def _seeds(seeds: int | Sequence[int]) -> Sequence[int]:
    given = _integers(seeds)
    if isinstance(given, int) and given > 0:
        return range(min(given, 2**32))
    if isinstance(given, list) and given and 0 <= min(given) <= max(given) < 2**32 and len(set(given)) == len(given):
        return given
    expected = "a positive number, or a list of different seeds from 0 to 2^32 - 1"
    raise UserError(f"seeds {_short(seeds)}: expected {expected}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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


def groups(runs: Sequence[Member]) -> list[list[int]]:
    """Indices of the runs that share one program, by the values of their static fields."""
    by_static: dict[tuple[Value, ...], list[int]] = {}
    for i, run in enumerate(runs):
        by_static.setdefault(static_fields(run.config), []).append(i)
    return list(by_static.values())


def stack(configs: Iterable[AnyConfig]) -> AnyConfig:
    """One config whose per-policy fields are arrays with an entry per run."""
    return jax.tree.map(lambda *values: jnp.asarray(values, jnp.float32), *configs)
