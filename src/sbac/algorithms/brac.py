"""BRAC: an actor-critic with a KL penalty towards a frozen clone of the data (Wu, Tucker & Nachum 2019).

`brac-p` penalises the policy, `brac-v` the value as well. The KL is the primal form: a mean of log pi - log mu over
a few actions of pi. Phase *clone* learns mu; the first steps of phase *train* only bring pi to it.
"""

import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.cloning import CLONE, Clone, CloneConfig
from sbac.algorithms.evaluation import gaussian_actor, td_loss, td_target
from sbac.config import config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Behaviour, Critic, GaussianPolicy, Trained, polyak


@config
class BRACConfig(CloneConfig):
    steps: tuple[int, ...] = (1_000_000, 1_000_000)
    alpha: float = per_policy(1.0, "Weight of the KL penalty.", at_least=0)
    policy_hidden: tuple[int, ...] = layers((200, 200), "Units of each hidden layer of the policy.")
    critic_hidden: tuple[int, ...] = layers((300, 300), "Units of each hidden layer of the critics.")
    policy_learning_rate: float = rate(3e-5, "Learning rate of the policy.")
    critic_learning_rate: float = rate(1e-3, "Learning rate of the critics.")
    target_rate: float = polyak_rate(0.005)
    kl_samples: int = shared(4, "Actions for the estimate of the KL.", at_least=1)
    warm_up: float = shared(
        0.02, "Share of the steps in which the policy only follows the clone.", at_least=0, at_most=1
    )


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    critic: Trained[Critic]
    critic_target: Critic


def divergence(
    policy: GaussianPolicy, clone: Behaviour, observations: Float[Array, "batch obs"], key: PRNGKeyArray, count: int
) -> Float[Array, " batch"]:
    """KL(pi || mu) at each state, over `count` actions of pi; the tanh cancels in the ratio."""
    pi = policy(observations)
    u = pi.sample_pre_tanh(key, (count,))
    return (pi.log_density(u) - clone(observations).log_density(u)).mean(0)


def targets(
    config: BRACConfig, clone: Behaviour, state: State, batch: Batch, key: PRNGKeyArray, value_penalty: bool
) -> Float[Array, " batch"]:
    """r + gamma (min Q(s', a' ~ pi) - [v only] alpha KL(s'))."""
    action_key, kl_key = split(key, 2)
    policy = state.policy.model
    next_actions = policy(batch.next_observations).sample(action_key)
    value = state.critic_target.minimum(batch.next_observations, next_actions)
    if value_penalty:
        value -= config.alpha * divergence(policy, clone, batch.next_observations, kl_key, config.kl_samples)
    return td_target(batch, config.discount, value)


def actor_loss(
    policy: GaussianPolicy,
    config: BRACConfig,
    clone: Behaviour,
    critic: Critic,
    batch: Batch,
    key: PRNGKeyArray,
    improving: Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """alpha KL(s) - min Q(s, a ~ pi); `improving` is 0 in the warm-up and 1 after it."""
    action_key, kl_key = split(key, 2)
    actions = policy(batch.observations).sample(action_key)
    q = critic.minimum(batch.observations, actions).mean()
    kl = divergence(policy, clone, batch.observations, kl_key, config.kl_samples).mean()
    loss = config.alpha * kl - improving * q
    return loss, {"actor_loss": loss, "kl": kl}


def init(config: BRACConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.critic_hidden)
    policy = GaussianPolicy.create(policy_key, spec.observations, config.policy_hidden, spec.actions)
    return State(Trained.create(policy), Trained.create(critic), critic)


def update(
    config: BRACConfig,
    past: Past,
    state: State,
    batch: Batch,
    key: PRNGKeyArray,
    step: Step,
    *,
    value_penalty: bool,
) -> tuple[State, Metrics]:
    target_key, actor_key = split(key, 2)
    before: Clone = past["clone"]
    clone = before.behaviour.model
    target = targets(config, clone, state, batch, target_key, value_penalty)
    critic, critic_metrics = state.critic.minimise(lambda m: td_loss(m, batch, target), config.critic_learning_rate)
    improving = (step.number >= config.warm_up * config.steps[1]).astype(jnp.float32)
    policy, actor_metrics = state.policy.minimise(
        lambda m: actor_loss(m, config, clone, critic.model, batch, actor_key, improving), config.policy_learning_rate
    )
    critic_target = polyak(state.critic_target, critic.model, config.target_rate)
    return State(policy, critic, critic_target), critic_metrics | actor_metrics


def validate(
    config: BRACConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, *, value_penalty: bool
) -> Metrics:
    before: Clone = past["clone"]
    clone = before.behaviour.model
    target = targets(config, clone, state, batch, key, value_penalty)
    kl = divergence(state.policy.model, clone, batch.observations, key, config.kl_samples).mean()
    return td_loss(state.critic.model, batch, target)[1] | {"kl": kl}


def variant(name: str, *, value_penalty: bool) -> Algorithm:
    train = functools.partial(update, value_penalty=value_penalty)
    check = functools.partial(validate, value_penalty=value_penalty)
    return Algorithm(
        name=name,
        config=BRACConfig,
        phases=(CLONE, Phase("train", init, train, gaussian_actor, check)),
        source="Wu, Tucker & Nachum 2019, Behavior Regularized Offline Reinforcement Learning",
        grid={ANY_PRESET: {"alpha": [0.3, 1.0, 3.0, 10.0]}},
        presets={
            "quick": {
                "steps": (10_000, 30_000),
                "batch_size": 128,
                "clone_hidden": (64, 64),
                "policy_hidden": (64, 64),
                "critic_hidden": (64, 64),
                "clone_learning_rate": 1e-3,
                "policy_learning_rate": 3e-4,
            },
            "paper": {"standardise_states": False},
        },
    )


BRAC_P = variant("brac-p", value_penalty=False)
BRAC_V = variant("brac-v", value_penalty=True)
