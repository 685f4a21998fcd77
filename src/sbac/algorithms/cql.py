"""Conservative Q-learning (Kumar et al., 2020), CQL(H): soft actor-critic whose critic is pushed down where the
policy, or chance, might go, and up at the data's actions."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.evaluation import gaussian_actor, td_target
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Critic, GaussianPolicy, Multiplier, Trained, polyak


@config
class CQLConfig(Config):
    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256, 256))
    policy_learning_rate: float = rate(1e-4, "Learning rate of the policy.")
    critic_learning_rate: float = rate(3e-4, "Learning rate of the critics.")
    alpha: float = per_policy(5.0, "Weight of the conservative penalty.", at_least=0)
    samples: int = shared(
        10, "Actions from each of the three proposals that estimate the penalty's log-sum-exp.", at_least=1
    )
    lagrange: bool = shared(False, "Tune the penalty's weight so that alpha times the penalty stays at `threshold`.")
    threshold: float = per_policy(10.0, "Where `lagrange` holds alpha times the penalty.")
    clone_steps: int = shared(0, "First steps in which the policy is cloned instead of improved.", at_least=0)
    target_rate: float = polyak_rate(0.005)


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    critic: Trained[Critic]
    target: Critic
    temperature: Multiplier
    multiplier: Multiplier


def bootstrap_target(config: CQLConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """y = r + gamma min_i Q_i'(s', a'), a' ~ pi; the entropy is left out, as in the published code."""
    next_actions = state.policy.model(batch.next_observations).sample(key)
    next_value = state.target.minimum(batch.next_observations, next_actions)
    return td_target(batch, config.discount, next_value)


class Proposals(eqx.Module):
    """Actions at which Q is pushed down, and the log densities they were drawn with."""

    actions: Float[Array, "samples batch act"]
    log_density: Float[Array, "samples batch"]


def propose(policy: GaussianPolicy, batch: Batch, count: int, key: PRNGKeyArray) -> Proposals:
    """Uniform actions, and the policy's at s and at s'; all of them will be judged at s."""
    uniform_key, key, next_key = split(key, 3)
    uniform = jax.random.uniform(uniform_key, (count, *batch.actions.shape), minval=-1.0, maxval=1.0)
    actions, log_densities = [uniform], [jnp.full(uniform.shape[:-1], -uniform.shape[-1] * math.log(2.0))]
    for observations, k in ((batch.observations, key), (batch.next_observations, next_key)):
        pi = policy(observations)
        u = pi.sample_pre_tanh(k, (count,))
        actions.append(jnp.tanh(u))
        log_densities.append(pi.log_prob_pre_tanh(u))
    return Proposals(jnp.concatenate(actions), jnp.concatenate(log_densities))


def penalty(critic: Critic, batch: Batch, proposals: Proposals) -> Float[Array, " members"]:
    """Equation (4): log sum_a exp Q(s, a), by importance weights, minus Q at the data's action."""
    observations = jnp.broadcast_to(batch.observations, (len(proposals.actions), *batch.observations.shape))
    q = critic(observations, proposals.actions) - proposals.log_density
    return (jax.nn.logsumexp(q, axis=1) - critic(batch.observations, batch.actions)).mean(-1)


def critic_loss(
    config: CQLConfig,
    critic: Critic,
    batch: Batch,
    target: Float[Array, " batch"],
    proposals: Proposals,
    multiplier: Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """(Q - y)^2 + alpha times the penalty; with `lagrange`, multiplier (alpha penalty - threshold) in its place."""
    q = critic(batch.observations, batch.actions)
    error = ((q - target) ** 2).mean(-1)
    gap = penalty(critic, batch, proposals)
    conservative = config.alpha * gap
    if config.lagrange:
        conservative = multiplier * (conservative - config.threshold)
    return (error + conservative).sum(), {"critic_loss": error.sum(), "q": q.mean(), "penalty": gap.mean()}


def policy_loss(
    policy: GaussianPolicy,
    critic: Critic,
    temperature: Float[Array, ""],
    batch: Batch,
    key: PRNGKeyArray,
    cloning: bool | Bool[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """Soft actor-critic's; while cloning, the data's log likelihood stands in for Q."""
    pi = policy(batch.observations)
    u = pi.sample_pre_tanh(key)
    log_prob = pi.log_prob_pre_tanh(u)
    gain = jnp.where(cloning, pi.log_prob(batch.actions), critic.minimum(batch.observations, jnp.tanh(u)))
    return (temperature * log_prob - gain).mean(), {"entropy": -log_prob.mean()}


def init(config: CQLConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    policy = GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    return State(Trained.create(policy), Trained.create(critic), critic, Multiplier.create(1.0), Multiplier.create(1.0))


def update(
    config: CQLConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target_key, proposal_key, policy_key = split(key, 3)
    target = bootstrap_target(config, state, batch, target_key)
    proposals = propose(state.policy.model, batch, config.samples, proposal_key)
    temperature, multiplier = state.temperature.value, state.multiplier.value

    critic, critic_metrics = state.critic.minimise(
        lambda q: critic_loss(config, q, batch, target, proposals, multiplier), config.critic_learning_rate
    )
    policy, policy_metrics = state.policy.minimise(
        lambda p: policy_loss(p, critic.model, temperature, batch, policy_key, step.number < config.clone_steps),
        config.policy_learning_rate,
    )
    target_entropy = -batch.actions.shape[-1]
    dual = state.multiplier
    if config.lagrange:
        violation = config.alpha * critic_metrics["penalty"] - config.threshold
        dual = dual.update(violation, config.critic_learning_rate)
    return State(
        policy,
        critic,
        polyak(state.target, critic.model, config.target_rate),
        state.temperature.update(target_entropy - policy_metrics["entropy"], config.policy_learning_rate),
        dual,
    ), {**critic_metrics, **policy_metrics, "temperature": temperature, "multiplier": multiplier}


def validate(config: CQLConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    target_key, proposal_key = split(key, 2)
    target = bootstrap_target(config, state, batch, target_key)
    proposals = propose(state.policy.model, batch, config.samples, proposal_key)
    return critic_loss(config, state.critic.model, batch, target, proposals, state.multiplier.value)[1]


ADROIT = {"alpha": 1.0, "policy_learning_rate": 1e-4}

CQL = Algorithm(
    name="cql",
    config=CQLConfig,
    phases=(Phase("train", init, update, gaussian_actor, validate),),
    source="Kumar et al., Conservative Q-Learning for Offline Reinforcement Learning, NeurIPS 2020",
    grid={ANY_PRESET: {"alpha": [1.0, 2.5, 5.0, 10.0]}},
    presets={
        "quick": {
            "steps": (30_000,),
            "hidden": (64, 64),
            "batch_size": 128,
            "policy_learning_rate": 3e-4,
            "critic_learning_rate": 1e-3,
            "samples": 4,
        },
        "paper": {"alpha": 10.0, "policy_learning_rate": 3e-5},
    },
    task_settings={
        "hopper-medium-v2": {"reward_scale": "return-range"},
        **{f"{task}-human-v1": ADROIT for task in ("pen", "hammer", "door", "relocate")},
    },
)
