"""The checks on a table of transitions. Every problem is a line that names the column and the row."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations")
VECTORS = ("observations", "actions", "next_observations")
BOUNDS = ("action_low", "action_high")
SIDE_ARRAYS = ("terminal_observations",)
"""What a file may hold beside the columns, not by row."""
TOLERANCE = 1e-6
"""How far an action may lie outside its bounds (relative to bounds beyond 1) before it is refused; it is clipped."""
SATURATED = 0.001
"""An action counts as saturated within this share of its range from a bound."""
BLOCK = 2**14
"""Rows that are looked at together. What is computed of a column is computed block by block."""
OTHER_BOUNDS = "others are given in the file, or by --env, --action-low, --action-high (environment=, action_low=, ...)"
"""What to do about actions outside the bounds."""

WHOLE = ", or whole numbers with --continuous (in Python: continuous=True)"
FIRST = 5
"""Places that are named of a column with gaps."""
REMEDIES = {
    False: "--missing hold or cut (in Python: missing=) says what to do about them",
    True: "no value of the same episode stands before them; --missing cut leaves such rows out",
}
"""What to do about gaps, by whether those that can be held were."""

Columns = Mapping[str, ArrayLike]
LineOf = Callable[[int], int] | None
Names = Mapping[str, Sequence[str]]
Array = NDArray[Any]


@dataclass(frozen=True)
class Origin:
    """What is known of a file beside its numbers, for the lines that tell a problem."""

    names: Names
    line_of: LineOf
    held: bool
    """Whether gaps were filled with the last value of the same episode."""

    def label(self, field: str, feature: int) -> str:
        """What a single column of a field is called."""
        if field in self.names and feature < len(self.names[field]):
            return self.names[field][feature]
        return f"{field}: feature {feature}" if field in VECTORS else field

    def places(self, rows: NDArray[np.intp]) -> str:
        """The first of some rows, as an editor counts lines where the file is a text."""
        numbers = [int(row) if self.line_of is None else self.line_of(int(row)) for row in rows[:FIRST]]
        kind = ("row" if self.line_of is None else "line") + "s" * (len(numbers) > 1)
        return f"the first in {kind} {', '.join(map(str, numbers))}{' ...' * (len(rows) > FIRST)}"


@dataclass(frozen=True)
class Defect:
    """One kind of problem of a column: the line that tells it, and the rows that have it."""

    line: str
    rows: NDArray[np.intp]


def defects(
    columns: Columns,
    low: ArrayLike,
    high: ArrayLike,
    names: Names | None = None,
    line_of: LineOf = None,
    held: bool = False,
) -> Iterator[Defect]:
    """Every problem for which the columns are not a dataset, by kind, worst first; none if they are one.

    names: what the single columns of a field are called, where they have names.
    line_of: the line of the file that a row is from, where it is from a text.
    held: whether gaps were filled with the last value of the same episode.
    """
    origin = Origin(names or {}, line_of, held)
    given = {name: columns[name] for name in REQUIRED + OPTIONAL if columns.get(name) is not None}
    for name, values in (*given.items(), ("action_low", low), ("action_high", high)):
        yield from _as_a_whole(masked(name, values))
    arrays = {name: as_array(values) for name, values in given.items()}
    yield from _as_a_whole(missing(arrays))
    sound: dict[str, Array] = {}
    for name, array in arrays.items():
        if wrong := list(_structure(name, array)):
            yield from _as_a_whole(wrong)
        else:
            sound[name] = array
    yield from _as_a_whole(_lengths(sound))
    for name, array in sound.items():
        yield from (
            _not_flags(name, array, origin) if name in ("terminals", "timeouts") else _not_finite(name, array, origin)
        )
    if "actions" in sound:
        wrong = list(_bounds(sound["actions"], low, high))
        yield from _as_a_whole(wrong) if wrong else _outside(sound["actions"], low, high, origin)


def _as_a_whole(lines: Iterable[str]) -> Iterator[Defect]:
    """Problems of a whole column, and of no row in particular."""
    for line in lines:
        yield Defect(line, np.empty(0, np.intp))


def as_array(values: ArrayLike) -> Array:
    """The values as an array; an empty array of objects if they do not form one."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.empty(0, object)


def masked(name: str, values: ArrayLike) -> Iterator[str]:
    """The mask of numpy's masked arrays says that a value is not known. As a plain array it would count as one."""
    if not issubclass(type(values), np.ma.MaskedArray):
        return
    mask: NDArray[np.bool_] = np.atleast_1d(np.asarray(getattr(values, "mask", False)))
    if mask.any():
        row, count = int(np.argwhere(mask)[0, 0]), int(mask.sum())
        yield f"{name}: a masked array with {count} masked values, the first in row {row}; expected numbers everywhere"


def missing(columns: Mapping[str, Any]) -> Iterator[str]:
    """A line for every required column that is missing."""
    for name in REQUIRED:
        if columns.get(name) is None:
            yield f"{name}: missing; say which column it is with --columns {name}=COLUMN (in Python: columns=)"


def _structure(name: str, array: Array) -> Iterator[str]:
    kind = array.dtype.kind
    if kind == "O":
        yield f"{name}: expected an array of numbers, got Python objects or rows of different lengths"
    elif kind not in "fiub":
        yield f"{name}: expected numbers, got an array of {array.dtype}"
    elif name == "actions" and (kind in "iub"):
        yield f"actions: discrete actions ({array.dtype}) are not supported; continuous actions are floats{WHOLE}"
    elif name in VECTORS:
        if array.ndim > 2 and name != "actions":
            yield f"{name}: images or stacks of shape {array.shape} are not supported; expected (rows, features)"
        elif array.ndim != 2:
            single = "; a single continuous action is a column of shape (rows, 1)" if name == "actions" else ""
            yield f"{name}: expected shape (rows, features), got {array.shape}{single}"
        elif array.shape[1] == 0:
            yield f"{name}: no features; got shape {array.shape}"
    elif array.ndim != 1 and array.shape[1:] != (1,):
        yield f"{name}: expected one number per row, got shape {array.shape}"


def _lengths(arrays: Mapping[str, Array]) -> Iterator[str]:
    first = next(iter(arrays), None)
    if first is None:
        return
    rows = len(arrays[first])
    if rows == 0:
        yield f"{first}: zero rows; expected at least one episode"
    for name, array in arrays.items():
        if len(array) != rows:
            yield f"{name}: {len(array)} rows, but {first} has {rows}"
    if "observations" in arrays and "next_observations" in arrays:
        features, next_features = arrays["observations"].shape[1], arrays["next_observations"].shape[1]
        if features != next_features:
            yield f"next_observations: {next_features} features, but observations has {features}"


def _bounds(actions: Array, low: ArrayLike, high: ArrayLike) -> Iterator[str]:
    for name, bound in (("action_low", low), ("action_high", high)):
        array = as_array(bound)
        if array.dtype.kind not in "fiu" or array.shape not in ((), (actions.shape[1],)):
            yield f"{name}: expected a number or {actions.shape[1]} numbers, got {array.dtype} of shape {array.shape}"
            return
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32))
        if not finite.all():
            yield f"{name}: expected finite bounds (float32), got {array.ravel()[finite.ravel().argmin()]}"
            return
    least, greatest = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if not (least < greatest).all():
        yield f"action_low: expected every bound below action_high, got {_short(least)} and {_short(greatest)}"
    elif not (greatest - least < np.finfo(np.float32).max).all():
        yield f"action_high: expected a range from action_low that is finite (float32), got {_short(greatest - least)}"


def _not_finite(name: str, array: Array, origin: Origin) -> Iterator[Defect]:
    def bad(block: Array) -> Array:
        with np.errstate(over="ignore"):
            return ~np.isfinite(block.astype(np.float32, copy=False))

    remedy = f"expected finite numbers; {REMEDIES[origin.held]}"
    return _bad_cells(name, array, bad, origin, lambda _: "missing or not finite", remedy)


def _not_flags(name: str, array: Array, origin: Origin) -> Iterator[Defect]:
    return _bad_cells(
        name,
        array,
        lambda block: (block != 0) & (block != 1),
        origin,
        lambda value: f"not true or false, such as {value:.6g}",
        "expected 0 or 1",
    )


def _outside(actions: Array, low: ArrayLike, high: ArrayLike, origin: Origin) -> Iterator[Defect]:
    below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
    return _bad_cells(
        "actions",
        actions,
        lambda block: (block < below - slack(below)) | (block > above + slack(above)),
        origin,
        lambda value: f"out of bounds, such as {value:.6g}",
        f"expected actions inside [action_low, action_high] = [{_short(below)}, {_short(above)}]; {OTHER_BOUNDS}",
    )


def _bad_cells(
    name: str,
    array: Array,
    bad: Callable[[Array], Array],
    origin: Origin,
    what: Callable[[Any], str],
    expected: str,
) -> Iterator[Defect]:
    """A problem for each single column with bad cells; `what` tells it, of the first such value."""
    if not len(rows := _rows_where(array, bad)):
        return
    cells = array[rows].reshape(len(rows), -1)
    for feature, flags in enumerate(bad(array[rows]).reshape(len(rows), -1).T):
        if flags.any():
            at, value = rows[flags], cells[flags, feature][0]
            told = f"{origin.label(name, feature)}: {len(at)} {what(value)}, {origin.places(at)}"
            yield Defect(f"{told}; {expected}", at)


def _rows_where(array: Array, bad: Callable[[Array], Array]) -> NDArray[np.intp]:
    """The rows in which a value is bad, looked for in blocks: no other array of the column's size is made."""
    rows: list[NDArray[np.intp]] = []
    for start in range(0, len(array), BLOCK):
        flags = bad(array[start : start + BLOCK])
        rows.append(start + np.flatnonzero(flags.any(axis=1) if flags.ndim == 2 else flags))
    return np.concatenate(rows) if rows else np.empty(0, np.intp)


def moments(
    columns: NDArray[np.float32], chosen: NDArray[np.bool_] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of every feature, over the chosen rows (None: all), in blocks."""

    def blocks() -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(columns), BLOCK):
            block = columns[start : start + BLOCK]
            yield (block if chosen is None else block[chosen[start : start + BLOCK]]).astype(np.float64)

    count = len(columns) if chosen is None else int(chosen.sum())
    zero = np.zeros(columns.shape[1])
    mean = sum((block.sum(axis=0) for block in blocks()), zero) / count
    variance = sum((((block - mean) ** 2).sum(axis=0) for block in blocks()), zero) / count
    return mean, np.sqrt(variance)


def slack(bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tolerance around a bound."""
    return TOLERANCE * np.maximum(1.0, np.abs(bound))


def _short(bound: NDArray[np.float64]) -> str:
    values = np.unique(bound)
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}..{values[-1]:g}"
