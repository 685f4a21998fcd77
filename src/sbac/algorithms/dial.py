"""The dial: one policy for a whole range of alpha. The position of alpha in the range is one more input of pi.

In training every row of a batch has an alpha of its own, drawn evenly on a logarithmic scale from a sixteenth of the
config's alpha to four times it. The policy that leaves training stands at the config's alpha: the first layer's bias
holds the dial's part, and `Policy.at` moves it.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Actor
from sbac.nn import MLP, Gaussian, GaussianPolicy

LOWEST, HIGHEST = 1 / 16, 4.0
"""The range, in units of the config's alpha."""
RESTING = -1.0 + 2.0 * math.log(1 / LOWEST) / math.log(HIGHEST / LOWEST)
"""Where the config's alpha stands on the dial, which goes from -1 to 1."""


class DialledPolicy(GaussianPolicy):
    """A policy with the dial among its inputs, at one position for each row, or for all."""

    dial: Float[Array, "*batch"]

    def __call__(
        self, observations: Float[Array, "*batch obs"], dropout: float = 0.0, key: PRNGKeyArray | None = None
    ) -> Gaussian:
        column = jnp.broadcast_to(self.dial, observations.shape[:-1])[..., None]
        return GaussianPolicy(self.net)(jnp.concatenate([observations, column], axis=-1), dropout, key)


def positions(key: PRNGKeyArray, count: int) -> Float[Array, " count"]:
    """Drawn evenly over the dial."""
    return jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0)


def factors(dial: Float[Array, " count"]) -> Float[Array, " count"]:
    """alpha at these positions, in units of the config's."""
    return LOWEST * (HIGHEST / LOWEST) ** (0.5 * (dial + 1.0))


def at_position(policy: GaussianPolicy, dial: Float[Array, "*batch"] | None) -> GaussianPolicy:
    """The policy with its dial at these positions; a policy without a dial as it is."""
    return policy if dial is None else DialledPolicy(policy.net, dial)


def widened(policy: GaussianPolicy) -> GaussianPolicy:
    """The policy with one more input, which does nothing yet."""
    first, *others = policy.net.weights
    weights = [jnp.concatenate([first, jnp.zeros((1, first.shape[1]))]), *others]
    return GaussianPolicy(dataclasses.replace(policy.net, weights=weights))


def dialled_actor(policy: GaussianPolicy, alpha: float | Float[Array, ""]) -> Actor:
    """The policy at the config's alpha, with what it takes to move it."""
    (first, *weights), (bias, *biases) = policy.net.weights, policy.net.biases
    row = first[-1]
    net = MLP([first[:-1], *weights], [bias + RESTING * row, *biases], policy.net.normalise)
    bounds = jnp.asarray([LOWEST, HIGHEST]) * alpha
    return Actor("tanh-gaussian", {"policy": net}, {"dial/row": row, "dial/range": bounds})
