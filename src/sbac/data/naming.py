"""Finds the columns of a file by the names below, or by the caller's own mapping; never by similarity."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sbac.data.sums import columns_in
from sbac.errors import UserError, unknown
from sbac.records import parse

ColumnMap = Mapping[str, str | Sequence[str]]
ColumnNames = dict[str, list[str]]
"""The names of the single columns of the observations and of the actions, in their order."""

NAMES = {
    "observations": ("observations", "observation", "obs"),
    "actions": ("actions", "action", "act"),
    "rewards": ("rewards", "reward"),
    "terminals": ("terminals", "terminal", "terminations", "terminated"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncated"),
    "next_observations": ("next_observations", "next_observation", "next_obs"),
    "episode": ("episode", "episodes", "episode_id"),
    "time": (),
    "extras": (),
}
"""The fields of a dataset, and their names in files. `episode` numbers the episodes: where it changes, one ends.
`time` sorts the rows of an episode, `extras` are watched beside the reward; both are never looked for, only given.

`done` is not among them: it does not say whether a time limit is meant.
"""

NEEDED = ("observations", "actions", "rewards")
"""A log has these at least."""
UNNAMED = {"observations": "o", "actions": "a"}
"""Columns without names are o0, o1, ... and a0, a1, ..."""


@dataclass(frozen=True)
class Named:
    """Names of columns, as a file has them."""

    observations: Sequence[str] | None = None
    actions: Sequence[str] | None = None


def column_names(given: object, widths: Mapping[str, int], where: str) -> ColumnNames:
    """The names of the columns of each vector: as given, else o0, o1, ... and a0, a1, ..."""
    stored = parse(Named, given or {}, f"{where}: columns")
    names: ColumnNames = {}
    for field, letter in UNNAMED.items():
        usual = [f"{letter}{number}" for number in range(widths[field])]
        members: Sequence[str] | None = getattr(stored, field)
        names[field] = usual if members is None else [printable(member) for member in members]
        if len(names[field]) != len(usual) or not all(names[field]):
            raise UserError(f"{where}: columns: expected {len(usual)} names of {field}, got {names[field]!r:.80}")
        if len(set(names[field])) < len(usual):
            raise UserError(f"{where}: columns: two of the {field} have one name")
    return names


def printable(name: str) -> str:
    """A name that fits into a line: a file may hold any."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in name).split())


def names_of_log(names: Mapping[str, Sequence[str]], widths: Mapping[str, int]) -> dict[str, list[str]]:
    """What a file calls the single columns of its fields, of those that it calls anything but what we would."""
    called: dict[str, list[str]] = {}
    for field, members in names.items():
        usual = [[field], [f"{field}_{number}" for number in range(len(members))]]
        if len(members) == widths.get(field, 1) and [*members] not in usual:
            called[field] = [printable(member.removeprefix(f"{field}:")) for member in members]
    return called


def match(
    available: Collection[str], columns: ColumnMap | None, where: str, needed: Sequence[str] = NEEDED
) -> dict[str, list[str]]:
    """For every field that the file has, its column, or its numbered columns. Those that are needed must be there."""
    columns = columns or {}
    for field in columns:
        if field not in NAMES:
            raise unknown("field in columns", field, NAMES)
    chosen: dict[str, list[str]] = {}
    for field, names in NAMES.items():
        wanted = columns.get(field)
        if field == "extras":  # the last field: what the others take, and what the file lacks, is none
            taken = {name for members in chosen.values() for name in members}
            asked = [wanted] if isinstance(wanted, str) else wanted or []
            if extras := [name for name in asked if name in available and name not in taken]:
                chosen[field] = extras
            continue
        if wanted is not None:
            if field == "rewards" and isinstance(wanted, str) and wanted not in available:
                wanted = columns_in(wanted) or wanted
                wanted = wanted[0] if len(wanted) == 1 else wanted
            chosen[field] = _wanted(available, wanted, f"{where}: columns[{field!r}]")
            continue
        matches = {name: hit for name in names if (hit := _hit(available, name, where))}
        if len(matches) > 1:
            raise UserError(
                f"{where}: both {' and '.join(matches)} could be {field}; say which with --columns (columns=)"
            )
        for hit in matches.values():
            chosen[field] = hit
    if lacking := [field for field in needed if field not in chosen]:
        options = " ".join(f"{field}=COLUMN" for field in lacking)
        raise UserError(
            f"{where}: no {' and no '.join(lacking)}; say which columns they are with --columns {options} (columns=); "
            f"the file has {_listed(available)}"
        )
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
    """The column itself, or its parts: obs:speed, obs:height, ... or obs_0, obs_1, ... (from 0 or 1, without gaps)."""
    if name in available:
        return [name]
    if named := [column for column in available if column.startswith(f"{name}:")]:
        return named
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
    names = [printable(f'"{name}"' if "," in name else name) for name in sorted(available)]  # as --columns takes them
    return ", ".join(names[:20]) + (f", and {len(names) - 20} more" if len(names) > 20 else "") if names else "none"
