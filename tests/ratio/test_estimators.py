"""The protocol: pure, mapped over runs, finite whatever comes in."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.algorithms import harness

from sbac import ratio
from sbac.errors import UserError
from sbac.ratio import RatioBatch, RatioConfig
from sbac.ratio.estimators import summary

RNG = np.random.default_rng(0)
UPDATE = jax.jit(ratio.update)
CASES = [
    ("exact", "classifier"),
    ("exact", "mmd"),
    ("theorem", "classifier"),
    ("theorem", "mmd"),
    ("printed", "default"),
]


def config_of(form: Any = "exact", estimator: Any = "default", **fields: Any) -> RatioConfig:
    return RatioConfig(form=form, estimator=estimator, hidden=(16,), **fields)


def some_batch(form: str = "exact", rows: int = 32, initial: int = 8) -> RatioBatch:
    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(RNG.normal(size=shape), jnp.float32)

    return RatioBatch(
        states=draw(rows, 3),
        log_ratio=draw(rows),
        next_states=draw(rows, 3),
        terminals=jnp.asarray(RNG.random(rows) < 0.1, jnp.float32),
        initial_states=draw(initial, 3) if form == "exact" else None,
    )


@jax.jit
def start(config: RatioConfig) -> ratio.State:
    return ratio.init(config, jax.random.key(0), 3, jax.random.normal(jax.random.key(1), (100, 3)))


@pytest.mark.parametrize(("form", "estimator"), CASES)
def test_one_step_lowers_the_loss_and_starts_at_one(form: str, estimator: str) -> None:
    config, batch = config_of(form, estimator, learning_rate=1e-3), some_batch(form)
    state = start(config)
    assert np.allclose(ratio.weights(config, state, batch.states), 1.0, atol=0.05)
    losses = []
    for _ in range(5):
        state, metrics = UPDATE(config, state, batch)
        losses.append(float(metrics["ratio_loss"]))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("form", "estimator"), CASES)
@pytest.mark.parametrize("value", [-1e4, 1e4])
def test_impossible_actions_leave_everything_finite(form: str, estimator: str, value: float) -> None:
    config = config_of(form, estimator)
    batch = some_batch(form)._replace(log_ratio=jnp.full(32, value))
    state, metrics = UPDATE(config, start(config), batch)
    leaves = jax.tree.leaves((state, metrics, ratio.weights(config, state, batch.states)))
    assert all(np.isfinite(leaf).all() for leaf in leaves)


@pytest.mark.parametrize(("form", "estimator"), [("exact", "classifier"), ("theorem", "mmd")])
def test_runs_map(form: str, estimator: str) -> None:
    """Two runs with learning rates and clips of their own, in one program, are the two runs alone."""
    batch = some_batch(form)
    configs = [config_of(form, estimator, learning_rate=rate, log_w_clip=c) for rate, c in ((1e-3, 2.0), (1e-2, 4.0))]
    keys = jax.random.split(jax.random.key(1), 2)
    sample = batch.states

    def train(config: RatioConfig, key: jax.Array) -> jax.Array:
        state = ratio.init(config, key, 3, sample)
        state = dataclasses.replace(state, trained=harness.with_moments(state.trained))
        for _ in range(3):
            state, _ = UPDATE(config, state, batch)
        return ratio.log_w(config, state, batch.states)

    stacked = jax.tree.map(lambda *leaves: jnp.asarray(leaves), *configs)
    together = jax.vmap(train)(stacked, keys)
    alone = [train(config, key) for config, key in zip(configs, keys, strict=True)]
    assert np.allclose(together, np.stack(alone), atol=1e-5)
    assert not np.allclose(alone[0], alone[1], atol=1e-5)


def test_weights_have_mean_one_and_no_gradient() -> None:
    config, batch = config_of(), some_batch()
    state = start(config)
    for _ in range(20):
        state, _ = UPDATE(config, state, batch)
    assert np.isclose(ratio.weights(config, state, batch.states).mean(), 1.0, atol=1e-5)
    slope = jax.jit(jax.grad(lambda s: (ratio.weights(config, state, s) ** 2).sum()))(batch.states)
    assert (slope == 0).all()


def test_printed_weights_are_the_clipped_ones() -> None:
    config = config_of("printed", log_w_clip=0.5, learning_rate=0.1)
    batch, state = some_batch("printed"), start(config)
    for _ in range(20):
        state, _ = UPDATE(config, state, batch)
    w = np.asarray(ratio.weights(config, state, batch.states))
    assert np.isclose(w.min(), np.exp(-0.5), rtol=1e-5)
    assert w.mean() < 0.9


def test_updates_follow_the_copy_not_the_network() -> None:
    config, batch = config_of(), some_batch()
    state = start(config)
    before = ratio.log_w(config, state, batch.states)
    state, _ = UPDATE(config, state, batch, 0.0)
    assert (ratio.log_w(config, state, batch.states) == before).all()


def test_diagnostics() -> None:
    config = config_of(log_w_clip=2.0)
    log_w = np.log([0.5, 0.5, 2.0, 7.3])
    found = summary(config, jnp.asarray(log_w), jnp.asarray([0.0, 0.0, 0.0, 1e4]))
    w = np.exp(log_w)
    assert np.isclose(found["ratio_mean"], w.mean())
    assert np.isclose(found["ratio_ess"], w.mean() ** 2 / (w**2).mean())
    assert np.isclose(found["ratio_at_clip"], 0.25)
    assert np.isclose(found["beta_ess"], 0.25)


def test_names_that_do_not_fit_get_one_line() -> None:
    with pytest.raises(UserError, match="printed form is a loss of its own"):
        start(config_of("printed", "classifier"))
