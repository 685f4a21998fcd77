"""BCQ: the best, by Q, of actions that a generative model of the data proposes (Fujimoto, Meger & Precup 2019).

A VAE proposes actions, a small network perturbs them by at most `perturbation`, and both the target and the policy
take the proposal with the highest Q.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.evaluation import td_loss, td_target
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import MLP, ActionVAE, Critic, Trained, polyak, prior_codes, take


@config
class BCQConfig(Config):
    steps: tuple[int, ...] = (1_000_000,)
    batch_size: int = 100
    hidden: tuple[int, ...] = layers((400, 300))
    vae_hidden: tuple[int, ...] = layers((750, 750), "Units of each hidden layer of the VAE.")
    learning_rate: float = rate(1e-3, "Learning rate of all networks.")
    target_rate: float = polyak_rate(0.005)
    perturbation: float = per_policy(
        0.05, "How far the actor may move a proposed action; 2 is the whole range.", at_least=0, at_most=2
    )
    minimum_weight: float = per_policy(
        0.75, "Weight of the smaller critic in the target; the larger has the rest.", at_least=0, at_most=1
    )
    target_candidates: int = shared(10, "Actions that the target takes the best of.", at_least=1)
    acting_candidates: int = shared(100, "Actions that acting takes the best of.", at_least=1)


class State(eqx.Module):
    vae: Trained[ActionVAE]
    critic: Trained[Critic]
    critic_target: Critic
    actor: Trained[MLP]
    actor_target: MLP


def perturb(
    actor: MLP,
    observations: Float[Array, "*batch obs"],
    actions: Float[Array, "*batch act"],
    size: float | Float[Array, ""],
) -> Float[Array, "*batch act"]:
    """xi(s, a): the action moved by at most `size`, inside the bounds."""
    return jnp.clip(actions + size * jnp.tanh(actor(observations, actions)), -1.0, 1.0)


def mixed_minimum(
    values: Float[Array, "members *batch"], minimum_weight: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """lambda min Q + (1 - lambda) max Q over the critics: a softer guard than the minimum alone."""
    return minimum_weight * values.min(0) + (1.0 - minimum_weight) * values.max(0)


def best_candidate_target(
    batch: Batch,
    values: Float[Array, "members candidates batch"],
    minimum_weight: float | Float[Array, ""],
    discount: float | Float[Array, ""],
) -> Float[Array, " batch"]:
    """r + gamma max_candidates (lambda min + (1 - lambda) max) Q(s', a')."""
    best = mixed_minimum(values, minimum_weight).max(0)
    return td_target(batch, discount, best)


def targets(config: BCQConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    proposed = jnp.tanh(state.vae.model.sample_pre_tanh(batch.next_observations, key, config.target_candidates))
    repeated = jnp.broadcast_to(batch.next_observations, (*proposed.shape[:-1], batch.next_observations.shape[-1]))
    candidates = perturb(state.actor_target, repeated, proposed, config.perturbation)
    values = state.critic_target(repeated, candidates)
    return best_candidate_target(batch, values, config.minimum_weight, config.discount)


def actor_loss(
    actor: MLP, config: BCQConfig, state: State, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Metrics]:
    """-Q_1(s, xi(s, a)) of one proposed action a."""
    proposed = jnp.tanh(state.vae.model.sample_pre_tanh(batch.observations, key, 1)[0])
    moved = perturb(actor, batch.observations, proposed, config.perturbation)
    loss = -state.critic.model(batch.observations, moved)[0].mean()
    return loss, {"actor_loss": loss}


def vae_loss(vae: ActionVAE, batch: Batch, key: PRNGKeyArray) -> tuple[Float[Array, ""], Metrics]:
    loss = vae.loss(batch.rows.observations, batch.rows.actions, key)
    return loss, {"vae_loss": loss}


def init(config: BCQConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    vae_key, critic_key, actor_key = split(key, 3)
    vae = ActionVAE.create(vae_key, spec.observations, config.vae_hidden, spec.actions)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    actor = MLP.create(actor_key, spec.observations + spec.actions, config.hidden, spec.actions)
    return State(Trained.create(vae), Trained.create(critic), critic, Trained.create(actor), actor)


def update(
    config: BCQConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    vae_key, target_key, actor_key = split(key, 3)
    vae, vae_metrics = state.vae.minimise(lambda m: vae_loss(m, batch, vae_key), config.learning_rate)
    state = dataclasses.replace(state, vae=vae)
    target = targets(config, state, batch, target_key)
    critic, critic_metrics = state.critic.minimise(lambda m: td_loss(m, batch, target), config.learning_rate)
    state = dataclasses.replace(state, critic=critic)
    actor, actor_metrics = state.actor.minimise(
        lambda m: actor_loss(m, config, state, batch, actor_key), config.learning_rate
    )
    new = State(
        vae,
        critic,
        polyak(state.critic_target, critic.model, config.target_rate),
        actor,
        polyak(state.actor_target, actor.model, config.target_rate),
    )
    return new, vae_metrics | critic_metrics | actor_metrics


def validate(config: BCQConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    vae_key, target_key = split(key, 2)
    target = targets(config, state, batch, target_key)
    return td_loss(state.critic.model, batch, target)[1] | vae_loss(state.vae.model, batch, vae_key)[1]


def actor(config: BCQConfig, past: Past, state: State) -> Actor:
    vae = state.vae.model
    return Actor(
        "best-of-vae",
        {
            "decoder": vae.decoder,
            "perturbation": state.actor.model,
            "critic": take(state.critic.model.nets, slice(1)),
        },
        {
            # The same codes at every state and step: acting is deterministic.
            "codes": prior_codes(jax.random.key(0), (config.acting_candidates, vae.code_size)),
            "size": jnp.asarray(config.perturbation),
        },
    )


BCQ = Algorithm(
    name="bcq",
    config=BCQConfig,
    phases=(Phase("train", init, update, actor, validate),),
    source="Fujimoto, Meger & Precup 2019, Off-Policy Deep Reinforcement Learning without Exploration",
    grid={ANY_PRESET: {"perturbation": [0.01, 0.05, 0.1, 0.2]}},
    presets={
        "quick": {
            "steps": (30_000,),
            "batch_size": 128,
            "hidden": (64, 64),
            "vae_hidden": (128, 128),
            "acting_candidates": 30,
        },
        "paper": {"standardise_states": False},
    },
)
