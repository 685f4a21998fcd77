"""Records: dataclasses that JSON files are read into, checked once, with one kind of error.

`parse` reads a JSON value into a dataclass by its annotations; `as_json` writes it back. A value of the wrong type, or
a missing field without a default, is a `UserError` that names the place. Fields that a record does not know are
ignored, so that files of later versions with the same format number load.
"""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from sbac.errors import UserError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Setting = None | bool | int | float | str | Sequence["Setting"]
"""The value of a config field in a file."""
Settings = Mapping[str, Setting]
Record = TypeVar("Record")


def parse(record: type[Record], value: object, where: str) -> Record:
    """The dataclass `record` from a JSON object; `where` names the file, and the line where there is one."""
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: expected a JSON object, got {_short(value)}")
    hints = get_type_hints(record)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(record):  # pyright: ignore[reportArgumentType]
        if field.name in value:
            found[field.name] = _parsed(hints[field.name], value[field.name], f"{where}: {field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}: {field.name} is missing")
    return record(**found)


def as_json(value: Any) -> Any:
    """A record as JSON; fields that are None and None by default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: as_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not (field.default is None and getattr(value, field.name) is None)
        }
    if isinstance(value, Mapping):
        return {key: as_json(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _parsed(kind: Any, value: Any, where: str) -> Any:
    """`value` as the annotation `kind` has it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return value
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        wanted = [argument for argument in arguments if argument is not type(None)]
        return _parsed(wanted[0], value, where) if len(wanted) == 1 else value  # a Setting: whatever JSON has
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where}: {_short(value)}; expected one of {', '.join(map(str, arguments))}")
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return parse(kind, value, where)
    if origin is not None and issubclass(origin, Mapping) and isinstance(value, Mapping):
        item = arguments[1]
        return {str(key): _parsed(item, entry, f"{where}.{key}") for key, entry in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if origin is not None and issubclass(origin, Sequence) and isinstance(value, list | tuple):
        made = [_parsed(arguments[0], entry, f"{where}[{i}]") for i, entry in enumerate(value)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return tuple(made) if origin is tuple else made
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise UserError(f"{where}: {_short(value)}; expected {getattr(origin or kind, '__name__', str(kind))}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
