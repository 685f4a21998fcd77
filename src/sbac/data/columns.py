"""The checks on a table of transitions. Every problem is a line that names the column and the row."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

REQUIRED = ("observations", "actions", "rewards", "terminals")
OPTIONAL = ("timeouts", "next_observations")
VECTORS = ("observations", "actions", "next_observations")
TOLERANCE = 1e-6
"""How far an action may lie outside its bounds (relative to bounds beyond 1) before it is refused; it is clipped."""
SHOWN = 20
"""Rows listed per kind of problem; the rest are counted."""

Columns = Mapping[str, ArrayLike]
Array = NDArray[Any]


def problems(columns: Columns, low: ArrayLike, high: ArrayLike) -> Iterator[str]:
    """Every problem for which the columns are not a dataset, worst first; none if they are one."""
    arrays = {name: _array(columns[name]) for name in REQUIRED + OPTIONAL if columns.get(name) is not None}
    yield from missing(arrays)
    sound: dict[str, Array] = {}
    for name, array in arrays.items():
        if found := list(_structure(name, array)):
            yield from found
        else:
            sound[name] = array
    yield from _lengths(sound)
    for name, array in sound.items():
        yield from _not_flags(name, array) if name in ("terminals", "timeouts") else _not_finite(name, array)
    if "actions" in sound:
        wrong = list(_bounds(sound["actions"], low, high))
        yield from wrong or _outside(sound["actions"], low, high)


def _array(values: ArrayLike) -> Array:
    """The values as an array; an empty array of objects if they do not form one."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.empty(0, object)


def missing(columns: Mapping[str, Any]) -> Iterator[str]:
    """A line for every required column that is missing."""
    for name in REQUIRED:
        if columns.get(name) is None:
            yield f"{name}: missing; a dataset has {', '.join(REQUIRED)}, and timeouts and next_observations if known"


def _structure(name: str, array: Array) -> Iterator[str]:
    kind = array.dtype.kind
    if kind == "O":
        yield f"{name}: expected an array of numbers, got Python objects or rows of different lengths"
    elif kind not in "fiub":
        yield f"{name}: expected numbers, got an array of {array.dtype}"
    elif name == "actions" and (kind in "iub"):
        yield f"actions: discrete actions ({array.dtype}) are not supported; continuous actions are floats"
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
        array = _array(bound)
        if array.dtype.kind not in "fiu" or array.shape not in ((), (actions.shape[1],)):
            yield f"{name}: expected a number or {actions.shape[1]} numbers, got {array.dtype} of shape {array.shape}"
            return
        if not np.isfinite(array).all():
            yield f"{name}: expected finite bounds, got {bound}"
            return
    if not (np.asarray(low) < np.asarray(high)).all():
        yield f"action_low: expected every bound below action_high, got {low} and {high}"


def _not_finite(name: str, array: Array) -> Iterator[str]:
    with np.errstate(over="ignore"):
        bad = ~np.isfinite(array.astype(np.float32, copy=False))
    if bad.ndim == 2:
        rows = np.flatnonzero(bad.any(axis=1))
        values = (f"{array[row, bad[row].argmax()]} in feature {bad[row].argmax()}" for row in rows[:SHOWN])
    else:
        rows = np.flatnonzero(bad)
        values = (str(array[row]) for row in rows[:SHOWN])
    yield from _listed(name, rows, values, "expected finite numbers (float32)")


def _not_flags(name: str, array: Array) -> Iterator[str]:
    if array.dtype.kind == "b":
        return
    flat = array.reshape(len(array))
    rows = np.flatnonzero((flat != 0) & (flat != 1))
    yield from _listed(name, rows, (str(flat[row]) for row in rows[:SHOWN]), "expected true or false (0 or 1)")


def _outside(actions: Array, low: ArrayLike, high: ArrayLike) -> Iterator[str]:
    below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bad = (actions < below - slack(below)) | (actions > above + slack(above))
    rows = np.flatnonzero(bad.any(axis=1))
    values = (f"{actions[row, bad[row].argmax()]:.8g} in feature {bad[row].argmax()}" for row in rows[:SHOWN])
    expected = "expected actions inside [action_low, action_high]"
    yield from _listed("actions", rows, values, f"{expected} = [{_short(below)}, {_short(above)}]")


def slack(bound: NDArray[np.float64]) -> NDArray[np.float64]:
    """The tolerance around a bound."""
    return TOLERANCE * np.maximum(1.0, np.abs(bound))


def _short(bound: NDArray[np.float64]) -> str:
    values = np.unique(bound)
    return f"{values[0]:g}" if len(values) == 1 else f"{values[0]:g}..{values[-1]:g}"


def _listed(name: str, rows: NDArray[np.intp], values: Iterator[str], expected: str) -> Iterator[str]:
    for row, value in zip(rows[:SHOWN], values, strict=True):
        yield f"{name}: row {row} is {value}; {expected}"
    if len(rows) > SHOWN:
        yield f"{name}: {len(rows) - SHOWN} more rows like these, the last is row {rows[-1]}"
