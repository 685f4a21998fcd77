"""Fisher-BRC: a critic that is the clone's log-density plus an offset with small slopes (Kostrikov, Tompson, Fergus &
Nachum 2021).

    Q(s, a) = O(s, a) + log mu(a|s)

Penalising |d O / d a|^2 at the policy's actions bounds the Fisher divergence between mu and the Boltzmann policy of
Q: off the data, the values follow the clone.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.cloning import CLONE, Clone, CloneConfig
from sbac.algorithms.evaluation import gaussian_actor, td_target
from sbac.config import config, layers, per_policy, polyak_rate, rate
from sbac.nn import Behaviour, BehaviourKind, Critic, GaussianPolicy, Multiplier, Trained, gradient, polyak, take


@config
class FisherBRCConfig(CloneConfig):
    steps: tuple[int, ...] = (1_000_000, 1_000_000)
    behaviour: BehaviourKind = "mixture-per-dim"
    clone_hidden: tuple[int, ...] = (256, 256)
    clone_learning_rate: float = 1e-3
    clone_decay: bool = True
    hidden: tuple[int, ...] = layers((256, 256, 256), "Units of each hidden layer of the policy and the critics.")
    policy_learning_rate: float = rate(3e-4, "Learning rate of the policy.")
    critic_learning_rate: float = rate(3e-4, "Learning rate of the offset O.")
    temperature_learning_rate: float = rate(3e-4, "Learning rate of the entropy's weight.")
    target_rate: float = polyak_rate(0.005)
    gradient_penalty: float = per_policy(0.1, "Weight of |d O / d a|^2 at the policy's actions.", at_least=0)
    reward_bonus: float = per_policy(
        5.0, "Added to every reward: it offsets log mu, negative for rare actions, and pays for staying alive."
    )


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    critic: Trained[Critic]
    critic_target: Critic
    temperature: Multiplier


def targets(
    config: FisherBRCConfig, clone: Behaviour, state: State, batch: Batch, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """r + bonus + gamma (min O(s', a') + log mu(a'|s')), a' ~ pi."""
    u = state.policy.model(batch.next_observations).sample_pre_tanh(key)
    offset = state.critic_target.minimum(batch.next_observations, jnp.tanh(u))
    value = offset + clone(batch.next_observations).log_prob_pre_tanh(u)
    return td_target(batch._replace(rewards=batch.rewards + config.reward_bonus), config.discount, value)


def squared_slopes(
    critic: Critic, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
) -> Float[Array, "members batch"]:
    """|d O / d a|^2 of each critic."""

    def one(net: Critic) -> Float[Array, " batch"]:
        slopes = gradient(lambda a: net(observations, a).sum(), actions)
        return (slopes**2).sum(-1)

    members = len(critic.nets.biases[0])
    return jnp.stack([one(take(critic, slice(i, i + 1))) for i in range(members)])


def critic_loss(
    critic: Critic,
    config: FisherBRCConfig,
    batch: Batch,
    log_mu: Float[Array, " batch"],
    target: Float[Array, " batch"],
    policy_actions: Float[Array, "batch act"],
) -> tuple[Float[Array, ""], Metrics]:
    """(O + log mu - target)^2 + weight |d O / d a|^2, summed over the critics; log mu is the clone's, and fixed."""
    values = critic(batch.observations, batch.actions) + log_mu
    error = ((values - target) ** 2).mean(-1).sum()
    penalty = squared_slopes(critic, batch.observations, policy_actions).mean(-1).sum()
    return error + config.gradient_penalty * penalty, {
        "critic_loss": error,
        "gradient_penalty": penalty,
        "q": values.mean(),
    }


def actor_loss(
    policy: GaussianPolicy,
    clone: Behaviour,
    critic: Critic,
    temperature: Float[Array, ""],
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Metrics]:
    """temperature log pi - (min O + log mu), at a ~ pi."""
    pi = policy(batch.observations)
    u = pi.sample_pre_tanh(key)
    log_pi = pi.log_prob_pre_tanh(u)
    log_mu = clone(batch.observations).log_prob_pre_tanh(u)
    value = critic.minimum(batch.observations, jnp.tanh(u)) + log_mu
    loss = (temperature * log_pi - value).mean()
    return loss, {"actor_loss": loss, "entropy": -log_pi.mean(), "log_mu": log_mu.mean()}


def init(config: FisherBRCConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    policy = GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    return State(Trained.create(policy), Trained.create(critic), critic, Multiplier.create(1.0))


def update(
    config: FisherBRCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target_key, penalty_key, actor_key = split(key, 3)
    before: Clone = past["clone"]
    clone = before.behaviour.model
    target = targets(config, clone, state, batch, target_key)
    log_mu = clone(batch.observations).log_prob(batch.actions)
    policy_actions = state.policy.model(batch.observations).sample(penalty_key)
    critic, critic_metrics = state.critic.minimise(
        lambda m: critic_loss(m, config, batch, log_mu, target, policy_actions), config.critic_learning_rate
    )
    policy, actor_metrics = state.policy.minimise(
        lambda m: actor_loss(m, clone, critic.model, state.temperature.value, batch, actor_key),
        config.policy_learning_rate,
    )
    shortfall = -actor_metrics["entropy"] - batch.actions.shape[-1]  # of the entropy, from -|A|
    temperature = state.temperature.update(shortfall, config.temperature_learning_rate)
    critic_target = polyak(state.critic_target, critic.model, config.target_rate)
    metrics = critic_metrics | actor_metrics | {"temperature": temperature.value}
    return State(policy, critic, critic_target, temperature), metrics


def validate(config: FisherBRCConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    target_key, penalty_key = split(key, 2)
    before: Clone = past["clone"]
    clone = before.behaviour.model
    target = targets(config, clone, state, batch, target_key)
    log_mu = clone(batch.observations).log_prob(batch.actions)
    policy_actions = state.policy.model(batch.observations).sample(penalty_key)
    return critic_loss(state.critic.model, config, batch, log_mu, target, policy_actions)[1]


FISHER_BRC = Algorithm(
    name="fisher-brc",
    config=FisherBRCConfig,
    phases=(CLONE, Phase("train", init, update, gaussian_actor, validate)),
    source="Kostrikov, Tompson, Fergus & Nachum 2021, Offline RL with Fisher Divergence Critic Regularization",
    grid={ANY_PRESET: {"gradient_penalty": [0.03, 0.1, 0.3, 1.0]}},
    presets={
        "quick": {
            "steps": (10_000, 30_000),
            "batch_size": 128,
            "clone_hidden": (64, 64),
            "hidden": (64, 64),
            "critic_learning_rate": 1e-3,
        },
        "paper": {"standardise_states": False},
    },
)
