"""TD3+BC (Fujimoto and Gu, 2021): TD3 with a squared pull of the policy towards the data's actions."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split, when
from sbac.algorithms.evaluation import deterministic_actor, td_loss, td_target
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Critic, DeterministicPolicy, Trained, polyak


@config
class DelayedConfig(Config):
    """What TD3 and the methods that build on it share."""

    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    learning_rate: float = rate(3e-4, "Learning rate of the policy and the critics.")
    target_rate: float = polyak_rate(0.005)
    target_noise: float = per_policy(0.2, "Deviation of the noise on the target policy's actions.", at_least=0)
    target_noise_clip: float = per_policy(0.5, "That noise stays inside +- this.", at_least=0)
    policy_delay: int = shared(2, "Steps between updates of the policy.", at_least=1)


@config
class TD3BCConfig(DelayedConfig):
    alpha: float = per_policy(
        2.5, "Weight of Q, scaled to a mean size of 1, against the pull towards the data.", at_least=0
    )


class State(eqx.Module):
    policy: Trained[DeterministicPolicy]
    critic: Trained[Critic]
    policy_target: DeterministicPolicy
    critic_target: Critic


def smoothed(
    actions: Float[Array, "batch act"],
    noise: float | Float[Array, ""],
    limit: float | Float[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "batch act"]:
    """Actions with clipped noise: nearby actions should have similar values."""
    shift = jnp.clip(noise * jax.random.normal(key, actions.shape), -limit, limit)
    return jnp.clip(actions + shift, -1.0, 1.0)


def critic_target(config: DelayedConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """y = r + gamma min_i Q_i'(s', pi'(s') + noise), without the bootstrap at terminals."""
    next_actions = state.policy_target(batch.next_observations)
    next_actions = smoothed(next_actions, config.target_noise, config.target_noise_clip, key)
    next_value = state.critic_target.minimum(batch.next_observations, next_actions)
    return td_target(batch, config.discount, next_value)


def policy_loss(
    config: TD3BCConfig, policy: DeterministicPolicy, critic: Critic, batch: Batch
) -> tuple[Float[Array, ""], Metrics]:
    """Equation (5): -lambda Q_1(s, pi(s)) + (pi(s) - a)^2, with lambda = alpha / mean |Q_1|."""
    actions = policy(batch.observations)
    q = critic(batch.observations, actions)[0]
    scale = config.alpha / jnp.abs(jax.lax.stop_gradient(q)).mean()
    distance = ((actions - batch.actions) ** 2).mean()
    return distance - scale * q.mean(), {"distance": distance}


def init(config: DelayedConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    policy = DeterministicPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    return State(Trained.create(policy), Trained.create(critic), policy, critic)


def delayed_update(
    config: DelayedConfig,
    state: State,
    batch: Batch,
    step: Step,
    target: Float[Array, " batch"],
    policy_loss: Callable[[DeterministicPolicy, Critic], tuple[Float[Array, ""], Metrics]],
) -> tuple[State, Metrics]:
    """The critics move towards `target`; every few steps the policy follows, and the target networks follow both."""
    critic, metrics = state.critic.minimise(lambda q: td_loss(q, batch, target), config.learning_rate)

    def improve() -> State:
        policy, _ = state.policy.minimise(lambda p: policy_loss(p, critic.model), config.learning_rate)
        return State(
            policy,
            critic,
            polyak(state.policy_target, policy.model, config.target_rate),
            polyak(state.critic_target, critic.model, config.target_rate),
        )

    def wait() -> State:
        return State(state.policy, critic, state.policy_target, state.critic_target)

    return when(step.every(config.policy_delay, config.policy_delay - 1), improve, wait), metrics


def update(
    config: TD3BCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target = critic_target(config, state, batch, key)
    return delayed_update(config, state, batch, step, target, lambda p, q: policy_loss(config, p, q, batch))


def validate(config: TD3BCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    _, metrics = td_loss(state.critic.model, batch, critic_target(config, state, batch, key))
    return metrics | policy_loss(config, state.policy.model, state.critic.model, batch)[1]


TD3_BC = Algorithm(
    name="td3-bc",
    config=TD3BCConfig,
    phases=(Phase("train", init, update, deterministic_actor, validate, period=lambda config: config.policy_delay),),
    source="Fujimoto and Gu, A Minimalist Approach to Offline Reinforcement Learning, NeurIPS 2021",
    grid={ANY_PRESET: {"alpha": [1.0, 2.5, 5.0, 10.0]}},
    presets={
        "quick": {"steps": (30_000,), "hidden": (64, 64), "batch_size": 128, "learning_rate": 1e-3},
        "paper": {},
        "tuned": {},
    },
)
