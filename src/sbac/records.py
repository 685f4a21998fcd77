"""Records: dataclasses that JSON files are read into, checked once, with one kind of error.

`parse` reads a JSON value into a dataclass by its annotations; `as_json` writes it back. A value of the wrong type, or
a missing field without a default, is a `UserError` that names the file and the field. Fields that a record does not
know are ignored, so that files of later versions with the same format number load; a field declared with `rest` takes
them instead.
"""

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from sbac.errors import LARGEST, UserError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Setting = None | bool | int | float | str | Sequence["Setting"]
"""The value of a config field in a file."""
Settings = Mapping[str, Setting]


class Dataclass(Protocol):
    """An instance of any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Record = TypeVar("Record", bound=Dataclass)
Annotation = Any
"""What stands behind the colon of a field: a class, or a form of `typing`."""

EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def rest() -> Any:
    """A field, of type `Settings`, for all that a JSON object has beside the record's other fields."""
    return dataclasses.field(metadata={"rest": True})


def parse(record: type[Record], value: object, where: str) -> Record:
    """The dataclass `record` from a JSON object; `where` names the file, and the line where there is one."""
    return _record(record, value, where, "")


@overload
def as_json(value: Dataclass) -> dict[str, Json]: ...
@overload
def as_json(value: object) -> Json: ...
def as_json(value: object) -> Json:
    """A record as JSON; fields that are None and None by default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        written: dict[str, Json] = {}
        for field in dataclasses.fields(value):
            entry = as_json(getattr(value, field.name))
            if field.metadata.get("rest") and isinstance(entry, Mapping):
                written |= entry
            elif entry is not None or field.default is not None:
                written[field.name] = entry
        return written
    if is_object(value):
        return {key: as_json(entry) for key, entry in value.items()}
    if is_list(value):
        return [as_json(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__}: expected a value that JSON has")


def is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a value read from JSON is an object."""
    return isinstance(value, Mapping)


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value read from JSON is a list."""
    return isinstance(value, list | tuple)


def _is_record(kind: Annotation) -> TypeGuard[type[Dataclass]]:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


@functools.cache
def _annotations(record: type[Dataclass]) -> dict[str, Annotation]:
    return get_type_hints(record, localns={"Json": Json, "Setting": Setting})


def _record(record: type[Record], value: object, where: str, path: str) -> Record:
    if not is_object(value):
        raise _unexpected(value, "an object", where, path)
    annotations = _annotations(record)
    fields = dataclasses.fields(record)
    names = {field.name for field in fields}
    values: dict[str, Any] = {}
    for field in fields:
        at = f"{path}.{field.name}" if path else field.name
        if field.metadata.get("rest"):
            others = {key: entry for key, entry in value.items() if key not in names}
            values[field.name] = _parsed(annotations[field.name], others, where, path)
        elif field.name in value:
            values[field.name] = _parsed(annotations[field.name], value[field.name], where, at)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}: {at} is missing")
    return record(**values)


def _parsed(kind: Annotation, value: object, where: str, path: str) -> object:
    """`value` as the annotation `kind` has it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (Union, types.UnionType):
        wanted = [argument for argument in arguments if argument is not type(None)]
        if len(wanted) > 1 or (value is None and len(wanted) < len(arguments)):
            return value  # several kinds: a Setting, which is whatever JSON has
        return _parsed(wanted[0], value, where, path)
    if origin is Literal:
        if value not in arguments:
            raise _unexpected(value, f"one of {', '.join(map(str, arguments))}", where, path)
        return value
    if _is_record(kind):
        return _record(kind, value, where, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not is_object(value):
            raise _unexpected(value, "an object", where, path)
        prefix = f"{path}." if path else ""
        return {key: _parsed(arguments[1], entry, where, f"{prefix}{key}") for key, entry in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        if not is_list(value):
            raise _unexpected(value, "a list", where, path)
        kinds = set(map(type, value))
        if kinds <= _plain(arguments[0]) and int not in kinds:  # most lists are long, and right
            entries = list(value)
        else:
            entries = [_parsed(arguments[0], entry, where, f"{path}[{i}]") for i, entry in enumerate(value)]
        return tuple(entries) if origin is tuple else entries
    if kind is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _unexpected(value, "a number that a float can hold", where, path) from None
    if kind is int and isinstance(value, int) and abs(value) >= LARGEST:
        raise _unexpected(value, "a whole number below 2^63", where, path)
    if kind in EXPECTED and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise _unexpected(value, EXPECTED.get(kind, str(kind)), where, path)


@functools.cache
def _plain(kind: Annotation) -> frozenset[type]:
    """The types of values that the annotation takes as they are."""
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = {entry for entry in kinds if entry in EXPECTED or entry is type(None)}
    return frozenset(plain if len(plain) == len(kinds) <= 2 else ())


def _unexpected(value: object, expected: str, where: str, path: str) -> UserError:
    text = repr(value)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return UserError(f"{where}: {f'{path} is ' if path else ''}{shown}; expected {expected}")
