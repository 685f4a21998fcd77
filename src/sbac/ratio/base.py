"""The state-visitation ratio w(s) = d^pi(s) / d^D(s): its config, its batches and the flow equation all forms share.

d^pi is the discounted visitation of pi, d^D the distribution of the data's states, beta = pi / mu at the data's
action. For every test function f,

    E_D[w(s) f(s)] = (1 - gamma) E_restart[f] + gamma E_D[beta w(s) f(s')]                                       (F)

w sits at s, the mass that pi pushes on sits at s', and a share 1 - gamma restarts. Nothing is assumed of D: it need
not be stationary, nor discounted, nor come from one policy. The forms differ in where they restart:

    exact     at the initial states: w is the ratio of the visitation that counts, d^pi from rho.
    theorem   at the data: Theorem 1's operator, whose constant (1 - gamma) is a restart from D.
    printed   Eq. (7) to the letter, which is not (F): see `sbac.ratio.printed`.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from sbac.config import Options, config, layers, per_policy, rate, shared
from sbac.errors import UserError
from sbac.nn import MLP, Gaussian, Trained

Form = Literal["exact", "theorem", "printed"]
MEAN_RATE = 0.01
"""Of the running mean of beta w. A batch's own mean is correlated with its rows and shrinks w: by a tenth of the effect
of pi or more at batch 256 and gamma 0.99."""
LogRatio = Callable[[Float[Array, "*batch obs"]], Float[Array, "*batch"]]


@config
class RatioConfig(Options):
    """Every choice that the estimators of the ratio share."""

    form: Form = shared("exact", "The equation: where pi restarts, or Eq. (7) as printed.")
    estimator: Literal["default", "classifier", "mmd"] = shared(
        "default", "What solves it; default: the classifier, and for the printed form its own loss."
    )
    hidden: tuple[int, ...] = layers((256, 256, 256), "Units of each hidden layer of w.")
    learning_rate: float = rate(1e-4, "Learning rate of w.")
    discount: float = per_policy(0.99, "gamma of d^pi.", at_least=0, below=1)
    log_w_clip: float = per_policy(
        2.0, "log w stays inside +- this: softly, by c tanh(x / c); the printed form clips hard.", above=0
    )
    log_beta_clip: float = per_policy(3.0, "log beta is clipped to +- this.", at_least=0)
    # E[beta^2] is at most (k sqrt(2 - k^2))^-actions for equal means: 0.5 up to 6 action dimensions, about 0.8 for 24.
    std_floor: float = per_policy(0.5, "pi's standard deviation counts as at least this times mu's.", at_least=0)
    kernel: Literal["gaussian", "laplacian"] = shared("gaussian", "Of the mmd and of the printed form.")


@config
class FitConfig(RatioConfig):
    """The choices of `visitation_ratio`, which fits a ratio to arrays."""

    steps: int = shared(5_000, "Gradient steps.", at_least=1)
    batch_size: int = shared(256, "Rows drawn for a step.", at_least=1)
    decay: bool = shared(False, "Whether the rate falls to 0 along half a cosine: steadier where beta is heavy.")


class RatioBatch(NamedTuple):
    """What the ratio is learned from: transitions of the data and restart states, all states standardised.

    `log_ratio` is log beta before the clip. On terminal rows `next_states` is not read as a state pi visits: their
    mass restarts. Rows that a time limit ended must be left out. `initial_states` may be of another length than the
    rest. The weights are probabilities of the rows; without them all rows count alike.
    """

    states: Float[Array, "batch obs"]
    log_ratio: Float[Array, " batch"]
    next_states: Float[Array, "batch obs"]
    terminals: Float[Array, " batch"]
    initial_states: Float[Array, "initial obs"] | None = None
    weights: Float[Array, " batch"] | None = None
    initial_weights: Float[Array, " initial"] | None = None


class Ratio(eqx.Module):
    """What is trained: a network for log w(s)."""

    state_net: MLP

    def log_w(self, config: RatioConfig, states: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
        """log w inside its clip."""
        raw = self.state_net.scalar(states)
        if config.form == "printed":
            return jnp.clip(raw, -config.log_w_clip, config.log_w_clip)  # "we clip log w by 2.0"
        return soft_clip(raw, config.log_w_clip)


class RunningMean(NamedTuple):
    """An exponential average without the bias of its start."""

    total: Float[Array, ""]
    weight: Float[Array, ""]

    @classmethod
    def empty(cls) -> "RunningMean":
        return cls(jnp.zeros(()), jnp.zeros(()))

    def add(self, value: Array) -> "RunningMean":
        return RunningMean(self.total + MEAN_RATE * (value - self.total), self.weight + MEAN_RATE * (1 - self.weight))

    @property
    def value(self) -> Array:
        return self.total / self.weight


class State(eqx.Module):
    """The estimator in a run's pytree: networks with their Adam moments, the Polyak copy, the running mean of
    beta w, and the kernel's width."""

    trained: Trained[Ratio]
    target: Ratio
    product: RunningMean
    bandwidth: Array


class Flow(NamedTuple):
    """The right-hand side of (F) as masses: `pushed` of each row at its s', `restart` spread over the restarts."""

    pushed: Float[Array, " batch"]
    restart: Float[Array, ""]


def flow(config: RatioConfig, log_w: Float[Array, " batch"], batch: RatioBatch, mean_product: Array) -> Flow:
    """Pushes w through one step of pi. Rows that terminate restart, so that no mass is lost.

    The product beta w is divided by its mean: at gamma near 1 the total mass M obeys
    M = (1 - gamma) + gamma M mean(beta w) / mean(w), so that an error of 1 % in the sampled mean of beta moves M by a
    factor 2. Normalising the product removes that mode, and makes a constant factor on beta irrelevant.
    """
    gamma = config.discount
    y = product(config, log_w, batch) / mean_product
    return Flow(gamma * y * (1 - batch.terminals), (1 - gamma) + gamma * (y * batch.terminals).sum())


def product(config: RatioConfig, log_w: Float[Array, " batch"], batch: RatioBatch) -> Float[Array, " batch"]:
    """beta w of each row, times the row's probability: its sum is the mean of beta w."""
    rows = shares(batch.weights, batch.states)
    return rows * jnp.exp(clip_log_beta(config, batch.log_ratio) + log_w)


class Restart(NamedTuple):
    """Where pi starts again: states and their probabilities."""

    states: Float[Array, "restart obs"]
    shares: Float[Array, " restart"]


def restart(config: RatioConfig, batch: RatioBatch) -> Restart:
    """The data's own states (theorem) or the initial ones (exact)."""
    if config.form == "theorem":
        return Restart(batch.states, shares(batch.weights, batch.states))
    if batch.initial_states is None:
        raise UserError("initial_states: the exact form restarts from initial states, and none were given")
    return Restart(batch.initial_states, shares(batch.initial_weights, batch.initial_states))


def shares(weights: Float[Array, " rows"] | None, rows: Float[Array, "rows _"]) -> Float[Array, " rows"]:
    """The rows' probabilities; equal ones where none are given."""
    return jnp.full(len(rows), 1 / len(rows), rows.dtype) if weights is None else weights


def soft_clip(x: Array, limit: float | Array) -> Array:
    """Inside +-limit, with a gradient everywhere."""
    return limit * jnp.tanh(x / limit)


def clip_log_beta(config: RatioConfig, log_ratio: Array) -> Array:
    return jnp.clip(log_ratio, -config.log_beta_clip, config.log_beta_clip)


def floored(config: RatioConfig, pi: Gaussian, mu: Gaussian) -> Gaussian:
    """pi with a standard deviation of at least `std_floor` times mu's: the policy whose visitation is estimated.

    A pi far narrower than mu gives nearly every action of the data the weight 0 and a few a huge one.
    """
    return Gaussian(pi.mean, jnp.maximum(pi.log_std, mu.log_std + jnp.log(config.std_floor)))
