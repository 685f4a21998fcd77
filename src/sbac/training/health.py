"""Which runs of a program still have finite numbers, and the last policies of those that have not.

Runs of one program do not touch each other, so one whose loss is NaN or infinite harms only itself. It is noticed at
the next log: the policies of the log before lie on the device, and the run keeps that one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbac.algorithms.base import Actor, Metrics
from sbac.nn.typed import jit


class Moment(NamedTuple):
    """The policies of all runs of a phase, stacked, at a step."""

    phase: int
    step: int
    actors: Actor


def _kept(actors: Actor, metrics: Metrics) -> tuple[Actor, Array]:
    """A copy of the policies, which outlives the state that they are a part of; and which runs are finite."""

    def finite(x: Array) -> Array:
        return jnp.isfinite(x).all(axis=tuple(range(1, x.ndim)))

    flags = [finite(x) for x in jax.tree.leaves((actors, metrics))]
    return jax.tree.map(jnp.copy, actors), jnp.stack(flags).all(axis=0)


keep = jit(_kept)


class Health:
    """The runs of a program that have failed so far, and the last moment that was looked at."""

    def __init__(self, distinct: list[list[int]], failed: set[int]) -> None:
        """`distinct`: for each phase, the row of each run. `failed`: the runs that had failed by the checkpoint."""
        self._distinct = distinct
        self._failed = failed
        self.last: Moment | None = None

    def begin(self, moment: Moment) -> None:
        """Takes the policies that a phase starts from."""
        actors, _ = keep(moment.actors, {})
        self.last = moment._replace(actors=actors)

    def look(self, phase: int, step: int, actors: Actor, finite: np.ndarray) -> tuple[list[int], Moment | None]:
        """The runs that have failed since the last moment, and that moment. `actors` are copies."""
        failed = [run for run, row in enumerate(self._distinct[phase]) if not finite[row] and run not in self._failed]
        self._failed.update(failed)
        before, self.last = self.last, Moment(phase, step, actors)
        return failed, before
