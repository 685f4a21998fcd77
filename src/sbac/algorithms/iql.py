"""Implicit Q-learning (Kostrikov et al., 2022): improves the policy without evaluating Q at unseen actions."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Actor, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.evaluation import td_loss, td_target
from sbac.config import Config, RewardScale, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import MLP, Critic, Trained, half_cosine, polyak

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
MAX_WEIGHT = 100.0


@config
class IQLConfig(Config):
    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    learning_rate: float = rate(
        3e-4, "Learning rate of V and Q; the policy's begins there and falls to 0 along a cosine."
    )
    expectile: float = per_policy(
        0.7, "tau: 0.5 averages over the data's actions, towards 1 it takes their best.", above=0, below=1
    )
    temperature: float = per_policy(
        3.0, "beta: how sharply the policy prefers actions of high advantage; 0 clones.", at_least=0
    )
    dropout: float = shared(
        0.0, "Share of the policy's hidden units left out, in training only.", at_least=0, below=1, group="networks"
    )
    target_rate: float = polyak_rate(0.005)
    standardise_states: bool = False
    reward_scale: RewardScale = "return-range"


class Policy(eqx.Module):
    """A Gaussian over actions, not squashed: mean tanh(net(s)), one standard deviation for all states."""

    net: MLP
    raw_log_std: Float[Array, " act"]

    @property
    def log_std(self) -> Float[Array, " act"]:
        return jnp.clip(self.raw_log_std, LOG_STD_MIN, LOG_STD_MAX)

    def log_prob(
        self,
        observations: Float[Array, "batch obs"],
        actions: Float[Array, "batch act"],
        dropout: float = 0.0,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, " batch"]:
        """log pi(a|s); with a key, of the network with dropout."""
        mean = jnp.tanh(self.net(observations, dropout=dropout, key=key))
        z = (actions - mean) * jnp.exp(-self.log_std)
        return -(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)


class State(eqx.Module):
    value: Trained[MLP]
    critic: Trained[Critic]
    target: Critic
    policy: Trained[Policy]


def value_loss(config: IQLConfig, value: MLP, target: Critic, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """Equation (5): the expectile tau of Q over the data's actions, |tau - 1(u < 0)| u^2 with u = Q - V."""
    v = value.scalar(batch.observations)
    u = target.minimum(batch.observations, batch.actions) - v
    weight = jnp.where(u > 0, config.expectile, 1.0 - config.expectile)
    loss = (weight * u**2).mean()
    return loss, {"value_loss": loss, "v": v.mean()}


def critic_loss(config: IQLConfig, critic: Critic, value: MLP, batch: Batch) -> tuple[Float[Array, ""], Metrics]:
    """Equation (6): (r + gamma V(s') - Q(s, a))^2."""
    return td_loss(critic, batch, td_target(batch, config.discount, value.scalar(batch.next_observations)))


def policy_loss(
    config: IQLConfig, policy: Policy, value: MLP, target: Critic, batch: Batch, key: PRNGKeyArray | None
) -> tuple[Float[Array, ""], Metrics]:
    """Equation (7): log likelihood of the data's actions, weighted by exp(beta (Q - V))."""
    advantage = target.minimum(batch.observations, batch.actions) - value.scalar(batch.observations)
    weight = jnp.minimum(jnp.exp(config.temperature * advantage), MAX_WEIGHT)
    log_prob = policy.log_prob(batch.observations, batch.actions, config.dropout, key)
    loss = -(weight * log_prob).mean()
    return loss, {"policy_loss": loss, "weight": weight.mean()}


def init(config: IQLConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    value_key, critic_key, policy_key = split(key, 3)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    policy = Policy(MLP.create(policy_key, spec.observations, config.hidden, spec.actions), jnp.zeros(spec.actions))
    value = MLP.create(value_key, spec.observations, config.hidden, 1)
    return State(Trained.create(value), Trained.create(critic), critic, Trained.create(policy))


def update(
    config: IQLConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    value, value_metrics = state.value.minimise(
        lambda v: value_loss(config, v, state.target, batch), config.learning_rate
    )
    dropout_key = key if config.dropout > 0 else None
    policy, policy_metrics = state.policy.minimise(
        lambda p: policy_loss(config, p, value.model, state.target, batch, dropout_key),
        config.learning_rate * half_cosine(step.number, config.steps[0]),
    )
    critic, critic_metrics = state.critic.minimise(
        lambda q: critic_loss(config, q, value.model, batch), config.learning_rate
    )
    target = polyak(state.target, critic.model, config.target_rate)
    return State(value, critic, target, policy), value_metrics | policy_metrics | critic_metrics


def validate(config: IQLConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    value = state.value.model
    return (
        value_loss(config, value, state.target, batch)[1]
        | critic_loss(config, state.critic.model, value, batch)[1]
        | policy_loss(config, state.policy.model, value, state.target, batch, None)[1]
    )


def actor(config: IQLConfig, past: Past, state: State) -> Actor:
    policy = state.policy.model
    return Actor("gaussian", {"policy": policy.net}, {"log_std": policy.log_std})


ADROIT = {"temperature": 0.5, "dropout": 0.1, "reward_scale": "none"}

IQL = Algorithm(
    name="iql",
    config=IQLConfig,
    phases=(Phase("train", init, update, actor, validate),),
    source="Kostrikov, Nair and Levine, Offline Reinforcement Learning with Implicit Q-Learning, ICLR 2022",
    grid={ANY_PRESET: {"temperature": [0.5, 1.0, 3.0, 10.0]}},
    presets={
        "quick": {
            "steps": (30_000,),
            "hidden": (64, 64),
            "batch_size": 128,
            "learning_rate": 1e-3,
            "standardise_states": True,
        },
        "paper": {},
        "tuned": {"standardise_states": True},
    },
    task_settings={f"{task}-human-v1": ADROIT for task in ("pen", "hammer", "door", "relocate")},
)
