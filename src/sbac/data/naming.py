"""Finds the columns of a file by the names below, or by the caller's own mapping; never by similarity."""

import re
from collections.abc import Collection, Mapping, Sequence

from sbac.errors import UserError, unknown

ColumnMap = Mapping[str, str | Sequence[str]]

NAMES = {
    "observations": ("observations", "observation", "obs"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward"),
    "terminals": ("terminals", "terminal", "terminations", "terminated"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncated"),
    "next_observations": ("next_observations", "next_observation", "next_obs"),
    "episode": ("episode", "episodes", "episode_id"),
}
"""The fields of a dataset, and their names in files. `episode` numbers the episodes: where it changes, one ends.

`done` is not among them: it does not say whether a time limit is meant.
"""


def match(available: Collection[str], columns: ColumnMap | None, where: str) -> dict[str, list[str]]:
    """For every field that the file has, its column, or its numbered columns."""
    columns = columns or {}
    for field in columns:
        if field not in NAMES:
            raise unknown("field in columns", field, NAMES)
    chosen: dict[str, list[str]] = {}
    for field, names in NAMES.items():
        wanted = columns.get(field)
        if wanted is not None:
            chosen[field] = _wanted(available, wanted, f"{where}: columns[{field!r}]")
            continue
        matches = {name: hit for name in names if (hit := _hit(available, name, where))}
        if len(matches) > 1:
            raise UserError(
                f"{where}: both {' and '.join(matches)} could be {field}; say which with --columns (columns=)"
            )
        for hit in matches.values():
            chosen[field] = hit
    return chosen


def _wanted(available: Collection[str], wanted: str | Sequence[str], where: str) -> list[str]:
    if isinstance(wanted, str):
        if hit := _hit(available, wanted, where):
            return hit
        raise UserError(f"{where}: no column {wanted!r}; the file has {_listed(available)}")
    for name in wanted:
        if name not in available:
            raise UserError(f"{where}: no column {name!r}; the file has {_listed(available)}")
    if len(set(wanted)) != len(wanted):
        raise UserError(f"{where}: {list(wanted)} names a column twice")
    return list(wanted)


def _hit(available: Collection[str], name: str, where: str) -> list[str]:
    """The column itself, or its numbered parts: obs_0, obs_1, ... (from 0 or 1, without gaps)."""
    if name in available:
        return [name]
    pattern = re.compile(rf"{re.escape(name)}_?(\d{{1,6}})")
    parts: dict[int, str] = {}
    for column in available:
        if number := pattern.fullmatch(column):
            other = parts.setdefault(int(number[1]), column)
            if other != column:
                raise UserError(f"{where}: both {other} and {column} could be number {int(number[1])} of {name}")
    if not parts:
        return []
    first = 0 if 0 in parts else 1
    for number in range(first, first + len(parts)):
        if number not in parts:
            raise UserError(f"{where}: {name}_{number} is missing, though there is {parts[max(parts)]}")
    return [parts[number] for number in sorted(parts)]


def _listed(available: Collection[str]) -> str:
    names = sorted(available)
    return ", ".join(names[:20]) + (f", and {len(names) - 20} more" if len(names) > 20 else "") if names else "none"
