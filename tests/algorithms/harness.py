"""Trains an algorithm on the small problem: a few seeds at once, uniform batches, nothing but the method itself."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sbac.algorithms import find
from sbac.algorithms.base import Actor, Batch, Init, Rows, Spec, Step, split
from sbac.config import Config, changed
from sbac.nn import Trained
from sbac.policy import Policy
from tests.algorithms import problem
from tests.compiling import optimised

OBSERVATIONS, ACTIONS = 3, 1
SPEC = Spec(3, 2, jnp.zeros((1, 3)))
"""Of `small_batch`."""


class Log(eqx.Module):
    """The data on the device, and for every `needs` of a phase the rows it may draw."""

    arrays: dict[str, Array]
    rows: dict[str, Array]

    @classmethod
    def of(cls, data: dict[str, np.ndarray]) -> "Log":
        terminal, timeout = data["terminals"] == 1, data["timeouts"] == 1
        following = np.where(terminal | timeout, np.arange(len(terminal)), np.arange(len(terminal)) + 1)
        arrays = {
            **data,
            "next_actions": data["actions"][following],
            "next_observations": np.where(terminal[:, None], data["observations"], data["next_observations"]),
        }
        first = np.concatenate([[True], (terminal | timeout)[:-1]])
        rows = {
            "row": np.arange(len(terminal)),
            "next_state": np.arange(len(terminal)),
            "next_action": np.flatnonzero(~timeout),
            "initial": np.flatnonzero(first),
        }
        return cls({k: jnp.asarray(v) for k, v in arrays.items()}, {k: jnp.asarray(v) for k, v in rows.items()})

    @property
    def spec(self) -> Spec:
        return Spec(OBSERVATIONS, ACTIONS, self.arrays["observations"][:1000])

    def draw(self, key: Array, size: int, needs: str) -> Batch:
        transition_key, row_key, initial_key = split(key, 3)
        i = jax.random.choice(transition_key, self.rows[needs], (size,))
        j = jax.random.choice(row_key, self.rows["row"], (size,))
        k = jax.random.choice(initial_key, self.rows["initial"], (size,))
        a = self.arrays
        return Batch(
            a["observations"][i],
            a["actions"][i],
            a["rewards"][i],
            a["next_observations"][i],
            a["next_actions"][i],
            a["terminals"][i],
            Rows(a["observations"][j], a["actions"][j]),
            a["observations"][k],
        )


@functools.cache
def log() -> Log:
    return Log.of(problem.dataset())


def train(name: str, *, seeds: int = 3, **fields: Any) -> tuple[dict[str, Any], list[Policy]]:
    """The final states of all phases, stacked over seeds, and each seed's policy.

    Starts from the method's `quick` preset; `fields` override it.
    """
    algorithm = find(name)
    config = changed(algorithm.config(), {**algorithm.presets["quick"], "discount": problem.DISCOUNT, **fields})
    past: dict[str, Any] = {}
    actors: Any = None
    for phase, steps in zip(algorithm.phases, config.steps, strict=True):

        def run(
            key: Array, config: Config, past: dict[str, Any], data: Log, phase: Any = phase, steps: int = steps
        ) -> tuple[Any, Actor]:
            init_key, loop_key = split(key, 2)

            def body(step: Array, state: Any) -> Any:
                batch_key, update_key = split(jax.random.fold_in(loop_key, step), 2)
                batch = data.draw(batch_key, config.batch_size, phase.needs)
                return phase.update(config, past, state, batch, update_key, Step(step))[0]

            state = jax.lax.fori_loop(0, steps, body, phase.init(config, data.spec, past, init_key))
            return state, phase.actor(config, past, state)

        keys = jax.vmap(jax.random.key)(jnp.arange(seeds) + 1000 * len(past))
        shared = jax.tree.map(jnp.asarray, config)  # arrays, as the engine passes them: no method may branch on one
        with optimised(True):
            state, actors = jax.jit(jax.vmap(run, in_axes=(0, None, 0, None)))(keys, shared, past, log())
        past[phase.name] = state
    return past, [policy(jax.tree.map(lambda x, i=i: x[i], actors)) for i in range(seeds)]


def policy(actor: Actor, observations: int = OBSERVATIONS, actions: int = ACTIONS) -> Policy:
    """The actor in numpy, with units that need no scaling."""
    arrays = {f"scale/observation_{name}": np.full(observations, v) for name, v in (("mean", 0.0), ("std", 1.0))}
    arrays |= {f"scale/action_{name}": np.full(actions, v) for name, v in (("low", -1.0), ("high", 1.0))}
    for name, net in actor.networks.items():
        for i, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            arrays |= {f"{name}/weights/{i}": np.asarray(weight), f"{name}/biases/{i}": np.asarray(bias)}
        if net.normalise:
            arrays[f"{name}/normalise"] = np.ones(1)
    arrays |= {name: np.asarray(value) for name, value in actor.constants.items()}
    made = Policy(actor.kind, arrays, {})
    assert made.is_finite  # or its file would be refused
    return made


def two_states(init: Init[Any, Any], config: Config, past: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """From two keys: the targets of the second differ from what they follow in the first."""
    make = jax.jit(lambda key: init(config, SPEC, past or {}, key))
    return make(jax.random.key(0)), make(jax.random.key(1))


def normal(key: Array, *shape: int) -> np.ndarray:
    """The noise that a method draws with this key."""
    return np.asarray(jax.random.normal(key, shape), np.float64)


def with_moments(trained: Trained[Any]) -> Trained[Any]:
    """The model as it is, with Adam's moments after a gradient of ones: the next step depends on the gradient's size.

    From moments of zero Adam's step is the sign of the gradient, which says little of the loss and depends on rounding
    where the gradient is small.
    """
    return trained.step(jax.tree.map(jnp.ones_like, trained.model), 0.0)


def gradient(trained: Trained[Any]) -> Any:
    """The gradient of the last step, if it was the first one: Adam's first moment is a tenth of it."""
    return jax.tree.map(lambda moment: 10 * moment, trained.moments.mu)


def small_batch(seed: int = 0, size: int = 6, actions: int = 2) -> Batch:
    """Random transitions, a third of them terminal, for checks of losses and gradients."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return jnp.asarray(rng.standard_normal(shape), jnp.float32)

    def bounded() -> Array:
        return jnp.tanh(normal(size, actions))

    return Batch(
        normal(size, 3),
        bounded(),
        normal(size),
        normal(size, 3),
        bounded(),
        jnp.asarray(np.arange(size) % 3 == 0, jnp.float32),
        Rows(normal(size, 3), bounded()),
        normal(size, 3),
    )


def numeric_gradient(loss: Callable[[Any], float], model: Any, size: float = 1e-5) -> list[np.ndarray]:
    """Central differences of a float64 numpy loss in every number of a pytree of arrays, leaf by leaf."""
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda x: np.asarray(x, np.float64), model))
    slopes: list[np.ndarray] = []
    for k, leaf in enumerate(leaves):
        slope = np.zeros_like(leaf)
        for index in np.ndindex(leaf.shape):
            ends = []
            for sign in (1, -1):
                moved = leaf.copy()
                moved[index] += sign * size
                ends.append(loss(jax.tree.unflatten(structure, [*leaves[:k], moved, *leaves[k + 1 :]])))
            slope[index] = (ends[0] - ends[1]) / (2 * size)
        slopes.append(slope)
    return slopes


def assert_loss(loss: Callable[[Any], Array], expected: Callable[[Any], float], model: Any) -> None:
    """A loss and its gradient agree with a float64 numpy loss and its central differences."""
    value, gradient = jax.jit(jax.value_and_grad(loss))(model)
    np.testing.assert_allclose(value, expected(jax.tree.map(np.asarray, model)), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(jax.tree.leaves(gradient), numeric_gradient(expected, model), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def assert_target(target: Array, batch: Batch, following: np.ndarray, tolerance: float = 1e-5) -> None:
    """r + 0.9 times what follows, and r alone at the end."""
    expected = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * following)
    np.testing.assert_allclose(target, expected, rtol=tolerance, atol=tolerance)


def assert_best(actions: np.ndarray, candidates: np.ndarray, values: np.ndarray) -> None:
    """Each action is one of the candidates (count, states, act), and none has a higher value by more than rounding."""
    distances = np.abs(candidates - actions).max(-1)
    assert (distances.min(0) < 2e-5).all()
    taken = np.where(distances < 2e-5, values, -np.inf).max(0)
    np.testing.assert_allclose(taken, values.max(0), rtol=1e-5, atol=1e-5)


def are_same(a: Any, b: Any) -> bool:
    """Whether two trees of arrays are equal, number by number."""
    return all(bool((x == y).all()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
