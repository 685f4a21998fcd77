"""BRAC+: BRAC with an upper bound of the KL, a multiplier per state and a gradient penalty (Zhang et al. 2021).

Phase *clone* fits an ensemble of VAEs to the data. Phase *initial* brings the policy as near to it as it gets, which
measures the distance no policy can undercut. Phase *train* maximises Q while the distance stays within a margin of
that, and flattens Q where the policy has left the data.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac.algorithms.base import ANY_PRESET, Actor, Algorithm, Batch, Metrics, Past, Phase, Rows, Spec, Step, split
from sbac.algorithms.evaluation import gaussian_actor, td_loss, td_target
from sbac.config import Config, RewardScale, config, layers, per_policy, polyak_rate, rate, shared
from sbac.nn import (
    MLP,
    Critic,
    GaussianPolicy,
    Multiplier,
    Trained,
    VAEEnsemble,
    gradient,
    mmd,
    polyak,
    pre_tanh,
)

WINDOW = 2500  # steps over which distances are averaged, or a tenth of a short phase
FLOOR, CEILING = -8.0, 1e4  # of what softplus makes a multiplier: 0.0003 to 10,000
Alpha = MLP | Array
"""The network alpha(s) or the number alpha; softplus of it is the multiplier."""


@config
class BRACPlusConfig(Config):
    steps: tuple[int, ...] = (500_000, 500_000, 1_000_000)
    batch_size: int = 100
    reward_scale: RewardScale = "unit"
    hidden: tuple[int, ...] = layers((256, 256))
    members: int = shared(3, "VAEs in the ensemble.", at_least=1, group="networks")
    divergence: Literal["kl", "mmd"] = shared("kl", "The distance from the data: kl (a bound of it) or mmd.")
    kernel_width: float = per_policy(120.0, "sigma of the MMD's Laplacian kernel.", above=0)
    margin: float = per_policy(0.2, "How far the distance may exceed that of the initial policy.", at_least=0)
    multiplier: Literal["state", "scalar"] = shared(
        "state", "state: alpha(s), as the paper has it; scalar: one number, as its code has it."
    )
    alpha: float = per_policy(10.0, "The multiplier's first value.", above=0)
    entropy_weight: float = per_policy(10.0, "First weight of the entropy's bound.", at_least=0)
    entropy_scale: float = per_policy(
        4.0, "The entropy's bound (kl: from above, mmd: below) is the data's with deviations divided by this.", above=0
    )
    gradient_penalty: float = per_policy(
        0.1, "First and smallest weight of the penalty on Q's slope in the policy's actions off the data.", at_least=0
    )
    gradient_limit: float = per_policy(0.01, "That weight grows while the penalised slope is above this.", at_least=0)
    clone_learning_rate: float = rate(1e-3, "Learning rate of the clone.")
    initial_learning_rate: float = rate(1e-3, "Learning rate of the initial policy.")
    policy_learning_rate: float = rate(5e-6, "Learning rate of the policy in phase train.")
    critic_learning_rate: float = rate(3e-4, "Learning rate of the critics.")
    dual_learning_rate: float = rate(1e-3, "Learning rate of the multipliers that are numbers.")
    # All weights of the network move its output, which is far faster than a number at the same rate.
    multiplier_learning_rate: float = rate(1e-5, "Learning rate of the network alpha(s).")
    target_rate: float = polyak_rate(0.001)
    samples: int = shared(5, "Actions of the policy per state, in every expectation over them.", at_least=1)
    codes: int = shared(5, "Codes per action in the bound of the KL.", at_least=1)
    acting_candidates: int = shared(
        20, "Actions within one deviation that acting takes the best of, by the critics; 1: the mean.", at_least=1
    )


def decayed(rate: float | Float[Array, ""], step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """The rate over five equal stretches: 1, 0.5, 0.1, 0.05, 0.01 times itself."""
    stretch = jnp.clip(5 * step // max(steps, 1), 0, 4)
    return rate * jnp.asarray([1.0, 0.5, 0.1, 0.05, 0.01])[stretch]


def running_mean(mean: Float[Array, ""], value: Float[Array, ""], step: Int[Array, ""], steps: int) -> Float[Array, ""]:
    """The mean so far, and later one over about the last WINDOW steps, in which the first steps no longer count."""
    window = max(1, min(WINDOW, steps // 10))
    return mean + jnp.maximum(1.0 / window, 1.0 / (step + 1)) * (value - mean)


# --- Phase clone ------------------------------------------------------------------------------------------------


class Clone(eqx.Module):
    behaviour: Trained[VAEEnsemble]
    loss: Float[Array, ""]
    """Running mean of the bound of -log mu(a|s): the entropy of the data."""


def clone_loss(model: VAEEnsemble, rows: Rows, key: PRNGKeyArray) -> tuple[Float[Array, ""], Metrics]:
    """-log mu(a|s), bounded from above."""
    each = model.negative_elbos(rows.observations, pre_tanh(rows.actions), key)
    return each.sum(), {"clone_loss": each.mean()}


def init_clone(config: BRACPlusConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Clone:
    model = VAEEnsemble.create(key, spec.observations, config.hidden, spec.actions, config.members)
    return Clone(Trained.create(model), jnp.zeros(()))


def update_clone(
    config: BRACPlusConfig, past: Past, state: Clone, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Clone, Metrics]:
    rate = decayed(config.clone_learning_rate, step.number, config.steps[0])
    model, metrics = state.behaviour.minimise(lambda m: clone_loss(m, batch.rows, key), rate)
    return Clone(model, running_mean(state.loss, metrics["clone_loss"], step.number, config.steps[0])), metrics


def validate_clone(config: BRACPlusConfig, past: Past, state: Clone, batch: Batch, key: PRNGKeyArray) -> Metrics:
    return clone_loss(state.behaviour.model, batch.rows, key)[1]


def clone_actor(config: BRACPlusConfig, past: Past, state: Clone) -> Actor:
    return Actor("deterministic", {"policy": state.behaviour.model.central_policy()})


# --- The distance -----------------------------------------------------------------------------------------------


class Proposal(eqx.Module):
    """Actions of the policy at a batch of states, with their distance from the data and their entropy."""

    u: Float[Array, "samples batch act"]
    distance: Float[Array, " batch"]
    entropy: Float[Array, " batch"]


def propose(
    config: BRACPlusConfig,
    policy: GaussianPolicy,
    model: VAEEnsemble,
    observations: Float[Array, "batch obs"],
    key: PRNGKeyArray,
    samples: int,
) -> Proposal:
    policy_key, model_key = split(key, 2)
    pi = policy(observations)
    u = pi.sample_pre_tanh(policy_key, (samples,))
    if config.divergence == "mmd":
        logged = model.sample_pre_tanh(observations, model_key, config.samples)
        distance = mmd(u, logged, "laplacian", config.kernel_width)
    else:
        distance = model.kl_upper_bound(pi, observations, u, model_key, config.codes)
    return Proposal(u, distance, -pi.log_prob_pre_tanh(u).mean(0))


def entropy_excess(config: BRACPlusConfig, past: Past, proposal: Proposal) -> Float[Array, ""]:
    """By how much the entropy breaks its bound: from above for the KL, which rewards entropy, else from below."""
    clone: Clone = past["clone"]
    actions = proposal.u.shape[-1]
    excess = proposal.entropy.mean() - (clone.loss - actions * jnp.log(config.entropy_scale))
    return -excess if config.divergence == "mmd" else excess


# --- Phase initial ----------------------------------------------------------------------------------------------


class Initial(eqx.Module):
    policy: Trained[GaussianPolicy]
    entropy_weight: Multiplier
    distance: Float[Array, ""]
    """Running mean of the distance between policy and data."""


def initial_loss(
    policy: GaussianPolicy,
    config: BRACPlusConfig,
    past: Past,
    entropy_weight: Float[Array, ""],
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Metrics]:
    """D(s) + beta times the entropy's excess."""
    clone: Clone = past["clone"]
    proposal = propose(config, policy, clone.behaviour.model, batch.observations, key, config.samples)
    distance, excess = proposal.distance.mean(), entropy_excess(config, past, proposal)
    return distance + entropy_weight * excess, {"distance": distance, "entropy_excess": excess}


def init_initial(config: BRACPlusConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Initial:
    policy = GaussianPolicy.create(key, spec.observations, config.hidden, spec.actions)
    return Initial(Trained.create(policy), Multiplier.create(config.entropy_weight), jnp.zeros(()))


def update_initial(
    config: BRACPlusConfig, past: Past, state: Initial, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Initial, Metrics]:
    weight = state.entropy_weight.value
    rate = decayed(config.initial_learning_rate, step.number, config.steps[1])
    policy, metrics = state.policy.minimise(lambda m: initial_loss(m, config, past, weight, batch, key), rate)
    entropy_weight = state.entropy_weight.update(metrics["entropy_excess"], config.dual_learning_rate)
    distance = running_mean(state.distance, metrics["distance"], step.number, config.steps[1])
    return Initial(policy, entropy_weight, distance), metrics


def validate_initial(config: BRACPlusConfig, past: Past, state: Initial, batch: Batch, key: PRNGKeyArray) -> Metrics:
    return initial_loss(state.policy.model, config, past, state.entropy_weight.value, batch, key)[1]


# --- Phase train ------------------------------------------------------------------------------------------------


class State(eqx.Module):
    policy: Trained[GaussianPolicy]
    policy_target: GaussianPolicy
    critic: Trained[Critic]
    critic_target: Critic
    alpha: Trained[Alpha]
    entropy_weight: Multiplier
    penalty_weight: Multiplier
    distance: Float[Array, ""]
    squared_distance: Float[Array, ""]
    """Running means: a state counts as off the data above the mean plus one deviation."""


def raw_multipliers(model: Alpha, observations: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
    return model.scalar(observations) if isinstance(model, MLP) else jnp.broadcast_to(model, len(observations))


def multipliers(model: Alpha, observations: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
    return jnp.minimum(jax.nn.softplus(raw_multipliers(model, observations)), CEILING)


def dual_loss(
    model: Alpha, observations: Float[Array, "batch obs"], excess: Float[Array, " batch"]
) -> tuple[Float[Array, ""], None]:
    """Pushes the multiplier of each state up where its bound is broken, and down where not.

    The push is on the argument of softplus, and ends at its bounds: the slope of softplus itself vanishes where the
    multiplier is small, so that a multiplier that had shrunk to 0 would never grow again.
    """
    raw = raw_multipliers(model, observations)
    push = jnp.where(raw < FLOOR, jnp.maximum(excess, 0.0), jnp.where(raw > CEILING, jnp.minimum(excess, 0.0), excess))
    return -(raw * jax.lax.stop_gradient(push)).mean(), None


def push_multipliers(
    config: BRACPlusConfig,
    alpha: Trained[Alpha],
    observations: Float[Array, "batch obs"],
    excess: Float[Array, " batch"],
) -> Trained[Alpha]:
    """A step of the dual: `excess` is by how much each state's distance breaks its bound."""
    rate = config.multiplier_learning_rate if config.multiplier == "state" else config.dual_learning_rate
    return alpha.minimise(lambda m: dual_loss(m, observations, excess), rate)[0]


def targets(config: BRACPlusConfig, state: State, batch: Batch, key: PRNGKeyArray) -> Float[Array, " batch"]:
    """r + gamma max over some a' ~ target policy of min Q(s', a')."""
    candidates = state.policy_target(batch.next_observations).sample(key, (config.samples,))
    repeated = jnp.broadcast_to(batch.next_observations, (*candidates.shape[:-1], batch.next_observations.shape[-1]))
    best = state.critic_target.minimum(repeated, candidates).max(0)
    return td_target(batch, config.discount, best)


def off_data(
    config: BRACPlusConfig, distance: Float[Array, " batch"], threshold: Float[Array, ""]
) -> Float[Array, " batch"]:
    """The penalty's weight of each state: the further its policy is from the data, the more."""
    excess = distance - threshold
    if config.divergence == "mmd":
        return (excess > 0.0).astype(jnp.float32)
    # softplus(excess) over its maximum, by logarithms: far below the threshold softplus itself is 0 in float32.
    logs = jnp.where(excess > -15.0, jnp.log(jax.nn.softplus(jnp.maximum(excess, -15.0))), excess)
    return jnp.exp(logs - logs.max())


def slopes(
    critic: Critic, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
) -> Float[Array, " batch"]:
    """|d min Q / d a|."""
    each = gradient(lambda a: critic.minimum(observations, a).sum(), actions)
    return jnp.sqrt((each**2).sum(-1) + 1e-12)


def critic_loss(
    critic: Critic,
    batch: Batch,
    target: Float[Array, " batch"],
    actions: Float[Array, "batch act"],
    weights: Float[Array, " batch"],
    penalty_weight: Float[Array, ""],
) -> tuple[Float[Array, ""], Metrics]:
    """(Q - y)^2 / 2 + weight |d min Q / d a| at the policy's actions, the more so the further they are off the data."""
    squared, metrics = td_loss(critic, batch, target)
    error = 0.5 * squared
    penalty = (weights * slopes(critic, batch.observations, actions)).mean()
    return error + penalty_weight * penalty, {"critic_loss": error, "q": metrics["q"], "gradient_penalty": penalty}


def actor_loss(
    policy: GaussianPolicy,
    config: BRACPlusConfig,
    past: Past,
    state: State,
    critic: Critic,
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], tuple[Proposal, Metrics]]:
    """-min Q(s, a ~ pi) + alpha(s) D(s) + beta times the entropy's excess."""
    clone: Clone = past["clone"]
    proposal = propose(config, policy, clone.behaviour.model, batch.observations, key, config.samples)
    repeated = jnp.broadcast_to(batch.observations, (config.samples, *batch.observations.shape))
    q = critic.minimum(repeated, jnp.tanh(proposal.u)).mean()
    alpha = multipliers(state.alpha.model, batch.observations)
    excess = entropy_excess(config, past, proposal)
    loss = -q + (alpha * proposal.distance).mean() + state.entropy_weight.value * excess
    metrics = {
        "actor_loss": loss,
        "distance": proposal.distance.mean(),
        "entropy_excess": excess,
        "multiplier": alpha.mean(),
    }
    return loss, (proposal, metrics)


def init(config: BRACPlusConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> State:
    critic_key, alpha_key = split(key, 2)
    before: Initial = past["initial"]
    critic = Critic.create(critic_key, spec.observations, spec.actions, config.hidden)
    first = jnp.log(jnp.expm1(jnp.asarray(config.alpha)))  # softplus of it is alpha
    alpha: Alpha = first
    if config.multiplier == "state":
        net = MLP.create(alpha_key, spec.observations, config.hidden, 1, last_scale=0.01)
        alpha = MLP(net.weights, [*net.biases[:-1], net.biases[-1] + first])
    distance = before.distance + 2.0 * config.margin
    return State(
        Trained.create(before.policy.model),
        before.policy.model,
        Trained.create(critic),
        critic,
        Trained.create(alpha),
        Multiplier.create(before.entropy_weight.value),
        Multiplier.create(config.gradient_penalty),
        distance,
        distance**2,
    )


def update(
    config: BRACPlusConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[State, Metrics]:
    target_key, penalty_key, actor_key = split(key, 3)
    clone: Clone = past["clone"]
    initial: Initial = past["initial"]
    target = targets(config, state, batch, target_key)
    proposal = propose(config, state.policy.model, clone.behaviour.model, batch.observations, penalty_key, 1)
    deviation = jnp.sqrt(jnp.maximum(state.squared_distance - state.distance**2, 0.0))
    weights = off_data(config, proposal.distance, state.distance + deviation)
    critic, critic_metrics = state.critic.minimise(
        lambda m: critic_loss(m, batch, target, jnp.tanh(proposal.u[0]), weights, state.penalty_weight.value),
        config.critic_learning_rate,
    )
    policy, (proposal, actor_metrics) = state.policy.minimise(
        lambda m: actor_loss(m, config, past, state, critic.model, batch, actor_key), config.policy_learning_rate
    )
    excess = proposal.distance - (initial.distance + config.margin)
    alpha = push_multipliers(config, state.alpha, batch.observations, excess)
    overshoot = critic_metrics["gradient_penalty"] - config.gradient_limit
    new = State(
        policy,
        polyak(state.policy_target, policy.model, config.target_rate),
        critic,
        polyak(state.critic_target, critic.model, config.target_rate),
        alpha,
        state.entropy_weight.update(actor_metrics["entropy_excess"], config.dual_learning_rate),
        state.penalty_weight.update(overshoot, config.dual_learning_rate, config.gradient_penalty),
        state.distance + (proposal.distance.mean() - state.distance) / WINDOW,
        state.squared_distance + ((proposal.distance**2).mean() - state.squared_distance) / WINDOW,
    )
    return new, critic_metrics | actor_metrics


def validate(config: BRACPlusConfig, past: Past, state: State, batch: Batch, key: PRNGKeyArray) -> Metrics:
    target_key, actor_key = split(key, 2)
    target = targets(config, state, batch, target_key)
    _, (_, metrics) = actor_loss(state.policy.model, config, past, state, state.critic.model, batch, actor_key)
    return metrics | {"critic_loss": 0.5 * td_loss(state.critic.model, batch, target)[0]}


def actor(config: BRACPlusConfig, past: Past, state: State) -> Actor:
    actions = state.policy.model.net.biases[-1].shape[-1] // 2
    noise = jax.random.normal(jax.random.key(0), (config.acting_candidates, actions))
    if config.acting_candidates == 1:
        noise = jnp.zeros_like(noise)
    return Actor(
        "best-of-gaussian",
        {"policy": state.policy.model.net, "critic": state.critic.model.nets},
        # The same noise at every state and step, within one deviation: acting is deterministic.
        {"noise": jnp.clip(noise, -1.0, 1.0), "noise_limit": jnp.ones(())},
    )


# Published for the v0 data.
GRADIENT_LIMITS = {"hopper": 0.01, "walker2d": 0.01, "halfcheetah": 0.1}
MARGINS = {
    "medium-expert": (0.2, 0.2, 0.2),
    "medium": (0.2, 1.0, 7.0),
    "medium-replay": (3.0, 3.0, 3.0),
    "random": (3.0, 3.0, 3.0),
}
ADROIT_STEPS = {"pen": 250_000, "hammer": 500_000, "door": 1_000_000, "relocate": 500_000}
ADROIT = {
    "divergence": "mmd",
    "margin": 0.001,
    "gradient_limit": 0.005,
    "entropy_scale": 1.0,
    "policy_learning_rate": 5e-8,
}

BRAC_PLUS = Algorithm(
    name="brac-plus",
    config=BRACPlusConfig,
    phases=(
        Phase("clone", init_clone, update_clone, clone_actor, validate_clone, needs="row"),
        Phase("initial", init_initial, update_initial, gaussian_actor, validate_initial, needs="row"),
        Phase("train", init, update, actor, validate),
    ),
    source="Zhang, Kuppannagari & Prasanna 2021, BRAC+: Improved Behavior Regularized Actor Critic",
    grid={ANY_PRESET: {"margin": [0.2, 1.0, 3.0, 7.0]}},
    presets={
        "quick": {
            "steps": (10_000, 10_000, 30_000),
            "batch_size": 128,
            "hidden": (64, 64),
            "policy_learning_rate": 1e-4,
            "critic_learning_rate": 1e-3,
            "target_rate": 0.005,
            "dual_learning_rate": 3e-3,
            "multiplier_learning_rate": 1e-4,
            "alpha": 1.0,
            "entropy_weight": 0.1,
            "samples": 3,
            "codes": 1,
            "margin": 0.3,
        },
        "paper": {"standardise_states": False, "multiplier": "scalar"},  # what the published scores are of
    },
    task_settings={
        f"{robot}-{tier}-v2": {"margin": margin, "gradient_limit": limit}
        for tier, margins in MARGINS.items()
        for (robot, limit), margin in zip(GRADIENT_LIMITS.items(), margins, strict=True)
    }
    | {f"{hand}-human-v1": {**ADROIT, "steps": (500_000, 500_000, steps)} for hand, steps in ADROIT_STEPS.items()},
)
