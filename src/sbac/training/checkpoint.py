"""Checkpoints: how far a group of runs is, its states on disk, and where it begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sbac import files
from sbac.nn import Tree
from sbac.records import as_json, parse
from sbac.runs import read_record
from sbac.training.trees import fill_tree

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, order=True)
class Position:
    """How far a group is: its phase and the steps done in it."""

    phase: int
    step: int


BEGINNING = Position(0, 0)


def state_path(folder: Path, group: int) -> Path:
    """The file that holds the states of a run's group."""
    return folder / "checkpoint" / f"state-{group}.safetensors"


def write_state(path: Path, at: Position, states: Mapping[str, Arrays]) -> None:
    """`states`: the arrays of each phase up to this position."""
    arrays = {f"{phase}/{name}": value for phase, leaves in states.items() for name, value in leaves.items()}
    files.save_arrays(path, arrays, as_json(at))


@dataclass(frozen=True)
class WarmNetworks:
    """The last states of another run's group, and the phases that begin from them (empty: all)."""

    folder: Path
    group: int
    phases: Sequence[str] = ()

    def has(self, phase: str) -> bool:
        return not self.phases or phase in self.phases

    def read(self, phase: str, shape: Tree) -> Tree:
        """A phase's last state; `shape` is that of the group's own runs."""
        read_record(self.folder)
        path = state_path(self.folder, self.group)
        return fill_tree(shape, _of_phase(files.load_arrays(path)[0], phase), f"{path}: {phase}")


@dataclass(frozen=True)
class Checkpoint:
    """A group's state file when its training is taken up. Without a file the group is at its beginning."""

    path: Path
    at: Position

    @staticmethod
    def find(path: Path) -> "Checkpoint":
        """Reads how far the group is."""
        at = parse(Position, files.load_arrays(path)[1], str(path)) if path.exists() else BEGINNING
        return Checkpoint(path, at)

    @cached_property
    def _arrays(self) -> Arrays:
        return files.load_arrays(self.path)[0]

    def read(self, phase: str, shape: Tree) -> Tree:
        """A phase's state; `shape` is that of the group's own runs."""
        return fill_tree(shape, _of_phase(self._arrays, phase), str(self.path))


def _of_phase(arrays: Arrays, phase: str) -> dict[str, np.ndarray]:
    start = f"{phase}/"
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
