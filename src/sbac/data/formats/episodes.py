"""Logs that store every episode by itself: one after the other they are the rows of one log."""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from sbac.data.dataset import Dataset, jumps
from sbac.data.formats.log import Column, Log, Rows
from sbac.errors import UserError

RowsOfEpisode = Callable[[int, Collection[str], int, int], Rows]
"""Some fields of an episode, by its position in the log, from a row of it to another."""


def log_of_episodes(
    path: Path,
    size: int,
    episodes: Sequence[Mapping[str, Column]],
    opened: Callable[[], AbstractContextManager[RowsOfEpisode]],
    description: Mapping[str, Any],
    work: int = 0,
) -> Log:
    """A log of episodes. The columns of each are declared; `opened` gives access to their rows."""
    if not episodes:
        raise UserError(f"{path}: zero episodes")
    first = episodes[0]
    for number, columns in enumerate(episodes):
        for name, column in columns.items():
            if column.shape[1:] != first[name].shape[1:]:
                expected = (column.shape[0], *first[name].shape[1:])
                raise UserError(f"{path}: episode {number}: {name} has shape {column.shape}, expected {expected}")
    starts = [0, *accumulate(columns["rewards"].shape[0] for columns in episodes)]
    joined = {
        name: Column((starts[-1], *column.shape[1:]), np.result_type(*{columns[name].dtype for columns in episodes}))
        for name, column in first.items()
    }

    def read(fields: Collection[str], start: int, stop: int, most: int) -> Iterator[Rows]:
        with opened() as rows_of:
            number = bisect_right(starts, start) - 1
            while start < stop:
                end = min(start + most, stop, starts[number + 1])
                yield rows_of(number, fields, start - starts[number], end - starts[number])
                start, number = end, number + (end == starts[number + 1])

    return Log(path, size, joined, read, description=description, work=work, parts=starts)


def check_steps(columns: Mapping[str, Column], more: Collection[str], where: str) -> int:
    """The steps of an episode. Refuses one without any, or with a column of another length.

    more: the columns that have one row more.
    """
    steps = columns["rewards"].shape[0] if columns["rewards"].shape else 0
    if steps == 0:
        raise UserError(f"{where}: zero steps")
    for name, (shape, _) in columns.items():
        expected = (steps + (name in more), *shape[1:])
        if shape[:1] != expected[:1]:
            raise UserError(f"{where}: {name} has shape {shape}, expected {expected}")
    return steps


def refuse_jumps(data: Dataset, form: str) -> None:
    """Refuses to write a log that has, inside an episode, an s' that is not the next row's observation."""
    if data.stores_next:
        inside = jumps(data.observations, data.next_observations) & ~(data.terminals | data.timeouts)
        if inside.any():
            raise UserError(f"{data.name}: row {inside.argmax()}: its s' is not the next row, which {form} cannot hold")
