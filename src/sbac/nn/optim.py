"""A module with its Adam state: the learning rate is an argument, so that it can differ between runs."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from sbac.nn.typed import Tree, gradient_and_extras

Model = TypeVar("Model")
New = TypeVar("New")
Extras = TypeVar("Extras")
Metrics = dict[str, Float[Array, ""]]
_adam: Any = optax.scale_by_adam()


class Trained(eqx.Module, Generic[Model]):
    """A model and Adam's moments of its gradients."""

    model: Model
    moments: Tree

    @staticmethod
    def create(model: New) -> "Trained[New]":
        """The model as it stands, with moments of zero."""
        return Trained(model, _adam.init(model))

    def step(self, gradients: Model, learning_rate: float | Float[Array, ""]) -> "Trained[Model]":
        def moved(parameter: Array, update: Array) -> Array:
            return parameter - learning_rate * update

        updates, moments = _adam.update(gradients, self.moments)
        return Trained(jax.tree.map(moved, self.model, updates), moments)

    def minimise(
        self, loss: Callable[[Model], tuple[Array, Extras]], learning_rate: float | Float[Array, ""]
    ) -> tuple["Trained[Model]", Extras]:
        """One step down `loss(model) -> (value, extras)`; returns the extras."""
        gradients, extras = gradient_and_extras(loss, self.model)
        return self.step(gradients, learning_rate), extras


def half_cosine(step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """The factor of a learning rate that falls from 1 to 0 over `steps` steps."""
    return 0.5 * (1.0 + jnp.cos(jnp.pi * step / steps))


class Multiplier(eqx.Module):
    """A positive dual variable exp(x), kept inside bounds; `violation` > 0 pushes it up."""

    state: Trained[Array]

    @classmethod
    def create(cls, value: float | Float[Array, ""] = 1.0) -> "Multiplier":
        return cls(Trained.create(jnp.log(jnp.asarray(value, jnp.float32))))

    @property
    def value(self) -> Float[Array, ""]:
        return jnp.exp(self.state.model)

    def update(
        self,
        violation: Float[Array, ""],
        learning_rate: float | Float[Array, ""],
        minimum: float | Float[Array, ""] = 1e-6,
        maximum: float | Float[Array, ""] = 1e6,
    ) -> "Multiplier":
        """Dual ascent on exp(x) * violation."""
        stepped = self.state.step(-violation * self.value, learning_rate)
        bounded = jnp.clip(stepped.model, jnp.log(minimum), jnp.log(maximum))
        return Multiplier(Trained(bounded, stepped.moments))
