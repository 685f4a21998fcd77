"""What the policies do, in the networks' units. Policies that differ in their numbers alone act in one program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.nn.typed import jit, take
from sbac.policy import Policy
from sbac.policy.formulas import act
from sbac.trust.log import BLOCK, Acts, JudgedLog

Constants = dict[str, Array]
Act = Callable[..., Float[Array, "policies rows act"]]
"""Of constants, states and the time, which policies do not ask for."""


class OnDevice(NamedTuple):
    """How all policies act inside of a compiled loop: `act(constants, states, time)`, in the networks' units."""

    act: Act
    constants: list[Constants]


class Group(NamedTuple):
    """Policies of the package that differ in their numbers alone."""

    numbers: list[int]
    """Their places among all policies."""
    constants: Constants
    one: Callable[[Constants, Float[Array, "rows obs"]], Float[Array, "rows act"]]
    """How one of them acts: from observations to actions in the networks' units."""


class Actors:
    """The policies of an estimate. Those of the package act on the device; any other function acts where it likes."""

    def __init__(self, log: JudgedLog, policies: Sequence[Acts]) -> None:
        self._log, self._policies = log, policies
        self._groups = [group_of(log, numbers, members) for numbers, members in alike(policies)]
        self._places = {number: (group, i) for group in self._groups for i, number in enumerate(group.numbers)}
        self.program: OnDevice | None = None
        if policies and len(self._places) == len(policies):
            groups, units = self._groups, log.units
            back = np.argsort([number for group in groups for number in group.numbers])

            def everyone(constants: list[Constants], states: Float[Array, "policies rows obs"], _: Any = None) -> Array:
                mean, std = units.observation_mean.astype(np.float32), units.observation_std.astype(np.float32)
                observations = states * std + mean
                if len(groups) == 1:
                    return jax.vmap(groups[0].one)(constants[0], observations)
                parts = [
                    jax.vmap(group.one)(numbers, observations[np.asarray(group.numbers)])
                    for group, numbers in zip(groups, constants, strict=True)
                ]
                return jnp.concatenate(parts)[back]

            self._all = jit(everyone)
            self.program = OnDevice(everyone, [group.constants for group in groups])

    def _act(self, number: int, observations: NDArray[np.float32]) -> Float[Array, "rows act"]:
        """The actions of one policy, in the networks' units."""
        if number not in self._places:
            return jnp.asarray(self._log.act(self._policies[number], observations))
        group, place = self._places[number]
        constants = take(group.constants, place)
        blocks = [jnp.asarray(observations[i : i + BLOCK]) for i in range(0, len(observations), BLOCK)]
        return jnp.concatenate([group.one(constants, block) for block in blocks])

    def at(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Each policy's actions at states of its own: (policies, rows, obs) to (policies, rows, act)."""
        if self.program is None:
            observations = self._log.units.observations(states)
            return np.stack([np.asarray(self._act(number, rows)) for number, rows in enumerate(observations)])
        return np.asarray(self._all(self.program.constants, jnp.asarray(states)))

    def at_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """All policies' actions at the same rows of the dataset: (policies, rows, act)."""
        observations = self._log.data.observations[rows]
        return np.stack([np.asarray(self._act(number, observations)) for number in range(len(self._policies))])

    def tables(self) -> tuple[Float[Array, "policies rows act"], Float[Array, "policies episodes act"]]:
        """The actions after every row of the log and at the first states; the log's own come first."""
        data, own = self._log.data, self._log.own_actions()
        following, everyone = data.next_observations[self._log.rows], range(len(self._policies))
        after = jnp.stack([jnp.asarray(own[0]), *(self._act(number, following) for number in everyone)])
        first = jnp.stack([jnp.asarray(own[1]), *(self._act(number, data.initial_observations) for number in everyone)])
        if not all(bool(jnp.isfinite(part).all()) for part in (after, first)):
            raise UserError("policy: actions that are not finite; its training has diverged")
        return after, first


def group_of(log: JudgedLog, numbers: list[int], policies: Sequence[Policy]) -> Group:
    """Puts the policies' arrays on the device, side by side."""
    kind, names, units = policies[0].kind, policies[0].arrays, log.units
    constants = {name: jnp.asarray(np.stack([p.arrays[name] for p in policies])) for name in names}
    low, high = (jnp.asarray(bound, jnp.float32) for bound in (log.data.action_low, log.data.action_high))

    def one(constants: Constants, observations: Float[Array, "rows obs"]) -> Float[Array, "rows act"]:
        with jax.default_matmul_precision("highest"):
            actions = jnp.clip(act(kind, constants, observations), low, high)
        return (actions - units.action_mean.astype(np.float32)) / units.action_std.astype(np.float32)

    return Group(numbers, constants, jit(one))


def alike(policies: Sequence[Any]) -> list[tuple[list[int], list[Policy]]]:
    """The policies of the package, those together that differ in their numbers alone, with their places."""
    groups: dict[Any, tuple[list[int], list[Policy]]] = {}
    for number, policy in enumerate(policies):
        if isinstance(policy, Policy):
            form = (policy.kind, *((name, policy.arrays[name].shape) for name in sorted(policy.arrays)))
            numbers, members = groups.setdefault(form, ([], []))
            numbers.append(number)
            members.append(policy)
    return list(groups.values())
