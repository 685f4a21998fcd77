"""Multi-layer perceptrons as plain pytrees of arrays, so that they vmap over runs and over ensembles."""

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.nn.typed import with_slope

Precision = Literal["float32", "tf32", "bfloat16"]
_precision: ContextVar[Precision] = ContextVar("precision", default="tf32")


@contextmanager
def precision(name: Precision) -> Generator[None]:
    """Sets what the products of networks traced inside are computed in.

    float32; tf32: float32 with the mantissa that the tensor cores of a GPU round factors to (elsewhere float32);
    bfloat16: hidden layers, factors and results, and tf32 for the last layer. Weights, Adam and losses are always
    float32, and products are summed in it.
    """
    token = _precision.set(name)
    try:
        with jax.default_matmul_precision("highest" if name == "float32" else "default"):
            yield
    finally:
        _precision.reset(token)


def _normalised(x: Array) -> tuple[Array, tuple[Array, Array]]:
    """Each row less its mean, divided by its deviation."""
    full = x.astype(jnp.float32)
    mean = full.mean(-1, keepdims=True)
    # Both means in one pass over x, which is most of the cost.
    variance = jnp.maximum((full * full).mean(-1, keepdims=True) - mean * mean, 0.0)
    scale = jax.lax.rsqrt(variance + 1e-5)
    y = ((full - mean) * scale).astype(x.dtype)
    return y, (y, scale)


def _slope(kept: tuple[Array, Array], above: Array) -> Array:
    """Of the loss in x, from its slope in the result: one pass, where differentiating the formula takes several."""
    y, scale = (part.astype(jnp.float32) for part in kept)
    g = above.astype(jnp.float32)
    along = g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)
    return (scale * along).astype(above.dtype)


layer_norm = with_slope(_normalised, _slope)


class MLP(eqx.Module):
    """Dense layers with ReLU between them; `normalise` adds LayerNorm after each ReLU.

    Where `scales` and `offsets` are not empty, LayerNorm's output is multiplied by the one and the other is added.
    """

    weights: list[Array]
    biases: list[Array]
    normalise: bool = eqx.field(static=True, default=False)
    scales: list[Array] = eqx.field(default_factory=list[Array])
    offsets: list[Array] = eqx.field(default_factory=list[Array])

    @classmethod
    def create(
        cls,
        key: PRNGKeyArray,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        normalise: bool = False,
        learned_norm: bool = False,
        last_scale: float = 1.0,
        hidden_bias: float = 0.0,
    ) -> "MLP":
        """Uniform fan-in initialisation; `last_scale` shrinks the last layer (small first outputs).

        `learned_norm` gives LayerNorm a scale and an offset that are learned.
        """
        sizes = [inputs, *hidden, outputs]
        shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
        # One draw for all layers: a draw each would multiply the time to compile.
        cuts = np.cumsum([fan_in * fan_out for fan_in, fan_out in shapes])
        draws = jnp.split(jax.random.uniform(key, (cuts[-1],), minval=-1.0, maxval=1.0), cuts[:-1])
        scales = [1.0] * (len(shapes) - 1) + [last_scale]
        weights = [
            draw.reshape(shape) * (scale / math.sqrt(shape[0]))
            for draw, shape, scale in zip(draws, shapes, scales, strict=True)
        ]
        biases = [*(jnp.full(size, hidden_bias) for size in hidden), jnp.zeros(outputs)]
        learned = list(hidden) if normalise and learned_norm else []
        return cls(weights, biases, normalise, [jnp.ones(n) for n in learned], [jnp.zeros(n) for n in learned])

    def __call__(
        self, *inputs: Float[Array, "*batch _"], dropout: float = 0.0, key: PRNGKeyArray | None = None
    ) -> Float[Array, "*batch outputs"]:
        """Concatenates its inputs along the last axis and applies the layers.

        With a `key`, a share `dropout` of the hidden units is set to 0 and the others are scaled up, so that the mean
        stays the same: for training. Without a key nothing is dropped.
        """
        x = inputs[0] if len(inputs) == 1 else jnp.concatenate(inputs, axis=-1)
        hidden = jnp.bfloat16 if _precision.get() == "bfloat16" else x.dtype
        full, x = x.dtype, x.astype(hidden)
        for layer, (weight, bias) in enumerate(zip(self.weights[:-1], self.biases[:-1], strict=True)):
            x = jax.nn.relu(x @ weight.astype(hidden) + bias.astype(hidden))
            if self.normalise:
                x = layer_norm(x)
                if self.scales:
                    x = (x.astype(full) * self.scales[layer] + self.offsets[layer]).astype(hidden)
            if key is not None:
                kept = jax.random.bernoulli(jax.random.fold_in(key, layer), 1.0 - dropout, x.shape)
                x = jnp.where(kept, x / (1.0 - dropout), 0.0)
        return x.astype(full) @ self.weights[-1] + self.biases[-1]

    def scalar(self, *inputs: Float[Array, "*batch _"]) -> Float[Array, "*batch"]:
        """The single output, without its last axis."""
        return self(*inputs)[..., 0]


Model = TypeVar("Model")


def polyak(target: Model, online: Model, rate: float | Float[Array, ""]) -> Model:
    """target <- (1 - rate) target + rate online, leaf by leaf."""

    def nearer(slow: Array, fast: Array) -> Array:
        return slow + rate * (fast - slow)

    return jax.tree.map(nearer, target, online)
