"""The runs of a program on several devices of one machine: an equal number on each, side by side.

Runs do not depend on each other, so every device runs the program of its own runs and nothing passes between them. The
data lie on every device. Where the runs do not divide evenly, the last one is trained as often as fills the devices:
no device waits longer for it, and the copies are dropped. With one device nothing is changed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

Value = TypeVar("Value")
Item = TypeVar("Item")

_jax: Any = jax
AXIS = "runs"
Device = Any
"""A `jax.Device`, which JAX leaves without a type."""


def local_devices() -> list[Device]:
    return _jax.local_devices()


class Devices:
    """The devices that the runs of a program are spread over: no more than there are runs."""

    def __init__(self, devices: Sequence[Device], runs: int) -> None:
        used = list(devices)[: max(1, min(len(devices), runs))]
        self.count = len(used)
        self._mesh = _jax.sharding.Mesh(np.array(used), (AXIS,)) if self.count > 1 else None

    def filled(self, rows: Sequence[Item]) -> list[Item]:
        """The rows, the last one repeated until every device has the same number."""
        count = math.ceil(len(rows) / self.count) * self.count
        return [*rows, *([rows[-1]] * (count - len(rows)))]

    def spread(self, tree: Value) -> Value:
        """Lays the rows of every array on the devices, in equal shares."""
        return self._put(tree, _jax.sharding.PartitionSpec(AXIS))

    def copied(self, tree: Value) -> Value:
        return self._put(tree, _jax.sharding.PartitionSpec())

    def each(self, function: Callable[..., Value], spread: Sequence[bool]) -> Callable[..., Value]:
        """The function on every device, with its rows of the arguments that are spread, and the others as they are."""
        if self._mesh is None:
            return function
        share, all_of_it = _jax.sharding.PartitionSpec(AXIS), _jax.sharding.PartitionSpec()
        specs = tuple(share if is_spread else all_of_it for is_spread in spread)
        return _jax.shard_map(function, mesh=self._mesh, in_specs=specs, out_specs=share, check_vma=False)

    def _put(self, tree: Value, spec: Any) -> Value:
        if self._mesh is None:
            return tree
        return _jax.device_put(tree, _jax.sharding.NamedSharding(self._mesh, spec))
