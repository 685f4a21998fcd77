"""What a config field is: one value per policy or shared, its range, one line of help and its group, all at the field.

A config is a class with the decorator `config`. Each field says what it is:

    alpha: float = per_policy(2.0, "Weight of log mu in objective (8).", at_least=0)
    hidden: tuple[int, ...] = shared((256, 256), "Units of each hidden layer.", at_least=1, group="networks")
    ratio: RatioConfig = nested(RatioConfig(), prefix="ratio_", group="the ratio w")

A field that is `per_policy` is an array with one entry per policy inside a program. A field that is `shared` is static:
policies that differ in it train in separate programs. A nested config groups fields; the command line, files and grids
know them by one flat name each, prefix and name (`ratio_form`). A subclass that changes only a default writes
`batch_size: int = 100`, and the rest stays as the base class says.

Nothing else walks over the fields of a config: `fields_of`, `values_of` and `changed` do.
"""

import dataclasses
import functools
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeGuard, TypeVar, dataclass_transform, get_args, get_origin

import jax
import numpy as np

from sbac.errors import UserError, unknown
from sbac.nn import Precision

T = TypeVar("T")
Value = bool | int | float | str | tuple[int, ...]
"""What a field can hold, outside of a program."""
Group = Literal["the method", "networks", "rates", "the ratio w", "training", "data"]
"""Under which heading the command line lists a field."""
RewardScale = Literal["none", "unit", "return-range"]
LARGEST = float(np.finfo(np.float32).max)
EXPECTED = "expected per_policy(default, help), shared(default, help) or nested(default)"


# --- Saying what a field is ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """The numbers a field may hold; a bound that is None is none."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"from {self.at_least:.10g} to {self.at_most:.10g}"
        bounds = {
            "of at least": self.at_least,
            "above": self.above,
            "at most": self.at_most,
            "below": self.below,
        }
        return " and ".join(f"{words} {bound:.10g}" for words, bound in bounds.items() if bound is not None)


@dataclass(frozen=True)
class FieldSpec:
    """What is said of a field beside its type and default. `prefix` is that of a nested config, None elsewhere."""

    help: str
    group: Group
    per_policy: bool = False
    range: Range = Range()
    prefix: str | None = None


def per_policy(default: float, help: str, *, group: Group = "the method", **bounds: float) -> float:
    """A number that may differ between the policies of one program; its bounds are those of `Range`."""
    return dataclasses.field(default=default, metadata={"spec": FieldSpec(help, group, True, Range(**bounds))})


def shared(default: T, help: str, *, group: Group = "the method", **bounds: float) -> T:
    """A value that all policies of one program share, because it shapes the program or the data."""
    return dataclasses.field(default=default, metadata={"spec": FieldSpec(help, group, False, Range(**bounds))})


def nested(default: T, *, prefix: str, group: Group) -> T:
    """A config inside another one; outside, the names of its fields begin with the prefix."""
    return dataclasses.field(default=default, metadata={"spec": FieldSpec(group, group, prefix=prefix)})


def rate(default: float, help: str) -> float:
    """A learning rate."""
    return per_policy(default, help, at_least=0, group="rates")


def polyak_rate(default: float, help: str = "Share of a network that its target takes over in a step.") -> float:
    """A rate at which target networks follow the trained ones."""
    return per_policy(default, help, at_least=0, at_most=1, group="rates")


def layers(default: tuple[int, ...], help: str = "Units of each hidden layer.") -> tuple[int, ...]:
    """The widths of a network's hidden layers."""
    return shared(default, help, at_least=1, group="networks")


@dataclass(frozen=True)
class Options:
    """The base of every config."""

    __no_type_check__: ClassVar[bool] = True
    """Checkers at run time (jaxtyping's, in the tests) skip a config's fields: in a program a float is an array."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, by their own names."""
        return dataclasses.replace(self, **changes)


Class = TypeVar("Class", bound=Options)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config(cls: type[Class]) -> type[Class]:
    """Makes a frozen dataclass that is a pytree: the per-policy fields are leaves, all others are static.

    A field that does not say what it is, or whose annotation is a string, is refused here.
    """
    inherited = {f.name: f for f in dataclasses.fields(cls)}
    annotations = inspect.get_annotations(cls)
    for name in inherited:
        if name in cls.__dict__ and name not in annotations:
            raise TypeError(f"{cls.__name__}.{name}: another default needs the annotation again")
    for name, annotation in annotations.items():
        where = f"{cls.__name__}.{name}"
        if isinstance(annotation, str):
            raise TypeError(f"{where}: its annotation is a string; remove `from __future__ import annotations`")
        given = cls.__dict__.get(name, dataclasses.MISSING)
        if not isinstance(given, dataclasses.Field):
            if name not in inherited or given is dataclasses.MISSING:
                raise TypeError(f"{where}: {EXPECTED}")
            setattr(cls, name, dataclasses.field(default=given, metadata=inherited[name].metadata))
    frozen = dataclass(frozen=True, kw_only=True)(cls)
    for f in dataclasses.fields(frozen):
        _check(frozen, f)
    fields_of(frozen)  # names that occur twice are refused
    fields = dataclasses.fields(frozen)
    leaves = [f.name for f in fields if _spec(f).per_policy or _spec(f).prefix is not None]
    return jax.tree_util.register_dataclass(
        frozen, data_fields=leaves, meta_fields=[f.name for f in fields if f.name not in leaves]
    )


def _spec(f: "dataclasses.Field[Any]") -> FieldSpec:
    return f.metadata["spec"]


def _default(f: "dataclasses.Field[Any]") -> Any:
    return f.default


def _check(cls: type[Options], f: "dataclasses.Field[Any]") -> None:
    """Refuses a field that does not say what it is."""
    where = f"{cls.__name__}.{f.name}"
    if not isinstance(f.metadata.get("spec"), FieldSpec):
        raise TypeError(f"{where}: {EXPECTED}")
    spec = _spec(f)
    if not spec.help.strip() or "\n" in spec.help:
        raise TypeError(f"{where}: expected one line of help")
    if spec.group not in get_args(Group):
        raise TypeError(f"{where}: group {spec.group!r}; expected one of {', '.join(get_args(Group))}")
    if spec.prefix is not None:
        if not (isinstance(f.type, type) and issubclass(f.type, Options) and isinstance(f.default, f.type)):
            raise TypeError(f"{where}: a nested config is annotated with its class, and its default is one")
        return
    if spec.per_policy and f.type is not float:
        raise TypeError(f"{where}: a per-policy field is a number, and its annotation must be float, not {f.type}")
    if f.type not in (float, int, bool, tuple[int, ...]) and get_origin(f.type) is not Literal:
        raise TypeError(f"{where}: annotation {f.type}; expected float, int, bool, tuple[int, ...] or a Literal")
    try:
        Field(f.name, (f.name,), f.type, _default(f), spec).convert(f.default)
    except UserError as error:
        raise TypeError(f"{where}: its default is not one that it allows: {error}") from None


# --- Reading what a field is ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field of a config, under the one name that the command line, files and grids have for it."""

    name: str
    path: tuple[str, ...]
    """The attributes that lead to it: ("ratio", "form") for `ratio_form`."""
    annotation: Any
    default: Value
    spec: FieldSpec

    @property
    def choices(self) -> tuple[str, ...]:
        """The names it may hold; none where it holds something else."""
        return get_args(self.annotation) if get_origin(self.annotation) is Literal else ()

    @property
    def is_tuple(self) -> bool:
        return get_origin(self.annotation) is tuple

    @property
    def expected(self) -> str:
        """What it holds, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.annotation is bool:
            return "true or false"
        kind = "a number" if self.annotation is float else "whole numbers" if self.is_tuple else "a whole number"
        return f"{kind} {self.spec.range}".rstrip()

    def is_grid(self, value: Any) -> bool:
        """Whether the value is a list of values, each for runs of its own."""
        return _is_list(value) and (not self.is_tuple or any(_is_list(item) for item in value))

    def convert(self, value: Any) -> Value:
        """The value in the field's type, from Python or from the command line's text, if it is in the range."""
        if self.choices:
            if value not in self.choices:
                raise unknown(self.name, str(value), self.choices)
            return value
        try:
            if self.annotation is bool:
                return _truth(value)
            if self.is_tuple:
                whole = tuple(_whole(item) for item in (value if _is_list(value) else [value]))
                return self._checked(value, whole, whole)
            number = _whole(value) if self.annotation is int else _finite(value)
            return self._checked(value, number, (number,))
        except (ValueError, TypeError, OverflowError):
            raise UserError(f"{self.name} {_plain(value)}: expected {self.expected}") from None

    def _checked(self, given: Any, converted: Value, numbers: tuple[float, ...]) -> Value:
        if not all(number in self.spec.range for number in numbers):
            raise ValueError(given)
        return converted


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, list | tuple | np.ndarray)


def _whole(value: Any) -> int:
    number = int(value)
    if not isinstance(value, str) and number != value:
        raise ValueError(value)
    return number


def _finite(value: Any) -> float:
    number = float(value)
    if not abs(number) < LARGEST:
        raise ValueError(value)
    return number


def _truth(value: Any) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    text = str(value).lower()
    if text not in words:
        raise ValueError(value)
    return words[text]


def _plain(value: Any) -> str:
    """A value as it was typed: words of the command line come as text."""
    return value if isinstance(value, str) and value else repr(value)


@functools.cache
def fields_of(config: type[Options]) -> Mapping[str, Field]:
    """The fields of a config class by their flat names, in order."""
    flat: list[Field] = []
    for f in dataclasses.fields(config):
        spec = _spec(f)
        if spec.prefix is None:
            flat.append(Field(f.name, (f.name,), f.type, _default(f), spec))
            continue
        nest: Options = _default(f)
        defaults = values_of(nest)
        for inner in fields_of(type(nest)).values():
            name, path = spec.prefix + inner.name, (f.name, *inner.path)
            grouped = dataclasses.replace(inner.spec, group=spec.group)
            flat.append(Field(name, path, inner.annotation, defaults[inner.name], grouped))
    by_name = {field.name: field for field in flat}
    if len(by_name) < len(flat):
        raise TypeError(f"{config.__name__}: a field has the flat name of another: {[field.name for field in flat]}")
    return by_name


def values_of(config: Options) -> dict[str, Value]:
    """The values of a config by their flat names."""
    return {name: _at(config, f.path) for name, f in fields_of(type(config)).items()}


def _at(config: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        config = getattr(config, name)
    return config


def changed(config: Class, settings: Mapping[str, Any]) -> Class:
    """A copy with some values changed, by their flat names."""
    fields = fields_of(type(config))
    changes: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        if name not in fields:
            raise unknown("option", name, fields)
        first, *rest = fields[name].path
        if rest:
            prefix = _spec(next(f for f in dataclasses.fields(config) if f.name == first)).prefix or ""
            inside.setdefault(first, {})[name.removeprefix(prefix)] = value
        else:
            changes[first] = value
    for name, inner in inside.items():
        changes[name] = changed(getattr(config, name), inner)
    return dataclasses.replace(config, **changes)


def static_fields(config: Options) -> tuple[Value, ...]:
    """What policies must agree in to share a program."""
    values = values_of(config)
    return tuple(values[name] for name, f in fields_of(type(config)).items() if not f.spec.per_policy)


# --- What every method has -----------------------------------------------------------------------------------------


@config
class Config(Options):
    """What every method has. A method states its own `steps`, one number per phase."""

    steps: tuple[int, ...] = shared(
        (),
        "Gradient steps: one number for all phases, or one for each.",
        at_least=0,
        at_most=2**31 - 1,
        group="training",
    )
    batch_size: int = shared(256, "Rows drawn for a step.", at_least=1, group="training")
    discount: float = per_policy(0.99, "gamma: what a reward one step later is worth.", at_least=0, at_most=1)
    standardise_states: bool = shared(
        True, "States enter the networks as (s - mean) / std over the data; the policy carries both.", group="data"
    )
    reward_scale: RewardScale = shared(
        "none", "none; unit: (r - min) / (max - min); return-range: 1000 r / (max - min return).", group="data"
    )
    validation: float = shared(
        0.05, "Share of the episodes kept out of training for the validation losses.", at_least=0, below=1, group="data"
    )
    precision: Precision = shared(
        "tf32", "Of the networks' products on a GPU; see sbac.nn.precision.", group="training"
    )
