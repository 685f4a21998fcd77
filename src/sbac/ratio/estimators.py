"""The estimators behind one protocol: pure functions of a config, a state in the run's pytree, and a batch.

Form and estimator are static fields of the config, so that the choice between them is made when a program is
traced and costs nothing in it.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from sbac.errors import UserError
from sbac.nn import MLP, Metrics, Trained, polyak
from sbac.ratio import classifier, mmd, printed
from sbac.ratio.base import Ratio, RatioBatch, RatioConfig, RunningMean, State, product
from sbac.ratio.kernels import median_bandwidth

DIAGNOSTICS = ("ratio_mean", "ratio_ess", "ratio_at_clip", "beta_mean", "beta_ess")
NEAR_CLIP = 0.95  # |log w| above this share of its clip counts as at the clip
TARGET_RATE = 0.005
"""Polyak rate of the copy that is used; rate * steps must be well above 1 / (1 - gamma)."""


def method(config: RatioConfig) -> str:
    """The estimator's name with `default` resolved: classifier, mmd, or "printed"."""
    if config.form == "printed":
        if config.estimator not in ("default", "mmd"):
            raise UserError(
                f"estimator {config.estimator!r} of the ratio: the printed form is a loss of its own; "
                "leave the estimator at 'default'"
            )
        return "printed"
    return "classifier" if config.estimator == "default" else config.estimator


def init(config: RatioConfig, key: PRNGKeyArray, state_size: int, sample_states: Float[Array, "sample obs"]) -> State:
    """A network that starts near w = 1; `sample_states` (standardised) set the kernel's width, where there is one."""
    ratio = Ratio(MLP.create(jax.random.split(key)[0], state_size, config.hidden, 1, last_scale=0.01))
    uses_kernel = method(config) in ("mmd", "printed")
    width = median_bandwidth(config.kernel, sample_states) if uses_kernel else jnp.zeros(())
    return State(Trained.create(ratio), ratio, RunningMean.empty(), width)


def update(
    config: RatioConfig, state: State, batch: RatioBatch, target_rate: float | Float[Array, ""] = TARGET_RATE
) -> tuple[State, Metrics]:
    """One gradient step and one step of the Polyak copy."""
    name = method(config)
    target = state.target.log_w(config, batch.states)
    # The paper keeps no copy of w: the printed form uses the network as it stands.
    mean = state.product if name == "printed" else state.product.add(product(config, target, batch).sum())

    def objective(ratio: Ratio) -> tuple[Array, Metrics]:
        log_w = partial(ratio.log_w, config)
        if name == "printed":
            value = printed.loss(config, log_w, batch, state.bandwidth)
        elif name == "mmd":
            value = mmd.loss(config, log_w, target, batch, mean.value, state.bandwidth)
        else:
            value = classifier.loss(config, log_w, target, batch, mean.value)
        return value, {"ratio_loss": value}

    trained, metrics = state.trained.minimise(objective, config.learning_rate)
    rate = 1.0 if name == "printed" else target_rate
    return State(trained, polyak(state.target, trained.model, rate), mean, state.bandwidth), metrics


def log_w(config: RatioConfig, state: State, states: Float[Array, "*batch obs"]) -> Float[Array, "*batch"]:
    """log w inside its clip, of the Polyak copy, not normalised, without a gradient."""
    return jax.lax.stop_gradient(state.target.log_w(config, states))


def weights(config: RatioConfig, state: State, states: Float[Array, "batch obs"]) -> Float[Array, " batch"]:
    """w for an actor's loss: mean 1 over the batch; in the printed form as it is, clipped, as in the paper."""
    logs = log_w(config, state, states)
    return jnp.exp(logs) if config.form == "printed" else len(logs) * jax.nn.softmax(logs)


def diagnostics(
    config: RatioConfig, state: State, states: Float[Array, "batch obs"], log_ratio: Float[Array, " batch"]
) -> Metrics:
    """What to look at before believing w, on states and log beta (before its clip) of the data."""
    return summary(config, log_w(config, state, states), log_ratio)


def summary(config: RatioConfig, log_w: Float[Array, " batch"], log_ratio: Float[Array, " batch"]) -> Metrics:
    """ratio_mean: E_D[w] before any normalisation, 1 in truth. ratio_ess, beta_ess: the share of the sample that
    carries the weight, (E x)^2 / E x^2. ratio_at_clip: the share of log w near its clip. beta_mean: 1 in truth."""
    return {
        "ratio_mean": jnp.exp(log_w).mean(),
        "ratio_ess": effective_share(log_w),
        "ratio_at_clip": (jnp.abs(log_w) > NEAR_CLIP * config.log_w_clip).mean(),
        "beta_mean": jnp.exp(log_ratio).mean(),
        "beta_ess": effective_share(log_ratio),
    }


def effective_share(logs: Float[Array, " batch"]) -> Float[Array, ""]:
    """(E x)^2 / E x^2 of x = exp(logs), safe for any size of the logs."""
    x = jnp.exp(logs - logs.max())
    return x.mean() ** 2 / (x**2).mean()
