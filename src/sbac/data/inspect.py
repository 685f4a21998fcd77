"""A dataset in numbers, the problems of a file, and the list of datasets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import BLOCK, FIRST, OPTIONAL, REQUIRED, SATURATED, moments
from sbac.data.dataset import Dataset, jumps
from sbac.data.formats import minari
from sbac.data.loading import LogOptions, Reading, Source, joined_logs, load, read, said_once
from sbac.data.locating import d4rl_folders, data_folder, embedded_file, made_names, parts_of
from sbac.data.misleading import misleading
from sbac.environments.tasks import EMBEDDED, TASKS
from sbac.errors import UserError
from sbac.text import counted

FIELDS = REQUIRED + OPTIONAL
BINS = 12
BAR = 40


def saturation(data: Dataset) -> NDArray[np.float64]:
    """Per action feature, the share of rows at a bound."""
    edge = SATURATED * (data.action_high - data.action_low)
    low, high = data.action_low + edge, data.action_high - edge
    counts = np.zeros(data.actions.shape[1])
    for start in range(0, len(data), BLOCK):
        block = data.actions[start : start + BLOCK]
        counts += ((block <= low) | (block >= high)).sum(axis=0)
    return counts / len(data)


def features(data: Dataset) -> NDArray[np.float64]:
    """Per observation feature: least, mean, standard deviation, greatest."""
    mean, deviation = moments(data.observations)
    return np.stack([data.observations.min(axis=0), mean, deviation, data.observations.max(axis=0)], axis=1)


def info(source: Source) -> str:
    """A dataset described in text."""
    return "\n".join(_described(load(source)))


def _described(data: Dataset) -> Iterator[str]:
    rows, r, at_bound = len(data), data.returns, saturation(data)
    lengths, terminals, cut = np.diff(data.episodes), int(data.terminals.sum()), int(data.timeouts.sum())
    yield f"{data.name} ({data.kind}{f', task {data.task}' if data.task else ''})"
    known = f"s' is known for {int(data.has_next.sum()):,}, a' for {int(data.has_next_action.sum()):,}"
    yield f"  transitions     {rows:,}; {known}"
    steps = f"{lengths.min():,} to {lengths.max():,} steps, median {np.median(lengths):,.0f}"
    yield f"  episodes        {len(lengths):,} of {steps}"
    yield f"  ends            {terminals:,} terminals, {cut:,} time limits"
    yield f"                  ({terminals / rows:.3%} and {cut / rows:.3%} of the rows)"
    scored = "" if data.score is None else f", normalised score {data.score:.1f}"
    yield f"  returns         mean {r.mean():.2f}, std {r.std():.2f}, {r.min():.2f} to {r.max():.2f}{scored}"
    pairs = [f"{low:g} to {high:g}" for low, high in zip(data.action_low, data.action_high, strict=True)]
    yield f"  action bounds   {pairs[0] if len(set(pairs)) == 1 else ', '.join(pairs)}"
    if data.is_named:
        yield f"  actions         {', '.join(data.columns['actions'])}"
    if data.environment is not None:
        yield f"  environment     {data.environment}"
    yield f"  at a bound      {at_bound.mean():.2%} of the action values, at most {at_bound.max():.2%} in one"
    yield from (f"  note            {note}" for note in data.notes)
    yield f"  sha256          {data.hash}"
    yield "returns of the episodes"
    counts, edges = np.histogram(r, BINS, range=_range(r))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "█" * round(BAR * count / counts.max())
        yield f"  {low:>10.1f} to {high:>10.1f} {count:>8,} {bar}".rstrip()
    wide = max(10, *map(len, data.columns["observations"]))
    yield f"{'observations':<{wide + 4}}      least        mean         std    greatest"
    for name, (low, mean, deviation, high) in zip(data.columns["observations"], features(data), strict=True):
        constant = "  constant" if low == high else ""
        yield f"  {name:<{wide}}  {low:>11.4g} {mean:>11.4g} {deviation:>11.4g} {high:>11.4g}{constant}"


def _range(values: NDArray[np.float64]) -> tuple[float, float]:
    """From the least to the greatest, wide enough to be parted where they are nearly equal."""
    low, high = float(values.min()), float(values.max())
    least = 1e-6 * max(abs(low), abs(high)) or 1.0
    return (low, high) if high - low > least else (low - least, high + least)


@dataclass(frozen=True)
class Findings:
    """The problems that keep a file from being trained on, what misleads in it, and the oddities that do not matter."""

    problems: list[str]
    notes: list[str]
    rows: int
    """Rows of the log; 0 if it could not be read."""
    wrong_rows: int
    """Rows with at least one problem."""
    problems_found: int
    """Problems in all, those that are only counted included: a bad value of a row is one, and so is a bad column."""
    warnings: list[str]


def examine(source: str | Path | Sequence[str | Path], options: LogOptions | None = None) -> Findings:
    """Every problem of a file or of several, what misleads in it, and every oddity that the rules of transitions
    settle."""
    try:
        parts = parts_of(source)
    except UserError as error:
        return _unreadable(error)
    readings: dict[str, Reading] = {}
    each: dict[str, Findings] = {}
    for part in parts:
        try:
            readings[str(part)] = read(part, options or LogOptions())
            each[str(part)] = _examine(readings[str(part)])
        except UserError as error:
            each[str(part)] = _unreadable(error)
    several = len(each) > 1
    named = [(name, line) for name, findings in each.items() for line in findings.problems]
    problems = [f"{name}: {line.removeprefix(f'{name}: ')}" if several else line for name, line in named]
    notes = said_once({name: findings.notes for name, findings in each.items()})
    warned: list[str] = []
    found = sum(findings.problems_found for findings in each.values())
    if not problems:
        try:
            data = joined_logs([Dataset(**reading.arguments) for reading in readings.values()])
            warned = misleading(data, lambda row: _place(row, readings))
        except UserError as error:
            problems, found = [str(error)], 1
    rows, wrong = (sum(getattr(findings, name) for findings in each.values()) for name in ("rows", "wrong_rows"))
    return Findings(problems, notes, rows, wrong, found, warned)


def _unreadable(error: UserError) -> Findings:
    return Findings([str(error)], [], 0, 0, 1, [])


def _place(row: int, readings: Mapping[str, Reading]) -> str:
    """Where a row of joined logs stands: in which file, where there are several, and in which line of a text."""
    for name, reading in readings.items():
        rows = len(reading.arguments["observations"])
        if row < rows:
            place = f"row {row}" if reading.line_of is None else f"line {reading.line_of(row)}"
            return f"{name}, {place}" if len(readings) > 1 else place
        row -= rows
    raise IndexError(row)


def _examine(reading: Reading) -> Findings:
    columns = {key: value for key, value in reading.arguments.items() if key in FIELDS}
    wrong = list(reading.defects())
    rows = max((len(column) for column in columns.values() if np.ndim(column)), default=0)
    if wrong:
        wrong_rows = np.unique(np.concatenate([defect.rows for defect in wrong]))
        problems = sum(max(1, len(defect.rows)) for defect in wrong)
        return Findings([defect.line for defect in wrong], [], rows, len(wrong_rows), problems, [])
    data = Dataset(**reading.arguments)
    return Findings([], [*data.notes, *_notes(columns, data)], rows, 0, 0, [])


def _notes(columns: dict[str, ArrayLike], data: Dataset) -> Iterator[str]:
    stored = data.next_observations if data.stores_next else None  # made of the next row where it is not stored
    if "timeouts" not in columns and data.terminals.any():
        by = "terminals" if stored is None else "terminals and where the stored s' is not the next row"
        yield f"timeouts: not given; episodes end at {by}"
    elif "timeouts" in columns:
        both = np.asarray(columns["terminals"]).reshape(-1).astype(bool) & data.timeouts
        yield from _rows(both, "flagged as terminal and as time limit; taken as a time limit")
        if stored is not None:
            inside = jumps(data.observations, stored) & ~(data.terminals | data.timeouts)
            yield from _rows(inside, "inside an episode with an s' that is not the observation of the next row")
        if not np.asarray(columns["timeouts"]).reshape(-1)[-1] and not data.terminals[-1]:
            yield f"row {len(data) - 1}: the last episode is unfinished; taken as cut by a time limit"
    single = np.zeros(len(data), bool)
    single[data.episodes[np.diff(data.episodes, axis=1)[:, 0] == 1, 0]] = True
    yield from _rows(single, "of episodes of one step")
    if not data.has_next_action.any():
        yield "no row has a next action in its episode: methods that need a' cannot train on this"
    for feature in np.flatnonzero(data.observations.min(axis=0) == data.observations.max(axis=0)):
        name = data.columns["observations"][feature] if data.is_named else f"feature {feature}"
        yield f"observations: {name} is {data.observations[0, feature]:g} in every row"


def _rows(flags: NDArray[np.bool_], what: str) -> Iterator[str]:
    if len(rows := np.flatnonzero(flags)):
        first = ", ".join(map(str, rows[:FIRST]))
        yield f"{counted(len(rows), 'row')} {what}, the first: {first}"


def listing() -> str:
    """The datasets that are here, those that can be made, and those that must be downloaded."""
    here = [*_here()]
    names = {name for name, _, _ in here}
    makeable = [name for name in made_names() if name not in names]
    absent = [task for task in TASKS.values() if task.name not in names]
    lines = ["here", *(f"  {name:<30} {kind:<9} {path}" for name, kind, path in here)]
    lines += ["can be made: sbac data make NAME", *(f"  {name}" for name in makeable)]
    lines += [f"must be downloaded: D4RL's files, to be put into {data_folder()} ($SBAC_DATA)"]
    lines += [f"  {task.name:<30} {task.files[0]}" for task in absent]
    return "\n".join(lines)


def _here() -> Iterator[tuple[str, str, Path]]:
    for name in EMBEDDED:
        if embedded_file(name).is_file():
            yield name, "embedded", Path("(in the package)")
    for name in made_names():
        if (path := data_folder() / f"{name}.npz").is_file():
            yield name, "made", path
    for task in TASKS.values():
        places = (folder / file for folder in d4rl_folders() for file in task.files)
        if (path := next((path for path in places if path.is_file()), None)) is not None:
            yield task.name, "D4RL", path
    for metadata in sorted(minari.root().glob("**/data/metadata.json")):
        folder = metadata.parent.parent
        yield folder.relative_to(minari.root()).as_posix(), "Minari", folder
