"""Phase *clone*: the model mu of the data's actions that BRAC and Fisher-BRC learn first and then hold fixed."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac.algorithms.base import Actor, Batch, Metrics, Past, Phase, Rows, Spec, Step
from sbac.config import Config, config, layers, rate, shared
from sbac.nn import Behaviour, BehaviourKind, GaussianPolicy, Multiplier, Trained, behaviour


@config
class CloneConfig(Config):
    """What the phase reads; the first of `steps` is its length."""

    behaviour: BehaviourKind = shared("gaussian", "The model of mu.", group="networks")
    clone_hidden: tuple[int, ...] = layers((200, 200), "Units of each hidden layer of the clone.")
    clone_learning_rate: float = rate(5e-4, "Learning rate of the clone.")
    clone_decay: bool = shared(
        False, "Whether that rate is multiplied by 0.1 after 80 % of the steps and by 0.01 after 90 %.", group="rates"
    )
    entropy_floor: bool = shared(
        True, "Keep the clone's entropy above -|A| by a learned weight, so that log mu stays moderate off the data."
    )


class Clone(eqx.Module):
    behaviour: Trained[Behaviour]
    entropy_weight: Multiplier


def negative_log_likelihood(model: Behaviour, rows: Rows) -> Float[Array, ""]:
    """-log mu(a|s) of the data's actions, averaged."""
    return -model(rows.observations).log_prob(rows.actions).mean()


def clone_loss(
    model: Behaviour, rows: Rows, entropy_weight: Float[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, ""], Metrics]:
    """-log mu(a|s) - weight H(mu)."""
    mu = model(rows.observations)
    likelihood = mu.log_prob(rows.actions).mean()
    entropy = -mu.log_prob_pre_tanh(mu.sample_pre_tanh(key)).mean()
    return -likelihood - entropy_weight * entropy, {"clone_loss": -likelihood, "entropy": entropy}


def init_clone(config: CloneConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Clone:
    model = behaviour.create(config.behaviour, key, spec.observations, config.clone_hidden, spec.actions)
    return Clone(Trained.create(model), Multiplier.create(1.0))


def clone_rate(config: CloneConfig, step: Int[Array, ""]) -> Float[Array, ""]:
    progress = step / max(config.steps[0], 1)
    decay = jnp.where(progress < 0.8, 1.0, jnp.where(progress < 0.9, 0.1, 0.01))
    return config.clone_learning_rate * (decay if config.clone_decay else jnp.ones(()))


def update_clone(
    config: CloneConfig, past: Past, state: Clone, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Clone, Metrics]:
    weight = state.entropy_weight.value if config.entropy_floor else jnp.zeros(())
    rate = clone_rate(config, step.number)
    model, metrics = state.behaviour.minimise(lambda m: clone_loss(m, batch.rows, weight, key), rate)
    floor = -float(batch.actions.shape[-1])
    return Clone(model, state.entropy_weight.update(floor - metrics["entropy"], rate)), metrics


def validate_clone(config: CloneConfig, past: Past, state: Clone, batch: Batch, key: PRNGKeyArray) -> Metrics:
    return clone_loss(state.behaviour.model, batch.rows, jnp.zeros(()), key)[1]


def clone_actor(config: CloneConfig, past: Past, state: Clone) -> Actor:
    return behaviour_actor(state.behaviour.model)


def behaviour_actor(model: Behaviour) -> Actor:
    if isinstance(model, behaviour.MixturePolicy):
        return Actor("tanh-mixture", {"policy": model.net})
    if isinstance(model, behaviour.MixturePerDimPolicy):
        return Actor("tanh-mixture-per-dim", {"policy": model.net})
    assert isinstance(model, GaussianPolicy)
    return Actor("tanh-gaussian", {"policy": model.net})


CLONE = Phase("clone", init_clone, update_clone, clone_actor, validate_clone, needs="row")
