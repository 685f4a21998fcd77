"""ReBRAC (Tarasov et al., 2023): TD3+BC with the pull in the critic too, LayerNorm critics and deeper networks.

The networks are those of the authors' code: LayerNorm with a learned scale and offset, hidden biases that start at 0.1,
last layers that start within +-0.003 (critics) and +-0.001 (policy).
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.evaluation import deterministic_actor, td_loss, td_target
from sbac.algorithms.td3_bc import DelayedConfig, State, delayed_update, smoothed
from sbac.config import config, per_policy
from sbac.nn import Critic, DeterministicPolicy, Trained

HIDDEN_BIAS = 0.1
LAST_POLICY_BOUND, LAST_CRITIC_BOUND = 1e-3, 3e-3


@config
class ReBRACConfig(DelayedConfig):
    batch_size: int = 1024
    hidden: tuple[int, ...] = (256, 256, 256)
    learning_rate: float = 1e-3
    policy_penalty: float = per_policy(0.01, "beta_1: weight of |pi(s) - a|^2 in the policy's loss.", at_least=0)
    critic_penalty: float = per_policy(0.01, "beta_2: weight of |pi(s') - a'|^2 in the critic's target.", at_least=0)
    standardise_states: bool = False


def squared_distance(a: Float[Array, "batch act"], b: Float[Array, "batch act"]) -> Float[Array, " batch"]:
    return ((a - b) ** 2).sum(-1)


def critic_target(config: ReBRACConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """y = r + gamma (min_i Q_i'(s', a') - beta_2 |a' - a'_data|^2), a' = pi'(s') + clipped noise."""
    next_actions = state.policy_target(batch.next_observations)
    next_actions = smoothed(next_actions, config.target_noise, config.target_noise_clip, key)
    next_value = state.critic_target.minimum(batch.next_observations, next_actions)
    next_value -= config.critic_penalty * squared_distance(next_actions, batch.next_actions)
    return td_target(batch, config.discount, next_value)


def policy_loss(
    config: ReBRACConfig, policy: DeterministicPolicy, critic: Critic, batch: Batch
) -> tuple[Float[Array, ""], Metrics]:
    """beta_1 |pi(s) - a|^2 - lambda min_i Q_i(s, pi(s)), with lambda = 1 / mean |Q|."""
    actions = policy(batch.observations)
    q = critic.minimum(batch.observations, actions)
    scale = 1.0 / jnp.abs(jax.lax.stop_gradient(q)).mean()
    distance = squared_distance(actions, batch.actions).mean()
    return config.policy_penalty * distance - scale * q.mean(), {"distance": distance}


def init(config: ReBRACConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    # The bound of a last layer's weights is last_scale / sqrt(its inputs).
    width = math.sqrt(config.hidden[-1])
    policy = DeterministicPolicy.create(
        policy_key,
        spec.observations,
        config.hidden,
        spec.actions,
        last_scale=LAST_POLICY_BOUND * width,
        hidden_bias=HIDDEN_BIAS,
    )
    critic = Critic.create(
        critic_key,
        spec.observations,
        spec.actions,
        config.hidden,
        normalise=True,
        learned_norm=True,
        last_scale=LAST_CRITIC_BOUND * width,
        hidden_bias=HIDDEN_BIAS,
    )
    return State(Trained.create(policy), Trained.create(critic), policy, critic)


def update(
    config: ReBRACConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target = critic_target(config, state, batch, key)
    return delayed_update(config, state, batch, step, target, lambda p, q: policy_loss(config, p, q, batch))


def validate(config: ReBRACConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    _, metrics = td_loss(state.critic.model, batch, critic_target(config, state, batch, key))
    return metrics | policy_loss(config, state.policy.model, state.critic.model, batch)[1]


def _penalties(policy: float, critic: float) -> dict[str, float]:
    return {"policy_penalty": policy, "critic_penalty": critic}


def _adroit(policy: float, critic: float) -> dict[str, float | int]:
    return {"batch_size": 256, "learning_rate": 3e-4, **_penalties(policy, critic)}


REBRAC = Algorithm(
    name="rebrac",
    config=ReBRACConfig,
    phases=(
        Phase("train", init, update, deterministic_actor, validate, "next_action", lambda config: config.policy_delay),
    ),
    source="Tarasov et al., Revisiting the Minimalist Approach to Offline Reinforcement Learning, NeurIPS 2023",
    # Of the two weights beta_1 decides: the authors' ablation is as good without beta_2.
    grid={ANY_PRESET: {"policy_penalty": [0.01, 0.03, 0.1, 0.3]}},
    presets={
        "quick": {"steps": (30_000,), "hidden": (64, 64), "batch_size": 128, "standardise_states": True},
        "paper": {},
        "tuned": {"standardise_states": True},
    },
    task_settings={
        "halfcheetah-random-v2": _penalties(0.001, 0.1),
        "halfcheetah-medium-v2": _penalties(0.001, 0.01),
        "halfcheetah-medium-replay-v2": _penalties(0.01, 0.001),
        "halfcheetah-medium-expert-v2": _penalties(0.01, 0.1),
        "halfcheetah-expert-v2": _penalties(0.01, 0.01),
        "hopper-random-v2": _penalties(0.001, 0.01),
        "hopper-medium-v2": _penalties(0.01, 0.01),
        "hopper-medium-replay-v2": _penalties(0.05, 0.5),
        "hopper-medium-expert-v2": _penalties(0.1, 0.01),
        "hopper-expert-v2": _penalties(0.1, 0.1),
        "walker2d-random-v2": _penalties(0.01, 0.0),
        "walker2d-medium-v2": _penalties(0.05, 0.1),
        "walker2d-medium-replay-v2": _penalties(0.05, 0.01),
        "walker2d-medium-expert-v2": _penalties(0.01, 0.01),
        "walker2d-expert-v2": _penalties(0.01, 0.5),
        "pen-human-v1": _adroit(0.1, 0.5),
        "hammer-human-v1": _adroit(0.01, 0.5),
        "door-human-v1": _adroit(0.1, 0.1),
        "relocate-human-v1": _adroit(0.1, 0.01),
    },
)
