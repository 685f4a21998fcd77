"""Soft Behavior-regularized Actor Critic (Xu, Zhan, Li and Yin, 2021), Algorithm 1, with its two ablations.

Phase *estimate* (lines 2 to 8) learns the behaviour mu and its value Q^mu; phase *improve* (lines 9 to 13) learns
the visitation ratio w = d^pi / d^mu and the policy pi. Equation numbers are the paper's.

Beyond the paper there are two more kinds of critic: the values of the best that the log itself shows (an expectile),
and those of pi, which pays its penalty in them as well.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from sbac import ratio
from sbac.algorithms.base import ANY_PRESET, Algorithm, Batch, Metrics, Past, Phase, Spec, Step, split, when
from sbac.algorithms.cloning import negative_log_likelihood
from sbac.algorithms.evaluation import Estimate, clone_actor, clone_step, gaussian_actor, init_estimate, td_target
from sbac.config import Config, RewardScale, config, layers, nested, per_policy, polyak_rate, rate, shared
from sbac.nn import MLP, ActionDensity, BehaviourKind, Critic, GaussianPolicy, Trained, half_cosine, polyak, pre_tanh

PENALTY = 0.008
"""The weight of log mu at alpha = 1 where Q is divided by its own scale, for long trainings (lab-notes/next-form)."""
ENOUGH_BETA, ENOUGH_RATIO = 0.02, 0.1
"""The effective shares of pi / mu and of w from which on w is trusted in full."""


@config
class SBACRatioConfig(ratio.RatioConfig):
    """The ratio inside SBAC: by default with SBAC's own discount."""

    discount: float = per_policy(0.0, "gamma of d^pi; 0: that of --discount.", at_least=0, below=1)


@config
class SBACConfig(Config):
    steps: tuple[int, ...] = (1_000_000, 1_000_000)
    ratio: SBACRatioConfig = nested(SBACRatioConfig(), prefix="ratio_", group="the ratio w")

    alpha: float = per_policy(2.0, "Weight of log mu in objective (8).", at_least=0)
    # paper, to the letter: pi starts at random, rates are constant, Q is the least of the critics. scale-free: Q is
    # divided by mean |Q|, which differs between tasks by several times, so that one alpha fits any scale; Q is a lower
    # bound of critics with LayerNorm; log mu is the density of u = atanh(a), whose peak never lies at the bounds; pi
    # starts as the clone; rates fall along half a cosine, so that the last policy carries less noise.
    objective: Literal["paper", "scale-free"] = shared(
        "paper", "paper: (8) to the letter; scale-free: Q over its own scale, log mu before the tanh, from the clone."
    )
    critic: Literal["mu", "expectile", "pi"] = shared(
        "mu",
        "mu: Q^mu, fixed after phase estimate; expectile: the best that the log shows, in the same way; "
        "pi: Q^pi, which starts from Q^mu and is learned along with pi.",
    )
    tau: float = per_policy(0.7, "The expectile: 0.5 is the log's mean, towards 1 its best.", above=0, below=1)
    critic_penalty: float = per_policy(
        1.0, "Share of pi's own penalty that Q^pi pays at the next state; 0 in ablation 2.", at_least=0
    )
    pessimism: float = per_policy(0.5, "Standard deviations below the critics' mean, in scale-free.", at_least=0)
    penalty: float = per_policy(PENALTY, "The weight of log mu at alpha 1, in scale-free.", at_least=0)

    hidden: tuple[int, ...] = layers((256, 256, 256))
    critics: int = shared(1, "Q-networks, each with a target network of its own.", at_least=1, group="networks")
    behaviour_learning_rate: float = rate(1e-5, "Learning rate of mu.")
    policy_learning_rate: float = rate(1e-5, "Learning rate of pi.")
    critic_learning_rate: float = rate(1e-4, "Learning rate of Q.")
    target_rate: float = polyak_rate(0.005)
    reward_scale: RewardScale = "unit"
    behaviour: BehaviourKind = shared("gaussian", "The model of mu.", group="networks")
    # A clone that has seen a small log hundreds of times is too sure of itself; with dropout it is not, but on a large
    # log it learns less. Held-out actions tell which of the two it is.
    behaviour_dropout: float = shared(
        0.0,
        "Share of hidden units left out of a second clone. The clone that finds held-out actions likelier is kept; "
        "0: there is one clone.",
        at_least=0,
        below=1,
        group="networks",
    )

    weighting: Literal["q", "none"] = shared("q", "q: w Q + alpha log mu (8); none: w = 1 (ablation 1).")
    ratio_every: int = shared(1, "Steps between updates of w.", at_least=1, group="the ratio w")
    # w^k with k from 0 to 1: the smaller of the effective sample sizes of pi / mu (pi as it is, not floored) and of w,
    # relative to the shares from which on each is trusted in full.
    temper: bool = shared(
        True, "Shrink w towards 1 where its effective sample sizes call it unreliable.", group="the ratio w"
    )

    @property
    def scale_free(self) -> bool:
        return self.objective == "scale-free"


def decay(config: SBACConfig, phase: int, step: Int[Array, ""]) -> Float[Array, ""]:
    """The factor of a phase's learning rates at a step."""
    if not config.scale_free:
        return jnp.ones(())
    return half_cosine(step, config.steps[phase])


# --- Phase estimate ---------------------------------------------------------------------------------------------


class Values(eqx.Module):
    """A value network for each critic: V_j(s), the expectile tau of Q_j over the log's actions."""

    nets: MLP

    @classmethod
    def create(cls, key: PRNGKeyArray, config: "SBACConfig", observations: int) -> "Values":
        def one(k: PRNGKeyArray) -> MLP:
            return MLP.create(k, observations, config.hidden, 1, normalise=config.scale_free)

        return cls(jax.vmap(one)(jax.random.split(key, config.critics)))

    def __call__(self, observations: Float[Array, "*batch obs"]) -> Float[Array, "members *batch"]:
        def one(net: MLP) -> Float[Array, "*batch"]:
            return net.scalar(observations)

        return jax.vmap(one)(self.nets)


class SBACEstimate(Estimate):
    """With a second clone, trained with dropout, and with value networks, where the config asks for them."""

    dropped: Trained[GaussianPolicy] | None = None
    values: Trained[Values] | None = None


def init_networks(config: SBACConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> SBACEstimate:
    first = init_estimate(config, spec, past, key, normalise=config.scale_free)
    dropped = values = None
    if config.behaviour_dropout > 0:
        clone = GaussianPolicy.create(jax.random.fold_in(key, 1), spec.observations, config.hidden, spec.actions)
        dropped = Trained.create(clone)
    if config.critic == "expectile":
        values = Trained.create(Values.create(jax.random.fold_in(key, 2), config, spec.observations))
    return SBACEstimate(first.clone, first.richer, first.critic, first.target, dropped, values)


def evaluation_loss(
    config: SBACConfig, critic: Critic, batch: Batch, next_values: Float[Array, "members batch"]
) -> Float[Array, ""]:
    """Lines 5 and 6: (r + gamma V'(s') - Q(s, a))^2, each critic with its own V'; in the paper Q'(s', a'), a' ~ mu."""
    error = td_target(batch, config.discount, next_values) - critic(batch.observations, batch.actions)
    return (error**2).mean(-1).sum()


def expectile_loss(
    config: SBACConfig, values: Values, target: Critic, batch: Batch
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """|tau - 1(u < 0)| u^2 with u = Q'_j(s, a) - V_j(s), for each critic j."""
    u = target(batch.observations, batch.actions) - values(batch.observations)
    loss = (jnp.where(u > 0, config.tau, 1.0 - config.tau) * u**2).mean(-1).sum()
    return loss, loss


def next_values_of_log(values: Values | None, target: Critic, batch: Batch) -> Float[Array, "members batch"]:
    """What the log goes on to: Q'(s', a') at its own next action, or the expectile's V(s')."""
    if values is None:
        return target(batch.next_observations, batch.next_actions)
    return values(batch.next_observations)


def estimate(
    config: SBACConfig, past: Past, state: SBACEstimate, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[SBACEstimate, Metrics]:
    factor = decay(config, 0, step.number)
    clones = clone_step(state, batch.rows, factor * config.behaviour_learning_rate)  # line 4: maximise log mu(a|s)
    metrics = {"behaviour_loss": clones.loss}
    values = state.values
    if values is not None:
        values, metrics["value_loss"] = values.minimise(
            lambda v: expectile_loss(config, v, state.target, batch), factor * config.critic_learning_rate
        )
    following = next_values_of_log(None if values is None else values.model, state.target, batch)

    def critic_loss(critic: Critic) -> tuple[Float[Array, ""], Float[Array, ""]]:
        loss = evaluation_loss(config, critic, batch, following)
        return loss, loss

    critic, metrics["critic_loss"] = state.critic.minimise(critic_loss, factor * config.critic_learning_rate)
    target = polyak(state.target, critic.model, config.target_rate)  # line 7
    dropped = state.dropped
    if dropped is not None:

        def dropped_loss(model: GaussianPolicy) -> tuple[Float[Array, ""], Float[Array, ""]]:
            mu = model(batch.rows.observations, config.behaviour_dropout, key)
            loss = -mu.log_prob(batch.rows.actions).mean()
            return loss, loss

        dropped, metrics["dropped_loss"] = dropped.minimise(dropped_loss, factor * config.behaviour_learning_rate)
    return SBACEstimate(clones.clone, clones.richer, critic, target, dropped, values), metrics


def validate_estimate(config: SBACConfig, past: Past, state: SBACEstimate, batch: Batch, key: PRNGKeyArray) -> Metrics:
    values = None if state.values is None else state.values.model
    following = next_values_of_log(values, state.target, batch)
    losses = {
        "behaviour_loss": negative_log_likelihood(state.mu, batch.rows),
        "critic_loss": evaluation_loss(config, state.critic.model, batch, following),
    }
    if values is not None:
        losses["value_loss"] = expectile_loss(config, values, state.target, batch)[0]
    if state.dropped is not None:
        losses["dropped_loss"] = negative_log_likelihood(state.dropped.model, batch.rows)
    return losses


def choose_clone(config: SBACConfig, past: Past, state: SBACEstimate, batch: Batch, key: PRNGKeyArray) -> SBACEstimate:
    """The clone with dropout takes the other's place if held-out actions are likelier under it."""
    if state.dropped is None:
        return state
    plain = negative_log_likelihood(state.clone.model, batch.rows)
    better = negative_log_likelihood(state.dropped.model, batch.rows) < plain

    def kept(dropped: Array, other: Array) -> Array:
        return jnp.where(better, dropped, other)

    clone = jax.tree.map(kept, state.dropped, state.clone)
    return SBACEstimate(clone, state.richer, state.critic, state.target, state.dropped, state.values)


# --- Phase improve ----------------------------------------------------------------------------------------------


class Weight(eqx.Module):
    """The estimator of w, the trust in it (0 to 1), and the diagnostics of its last update."""

    ratio: ratio.State
    trust: Float[Array, ""]
    metrics: Metrics


class Improve(eqx.Module):
    policy: Trained[GaussianPolicy]
    weight: Weight | None
    following: Trained[Critic] | None
    """Q^pi and its target, for the critic `pi` alone; otherwise the critic is phase estimate's."""
    target: Critic | None


def init_improve(config: SBACConfig, spec: Spec, past: Past, key: PRNGKeyArray) -> Improve:
    policy_key, ratio_key = split(key, 2)
    before: SBACEstimate = past["estimate"]
    fresh = GaussianPolicy.create(policy_key, spec.observations, config.hidden, spec.actions)
    policy = before.clone.model if config.scale_free else fresh
    weight = None
    if config.weighting != "none":
        estimator = ratio.init(config.ratio, ratio_key, spec.observations, spec.states)
        weight = Weight(estimator, jnp.ones(()), {name: jnp.zeros(()) for name in (*ratio.DIAGNOSTICS, "trust")})
    follows = config.critic == "pi"
    return Improve(
        Trained.create(policy),
        weight,
        Trained.create(before.critic.model) if follows else None,
        before.target if follows else None,
    )


def policy_objective(
    config: SBACConfig,
    policy: GaussianPolicy,
    mu: ActionDensity,
    critic: Critic,
    weights: Float[Array, " batch"],
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Metrics]:
    """Objective (8): E_{s ~ B, a ~ pi}[w(s) Q(s, a) + alpha log mu(a|s)].

    Free of scale it is w(s) Q(s, a) / E|Q| + penalty alpha log mu(u|s), the divisor held fixed.
    """
    pi = policy(batch.observations)
    u = pi.sample_pre_tanh(key)
    # At the u that pi drew: nothing is clipped, and the gradient never vanishes.
    if config.scale_free:
        log_mu = mu.log_density(u)
        q = critic.lower_bound(batch.observations, jnp.tanh(u), config.pessimism)
        value = weights * q / jax.lax.stop_gradient(jnp.abs(q).mean()) + config.penalty * config.alpha * log_mu
    else:
        log_mu = mu.log_prob_pre_tanh(u)
        q = critic.minimum(batch.observations, jnp.tanh(u))
        value = weights * q + config.alpha * log_mu
    return value.mean(), {"q": q.mean(), "log_mu": log_mu.mean(), "policy_std": jnp.exp(pi.log_std).mean()}


def next_values_of_policy(
    config: SBACConfig, policy: GaussianPolicy, clone: GaussianPolicy, target: Critic, batch: Batch, key: PRNGKeyArray
) -> Float[Array, "members batch"]:
    """Q'(s', a') - critic_penalty * alpha * half the squared distance of pi's mean from the clone's, in deviations of
    the clone; a' ~ pi.

    The distance is what log mu takes from objective (8), counted from the clone's own mean, where nothing is paid. Pi's
    own noise is not paid for: where the clone is as narrow as a deviation can be, pi could not avoid it.
    """
    pi, mu = policy(batch.next_observations), clone(batch.next_observations)
    values = target(batch.next_observations, jnp.tanh(pi.sample_pre_tanh(key)))
    distance = 0.5 * (((pi.mean - mu.mean) * jnp.exp(-mu.log_std)) ** 2).sum(-1)
    price = config.penalty * config.alpha * jnp.abs(values).mean() if config.scale_free else config.alpha
    return values - config.critic_penalty * price * distance


def log_ratios(
    config: SBACConfig, policy: GaussianPolicy, before: SBACEstimate, batch: Batch
) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """log pi / mu at the data's actions, twice: of pi kept at least `ratio.std_floor` times as wide as the Gaussian
    clone, which the estimator learns from, and of pi as it is, which its diagnostics are computed from."""
    u = pre_tanh(batch.actions)
    pi, log_mu = policy(batch.observations), before.mu(batch.observations).log_density(u)
    wide = ratio.floored(config.ratio, pi, before.clone.model(batch.observations))
    return wide.log_density(u) - log_mu, pi.log_density(u) - log_mu


def ratio_config(config: SBACConfig) -> ratio.RatioConfig:
    own = config.ratio.discount
    return config.ratio.replace(discount=jnp.where(own > 0, own, config.discount))


def ratio_batch(log_ratio: Float[Array, " batch"], batch: Batch) -> ratio.RatioBatch:
    return ratio.RatioBatch(
        states=batch.observations,
        log_ratio=log_ratio,
        next_states=batch.next_observations,
        terminals=batch.terminals,
        initial_states=batch.initial_observations,
    )


def trusted(trust: Float[Array, ""], metrics: Metrics, batch: int) -> Float[Array, ""]:
    """The new trust in w: a running mean, in [0, 1], of how large the effective sample sizes are.

    A share of 1 / batch, where a single row carries all the weight, is the least there can be and counts as 0.
    """

    def share(name: str, enough: float) -> Float[Array, ""]:
        return (metrics[name] - 1 / batch) / (enough - 1 / batch)

    now = jnp.minimum(share("beta_ess", ENOUGH_BETA), share("ratio_ess", ENOUGH_RATIO))
    return 0.99 * trust + 0.01 * jnp.clip(now, 0.0, 1.0)


def update_weight(
    config: SBACConfig, before: SBACEstimate, policy: GaussianPolicy, last: Weight, batch: Batch
) -> Weight:
    """A step of the ratio's estimator, its diagnostics and the trust that follows from them."""
    log_ratio, log_beta = log_ratios(config, policy, before, batch)
    state, _ = ratio.update(ratio_config(config), last.ratio, ratio_batch(log_ratio, batch))
    metrics = ratio.diagnostics(config.ratio, state, batch.observations, log_beta)
    trust = trusted(last.trust, metrics, len(batch.rewards)) if config.temper else last.trust
    return Weight(state, trust, metrics | {"trust": trust})


def improve(
    config: SBACConfig, past: Past, state: Improve, batch: Batch, key: PRNGKeyArray, step: Step
) -> tuple[Improve, Metrics]:
    policy_key, _, critic_key = split(key, 3)  # three, so that a seed still gives the policy that it gave
    before: SBACEstimate = past["estimate"]
    mu = before.mu(batch.observations)
    factor = decay(config, 1, step.number)
    metrics: Metrics = {}

    # Line 11: w by the discrepancy between w and T^pi w (Equation (7) in the printed form), every few steps.
    last, weight, weights = state.weight, None, jnp.ones(len(batch.rewards))
    if last is not None:
        weight = when(
            step.every(config.ratio_every),
            lambda: update_weight(config, before, state.policy.model, last, batch),
            lambda: last,
        )
        weights = ratio.weights(config.ratio, weight.ratio, batch.observations)
        if config.temper:
            tempered = weights**weight.trust
            weights = tempered / tempered.mean()
        metrics |= weight.metrics

    # The critic `pi` (ablation 2) follows pi instead of staying at Q^mu.
    critic, following, target = before.critic.model, state.following, state.target
    if following is not None and target is not None:
        next_values = next_values_of_policy(config, state.policy.model, before.clone.model, target, batch, critic_key)

        def critic_loss(model: Critic) -> tuple[Float[Array, ""], Float[Array, ""]]:
            loss = evaluation_loss(config, model, batch, next_values)
            return loss, loss

        following, metrics["critic_loss"] = following.minimise(critic_loss, factor * config.critic_learning_rate)
        critic, target = following.model, polyak(target, following.model, config.target_rate)

    # Line 12: pi by objective (8).
    def policy_loss(policy: GaussianPolicy) -> tuple[Float[Array, ""], Metrics]:
        value, extras = policy_objective(config, policy, mu, critic, weights, batch, policy_key)
        return -value, {"objective": value, **extras}

    policy, extras = state.policy.minimise(policy_loss, factor * config.policy_learning_rate)
    return Improve(policy, weight, following, target), metrics | extras


def validate_improve(config: SBACConfig, past: Past, state: Improve, batch: Batch, key: PRNGKeyArray) -> Metrics:
    before: SBACEstimate = past["estimate"]
    mu = before.mu(batch.observations)
    ones = jnp.ones(len(batch.rewards))
    critic = before.critic.model if state.following is None else state.following.model
    value, extras = policy_objective(config, state.policy.model, mu, critic, ones, batch, key)
    return {"objective": value, **extras}


# --- The method and its ablations -------------------------------------------------------------------------------


def ratio_period(config: SBACConfig) -> int:
    return 1 if config.weighting == "none" else config.ratio_every


PHASES = (
    Phase(
        "estimate",
        init_networks,
        estimate,
        clone_actor,
        validate_estimate,
        needs="next_action",
        conclude=choose_clone,
    ),
    Phase("improve", init_improve, improve, gaussian_actor, validate_improve, period=ratio_period),
)
SCALE_FREE = {
    "alpha": 1.0,
    "objective": "scale-free",
    "weighting": "none",
    "critics": 5,
    "behaviour_dropout": 0.1,
}
"""What `tuned` and `quick` share (docs/methods.md has the reasons)."""
# After so few steps the critics are rough, and what is gained by leaving mu soon is an error of it.
QUICK_PENALTY = 0.032
# To the letter: of all the guards around w the paper has the clip on log w alone. What is left of the clip on log beta
# keeps the squares of beta within float32.
PAPER = {
    "ratio_form": "printed",
    "ratio_kernel": "laplacian",
    "ratio_std_floor": 0.0,
    "ratio_log_beta_clip": 36.0,
    "temper": False,
}
PRESETS = {
    "paper": PAPER,
    # The floor and the clip belong to the exact form: it has no estimate of a narrow pi without them (docs/paper.md).
    "corrected": PAPER | {"ratio_form": "exact", "ratio_std_floor": 0.5, "ratio_log_beta_clip": 3.0},
    "tuned": SCALE_FREE
    | {
        "steps": (1_000_000, 200_000),
        "hidden": (256, 256),
        "ratio_hidden": (256, 256),
        "behaviour_learning_rate": 3e-4,
        "critic_learning_rate": 3e-4,
        "policy_learning_rate": 3e-4,
        "ratio_learning_rate": 3e-4,
        "ratio_every": 4,
    },
    "quick": SCALE_FREE
    | {
        "critic": "pi",  # with small networks it is as good as Q^mu or better on eight of nine logs (docs/methods.md)
        "steps": (20_000, 10_000),
        "penalty": QUICK_PENALTY,
        "batch_size": 128,
        "hidden": (64, 64),
        "ratio_hidden": (64, 64),
        "behaviour_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "policy_learning_rate": 3e-4,
        "ratio_learning_rate": 5e-4,
        "target_rate": 0.01,
        "ratio_every": 2,
    },
}


def ablation(**changes: object) -> dict[str, dict[str, object]]:
    """The presets with something taken away, and nothing else different."""
    return {name: {**preset, **changes} for name, preset in PRESETS.items()}


SOURCE = "Xu, Zhan, Li, Yin: Offline Reinforcement Learning with Soft Behavior Regularization, 2021"
LETTER = {"alpha": [0.2, 0.5, 2.0, 5.0]}  # those that the paper searched
GRID = {ANY_PRESET: {"alpha": [0.25, 0.5, 1.0, 2.0]}, "paper": LETTER, "corrected": LETTER}
SBAC = Algorithm("sbac", SBACConfig, PHASES, SOURCE, PRESETS, grid=GRID)
SBAC_NO_W = Algorithm("sbac-no-w", SBACConfig, PHASES, SOURCE, ablation(weighting="none"), grid=GRID)
SBAC_Q_PI = Algorithm(
    "sbac-q-pi", SBACConfig, PHASES, SOURCE, ablation(weighting="none", critic="pi", critic_penalty=0.0), grid=GRID
)
