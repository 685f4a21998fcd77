"""The names that cells go by in tables: of their data, of their method, and of their setting.

A method is an algorithm with its preset. Its setting are the values of the options that somebody asked for.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from sbac.algorithms import REGISTRY
from sbac.environments.tasks import TASKS
from sbac.lab.cells import CellRecord
from sbac.records import Settings
from sbac.results.measured import MeasuredRun
from sbac.results.series import OWN_STEPS, Series, series_of
from sbac.text import steps_text

Kind = tuple[str, str]
"""An algorithm and its preset."""


def collect(records: Sequence[MeasuredRun], developed_on: Sequence[MeasuredRun] = ()) -> list[Series]:
    """All series of some cells; where two cells hold the same seed, the later one counts.

    developed_on: other trainings, which the one setting of each method was fixed on.
    """
    fixed = _fixed_settings(developed_on)
    axes = setting_axes([*records, *developed_on])
    merged: dict[tuple[str, ...], Series] = {}
    for record in sorted(records, key=lambda r: r.date if isinstance(r, CellRecord) else ""):
        data, length, method = data_name(record, records), length_name(record), method_name(record, records)
        beforehand = fixed.get(_kind(record))
        for s in series_of(record, axes[_kind(record)], record.final if isinstance(record, CellRecord) else ()):
            place = (data, length, method, json.dumps(s.setting))
            trials = {trial.seed: trial for trial in (*(merged[place].trials if place in merged else ()), *s.trials)}
            merged[place] = replace(
                s,
                data=data,
                length=length,
                method=method,
                trials=[trials[seed] for seed in sorted(trials)],
                fixed=beforehand is not None and beforehand.items() <= s.setting.items(),
            )
    return list(merged.values())


def _fixed_settings(records: Sequence[MeasuredRun]) -> dict[Kind, Settings]:
    """For each method the setting with the highest mean over the datasets, of those tried on the most."""
    if not records:
        return {}
    tried: dict[Kind, dict[str, list[Series]]] = defaultdict(lambda: defaultdict(list))
    for s in collect(records):
        if s.setting and s.is_final:
            tried[_kind(s.record)][json.dumps(s.setting)].append(s)
    return {
        kind: max(settings.values(), key=lambda group: (len(group), float(np.mean([s.mean for s in group]))))[0].setting
        for kind, settings in tried.items()
    }


def _kind(record: MeasuredRun) -> Kind:
    return record.algorithm, record.preset


def setting_axes(records: Iterable[MeasuredRun]) -> dict[Kind, list[str]]:
    """For each method the options that are its setting: those asked for, and those that differ on the same data.

    The precision is no setting, unless trainings on the same data differ in it: how a method was computed is no other
    method.
    """
    asked: dict[Kind, dict[str, None]] = defaultdict(dict)
    values: dict[tuple[str, Kind], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for record in records:
        settings = record.settings if isinstance(record, CellRecord) else ()
        asked[_kind(record)] |= dict.fromkeys([*record.grid, *(name for name in settings if name != "precision")])
        for name, value in record.config.items():
            values[record.data.name, _kind(record)][name].add(json.dumps(value))
    for (_, kind), by_name in values.items():
        asked[kind] |= dict.fromkeys(name for name, found in by_name.items() if len(found) > 1 and name != "steps")
    return {kind: list(names) for kind, names in asked.items()}


def method_name(record: MeasuredRun, among: Iterable[MeasuredRun]) -> str:
    """Its algorithm, with the preset where another record has another one."""
    presets = {other.preset for other in among if other.algorithm == record.algorithm}
    return f"{record.algorithm}@{record.preset}" if len(presets) > 1 else record.algorithm


def data_name(record: MeasuredRun, among: Sequence[MeasuredRun]) -> str:
    """The name of its data, with what tells it from other data of that name, or from another environment."""
    alike = [other for other in among if other.data.name == record.data.name]
    # A run knows the hash of its data alone; a cell beside it may say what that hash is of.
    identities = {r.data.hash: r.data.identity for r in alike if r.data.identity is not None}
    name = record.data.name
    if len({r.data.identity or identities.get(r.data.hash, r.data.hash) for r in alike}) > 1:
        name += f" ({record.data.hash[:8]})"
    if len({r.environment for r in alike}) > 1:
        name += f" in {record.environment}"
    return name


def length_name(record: MeasuredRun) -> str:
    """How long was trained, as tables are grouped by it: methods differ in their number of phases."""
    given = record.length if isinstance(record, CellRecord) else None
    if given is None:
        return OWN_STEPS
    if len(given) == 1:
        return f"{steps_text(given[0])} steps a phase"
    return " + ".join(map(steps_text, given)) + " steps"


def method_order(method: str) -> tuple[int, bool, str]:
    """The order of columns: that of the registry, `tuned` before other presets; other methods follow by name.

    The first column is the one that the others are compared with.
    """
    name, methods = method.split("@")[0].split(" ")[0], list(REGISTRY)
    other = "@" in method and "@tuned" not in method
    return (methods.index(name) if name in methods else len(methods), other, method)


def data_order(data: str) -> tuple[int, str]:
    """The order of the tasks; other datasets follow by name."""
    bases = [task.base for task in TASKS.values()]
    base = data.rsplit("-", 1)[0]
    return (bases.index(base) if base in bases else len(bases), data)


SHORT = {
    **{"halfcheetah": "HC", "hopper": "Hop", "walker2d": "W"},
    **{"random": "r", "medium": "m", "medium-replay": "mr", "medium-expert": "me", "expert": "e"},
}


def short_name(data: str) -> str:
    """As the paper labels its bars: HC-mr for halfcheetah-medium-replay-v2; Minari's names without their first part."""
    name = re.sub(r"^[^/]+/([^/]+)/([^/]+-v\d+)$", r"\1-\2", data)
    match = re.fullmatch(r"(halfcheetah|hopper|walker2d)-(.+?)(?:-(td3))?-(?:v\d|made)", name)
    return name if match is None else "-".join(SHORT.get(part, part) for part in match.groups() if part)
