"""One-step RL (Brandfonbrener et al., 2021) with reverse-KL regularisation: evaluate the behaviour, then improve on
it once. Q^mu is never evaluated at a policy's own actions at the next state, so its errors do not feed back."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, when
from sbac.algorithms.cloning import negative_log_likelihood
from sbac.algorithms.evaluation import (
    Clones,
    Estimate,
    clone_actor,
    clone_step,
    gaussian_actor,
    init_estimate,
    td_loss,
    td_target,
)
from sbac.config import Config, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import Behaviour, BehaviourKind, Critic, GaussianPolicy, Trained, polyak


@config
class OneStepConfig(Config):
    steps: tuple[int, ...] = (2_000_000, 100_000)
    batch_size: int = 512
    hidden: tuple[int, ...] = layers((1024, 1024))
    learning_rate: float = rate(1e-4, "Learning rate of the clone, the critic and the policy.")
    alpha: float = per_policy(
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


def evaluation_loss(
    config: OneStepConfig, critic: Critic, target: Critic, batch: Batch
) -> tuple[Float[Array, ""], Metrics]:
    """Equation (3) with the data's own a': (r + gamma Q'(s', a') - Q(s, a))^2, Q' the least of the target critics."""
    next_value = target.minimum(batch.next_observations, batch.next_actions)
    return td_loss(critic, batch, td_target(batch, config.discount, next_value))


def estimate(
    config: OneStepConfig, past: Past, state: Estimate, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Estimate, Metrics]:
    def clone() -> Clones:
        return clone_step(state, batch.rows, config.learning_rate)

    def wait() -> Clones:
        return Clones(state.clone, state.richer, negative_log_likelihood(state.mu, batch.rows))

    all_along = config.clone_steps >= config.steps[0]
    clones = when(all_along or step.number < config.clone_steps, clone, wait)
    critic, metrics = state.critic.minimise(
        lambda q: evaluation_loss(config, q, state.target, batch), config.learning_rate
    )
    target = polyak(state.target, critic.model, config.target_rate)
    return Estimate(clones.clone, clones.richer, critic, target), {"clone_loss": clones.loss, **metrics}


def validate_estimate(config: OneStepConfig, past: Past, state: Estimate, batch: Batch, key: PRNGKeyArray) -> Metrics:
    metrics = evaluation_loss(config, state.critic.model, state.target, batch)[1]
    return {"clone_loss": negative_log_likelihood(state.mu, batch.rows), **metrics}


# --- Phase 2: one improvement ------------------------------------------------------------------------------------


class Improve(eqx.Module):
    policy: Trained[GaussianPolicy]


def policy_loss(
    config: OneStepConfig, policy: GaussianPolicy, mu: Behaviour, critic: Critic, batch: Batch, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Metrics]:
    """-Q^mu(s, a) + alpha KL(pi(.|s) || mu(.|s)), a ~ pi; the tanh cancels in the KL."""
    pi = policy(batch.observations)
    u = pi.sample_pre_tanh(key, (config.samples,))
    kl = (pi.log_density(u) - mu(batch.observations).log_density(u)).mean()
    q = critic.minimum(batch.observations, jnp.tanh(u[0])).mean()
    return config.alpha * kl - q, {"q": q, "kl": kl}


def init_improve(config: OneStepConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Improve:
    before: Estimate = past["estimate"]
    return Improve(Trained.create(before.clone.model))


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


ONE_STEP = Algorithm(
    name="one-step",
    config=OneStepConfig,
    phases=(
        Phase("estimate", init_estimate, estimate, clone_actor, validate_estimate, needs="next_action"),
        Phase("improve", init_improve, improve, gaussian_actor, validate_improve, needs="row"),
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
        # The width, batch and rates of SBAC's own preset, so that the two differ in the method alone.
        "tuned": {
            "steps": (1_000_000, 200_000),
            "hidden": (256, 256),
            "batch_size": 256,
            "learning_rate": 3e-4,
            "critics": 2,
            "target_rate": 0.005,
            "clone_steps": 1_000_000,
        },
    },
)
