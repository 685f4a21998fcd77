"""A log as it comes is made ready for the rules of transitions. What is done to it is said, a line for each thing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sbac.data.columns import OPTIONAL, REQUIRED
from sbac.data.dataset import jumps
from sbac.errors import UserError
from sbac.text import counted

Missing = Literal["refuse", "hold", "cut"]
FIELDS = (*REQUIRED, *OPTIONAL, "extras")
MOST_DISCRETE = 10
"""Whole numbers as actions with more different values than these are taken as continuous."""
JUMP = 3
"""An episode is cut where time jumps by more than so many usual steps."""

Array = NDArray[Any]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Prepared:
    """The columns of a log, what was done to them, and from which of the log's rows each row is."""

    columns: dict[str, Any]
    notes: list[str]
    rows: NDArray[np.intp]


def prepare(
    columns: Mapping[str, Array], missing: Missing, continuous: bool, whole_actions: bool, name: str
) -> Prepared:
    """The columns of a log made ready.

    Columns that are no numbers, or of different lengths, are left as they are: the checks of a dataset name them.

    whole_actions: whether the log stores its actions as whole numbers.
    name: the log's, for an error line.
    """
    arrays = dict(columns)
    count = max((len(array) for array in arrays.values() if array.ndim), default=0)
    notes: list[str] = []
    if arrays and "terminals" not in arrays and count:
        arrays["terminals"] = np.zeros(count, bool)
        notes.append("terminals: not given; every episode is taken as cut by time")
    if whole_actions and arrays["actions"].ndim and len(arrays["actions"]):
        arrays["actions"], told = _continuous(arrays["actions"], continuous)
        notes += told
    sound = all(a.dtype.kind in "fiub" or name == "episode" for name, a in arrays.items())
    rows = np.arange(count)
    if not sound or not count or any(array.shape[:1] != (count,) for array in arrays.values()):
        if (time := arrays.pop("time", None)) is not None and time.dtype.kind not in "fiub":
            raise UserError(f"{name}: time: expected numbers or dates, got an array of {time.dtype}")
        return Prepared(arrays, notes, rows)
    if (time := arrays.pop("time", None)) is not None:
        arrays, rows, told = _in_time(arrays, time.reshape(-1).astype(np.float64), name)
        notes += told
    kept, told = _without_last_rewards(arrays)
    notes += told
    if not kept.all():
        arrays, rows = {name: array[kept] for name, array in arrays.items()}, rows[kept]
    if missing != "refuse":
        arrays, filled, told = GAPS[missing](arrays)
        rows, notes = rows[filled], notes + told
    return Prepared(arrays, notes, rows)


def _continuous(actions: Array, continuous: bool) -> tuple[Array, list[str]]:
    """Actions that are whole numbers, as numbers of a range or, for the checks to refuse, as whole numbers."""
    values = max((len(np.unique(column)) for column in actions.reshape(len(actions), -1).T), default=0)
    if continuous or values > MOST_DISCRETE:
        return actions.astype(np.float32, copy=False), [
            f"actions: whole numbers, up to {values} values; taken as continuous"
        ]
    return np.nan_to_num(actions).astype(np.int64), []


def _ends(columns: Mapping[str, Array]) -> Flags:
    """The last row of every episode, as far as the log's own columns tell."""
    ends = np.zeros(len(columns["terminals"]), bool)
    for name in ("terminals", "timeouts"):
        if name in columns:
            ends |= columns[name].reshape(-1) == 1
    if "episode" in columns:
        number = columns["episode"].reshape(-1)
        ends[:-1] |= number[1:] != number[:-1]
    ends[-1:] = True
    return ends


def _in_time(columns: dict[str, Array], time: Array, name: str) -> tuple[dict[str, Array], NDArray[np.intp], list[str]]:
    """The rows of every episode sorted by time, and their order. An episode is cut where time jumps."""
    if not np.isfinite(time).all():
        raise UserError(f"{name}: time: row {int(np.isfinite(time).argmin())} has none; expected a time in every row")
    if "episode" in columns:
        _, first, number = np.unique(columns["episode"].reshape(-1), return_index=True, return_inverse=True)
        place = first[number]  # episodes stay in the order in which they begin
    else:
        place = np.append(0, np.cumsum(_ends(columns))[:-1])
    order = np.lexsort((time, place))
    told = ["time: rows sorted within their episodes"] * bool((order != np.arange(len(order))).any())
    columns = {field: array[order] for field, array in columns.items()}
    inside = (place[order][1:] == place[order][:-1]) & ~_ends(columns)[:-1]
    steps = np.diff(time[order])
    if (positive := steps[inside & (steps > 0)]).size:
        usual = float(np.median(positive))
        cut = np.append(inside & (steps > JUMP * usual), False)
        if cut.any():
            columns = _with_cuts(columns, cut)
            told.append(f"time: {counted(int(cut.sum()), 'jump')} of more than {JUMP} usual steps; episodes cut there")
        rest = steps[inside & ~cut[:-1]]
        if uneven := int((np.abs(rest - usual) > usual / 2).sum()):
            far = f"{uneven} of {len(rest)} steps differ by more than half from the usual one, {usual:g}"
            told.append(f"time: {far}; all are taken as equal")
    return columns, order, told


def _with_cuts(columns: dict[str, Array], cut: Flags) -> dict[str, Array]:
    """The columns with more time limits. Flags of time limits tell all ends, so they get those that others tell."""
    if "timeouts" in columns:
        return columns | {"timeouts": (columns["timeouts"].reshape(-1) == 1) | cut}
    ends = _ends(columns)
    if "episode" not in columns and "next_observations" in columns:
        ends |= jumps(columns["observations"], columns["next_observations"])
    return columns | {"timeouts": (ends & (columns["terminals"].reshape(-1) != 1)) | cut}


def _without_last_rewards(columns: dict[str, Array]) -> tuple[Flags, list[str]]:
    """The rows without those that end an episode and have no reward. The row before such a one ends as it does."""
    if "rewards" not in columns or columns["rewards"].dtype.kind != "f":
        return np.ones(len(columns["terminals"]), bool), []
    ends = _ends(columns)
    empty = np.isnan(columns["rewards"].reshape(len(ends), -1)).any(axis=1)
    lacking = empty & ends & np.append(False, ~ends[:-1])  # an episode of one row has none before it
    if (empty & ~lacking).any():  # others are missing too: not a habit of the log, but a gap
        lacking[:] = False
    before = np.flatnonzero(lacking) - 1
    for name in ("terminals", "timeouts"):
        if name in columns and len(before):
            columns[name] = columns[name].copy()
            columns[name][before] = columns[name][before + 1]
    told = f"rewards: missing in the last row of {counted(len(before), 'episode')}; these rows are left out"
    return ~lacking, [told] * bool(len(before))


def _gaps(columns: Mapping[str, Array], name: str) -> Array:
    """The cells of a column without a finite number: (rows, features)."""
    array = columns[name].reshape(len(columns[name]), -1)
    return ~np.isfinite(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


def _held(columns: dict[str, Array]) -> tuple[dict[str, Array], Flags, list[str]]:
    """Gaps filled with the last value of the same episode. Those that begin an episode stay, and are refused."""
    ends = _ends(columns)
    first = np.maximum.accumulate(np.where(np.append(True, ends[:-1]), np.arange(len(ends)), 0))
    filled: dict[str, int] = {}
    for name in FIELDS:
        if name not in columns:
            continue
        gaps = _gaps(columns, name)
        if not gaps.any():
            continue
        last = np.maximum.accumulate(np.where(gaps, -1, np.arange(len(ends))[:, None]), axis=0)
        fillable = gaps & (last >= first[:, None])
        row, feature = np.nonzero(fillable)
        values = columns[name].reshape(len(ends), -1).copy()
        values[row, feature] = values[last[row, feature], feature]
        columns[name] = values.reshape(columns[name].shape)
        filled[name] = len(row)
    told = f"missing: {counted(sum(filled.values()), 'value')} filled with the last one of the same episode"
    if rewards := filled.get("rewards"):  # what was earned is no state that lasts
        told += f"; {rewards} of them {'is a reward' if rewards == 1 else 'are rewards'}"
    return columns, np.ones(len(ends), bool), [told] * any(filled.values())


def _cut(columns: dict[str, Array]) -> tuple[dict[str, Array], Flags, list[str]]:
    """Rows with a gap left out; the row before one is cut by time. Without a next row it has no s' either."""
    ends = _ends(columns)
    gap = np.any([_gaps(columns, name).any(axis=1) for name in FIELDS if name in columns], axis=0)
    if not gap.any():
        return columns, ~gap, []
    cut = np.append(gap[1:], False) & ~gap & ~ends
    columns = _with_cuts(columns, cut)
    told = f"missing: {counted(int(gap.sum()), 'row')} left out, {counted(int(cut.sum()), 'episode')} cut there"
    return {name: array[~gap] for name, array in columns.items()}, ~gap, [told]


GAPS: Mapping[str, Callable[[dict[str, Array]], tuple[dict[str, Array], Flags, list[str]]]] = {
    "hold": _held,
    "cut": _cut,
}
