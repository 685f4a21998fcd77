"""Q-functions: an ensemble of MLPs over (s, a), one leading axis for the members."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.mlp import MLP


class Critic(eqx.Module):
    """`members` Q-networks, evaluated together; the first axis of the output runs over them."""

    nets: MLP

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        observations: int,
        actions: int,
        hidden: Sequence[int],
        members: int = 2,
        **options: Any,
    ) -> "Critic":
        """`options` are those of `MLP.create`."""

        def one(k: PRNGKeyArray) -> MLP:
            return MLP.create(k, observations + actions, hidden, 1, **options)

        return cls(jax.vmap(one)(jax.random.split(key, members)))

    def __call__(
        self, observations: Float[Array, "*batch obs"], actions: Float[Array, "*batch act"]
    ) -> Float[Array, "members *batch"]:
        def one(net: MLP) -> Float[Array, "*batch"]:
            return net.scalar(observations, actions)

        return jax.vmap(one)(self.nets)

    def minimum(
        self, observations: Float[Array, "*batch obs"], actions: Float[Array, "*batch act"]
    ) -> Float[Array, "*batch"]:
        """The smallest of the members: the usual guard against over-estimation."""
        return self(observations, actions).min(axis=0)

    def lower_bound(
        self,
        observations: Float[Array, "*batch obs"],
        actions: Float[Array, "*batch act"],
        deviations: float | Float[Array, ""],
    ) -> Float[Array, "*batch"]:
        """The members' mean less some of their standard deviations."""
        values = self(observations, actions)
        # The small number keeps the slope of the root finite where all members agree.
        return values.mean(axis=0) - deviations * jnp.sqrt(values.var(axis=0) + 1e-12)
