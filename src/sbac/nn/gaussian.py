"""The tanh-Gaussian: a Gaussian over pre-tanh actions u, squashed to a = tanh(u) in (-1, 1).

Numerical choices, made once for the whole project:
- An action is clipped to +-(1 - ACTION_EPSILON) before atanh, wherever a density is taken. Densities of two
  policies at the same action are therefore taken at the same u, and in their ratio the tanh term cancels exactly.
- log sigma is squashed into [LOG_STD_MIN, LOG_STD_MAX] by a tanh, so densities and their gradients stay bounded.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.mlp import MLP

ACTION_EPSILON = 1e-3
LOG_STD_MIN = -5.0
LOG_STD_MAX = 2.0


def pre_tanh(actions: Float[Array, "*batch act"]) -> Float[Array, "*batch act"]:
    """u = atanh(a), with a clipped away from the bounds."""
    return jnp.arctanh(jnp.clip(actions, -1 + ACTION_EPSILON, 1 - ACTION_EPSILON))


def log_tanh_slope(u: Float[Array, "*batch act"]) -> Float[Array, "*batch act"]:
    """log(1 - tanh(u)^2), in the form that neither under- nor overflows."""
    return 2.0 * (math.log(2.0) - u - jax.nn.softplus(-2.0 * u))


def bounded_log_std(raw: Float[Array, "*batch act"]) -> Float[Array, "*batch act"]:
    """Squashes a network's output into [LOG_STD_MIN, LOG_STD_MAX]."""
    return LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (jnp.tanh(raw) + 1.0)


class ActionDensity(eqx.Module):
    """A density over pre-tanh actions u, for a batch of states, and that of a = tanh(u) which follows from it."""

    @abstractmethod
    def log_density(self, u: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        """log density of u, before the tanh: use it for ratios, where the tanh term cancels."""

    @abstractmethod
    def sample_pre_tanh(self, key: PRNGKeyArray, shape: Sequence[int] = ()) -> Float[Array, "..."]:
        """u; `shape` adds leading axes."""

    @abstractmethod
    def mode(self) -> Float[Array, "*batch act"]:
        """A most likely action: the single one where one is needed."""

    def log_prob(self, actions: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        """log density of the (clipped) action itself."""
        return self.log_prob_pre_tanh(pre_tanh(actions))

    def log_prob_pre_tanh(self, u: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        """log density of a = tanh(u), for u that is known and need not be inverted."""
        return self.log_density(u) - log_tanh_slope(u).sum(-1)

    def sample(self, key: PRNGKeyArray, shape: Sequence[int] = ()) -> Float[Array, "..."]:
        """a = tanh(u)."""
        return jnp.tanh(self.sample_pre_tanh(key, shape))


class Gaussian(ActionDensity):
    """A diagonal Gaussian. Its samples can be differentiated through its parameters."""

    mean: Float[Array, "*batch act"]
    log_std: Float[Array, "*batch act"]

    def log_density(self, u: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        z = (u - self.mean) * jnp.exp(-self.log_std)
        return -(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)

    def sample_pre_tanh(self, key: PRNGKeyArray, shape: Sequence[int] = ()) -> Float[Array, "..."]:
        noise = jax.random.normal(key, (*shape, *self.mean.shape))
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "*batch act"]:
        return jnp.tanh(self.mean)


class GaussianPolicy(eqx.Module):
    """An MLP from observations to a tanh-Gaussian."""

    net: MLP

    @classmethod
    def create(cls, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int) -> "GaussianPolicy":
        return cls(MLP.create(key, observations, hidden, 2 * actions))

    def __call__(
        self, observations: Float[Array, "*batch obs"], dropout: float = 0.0, key: PRNGKeyArray | None = None
    ) -> Gaussian:
        """With a key, the output of the network with dropout: for training."""
        mean, raw = jnp.split(self.net(observations, dropout=dropout, key=key), 2, axis=-1)
        return Gaussian(mean, bounded_log_std(raw))


class DeterministicPolicy(eqx.Module):
    """An MLP from observations to a = tanh(u)."""

    net: MLP

    @classmethod
    def create(
        cls, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int, **options: Any
    ) -> "DeterministicPolicy":
        """`options` are those of `MLP.create`."""
        return cls(MLP.create(key, observations, hidden, actions, **options))

    def __call__(self, observations: Float[Array, "*batch obs"]) -> Float[Array, "*batch act"]:
        return jnp.tanh(self.net(observations))
