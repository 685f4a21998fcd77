"""One-step RL (Brandfonbrener et al., 2021) with reverse-KL regularisation: evaluate the behaviour, then improve on
it once. Q^mu never has to judge a policy's own actions at the next state, so nothing it overestimates feeds back."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from sbac.algorithms.base import (
    ANY_PRESET,
    Actor,
    Algorithm,
    Batch,
    Metrics,
    Past,
    Phase,
    Rows,
    Spec,
    Step,
    split,
    when,
)
from sbac.config import Config, config, layers, per_run, polyak_rate, rate, shared
from sbac.nn import BehaviourKind, Critic, GaussianPolicy, Trained, polyak
from sbac.nn.behaviour import Behaviour, create


@config
class OneStepConfig(Config):
    steps: tuple[int, ...] = (2_000_000, 100_000)
    batch_size: int = 512
    hidden: tuple[int, ...] = layers((1024, 1024))
    learning_rate: float = rate(1e-4, "Learning rate of the clone, the critic and the policy.")
    alpha: float = per_run(
        1.0, "Weight of KL(pi || mu); published: the best of 0.03, 0.1, 0.3, 1, 3 and 10 for each task.", at_least=0
    )
    behaviour: BehaviourKind = shared("gaussian", "The model of mu.", group="networks")
    clone_steps: int = shared(
        500_000, "In how many of the first phase's steps the clone is trained; the critic is in all.", at_least=0
    )
    critics: int = shared(1, "Q-networks; the policy climbs their minimum.", at_least=1, group="networks")
    samples: int = shared(10, "Actions for the estimate of the KL.", at_least=1)
    target_rate: float = polyak_rate(0.0025)


# --- Phase 1: the behaviour and its value ------------------------------------------------------------------------


class Estimate(eqx.Module):
    """`start` is the Gaussian clone that the policy starts from; the behaviour is the same one unless it is richer."""

    start: Trained[GaussianPolicy]
    behaviour: Trained[Any] | None
    critic: Trained[Critic]
    target: Critic

    @property
    def mu(self) -> Behaviour:
        return self.start.model if self.behaviour is None else self.behaviour.model


def clone_loss(model: Behaviour, rows: Rows) -> tuple[Array, Array]:
    loss = -model(rows.observations).log_prob(rows.actions).mean()
    return loss, loss


def evaluation_loss(config: OneStepConfig, critic: Critic, target: Critic, batch: Batch) -> tuple[Array, Metrics]:
    """Equation (3) with the data's own a': r + gamma Q'(s', a') - Q(s, a), squared."""
    next_value = target.minimum(batch.next_observations, batch.next_actions)
    value = batch.rewards + config.discount * (1.0 - batch.terminals) * next_value
    q = critic(batch.observations, batch.actions)
    loss = ((q - value) ** 2).mean(-1).sum()
    return loss, {"critic_loss": loss, "q": q.mean()}


def init_estimate(config: OneStepConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Estimate:
    start_key, behaviour_key, critic_key = split(key, 3)
    start = GaussianPolicy.create(start_key, spec.observations, config.hidden, spec.actions)
    behaviour = None
    if config.behaviour != "gaussian":
        model = create(config.behaviour, behaviour_key, spec.observations, config.hidden, spec.actions)
        behaviour = Trained.create(model)
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden, members=config.critics)
    return Estimate(Trained.create(start), behaviour, Trained.create(critic), critic)


def estimate(
    config: OneStepConfig, past: Past, state: Estimate, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Estimate, Metrics]:
    def clone() -> tuple[Trained[GaussianPolicy], Trained[Any] | None, Array]:
        start, loss = state.start.minimise(lambda m: clone_loss(m, batch.rows), config.learning_rate)
        if state.behaviour is None:
            return start, None, loss
        behaviour, loss = state.behaviour.minimise(lambda m: clone_loss(m, batch.rows), config.learning_rate)
        return start, behaviour, loss

    def wait() -> tuple[Trained[GaussianPolicy], Trained[Any] | None, Array]:
        return state.start, state.behaviour, clone_loss(state.mu, batch.rows)[1]

    all_along = config.clone_steps >= config.steps[0]
    start, behaviour, loss = when(all_along or step.number < config.clone_steps, clone, wait)
    critic, metrics = state.critic.minimise(
        lambda q: evaluation_loss(config, q, state.target, batch), config.learning_rate
    )
    target = polyak(state.target, critic.model, config.target_rate)
    return Estimate(start, behaviour, critic, target), {"clone_loss": loss, **metrics}


def validate_estimate(config: OneStepConfig, past: Past, state: Estimate, batch: Batch, key: PRNGKeyArray) -> Metrics:
    metrics = evaluation_loss(config, state.critic.model, state.target, batch)[1]
    return {"clone_loss": clone_loss(state.mu, batch.rows)[1], **metrics}


def clone_actor(config: OneStepConfig, past: Past, state: Estimate) -> Actor:
    return Actor("tanh-gaussian", {"policy": state.start.model.net})


# --- Phase 2: one improvement ------------------------------------------------------------------------------------


class Improve(eqx.Module):
    policy: Trained[GaussianPolicy]


def policy_loss(
    config: OneStepConfig, policy: GaussianPolicy, mu: Behaviour, critic: Critic, batch: Batch, key: PRNGKeyArray
) -> tuple[Array, Metrics]:
    """-Q^mu(s, a) + alpha KL(pi(.|s) || mu(.|s)), a ~ pi; the tanh cancels in the KL."""
    pi = policy(batch.observations)
    u = pi.sample_pre_tanh(key, (config.samples,))
    kl = (pi.log_density(u) - mu(batch.observations).log_density(u)).mean()
    q = critic.minimum(batch.observations, jnp.tanh(u[0])).mean()
    return config.alpha * kl - q, {"q": q, "kl": kl}


def init_improve(config: OneStepConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Improve:
    return Improve(Trained.create(past["estimate"].start.model))


def improve(
    config: OneStepConfig, past: Past, state: Improve, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Improve, Metrics]:
    before: Estimate = past["estimate"]
    policy, metrics = state.policy.minimise(
        lambda p: policy_loss(config, p, before.mu, before.critic.model, batch, key), config.learning_rate
    )
    return Improve(policy), metrics


def validate_improve(config: OneStepConfig, past: Past, state: Improve, batch: Batch, key: PRNGKeyArray) -> Metrics:
    before: Estimate = past["estimate"]
    return policy_loss(config, state.policy.model, before.mu, before.critic.model, batch, key)[1]


def actor(config: OneStepConfig, past: Past, state: Improve) -> Actor:
    return Actor("tanh-gaussian", {"policy": state.policy.model.net})


ONE_STEP = Algorithm(
    name="one-step",
    config=OneStepConfig,
    phases=(
        Phase("estimate", init_estimate, estimate, clone_actor, validate_estimate, needs="next_action"),
        Phase("improve", init_improve, improve, actor, validate_improve, needs="row"),
    ),
    source="Brandfonbrener et al., Offline RL Without Off-Policy Evaluation, NeurIPS 2021",
    grid={ANY_PRESET: {"alpha": [0.3, 1.0, 3.0, 10.0]}},
    presets={
        "quick": {
            "steps": (20_000, 10_000),
            "hidden": (64, 64),
            "batch_size": 128,
            "learning_rate": 1e-3,
            "alpha": 3.0,
            "critics": 2,
            "target_rate": 0.005,
        },
        "paper": {},
    },
)
