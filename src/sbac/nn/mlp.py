"""Multi-layer perceptrons as plain pytrees of arrays, so that they vmap over runs and over ensembles."""

from collections.abc import Sequence
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class MLP(eqx.Module):
    """Dense layers with ReLU between them; `normalise` adds LayerNorm after each ReLU (ReBRAC's critic)."""

    weights: list[Array]
    biases: list[Array]
    normalise: bool = eqx.field(static=True, default=False)

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        normalise: bool = False,
        last_scale: float = 1.0,
    ) -> "MLP":
        """Uniform fan-in initialisation; `last_scale` shrinks the last layer (small first outputs)."""
        sizes = [inputs, *hidden, outputs]
        keys = jax.random.split(key, len(sizes) - 1)
        weights: list[Array] = []
        biases: list[Array] = []
        for i, (fan_in, fan_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
            last = i == len(sizes) - 2
            limit = (last_scale if last else 1.0) / jnp.sqrt(fan_in)
            weights.append(jax.random.uniform(keys[i], (fan_in, fan_out), minval=-limit, maxval=limit))
            biases.append(jnp.zeros(fan_out))
        return cls(weights, biases, normalise)

    def __call__(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*batch outputs"]:
        """Concatenates its inputs along the last axis and applies the layers."""
        x = inputs[0] if len(inputs) == 1 else jnp.concatenate(inputs, axis=-1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jax.nn.relu(x @ weight + bias)
            if self.normalise:
                x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        return x @ self.weights[-1] + self.biases[-1]

    def scalar(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*batch"]:
        """The single output, without its last axis."""
        return self(*inputs)[..., 0]


Tree = TypeVar("Tree")


def polyak(target: Tree, online: Tree, rate: float | Array) -> Tree:
    """target <- (1 - rate) target + rate online, leaf by leaf."""
    return jax.tree.map(lambda t, o: t + rate * (o - t), target, online)
