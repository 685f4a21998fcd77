"""What the policies do, in the networks' units. Policies that differ in their numbers alone act in one program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.exporting.formulas import write_down
from sbac.exporting.graph import Graph
from sbac.exporting.stablehlo_file import computed
from sbac.nn.typed import jit
from sbac.policy import Policy
from sbac.trust.log import BLOCK, Acts, JudgedLog

Constants = dict[str, Array]
Act = Callable[[Constants, Float[Array, "policies rows obs"]], Float[Array, "policies rows act"]]


class Program(NamedTuple):
    """How all policies act, for use inside of a compiled loop: `act(constants, states)`, in the networks' units."""

    act: Act
    constants: Constants


class Actors:
    """The policies of an estimate. Those of the package act on the device; any other function acts where it likes."""

    def __init__(self, log: JudgedLog, policies: Sequence[Acts]) -> None:
        self._log, self._policies = log, policies
        self._graphs = alike(policies)
        if self._graphs is not None:
            template, units = self._graphs[0], log.units
            numbers = {name: np.stack([g.constants[name] for g in self._graphs]) for name in floats(template)}
            self._constants: Constants = {name: jnp.asarray(values) for name, values in numbers.items()}
            low, high = (jnp.asarray(bound, jnp.float32) for bound in (log.data.action_low, log.data.action_high))

            def one(constants: Constants, observations: Float[Array, "rows obs"]) -> Float[Array, "rows act"]:
                actions = jnp.clip(computed(template, observations, constants), low, high)
                return (actions - units.action_mean.astype(np.float32)) / units.action_std.astype(np.float32)

            def everyone(constants: Constants, states: Float[Array, "policies rows obs"]) -> Array:
                mean, std = units.observation_mean.astype(np.float32), units.observation_std.astype(np.float32)
                return jax.vmap(one)(constants, states * std + mean)

            self._one = jit(one)
            self._all = jit(everyone)
            self.program: Program | None = Program(everyone, self._constants)
        else:
            self.program = None

    def at(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Each policy's actions at states of its own: (policies, rows, obs) to (policies, rows, act)."""
        if self._graphs is None:
            observations = self._log.units.observations(states)
            return np.stack([self._log.act(p, rows) for p, rows in zip(self._policies, observations, strict=True)])
        return np.asarray(self._all(self._constants, jnp.asarray(states)))

    def at_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """All policies' actions at the same rows of the dataset: (policies, rows, act)."""
        observations = self._log.data.observations[rows]
        if self._graphs is None:
            return np.stack([self._log.act(policy, observations) for policy in self._policies])
        shared = jnp.asarray(observations)
        return np.stack([np.asarray(self._one(self._numbers(i), shared)) for i in range(len(self._policies))])

    def _numbers(self, number: int) -> Constants:
        return {name: values[number] for name, values in self._constants.items()}

    def tables(self) -> tuple[Float[Array, "policies rows act"], Float[Array, "policies episodes act"]]:
        """The actions after every row of the log and at the first states; the log's own come first."""
        data, own = self._log.data, self._log.own_actions()
        following = data.next_observations[self._log.rows]
        if self._graphs is None:
            pairs = [own, *(self._log.policy_actions(policy) for policy in self._policies)]
            after, first = (np.stack(column) for column in zip(*pairs, strict=True))
            return jnp.asarray(after), jnp.asarray(first)
        blocks = [jnp.asarray(following[i : i + BLOCK]) for i in range(0, len(following), BLOCK)]
        starts = jnp.asarray(data.initial_observations)
        after, first = [jnp.asarray(own[0])], [jnp.asarray(own[1])]
        for number in range(len(self._policies)):
            constants = self._numbers(number)
            after.append(jnp.concatenate([self._one(constants, block) for block in blocks]))
            first.append(self._one(constants, starts))
        stacked = jnp.stack(after), jnp.stack(first)
        if not all(bool(jnp.isfinite(part).all()) for part in stacked):
            raise UserError("policy: actions that are not finite; its training has diverged")
        return stacked


def floats(graph: Graph) -> list[str]:
    """The constants that are numbers of the policy; the others are axes and sizes, which belong to the program."""
    return [name for name, value in graph.constants.items() if value.dtype == np.float32]


def alike(policies: Sequence[Any]) -> list[Graph] | None:
    """The policies written down, if they are the package's own and differ in their numbers alone."""
    if not policies or not all(isinstance(policy, Policy) for policy in policies):
        return None
    graphs = [write_down(policy) for policy in policies]
    form = shape(graphs[0])
    return graphs if all(shape(graph) == form for graph in graphs[1:]) else None


def shape(graph: Graph) -> tuple[object, ...]:
    """All of a graph but its numbers."""
    numbers = set(floats(graph))
    constants = [(name, value.shape if name in numbers else value.tolist()) for name, value in graph.constants.items()]
    return graph.operations, constants
