"""BEAR: the highest Q among policies whose support stays in the data's (Kumar, Fu, Tucker & Levine 2019).

The constraint is an MMD between a few pre-tanh actions of the policy and of a VAE of the data, held below a
threshold by a dual variable; the first steps only match the data.
"""

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.bcq import best_candidate_target, vae_loss
from sbac.algorithms.evaluation import td_loss
from sbac.config import LARGEST, Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import ActionVAE, Critic, GaussianPolicy, Multiplier, Trained, mmd, polyak, take

DUAL_MIN = math.exp(-5.0)
DUAL_MAX = math.exp(10.0)


@config
class BEARConfig(Config):
    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    vae_hidden: tuple[int, ...] = layers((750, 750), "Units of each hidden layer of the VAE.")
    actor_learning_rate: float = rate(1e-4, "Learning rate of the policy.")
    critic_learning_rate: float = rate(3e-4, "Learning rate of the critics.")
    vae_learning_rate: float = rate(3e-4, "Learning rate of the VAE.")
    dual_learning_rate: float = rate(1e-3, "Learning rate of the dual variable.")
    target_rate: float = polyak_rate(0.005)
    minimum_weight: float = per_policy(
        0.75, "Weight of the smaller critic in the target; the larger has the rest.", at_least=0, at_most=1
    )
    kernel: Literal["gaussian", "laplacian"] = shared("gaussian", "The MMD's kernel.")
    kernel_width: float = per_policy(20.0, "sigma in exp(-distance / (2 sigma)), not squared.", above=0)
    threshold: float = per_policy(0.05, "How large the MMD may be.", at_least=0)
    mmd_samples: int = shared(4, "Actions of the policy, and of the VAE, in the MMD.", at_least=1)
    warm_up: float = shared(0.04, "Share of the steps in which the actor only matches the data.", at_least=0, at_most=1)
    target_candidates: int = shared(10, "Actions that the target takes the best of.", at_least=1)
    acting_candidates: int = shared(100, "Actions that acting takes the best of.", at_least=1)


class State(eqx.Module):
    vae: Trained[ActionVAE]
    critic: Trained[Critic]
    critic_target: Critic
    policy: Trained[GaussianPolicy]
    dual: Multiplier


def targets(config: BEARConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    candidates = state.policy.model(batch.next_observations).sample(key, (config.target_candidates,))
    repeated = jnp.broadcast_to(batch.next_observations, (*candidates.shape[:-1], batch.next_observations.shape[-1]))
    values = state.critic_target(repeated, candidates)
    return best_candidate_target(batch, values, config.minimum_weight, config.discount)


def actor_loss(
    policy: GaussianPolicy,
    config: BEARConfig,
    state: State,
    batch: Batch,
    key: PRNGKeyArray,
    improving: Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """-min Q(s, a) + alpha (MMD - threshold); `improving` is 0 in the warm-up and 1 after it."""
    policy_key, vae_key = split(key, 2)
    u = policy(batch.observations).sample_pre_tanh(policy_key, (config.mmd_samples,))
    logged = state.vae.model.sample_pre_tanh(batch.observations, vae_key, config.mmd_samples)
    distance = mmd(u, logged, config.kernel, config.kernel_width).mean()
    q = state.critic.model.minimum(batch.observations, jnp.tanh(u[0])).mean()
    loss = -improving * q + state.dual.value * (distance - config.threshold)
    return loss, {"actor_loss": loss, "mmd": distance, "dual": state.dual.value}


def init(config: BEARConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    vae_key, critic_key, policy_key = split(key, 3)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    return State(
        Trained.create(ActionVAE.create(vae_key, spec.observations, config.vae_hidden, spec.actions)),
        Trained.create(critic),
        critic,
        Trained.create(GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)),
        Multiplier.create(1.0),
    )


def update(
    config: BEARConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    vae_key, target_key, actor_key = split(key, 3)
    vae, vae_metrics = state.vae.minimise(lambda m: vae_loss(m, batch, vae_key), config.vae_learning_rate)
    target = targets(config, state, batch, target_key)
    critic, critic_metrics = state.critic.minimise(lambda m: td_loss(m, batch, target), config.critic_learning_rate)
    state = dataclasses.replace(state, vae=vae, critic=critic)
    improving = (step.number >= config.warm_up * config.steps[0]).astype(jnp.float32)
    policy, actor_metrics = state.policy.minimise(
        lambda m: actor_loss(m, config, state, batch, actor_key, improving), config.actor_learning_rate
    )
    new = State(
        vae,
        critic,
        polyak(state.critic_target, critic.model, config.target_rate),
        policy,
        state.dual.update(
            actor_metrics["mmd"] - config.threshold,
            config.dual_learning_rate,
            minimum=DUAL_MIN,
            maximum=DUAL_MAX,
        ),
    )
    return new, vae_metrics | critic_metrics | actor_metrics


def validate(config: BEARConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    vae_key, target_key = split(key, 2)
    target = targets(config, state, batch, target_key)
    return td_loss(state.critic.model, batch, target)[1] | vae_loss(state.vae.model, batch, vae_key)[1]


def actor(config: BEARConfig, past: Past, state: State) -> Actor:
    actions = state.policy.model.net.biases[-1].shape[-1] // 2
    return Actor(
        "best-of-gaussian",
        {"policy": state.policy.model.net, "critic": take(state.critic.model.nets, slice(1))},
        {
            # The same noise at every state and step: acting is deterministic.
            "noise": jax.random.normal(jax.random.key(0), (config.acting_candidates, actions)),
            "noise_limit": jnp.asarray(LARGEST),  # none; a policy's file holds finite numbers
        },
    )


BEAR = Algorithm(
    name="bear",
    config=BEARConfig,
    phases=(Phase("train", init, update, actor, validate),),
    source="Kumar, Fu, Tucker & Levine 2019, Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction",
    grid={ANY_PRESET: {"threshold": [0.02, 0.05, 0.1, 0.2]}},
    presets={
        "quick": {
            "steps": (30_000,),
            "batch_size": 128,
            "hidden": (64, 64),
            "vae_hidden": (128, 128),
            "actor_learning_rate": 3e-4,
            "critic_learning_rate": 1e-3,
            "vae_learning_rate": 1e-3,
            "acting_candidates": 30,
        },
        "paper": {"standardise_states": False},
    },
    task_settings={  # published: 50 for Walker2d, 20 for Hopper and HalfCheetah
        f"walker2d-{tier}-v2": {"kernel_width": 50.0}
        for tier in ("random", "medium", "medium-replay", "medium-expert", "expert")
    },
)
