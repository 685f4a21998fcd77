"""A method of your own: cloning with a loss that forgives outliers, in a grid of two settings.

    python examples/custom_method.py

A method is a config, the functions of its phases, and an `Algorithm` that names them. Grids, seeds, checkpoints and
evaluation come with it. CONTRIBUTING.md explains every part.
"""

import argparse

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

import sbac
from sbac.algorithms import REGISTRY
from sbac.algorithms.base import Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step
from sbac.config import Config, config, layers, per_policy, rate
from sbac.nn import DeterministicPolicy, Trained


@config
class HuberConfig(Config):
    steps: tuple[int, ...] = (5_000,)
    hidden: tuple[int, ...] = layers((64, 64))
    learning_rate: float = rate(1e-3, "Learning rate.")
    delta: float = per_policy(0.1, "Where the loss turns from a square into a line.", above=0)


class State(eqx.Module):
    policy: Trained[DeterministicPolicy]


def init(config: HuberConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    return State(Trained.create(DeterministicPolicy.create(key, spec.observations, config.hidden, spec.actions)))


def update(
    config: HuberConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    def loss(policy: DeterministicPolicy) -> tuple[Float[Array, ""], Metrics]:
        error = jnp.abs(policy(batch.rows.observations) - batch.rows.actions)
        small = jnp.minimum(error, config.delta)
        value = jnp.mean(small * (error - 0.5 * small))
        return value, {"loss": value}

    policy, metrics = state.policy.minimise(loss, config.learning_rate)
    return State(policy), metrics


def actor(config: HuberConfig, past: Past, state: State) -> Actor:
    return Actor("deterministic", {"policy": state.policy.model.net})


HUBER_BC = Algorithm(
    name="huber-bc",
    config=HuberConfig,
    phases=(Phase("clone", init, update, actor, needs="row"),),
    source="this file",
    presets={"quick": {}},
)
REGISTRY["huber-bc"] = f"{__name__}:HUBER_BC"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="hopper-demo", help="what to learn from (default: hopper-demo)")
    parser.add_argument("--steps", type=int, default=5_000, help="gradient steps")
    arguments = parser.parse_args()

    run = sbac.train(
        arguments.data, "huber-bc", delta=[0.1, 1.0], steps=arguments.steps, evaluate=False, progress=False
    )
    last = {row["delta"]: row["loss"] for row in run.metrics}
    for delta, loss in last.items():
        print(f"delta {delta}: loss {loss:.4f}")


if __name__ == "__main__":
    main()
