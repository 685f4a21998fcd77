"""What lies on the device while runs learn in environments: their states and replay buffers, in one program.

Observations and actions of smaller environments are padded with zeros to the launch's widest, and the algorithm masks
the padding (its state's `used`).
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from sbac import files
from sbac.algorithms.base import Actor, Algorithm, Batch, Rows, Spec, Step
from sbac.config import Config
from sbac.nn import Tree
from sbac.nn.typed import jit
from sbac.policy import Floats
from sbac.records import as_json, parse
from sbac.training.grid import stack


@runtime_checkable
class Exploring(Protocol):
    """What the config of an online method has beside what every config has."""

    @property
    def start_steps(self) -> int:
        """Environment steps with uniform actions before the first update."""
        ...

    @property
    def exploration(self) -> float:
        """Deviation of the noise added to the actions."""
        ...


def exploring(config: Config) -> Exploring:
    """The config of an online method."""
    if not isinstance(config, Exploring):
        raise TypeError(f"{type(config).__name__}: expected start_steps and exploration")
    return config


@dataclass(frozen=True)
class OnlineRun:
    """One run: an environment with its sizes, a seed and a config."""

    environment: str
    observations: int
    actions: int
    seed: int
    config: Config


@dataclass(frozen=True)
class Schedule:
    """How a training is cut into rounds: `steps` environment steps by `instances` copies, then as many updates.

    `capacity` is the replay buffer's: the oldest transitions leave first. `unroll`: updates written out in the loop.
    """

    instances: int = 8
    steps: int = 512
    capacity: int = 1_000_000
    unroll: int = 1


@dataclass(frozen=True)
class Counters:
    """How far a learner is: environment steps of every run, and updates."""

    step: int
    updates: int


class Sizes(NamedTuple):
    """Of the widest observation and action in a launch."""

    observations: int
    actions: int


class Learner:
    """Everything that lies on the device: the states of all runs and their replay buffers."""

    def __init__(self, algorithm: Algorithm, runs: Sequence[OnlineRun], rounds: Schedule) -> None:
        self.phase = algorithm.phases[0]
        self.runs = runs
        self.rounds = rounds
        self.sizes = Sizes(max(r.observations for r in runs), max(r.actions for r in runs))
        self.config = stack(r.config for r in runs)
        self.key = jax.random.key(hash_seeds(r.seed for r in runs))
        self.capacity = rounds.capacity // rounds.steps * rounds.steps
        self.step = 0  # environment steps of every run
        self.updates = 0
        seeds = jnp.asarray([r.seed for r in runs])
        used = jnp.asarray([[i < r.actions for i in range(self.sizes.actions)] for r in runs], jnp.float32)
        self.state: Tree = jit(jax.vmap(self._init))(self.config, seeds, used)
        self.replay = jnp.zeros((len(runs), self.capacity, width(self.sizes)))
        self._insert = jit(insert, donate=(0,))
        self._advance = jit(self._updates, donate=(0, 1))
        self.actor: Actor = jit(jax.vmap(self._actor))(self.config, self.state)
        self.metrics: dict[str, Array] = {}

    def _init(self, config: Config, seed: Array, used: Float[Array, " act"]) -> Tree:
        """A run's first state; `used` is 1 for the dimensions of its own actions and 0 for padding."""
        spec = Spec(*self.sizes, states=jnp.zeros((1, self.sizes.observations)))
        return dataclasses.replace(self.phase.init(config, spec, {}, jax.random.key(seed)), used=used)

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
        state, metrics = jax.lax.scan(body, state, (batches, keys, numbers), unroll=self.rounds.unroll)
        actor = jax.vmap(self._actor)(config, state)
        return state, replay, actor, {k: v.mean(0) for k, v in metrics.items()}

    def save(self, folder: Path) -> None:
        """Writes all arrays. The keys of what is random follow from the seeds and the step."""
        leaves = jax.tree.leaves(self.state)
        np.savez(folder / "state.npz", *[np.asarray(x) for x in leaves])
        np.save(folder / "replay.npy", np.asarray(self.replay[:, : min(self.step, self.capacity)]))
        files.write_json(folder / "learner.json", as_json(Counters(self.step, self.updates)))

    def load(self, folder: Path) -> None:
        """Continues from what `save` wrote."""
        path = folder / "learner.json"
        counters = parse(Counters, files.read_json(path), str(path))
        self.step, self.updates = counters.step, counters.updates
        with np.load(folder / "state.npz") as file:
            leaves = [jnp.asarray(file[f"arr_{i}"]) for i in range(len(file.files))]
        self.state = jax.tree.unflatten(jax.tree.structure(self.state), leaves)
        replay = np.load(folder / "replay.npy")
        for start in range(0, replay.shape[1], self.rounds.steps):
            self.replay = self._insert(self.replay, replay[:, start : start + self.rounds.steps], start)
        self.actor = jit(jax.vmap(self._actor))(self.config, self.state)


def hash_seeds(seeds: Iterable[int]) -> int:
    """One number for the launch's own draws."""
    return int(np.random.SeedSequence(list(seeds)).generate_state(1)[0])


def width(sizes: Sizes) -> int:
    return 2 * sizes.observations + sizes.actions + 2


def insert(
    replay: Float[Array, "runs capacity width"], fresh: Float[Array, "runs steps width"] | Floats, position: int | Array
) -> Float[Array, "runs capacity width"]:
    """The replay buffers with fresh rows from this position on."""
    return jax.lax.dynamic_update_slice(replay, fresh, (0, position, 0))


def unpack(rows: Float[Array, "runs batch width"], sizes: Sizes) -> Batch:
    """A row is (s, a, r, terminal, s')."""
    o, a = sizes
    s, actions, rewards, terminals, after = jnp.split(rows, [o, o + a, o + a + 1, o + a + 2], axis=-1)
    return Batch(s, actions, rewards[..., 0], after, actions, terminals[..., 0], Rows(s, actions), s)


def pack(raw: Floats, run: OnlineRun, sizes: Sizes) -> Floats:
    """A run's rows with observations and actions padded to the launch's sizes."""
    rows = np.zeros((len(raw), width(sizes)), np.float32)
    o, a = run.observations, run.actions
    after = sizes.observations + sizes.actions
    rows[:, :o] = raw[:, :o]
    rows[:, sizes.observations : sizes.observations + a] = raw[:, o : o + a]
    rows[:, after : after + 2 + o] = raw[:, o + a :]
    return rows


def run_arrays(actor: Actor, index: int, run: OnlineRun, sizes: Sizes) -> dict[str, Floats]:
    """One run's policy in numpy, its padding cut off."""
    net = actor.networks["policy"]
    weights = [np.asarray(w[index]) for w in net.weights]
    biases = [np.asarray(b[index]) for b in net.biases]
    outputs = len(biases[-1])
    columns = np.arange(outputs) % sizes.actions < run.actions
    weights[0] = weights[0][: run.observations]
    weights[-1], biases[-1] = weights[-1][:, columns], biases[-1][columns]
    named = {f"policy/weights/{i}": w for i, w in enumerate(weights)}
    named |= {f"policy/biases/{i}": b for i, b in enumerate(biases)}
    return {k: np.ascontiguousarray(v) for k, v in named.items()}
