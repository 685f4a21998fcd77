"""Logs that store every episode by itself: one after the other they are the rows of one log."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sbac.data.formats.log import Column, Log, Rows
from sbac.errors import UserError


@dataclass(frozen=True)
class Episode:
    """What a file declares of an episode."""

    steps: int
    columns: dict[str, Column]


def log_of_episodes(
    path: Path,
    size: int,
    episodes: Sequence[Episode],
    read: Callable[[Collection[str]], Iterator[Callable[[int, int], Rows]]],
    about: dict[str, Any],
    work: int = 0,
) -> Log:
    """A log of episodes, declared one by one. `read` goes through them, and gives the rows of each in parts."""
    if not episodes:
        raise UserError(f"{path}: zero episodes")
    steps = sum(episode.steps for episode in episodes)
    first = episodes[0].columns
    for number, episode in enumerate(episodes):
        for name, column in episode.columns.items():
            if column.shape[1:] != first[name].shape[1:]:
                expected = (column.shape[0], *first[name].shape[1:])
                raise UserError(f"{path}: episode {number}: {name} has shape {column.shape}, expected {expected}")
    columns = {
        name: Column((steps, *column.shape[1:]), np.result_type(*{e.columns[name].dtype for e in episodes}))
        for name, column in first.items()
    }

    def blocks(rows: int, chosen: Collection[str]) -> Iterator[Rows]:
        for episode, rows_between in zip(episodes, read(chosen), strict=True):
            for start in range(0, episode.steps, rows):
                yield rows_between(start, min(start + rows, episode.steps))

    return Log(path, size, columns, blocks, about, work)


def check_steps(shapes: dict[str, tuple[int, ...]], steps: int, more: Collection[str], where: str) -> None:
    """Refuses an episode without steps, or with a column of another length; those in `more` have one row more."""
    if steps == 0:
        raise UserError(f"{where}: zero steps")
    for name, shape in shapes.items():
        expected = (steps + (name in more), *shape[1:])
        if shape[:1] != expected[:1]:
            raise UserError(f"{where}: {name} has shape {shape}, expected {expected}")
