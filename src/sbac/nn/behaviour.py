"""Models of the behaviour policy mu(a|s), from one tanh-Gaussian to a mixture.

Every one is an `ActionDensity` with the conventions of `sbac.nn.gaussian`. Only the Gaussian's samples can be
differentiated through its parameters; the others serve as clones of data.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.gaussian import ActionDensity, GaussianPolicy, bounded_log_std
from sbac.nn.mlp import MLP

COMPONENTS = 5


@runtime_checkable
class Behaviour(Protocol):
    """A trainable mu: a pytree of arrays, called with observations."""

    def __call__(self, observations: Float[Array, "*batch obs"]) -> ActionDensity: ...


def log_normal(u: Float[Array, "..."], mean: Float[Array, "..."], log_std: Float[Array, "..."]) -> Float[Array, "..."]:
    """Log density of a normal number, elementwise."""
    return -0.5 * ((u - mean) * jnp.exp(-log_std)) ** 2 - log_std - 0.5 * math.log(2 * math.pi)


# --- Mixtures ----------------------------------------------------------------------------------------------------


class Mixture(ActionDensity):
    """A mixture of diagonal Gaussians: the dimensions of an action come from one component."""

    logits: Float[Array, "*batch parts"]
    mean: Float[Array, "*batch parts act"]
    log_std: Float[Array, "*batch parts act"]

    def log_density(self, u: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        each = log_normal(u[..., None, :], self.mean, self.log_std).sum(-1)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + each, axis=-1)

    def sample_pre_tanh(self, key: PRNGKeyArray, shape: Sequence[int] = ()) -> Float[Array, "..."]:
        which_key, noise_key = jax.random.split(key)
        which = jax.random.categorical(which_key, self.logits, shape=(*shape, *self.logits.shape[:-1]))
        chosen = jax.nn.one_hot(which, self.logits.shape[-1])[..., None]
        mean, log_std = (self.mean * chosen).sum(-2), (self.log_std * chosen).sum(-2)
        return mean + jnp.exp(log_std) * jax.random.normal(noise_key, mean.shape)

    def mode(self) -> Float[Array, "*batch act"]:
        """tanh of the component mean at which the whole mixture is densest."""
        centres = jnp.moveaxis(self.mean, -2, 0)
        best = jax.vmap(self.log_density)(centres).argmax(0)
        return jnp.tanh(jnp.take_along_axis(self.mean, best[..., None, None], axis=-2)[..., 0, :])


class MixturePolicy(eqx.Module):
    net: MLP
    actions: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int) -> "MixturePolicy":
        net_key, spread_key = jax.random.split(key)
        net = MLP.create(net_key, observations, hidden, COMPONENTS * (1 + 2 * actions))
        # Components that start alike stay alike for long, so their means start apart.
        spread = jax.random.normal(spread_key, (COMPONENTS * actions,))
        biases = [*net.biases[:-1], net.biases[-1].at[COMPONENTS : COMPONENTS * (1 + actions)].set(spread)]
        return cls(MLP(net.weights, biases), actions)

    def __call__(self, observations: Float[Array, "*batch obs"]) -> Mixture:
        logits, mean, raw = jnp.split(self.net(observations), [COMPONENTS, COMPONENTS * (1 + self.actions)], axis=-1)
        shape = (*logits.shape, self.actions)
        return Mixture(logits, mean.reshape(shape), bounded_log_std(raw).reshape(shape))


class MixturePerDim(ActionDensity):
    """A mixture for every dimension of the action by itself, independent of the others (Fisher-BRC)."""

    parts: Mixture  # one action dimension each: (*batch, act, parts, 1)

    def log_density(self, u: Float[Array, "*batch act"]) -> Float[Array, "*batch"]:
        return self.parts.log_density(u[..., None]).sum(-1)

    def sample_pre_tanh(self, key: PRNGKeyArray, shape: Sequence[int] = ()) -> Float[Array, "..."]:
        return self.parts.sample_pre_tanh(key, shape)[..., 0]

    def mode(self) -> Float[Array, "*batch act"]:
        return self.parts.mode()[..., 0]


class MixturePerDimPolicy(eqx.Module):
    net: MLP
    actions: int = eqx.field(static=True)

    @classmethod
    def create(cls, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int) -> "MixturePerDimPolicy":
        net = MLP.create(key, observations, hidden, 3 * actions * COMPONENTS)
        spread = jnp.tile(jnp.linspace(-1.0, 1.0, COMPONENTS), actions)
        size = actions * COMPONENTS
        biases = [*net.biases[:-1], net.biases[-1].at[size : 2 * size].set(spread)]
        return cls(MLP(net.weights, biases), actions)

    def __call__(self, observations: Float[Array, "*batch obs"]) -> MixturePerDim:
        outputs = self.net(observations)
        logits, mean, raw = jnp.split(outputs.reshape(*outputs.shape[:-1], 3 * self.actions, COMPONENTS), 3, axis=-2)
        return MixturePerDim(Mixture(logits, mean[..., None], bounded_log_std(raw)[..., None]))


# --- By name -----------------------------------------------------------------------------------------------------

BehaviourKind = Literal["gaussian", "mixture-per-dim", "mixture"]
Create = Callable[[PRNGKeyArray, int, Sequence[int], int], Behaviour]
MODELS: dict[str, Create] = {
    "gaussian": GaussianPolicy.create,
    "mixture-per-dim": MixturePerDimPolicy.create,
    "mixture": MixturePolicy.create,
}


def create(kind: str, key: PRNGKeyArray, observations: int, hidden: Sequence[int], actions: int) -> Behaviour:
    return MODELS[kind](key, observations, hidden, actions)
