"""Checkpoints: how far a group of runs is, its states on disk as named arrays, and where it begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbac import files
from sbac.errors import UserError, remedy
from sbac.nn import Tree
from sbac.nn.typed import leaf_names
from sbac.policy import Policy
from sbac.records import as_json, parse

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, order=True)
class Position:
    """How far a group is: its phase and the steps done in it."""

    phase: int
    step: int


BEGINNING = Position(0, 0)
START_AGAIN = "restore the file, or remove it and its runs are trained from the start"


def state_path(folder: Path, group: int) -> Path:
    return folder / "checkpoint" / f"state-{group}.safetensors"


def write_state(path: Path, at: Position, states: Mapping[str, Arrays], failed: Mapping[str, Policy]) -> None:
    """`states`: the arrays of each phase up to this position; `failed`: the last good policies of runs, by label."""
    arrays = {f"{phase}/{name}": value for phase, leaves in states.items() for name, value in leaves.items()}
    meta = as_json(at)
    if failed:
        kept = [KeptPolicy(label, policy.kind, policy.config) for label, policy in failed.items()]
        meta["failed"] = [as_json(entry) for entry in kept]
        for i, policy in enumerate(failed.values()):
            arrays |= {f"{_kept(i)}/{name}": value for name, value in policy.arrays.items()}
    files.save_arrays(path, arrays, meta)


def _kept(number: int | str = "") -> str:
    """Where the arrays of a policy that was kept lie: in no phase's place."""
    return f"failed:{number}"


@dataclass(frozen=True)
class KeptPolicy:
    """The last good policy of a run that failed, without its arrays."""

    label: str
    kind: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Meta:
    """What a state file says beside its arrays."""

    phase: int
    step: int
    failed: list[KeptPolicy] = field(default_factory=list[KeptPolicy])


@dataclass(frozen=True)
class Checkpoint:
    """A group's state file when its training is taken up. Without a file the group is at its beginning."""

    path: Path
    at: Position
    kept: Sequence[KeptPolicy] = ()
    """Of the runs that had failed."""

    @staticmethod
    def find(path: Path, phases: int) -> "Checkpoint":
        """Reads how far the group is; `phases`: how many its method has."""
        if not path.exists():
            return Checkpoint(path, BEGINNING)
        with remedy(START_AGAIN):
            arrays, header = files.load_arrays(path)
            meta = parse(Meta, header, str(path))
            if not 0 <= meta.phase <= phases or not 0 <= meta.step < 2**31:
                raise UserError(f"{path}: phase {meta.phase}, step {meta.step}; expected a phase from 0 to {phases}")
            # A position before what was trained would train it again, over policies that are finished.
            begun = len({name.split("/")[0] for name in arrays if not name.startswith(_kept())})
            if begun > meta.phase + (meta.step > 0 or meta.phase == 0):
                raise UserError(f"{path}: phase {meta.phase}, step {meta.step}, but it holds states of {begun} phases")
            return Checkpoint(path, Position(meta.phase, meta.step), meta.failed)

    @cached_property
    def failed(self) -> dict[str, Policy]:
        """The last good policies of the runs that had failed, by label."""
        policies: dict[str, Policy] = {}
        with remedy(START_AGAIN):
            for i, entry in enumerate(self.kept):
                try:
                    policies[entry.label] = Policy(entry.kind, _of_phase(self._arrays, _kept(i)), entry.config)
                except (KeyError, ValueError) as error:
                    raise UserError(f"{self.path}: failed[{i}] is no policy ({error})") from None
        return policies

    @cached_property
    def _arrays(self) -> Arrays:
        return files.load_arrays(self.path)[0]

    def arrays(self, phase: str) -> Arrays:
        return _of_phase(self._arrays, phase)

    def read(self, phase: str, shape: Tree) -> Tree:
        """A phase's state; `shape` is that of the group's own runs."""
        return fill_tree(shape, self.arrays(phase), f"{self.path}: {phase}")


def _of_phase(arrays: Arrays, phase: str) -> dict[str, np.ndarray]:
    start = f"{phase}/"
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}


def tree_arrays(tree: Tree) -> dict[str, np.ndarray]:
    return dict(zip(leaf_names(tree), map(np.asarray, jax.device_get(jax.tree.leaves(tree))), strict=True))


def fill_tree(shape: Tree, arrays: Arrays, where: str) -> Tree:
    """A tree of the given structure with leaves from `arrays`, checked."""
    leaves: list[Array] = []
    for name, want in zip(leaf_names(shape), jax.tree.leaves(shape), strict=True):
        have = arrays.get(name)
        if have is None or have.shape != want.shape:
            raise UserError(f"{where}: {name} is {'missing' if have is None else have.shape}, expected {want.shape}")
        leaves.append(jnp.asarray(have, want.dtype))
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)
