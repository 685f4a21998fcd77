"""Soft actor-critic (Haarnoja et al., 2018, second version): maximum-entropy control with a tuned temperature."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split
from sbac.algorithms.evaluation import gaussian_actor, td_loss, td_target
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Critic, GaussianPolicy, Multiplier, Trained, polyak


@config
class SACConfig(Config):
    steps: tuple[int, ...] = (1_000_000,)
    hidden: tuple[int, ...] = layers((256, 256))
    learning_rate: float = rate(3e-4, "Learning rate of the policy, the critics and the temperature.")
    target_rate: float = polyak_rate(0.005)
    start_steps: int = shared(
        10_000, "Environment steps with uniform actions before the first update.", at_least=0, group="training"
    )
    exploration: float = per_policy(
        0.0, "Deviation of the noise added to the policy's own samples when acting.", at_least=0
    )
    standardise_states: bool = False


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    critic: Trained[Critic]
    target: Critic
    temperature: Multiplier


def act(
    policy: GaussianPolicy, observations: Float[Array, "batch obs"], key: PRNGKeyArray
) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
    """Reparametrised actions and their log density."""
    pi = policy(observations)
    u = pi.sample_pre_tanh(key)
    return jnp.tanh(u), pi.log_prob_pre_tanh(u)


def critic_target(config: SACConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """r + gamma (min Q'(s', a') - temperature log pi(a'|s')), a' from the policy."""
    next_actions, next_log_prob = act(state.policy.model, batch.next_observations, key)
    next_value = state.target.minimum(batch.next_observations, next_actions) - state.temperature.value * next_log_prob
    return td_target(batch, config.discount, next_value)


def policy_loss(
    policy: GaussianPolicy, critic: Critic, temperature: Float[Array, ""], batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """temperature log pi(a|s) - min Q(s, a), a ~ pi; returns the entropy as well."""
    actions, log_prob = act(policy, batch.observations, key)
    return (temperature * log_prob - critic.minimum(batch.observations, actions)).mean(), -log_prob.mean()


def init(config: SACConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    policy_key, critic_key = split(key, 2)
    policy = GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    return State(Trained.create(policy), Trained.create(critic), critic, Multiplier.create(1.0))


def update(
    config: SACConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    next_key, key = split(key, 2)
    temperature = state.temperature.value
    target = critic_target(config, state, batch, next_key)
    critic, metrics = state.critic.minimise(lambda q: td_loss(q, batch, target), config.learning_rate)
    policy, entropy = state.policy.minimise(
        lambda p: policy_loss(p, critic.model, temperature, batch, key), config.learning_rate
    )
    target_entropy = -batch.actions.shape[-1]
    return State(
        policy,
        critic,
        polyak(state.target, critic.model, config.target_rate),
        state.temperature.update(target_entropy - entropy, config.learning_rate),
    ), {"q": metrics["q"], "entropy": entropy, "temperature": temperature}


SAC = Algorithm(
    name="sac",
    config=SACConfig,
    phases=(Phase("train", init, update, gaussian_actor),),
    source="Haarnoja et al., Soft Actor-Critic Algorithms and Applications, 2018",
    presets={"quick": {"steps": (100_000,)}, "paper": {}},
    online=True,
)
