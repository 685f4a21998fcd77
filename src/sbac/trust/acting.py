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
Act = Callable[[Constants, Float[Array, "policies rows obs"]], Float[Array, "policies rows act"]]


class OnDevice(NamedTuple):
    """How all policies act, for use inside of a compiled loop: `act(constants, states)`, in the networks' units."""

    act: Act
    constants: Constants


class Actors:
    """The policies of an estimate. Those of the package act on the device; any other function acts where it likes."""

    def __init__(self, log: JudgedLog, policies: Sequence[Acts]) -> None:
        self._log, self._policies = log, policies
        self.program: OnDevice | None = None
        together = alike(policies)
        if together is not None:
            kind, names, units = together[0].kind, together[0].arrays, log.units
            constants = {name: jnp.asarray(np.stack([p.arrays[name] for p in together])) for name in names}
            low, high = (jnp.asarray(bound, jnp.float32) for bound in (log.data.action_low, log.data.action_high))

            def one(constants: Constants, observations: Float[Array, "rows obs"]) -> Float[Array, "rows act"]:
                with jax.default_matmul_precision("highest"):
                    actions = jnp.clip(act(kind, constants, observations), low, high)
                return (actions - units.action_mean.astype(np.float32)) / units.action_std.astype(np.float32)

            def everyone(constants: Constants, states: Float[Array, "policies rows obs"]) -> Array:
                mean, std = units.observation_mean.astype(np.float32), units.observation_std.astype(np.float32)
                return jax.vmap(one)(constants, states * std + mean)

            self._one, self._all = jit(one), jit(everyone)
            self.program = OnDevice(everyone, constants)

    def at(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """Each policy's actions at states of its own: (policies, rows, obs) to (policies, rows, act)."""
        if self.program is None:
            observations = self._log.units.observations(states)
            return np.stack([self._log.act(p, rows) for p, rows in zip(self._policies, observations, strict=True)])
        return np.asarray(self._all(self.program.constants, jnp.asarray(states)))

    def at_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """All policies' actions at the same rows of the dataset: (policies, rows, act)."""
        observations = self._log.data.observations[rows]
        if self.program is None:
            return np.stack([self._log.act(policy, observations) for policy in self._policies])
        each, shared = range(len(self._policies)), jnp.asarray(observations)
        return np.stack([np.asarray(self._one(take(self.program.constants, i), shared)) for i in each])

    def tables(self) -> tuple[Float[Array, "policies rows act"], Float[Array, "policies episodes act"]]:
        """The actions after every row of the log and at the first states; the log's own come first."""
        data, own = self._log.data, self._log.own_actions()
        following = data.next_observations[self._log.rows]
        if self.program is None:
            pairs = [own, *(self._log.policy_actions(policy) for policy in self._policies)]
            after, first = (np.stack(column) for column in zip(*pairs, strict=True))
            return jnp.asarray(after), jnp.asarray(first)
        blocks = [jnp.asarray(following[i : i + BLOCK]) for i in range(0, len(following), BLOCK)]
        starts = jnp.asarray(data.initial_observations)
        after, first = [jnp.asarray(own[0])], [jnp.asarray(own[1])]
        for number in range(len(self._policies)):
            constants = take(self.program.constants, number)
            after.append(jnp.concatenate([self._one(constants, block) for block in blocks]))
            first.append(self._one(constants, starts))
        stacked = jnp.stack(after), jnp.stack(first)
        if not all(bool(jnp.isfinite(part).all()) for part in stacked):
            raise UserError("policy: actions that are not finite; its training has diverged")
        return stacked


def alike(policies: Sequence[Any]) -> list[Policy] | None:
    """The policies, if they are the package's own and differ in their numbers alone."""
    found = [policy for policy in policies if isinstance(policy, Policy)]
    forms = {(policy.kind, *((name, policy.arrays[name].shape) for name in sorted(policy.arrays))) for policy in found}
    return found if len(found) == len(policies) and len(forms) == 1 else None
