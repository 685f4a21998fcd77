"""The methods and their options as text, for the command line: all of it comes from the methods themselves."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import get_args

from sbac.algorithms import REGISTRY, find
from sbac.algorithms.base import Algorithm
from sbac.config import Field, Group, Value, fields_of
from sbac.errors import unknown
from sbac.text import markdown_table, text_table

WIDTH = 100
INDENT = 6


def methods_text() -> str:
    """Every method: its name, where it learns, its phases and presets, and its paper."""
    methods = [find(name) for name in REGISTRY]
    table = text_table(["method", "learns from", "phases", "presets"], map(_row, methods), rule=False)
    head, *lines = table.splitlines()
    listed = [f"{line}\n{_wrapped(method.source, INDENT)}" for line, method in zip(lines, methods, strict=True)]
    return "\n".join([head, *listed, "", "sbac methods NAME shows one with its options."])


def _row(method: Algorithm) -> list[str]:
    phases = ", ".join(phase.name for phase in method.phases)
    return [method.name, "an environment" if method.online else "a log", phases, ", ".join(method.presets)]


def method_text(name: str) -> str:
    method = find(name)
    tried = [f"{field} {_values(values)}" for field, values in method.settings_to_try("quick").items()]
    about = {
        "paper": method.source,
        "learns from": "an environment" if method.online else "a log",
        "phases": ", ".join(phase.name for phase in method.phases),
        "presets": ", ".join(method.presets),
        "settings that a bench tries": "; ".join(tried) or "those of its preset",
    }
    lines = [textwrap.fill(f"{what}: {text}", WIDTH, subsequent_indent="  ") for what, text in about.items()]
    return "\n".join([name, *lines, "", options_text(name)])


def options_text(name: str, preset: str = "quick") -> str:
    """The options of a method in groups, with type, range, default and help."""
    method = find(name)
    if preset not in method.presets:
        raise unknown(f"preset of {name}", preset, method.presets)
    fields = fields_of(method.config)
    head = (
        f"The options of {name}, with the defaults of preset {preset}. Several values of an option make a grid, and "
        "the whole grid trains at once: runs that differ in options marked * share one program, every value of another "
        "option has a program of its own."
    )
    parts = [textwrap.fill(head, WIDTH)]
    for group in get_args(Group):
        own = [_option(field, method, preset) for field in fields.values() if field.spec.group == group]
        if own:
            parts.append("\n".join([f"{group}:", *own]))
    parts.append(
        "The options of every training: sbac train --help\n"
        f"example: sbac train {'Hopper-v4' if method.online else 'hopper-demo'} --algorithm {name} {_example(method)}"
    )
    return "\n\n".join(parts)


def options_table(name: str) -> str:
    """The same as a table in Markdown, with the defaults of all presets."""
    method = find(name)
    rows = [
        [
            f"`--{field.name.replace('_', '-')}`{' *' if field.spec.per_policy else ''}",
            field.spec.help,
            field.expected,
            _text(_value(field, method.presets["quick"])),
            _other_presets(field, method, "quick"),
        ]
        for group in get_args(Group)
        for field in fields_of(method.config).values()
        if field.spec.group == group
    ]
    return markdown_table(["option", "what it is", "expected", "quick", "other presets"], rows).replace("---:", "---")


def _option(field: Field, method: Algorithm, preset: str) -> str:
    flag = f"  --{field.name.replace('_', '-')} {_placeholder(field)}{' *' if field.spec.per_policy else ''}"
    others = _other_presets(field, method, preset)
    default = f"default {_text(_value(field, method.presets[preset]))}{f' ({others})' if others else ''}"
    return "\n".join([flag, _wrapped(f"{field.spec.help} {field.expected.capitalize()}; {default}.", INDENT)])


def _placeholder(field: Field) -> str:
    if field.choices:
        return "NAME"
    return {float: "NUMBER", int: "N", bool: "true|false"}.get(field.annotation, "N ...")


def _other_presets(field: Field, method: Algorithm, preset: str) -> str:
    """The presets with another value, by value: "paper, corrected: 2; tuned: 0.2"."""
    shown = _value(field, method.presets[preset])
    by_value: dict[Value, list[str]] = {}
    for name, settings in method.presets.items():
        value = _value(field, settings)
        if value != shown:
            by_value.setdefault(value, []).append(name)
    return "; ".join(f"{', '.join(names)}: {_text(value)}" for value, names in by_value.items())


def _value(field: Field, settings: Mapping[str, Value]) -> Value:
    return settings.get(field.name, field.default)


def _example(method: Algorithm) -> str:
    tried = method.settings_to_try("quick")
    if not tried:
        return "--seeds 2"
    field, values = next(iter(tried.items()))
    return f"--{field.replace('_', '-')} {_values(values[:2])}"


def _values(values: Sequence[float]) -> str:
    return " ".join(_text(value) for value in values)


def _text(value: Value) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _wrapped(text: str, indent: int) -> str:
    margin = " " * indent
    return textwrap.fill(text, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)
