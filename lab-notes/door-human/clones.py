"""What makes a good clone of door-human: the loss, dropout, standardised states? Three seeds of each, 100 episodes.

    python lab-notes/door-human/clones.py --loss squared --steps 10000
    python lab-notes/door-human/clones.py --loss likelihood --steps 10000 --standardise --dropout 0.1

The dataset is Minari's D4RL/door/human-v2. The squared error is that of tanh(mean): a Gaussian with one deviation.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

import sbac
from sbac.nn import MLP, Trained, half_cosine
from sbac.nn.gaussian import Gaussian, bounded_log_std

DATASET, TASK = "D4RL/door/human-v2", "door-human-v1"  # the task has D4RL's rewards and references
HIDDEN, BATCH, RATE, SEEDS = (256, 256), 256, 3e-4, 3


def loss_of(name: str, output: Float[Array, "batch both"], actions: Float[Array, "batch act"]) -> Float[Array, ""]:
    mean, raw = jnp.split(output, 2, axis=-1)
    if name == "squared":
        return ((jnp.tanh(mean) - actions) ** 2).sum(-1).mean()
    return -Gaussian(mean, bounded_log_std(raw)).log_prob(actions).mean()


def acting(clone: MLP, shift: NDArray[Any], scale: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """tanh(mean) as a function of raw observations."""
    output = jax.jit(lambda observations: jnp.tanh(jnp.split(clone((observations - shift) / scale), 2, axis=-1)[0]))
    return lambda observations: np.asarray(output(observations))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", choices=["squared", "likelihood"], default="squared")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--standardise", action="store_true")
    parser.add_argument("--episodes", type=int, default=100)
    options = parser.parse_args()

    log = sbac.load(DATASET)
    raw = np.asarray(log.observations)
    shift = raw.mean(0) if options.standardise else np.zeros(raw.shape[1])
    scale = raw.std(0) + 1e-3 if options.standardise else np.ones(raw.shape[1])
    states, actions = jnp.asarray((raw - shift) / scale, jnp.float32), jnp.asarray(log.actions, jnp.float32)

    def step(clone: Trained[MLP], number: Int[Array, ""], key: PRNGKeyArray) -> Trained[MLP]:
        rows = jax.random.randint(key, (BATCH,), 0, len(states))

        def loss(net: MLP) -> tuple[Float[Array, ""], None]:
            output = net(states[rows], dropout=options.dropout, key=key if options.dropout else None)
            return loss_of(options.loss, output, actions[rows]), None

        return clone.minimise(loss, RATE * half_cosine(number, options.steps))[0]

    @jax.jit
    @jax.vmap
    def train(key: PRNGKeyArray) -> MLP:
        clone = Trained.create(MLP.create(key, states.shape[1], HIDDEN, 2 * actions.shape[1]))
        keys = jax.random.split(key, options.steps)
        return jax.lax.fori_loop(0, options.steps, lambda i, clone: step(clone, i, keys[i]), clone).model

    clones = train(jax.random.split(jax.random.key(0), SEEDS))
    for seed in range(SEEDS):
        policy = acting(jax.tree.map(lambda leaf, seed=seed: leaf[seed], clones), shift, scale)
        played = sbac.evaluate(policy, TASK, episodes=options.episodes, seed=1_000_000)
        print(f"{options.loss}, seed {seed}: {played.score:.1f}", flush=True)


if __name__ == "__main__":
    main()
