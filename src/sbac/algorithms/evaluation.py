"""What the methods share: the TD target and loss of a critic, the policy that is one network, and the state of phase
*estimate*, which learns the behaviour mu and its value Q^mu (SBAC, one-step RL)."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.algorithms.base import Actor, Batch, Metrics, Past, Rows, Spec, split
from sbac.algorithms.cloning import negative_log_likelihood
from sbac.nn import BehaviourKind, Critic, GaussianPolicy, Trained
from sbac.nn.behaviour import Behaviour, create

# --- TD learning ------------------------------------------------------------------------------------------------


def td_target(
    batch: Batch, discount: float | Float[Array, ""], next_value: Float[Array, "*members batch"]
) -> Float[Array, "*members batch"]:
    """y = r + gamma V(s'), and y = r on terminal rows, after which nothing comes."""
    return batch.rewards + discount * (1.0 - batch.terminals) * next_value


def td_loss(critic: Critic, batch: Batch, target: Float[Array, " batch"]) -> tuple[Float[Array, ""], Metrics]:
    """(Q_i(s, a) - y)^2, averaged over the batch and summed over the critics i."""
    q = critic(batch.observations, batch.actions)
    loss = ((q - target) ** 2).mean(-1).sum()
    return loss, {"critic_loss": loss, "q": q.mean()}


# --- Policies ---------------------------------------------------------------------------------------------------


def actor_of(kind: str) -> Callable[[Any, Past, Any], Actor]:
    """The function `actor` of a phase whose policy is one network: the field `policy` of its state."""

    def actor(config: Any, past: Past, state: Any) -> Actor:
        return Actor(kind, {"policy": state.policy.model.net})

    return actor


gaussian_actor, deterministic_actor = actor_of("tanh-gaussian"), actor_of("deterministic")


# --- Phase estimate ---------------------------------------------------------------------------------------------


@runtime_checkable
class EstimateConfig(Protocol):
    """The config fields that the networks of phase estimate are built from."""

    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def behaviour(self) -> BehaviourKind: ...
    @property
    def critics(self) -> int: ...


class Estimate(eqx.Module):
    """mu, Q^mu and its target network.

    `clone` is the Gaussian that the policy may start from. It is mu as well, unless the config asks for a richer model
    of the behaviour, which `richer` then is.
    """

    clone: Trained[GaussianPolicy]
    richer: Trained[Behaviour] | None
    critic: Trained[Critic]
    target: Critic

    @property
    def mu(self) -> Behaviour:
        return self.clone.model if self.richer is None else self.richer.model


class Clones(eqx.Module):
    """The models of the behaviour after a step, and the loss of mu before it."""

    clone: Trained[GaussianPolicy]
    richer: Trained[Behaviour] | None
    loss: Float[Array, ""]


def init_estimate(
    config: EstimateConfig, spec: Spec, past: Past, key: PRNGKeyArray, *, normalise: bool = False
) -> Estimate:
    """`normalise` puts LayerNorm into the critics."""
    clone_key, richer_key, critic_key = split(key, 3)
    clone = GaussianPolicy.create(clone_key, spec.observations, config.hidden, spec.actions)
    richer = None
    if config.behaviour != "gaussian":
        richer = Trained.create(create(config.behaviour, richer_key, spec.observations, config.hidden, spec.actions))
    critic = Critic.create(
        critic_key, spec.observations, spec.actions, config.hidden, members=config.critics, normalise=normalise
    )
    return Estimate(Trained.create(clone), richer, Trained.create(critic), critic)


def clone_step(state: Estimate, rows: Rows, learning_rate: float | Float[Array, ""]) -> Clones:
    """One step of maximum likelihood of the data's actions, for the clone and, where there is one, the richer model."""

    def loss(model: Behaviour) -> tuple[Float[Array, ""], Float[Array, ""]]:
        value = negative_log_likelihood(model, rows)
        return value, value

    clone, value = state.clone.minimise(loss, learning_rate)
    richer = state.richer
    if richer is not None:
        richer, value = richer.minimise(loss, learning_rate)
    return Clones(clone, richer, value)


def clone_actor(config: EstimateConfig, past: Past, state: Estimate) -> Actor:
    return Actor("tanh-gaussian", {"policy": state.clone.model.net})
