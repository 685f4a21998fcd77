"""A module with its Adam state: the learning rate is an argument, so that it can differ between runs."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

Model = TypeVar("Model")
Metrics = dict[str, Array]
_adam = optax.scale_by_adam()


class Trained(eqx.Module, Generic[Model]):
    """A model and the moments Adam keeps of its gradients."""

    model: Model
    moments: Any

    @classmethod
    def create(cls, model: Model) -> "Trained[Model]":
        return cls(model, _adam.init(model))  # pyright: ignore[reportArgumentType]

    def step(self, gradients: Model, learning_rate: float | Array) -> "Trained[Model]":
        """One Adam step down the gradients."""
        updates, moments = _adam.update(gradients, self.moments)  # pyright: ignore[reportArgumentType]
        model = jax.tree.map(lambda p, u: p - learning_rate * u, self.model, updates)
        return Trained(model, moments)

    def minimise(
        self, loss: Callable[[Model], tuple[Array, Any]], learning_rate: float | Array
    ) -> tuple["Trained[Model]", Any]:
        """One step down `loss(model) -> (value, extras)`; returns the extras."""
        gradients, extras = jax.grad(loss, has_aux=True)(self.model)
        return self.step(gradients, learning_rate), extras


def half_cosine(step: Array, steps: int) -> Array:
    """What a learning rate is multiplied with that falls from 1 to 0 over `steps` steps."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * step / steps))


class Multiplier(eqx.Module):
    """A positive dual variable exp(x), kept inside bounds; `violation` > 0 pushes it up."""

    state: Trained[Array]

    @classmethod
    def create(cls, value: float | Array = 1.0) -> "Multiplier":
        return cls(Trained.create(jnp.log(jnp.asarray(value, jnp.float32))))

    @property
    def value(self) -> Array:
        return jnp.exp(self.state.model)

    def update(
        self,
        violation: Array,
        learning_rate: float | Array,
        minimum: float = 1e-6,
        maximum: float = 1e6,
    ) -> "Multiplier":
        """Dual ascent on exp(x) * violation."""
        stepped = self.state.step(-violation * self.value, learning_rate)
        bounded = jnp.clip(stepped.model, jnp.log(minimum), jnp.log(maximum))
        return Multiplier(Trained(bounded, stepped.moments))
