"""Behaviour cloning: maximum likelihood of the data's actions under a tanh-Gaussian."""

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step
from sbac.algorithms.cloning import negative_log_likelihood
from sbac.config import Config, config, layers, rate
from sbac.nn import GaussianPolicy, Trained


@config
class BCConfig(Config):
    steps: tuple[int, ...] = (100_000,)
    hidden: tuple[int, ...] = layers((256, 256, 256))
    learning_rate: float = rate(3e-4, "Learning rate.")


class State(eqx.Module):
    policy: Trained[GaussianPolicy]


def init(config: BCConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    return State(Trained.create(GaussianPolicy.create(key, spec.observations, config.hidden, spec.actions)))


def update(
    config: BCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    def loss(policy: GaussianPolicy) -> tuple[Float[Array, ""], Metrics]:
        value = negative_log_likelihood(policy, batch.rows)
        return value, {"loss": value}

    policy, metrics = state.policy.minimise(loss, config.learning_rate)
    return State(policy), metrics


def validate(config: BCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    return {"loss": negative_log_likelihood(state.policy.model, batch.rows)}


def actor(config: BCConfig, past: Past, state: State) -> Actor:
    return Actor("tanh-gaussian", {"policy": state.policy.model.net})


BC = Algorithm(
    name="bc",
    config=BCConfig,
    phases=(Phase("clone", init, update, actor, validate, needs="row"),),
    source="Maximum likelihood",
    grid={ANY_PRESET: {"learning_rate": [1e-4, 3e-4, 1e-3, 3e-3]}},
    presets={
        "quick": {"steps": (30_000,), "hidden": (64, 64), "batch_size": 128, "learning_rate": 1e-3},
        "paper": {"steps": (1_000_000,)},
    },
)
