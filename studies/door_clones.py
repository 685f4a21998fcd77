"""What makes a good clone of door-human: the loss, dropout, standardised states? Three seeds of each, 100 episodes.

    python studies/door_clones.py --loss squared --steps 10000
    python studies/door_clones.py --loss likelihood --steps 10000 --standardise --dropout 0.1

The dataset is Minari's D4RL/door/human-v2. The squared error is that of tanh(mean): a Gaussian with one deviation.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import NDArray

import sbac
from sbac.nn import MLP, Trained, half_cosine
from sbac.nn.gaussian import Gaussian, bounded_log_std

DATASET, ENVIRONMENT = "D4RL/door/human-v2", "AdroitHandDoor-v1"
RANDOM, EXPERT = -56.512833, 2880.5693087298737  # D4RL's references
HIDDEN, BATCH, RATE, SEEDS = (256, 256), 256, 3e-4, 3


def loss_of(name: str, output: Float[Array, "batch both"], actions: Float[Array, "batch act"]) -> Float[Array, ""]:
    mean, raw = jnp.split(output, 2, axis=-1)
    if name == "squared":
        return ((jnp.tanh(mean) - actions) ** 2).sum(-1).mean()
    return -Gaussian(mean, bounded_log_std(raw)).log_prob(actions).mean()


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
        clone = jax.tree.map(lambda leaf, seed=seed: np.asarray(leaf[seed]), clones)

        def act(observations: NDArray[np.floating], clone: MLP = clone) -> NDArray[np.floating]:
            x = (observations - shift) / scale
            for weight, bias in zip(clone.weights[:-1], clone.biases[:-1], strict=True):
                x = np.maximum(x @ weight + bias, 0.0)
            return np.tanh((x @ clone.weights[-1] + clone.biases[-1])[..., : actions.shape[1]])

        played = sbac.evaluate(act, ENVIRONMENT, episodes=options.episodes, seed=1_000_000)
        score = 100 * (np.mean(played.returns) - RANDOM) / (EXPERT - RANDOM)
        print(f"{options.loss}, seed {seed}: {score:.1f}", flush=True)


if __name__ == "__main__":
    main()
