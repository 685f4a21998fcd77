"""Where the episodes of a log end: what its columns, the caller and the task say, put together."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbac.data.columns import as_array
from sbac.data.dataset import Flags, jumps
from sbac.environments.tasks import find_task
from sbac.errors import UserError

MOST_MIXED = 64
"""Rows below a row among which its next state is looked for."""
SAMPLED = 10_000
"""Rows whose next state is looked for."""
States = tuple[NDArray[Any], NDArray[Any]]
"""s and s' of every row."""


def with_time_limits(
    arguments: Mapping[str, Any], horizon: int | None, longest_episode: int | None = None
) -> dict[str, Any]:
    """The arguments of `Dataset` with `timeouts`, where anything tells them, and without episode numbers.

    A horizon that the caller gives counts beside the flags of the log; that of a task only where there are none.
    Columns that are no flags are left as they are: the checks of a dataset name what is wrong with them.

    longest_episode: the most rows of an episode, where the format has a limit.
    """
    columns = {key: value for key, value in arguments.items() if key != "episode"}
    ended = _flags(columns.get("terminals", []))
    if ended is None or not len(ended):
        return columns
    tells = "timeouts" in columns or "episode" in arguments
    cut = _flags(columns["timeouts"]) if "timeouts" in columns else np.zeros(len(ended), bool)
    if cut is None or len(cut) != len(ended):
        return columns
    if "episode" in arguments:
        cut = cut | (_changes(arguments["episode"], len(ended), columns["name"]) & ~ended)
    if not tells and horizon is None and "task" in columns:
        horizon = find_task(columns["task"]).horizon
    limits = cut if horizon is None else cut | time_limits(cut | ended, horizon)
    if not tells:
        states = _states(columns, len(ended))
        if horizon is None:
            _refuse_unclear(ended, states, longest_episode, columns["name"])
            return columns  # which `Dataset` takes as ending at terminals and where states jump
        if states is not None:
            limits = limits | (jumps(*states) & ~ended)
    return columns | {"timeouts": limits}


def _refuse_unclear(ended: Flags, states: States | None, longest_episode: int | None, name: str) -> None:
    """Refuses a log without time limits in which episodes lie mixed, or are longer than its format has them."""
    if states is not None:
        _refuse_mixed(*states, ended, name)
        return
    stretch = int(np.diff(np.flatnonzero(ended), prepend=-1, append=len(ended)).max()) - 1
    if longest_episode is not None and stretch > longest_episode:
        raise UserError(
            f"{name}: no timeouts, and {stretch} rows in a row without a terminal; "
            "say where episodes end with horizon= or task= (--horizon, --task)"
        )


def _refuse_mixed(states: NDArray[Any], following: NDArray[Any], ended: Flags, name: str) -> None:
    """Refuses rows of several processes that lie among each other: most next states are those of rows farther below."""
    apart = np.flatnonzero(jumps(states, following) & ~ended)
    if 2 * len(apart) <= len(states):
        return
    sample = apart[:: max(1, len(apart) // SAMPLED)]
    later = np.zeros(len(sample), bool)
    for below in range(2, MOST_MIXED + 1):
        row = np.minimum(sample + below, len(states) - 1)
        later |= (states[row] == following[sample]).all(axis=1)
    if later.mean() > 0.5:
        raise UserError(
            f"{name}: the next state of most rows is that of a later row: rows of several devices lie mixed; name the "
            "columns that tell them and the time with --columns episode=COLUMN time=COLUMN (columns=)"
        )


def time_limits(ended: Flags, horizon: int) -> Flags:
    """The time limits of a log that does not flag them: an episode ends when it reaches the horizon."""
    ends = np.concatenate([[-1], np.flatnonzero(ended)])
    rows = np.arange(len(ended))
    step = rows - ends[np.searchsorted(ends, rows, side="left") - 1] - 1
    return step % horizon == horizon - 1


def _flags(values: ArrayLike) -> Flags | None:
    """A column of zeros and ones as flags; None if it is something else."""
    column = as_array(values).reshape(-1)
    return column != 0 if column.dtype.kind in "fiub" and ((column == 0) | (column == 1)).all() else None


def _changes(episode: ArrayLike, rows: int, name: str) -> Flags:
    """The last row of every episode, by its number."""
    number = as_array(episode).reshape(-1)
    if len(number) != rows:
        raise UserError(f"{name}: episode: {len(number)} rows, but terminals has {rows}")
    if number.dtype.kind == "f" and np.isnan(number).any():
        raise UserError(f"{name}: episode: row {int(np.isnan(number).argmax())} has no number")
    return np.append(number[1:] != number[:-1], True)


def _states(columns: Mapping[str, Any], rows: int) -> States | None:
    """s and s', if both are stored and are matrices of numbers of one shape."""
    pair = [as_array(columns[name]) for name in ("observations", "next_observations") if name in columns]
    if len(pair) < 2 or any(array.dtype.kind not in "fiu" or array.ndim != 2 for array in pair):
        return None
    return (pair[0], pair[1]) if pair[0].shape == pair[1].shape and len(pair[0]) == rows else None
