"""What lies on the device while policies learn in an environment: their states and replay buffers, in one program."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Actor, Algorithm, Batch, Rows, Spec, Step
from sbac.config import Config
from sbac.nn import Tree
from sbac.nn.typed import jit
from sbac.policy import Floats
from sbac.training.grid import Member, stack


class Sizes(NamedTuple):
    """Of an observation and an action."""

    observations: int
    actions: int

    @property
    def width(self) -> int:
        """Of a row (s, a, r, terminal, s')."""
        return 2 * self.observations + self.actions + 2


class Learner:
    """Everything that lies on the device: the states of all runs and their replay buffers.

    A round is `steps` environment steps of every run, then as many updates. `capacity` is the replay buffer's: the
    oldest transitions leave first.
    """

    def __init__(self, algorithm: Algorithm, runs: Sequence[Member], sizes: Sizes, steps: int, capacity: int) -> None:
        self.phase = algorithm.phases[0]
        self.runs, self.sizes = runs, sizes
        self.config = stack(r.config for r in runs)
        self.key = jax.random.key(int(np.random.SeedSequence([r.seed for r in runs]).generate_state(1)[0]))
        self.capacity = capacity // steps * steps
        self.step = 0  # environment steps of every run
        self.updates = 0
        self.state: Tree = jit(jax.vmap(self._init))(self.config, jnp.asarray([r.seed for r in runs]))
        self.replay = jnp.zeros((len(runs), self.capacity, sizes.width))
        self._insert = jit(insert, donate=(0,))
        self._advance = jit(self._updates, donate=(0, 1))
        self.actor: Actor = jit(jax.vmap(self._actor))(self.config, self.state)
        self.metrics: dict[str, Array] = {}

    def _init(self, config: Config, seed: Array) -> Tree:
        spec = Spec(*self.sizes, states=jnp.zeros((1, self.sizes.observations)))
        return self.phase.init(config, spec, {}, jax.random.key(seed))

    def _actor(self, config: Config, state: Tree) -> Actor:
        return self.phase.actor(config, {}, state)

    def add(self, fresh: Floats, train: bool) -> None:
        """Takes one round of transitions (runs, steps, width) and starts that many updates."""
        position = self.step % self.capacity
        self.step += fresh.shape[1]
        filled = min(self.step, self.capacity)
        if not train:
            self.replay = self._insert(self.replay, fresh, position)
            return
        self.state, self.replay, self.actor, self.metrics = self._advance(
            self.state, self.replay, self.config, fresh, position, filled, self.key, self.updates
        )
        self.updates += fresh.shape[1]

    def _updates(
        self,
        state: Tree,
        replay: Float[Array, "runs capacity width"],
        config: Config,
        fresh: Float[Array, "runs steps width"] | Floats,
        position: int | Array,
        filled: int | Array,
        key: PRNGKeyArray,
        updates: int | Array,
    ) -> tuple[Tree, Array, Actor, dict[str, Array]]:
        replay = insert(replay, fresh, position)
        runs, steps, _ = fresh.shape
        draw_key, key = jax.random.split(jax.random.fold_in(key, updates))
        rows = jax.random.randint(draw_key, (steps, runs, config.batch_size), 0, filled)
        batches = replay[jnp.arange(runs)[:, None], rows]
        update = jax.vmap(self.phase.update, in_axes=(0, None, 0, 0, 0, None))

        def body(state: Tree, inputs: tuple[Array, Array, Array]) -> tuple[Tree, dict[str, Array]]:
            batch, keys, step = inputs
            return update(config, {}, state, unpack(batch, self.sizes), keys, Step(step))

        keys = jax.random.split(key, (steps, runs))
        numbers = updates + jnp.arange(steps)
        state, metrics = jax.lax.scan(body, state, (batches, keys, numbers))
        actor = jax.vmap(self._actor)(config, state)
        return state, replay, actor, {k: v.mean(0) for k, v in metrics.items()}


def insert(
    replay: Float[Array, "runs capacity width"], fresh: Float[Array, "runs steps width"] | Floats, position: int | Array
) -> Float[Array, "runs capacity width"]:
    return jax.lax.dynamic_update_slice(replay, fresh, (0, position, 0))


def unpack(rows: Float[Array, "runs batch width"], sizes: Sizes) -> Batch:
    """A row is (s, a, r, terminal, s')."""
    o, a = sizes
    s, actions, rewards, terminals, after = jnp.split(rows, [o, o + a, o + a + 1, o + a + 2], axis=-1)
    return Batch(s, actions, rewards[..., 0], after, actions, terminals[..., 0], Rows(s, actions), s)
