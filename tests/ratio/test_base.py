"""Densities, masses and kernels against plain numpy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.errors import UserError
from sbac.nn import Gaussian
from sbac.ratio import RatioBatch, RatioConfig, floored
from sbac.ratio.base import Form, RunningMean, flow, product, restart, soft_clip
from sbac.ratio.kernels import kernel, median_bandwidth

RNG = np.random.default_rng(0)


def gaussians(std_pi: float, std_mu: float, rows: int = 50, act: int = 3) -> tuple[Gaussian, Gaussian]:
    means = RNG.normal(size=(2, rows, act))
    pi, mu = (
        Gaussian(jnp.asarray(mean), jnp.full((rows, act), np.log(std)))
        for mean, std in zip(means, (std_pi, std_mu), strict=True)
    )
    return pi, mu


def some_batch(rows: int = 64, **changes: object) -> RatioBatch:
    batch = RatioBatch(
        states=jnp.asarray(RNG.normal(size=(rows, 3)), jnp.float32),
        log_ratio=jnp.asarray(RNG.normal(size=rows), jnp.float32),
        next_states=jnp.asarray(RNG.normal(size=(rows, 3)), jnp.float32),
        terminals=jnp.asarray(RNG.random(rows) < 0.2, jnp.float32),
        initial_states=jnp.asarray(RNG.normal(size=(10, 3)), jnp.float32),
    )
    return batch._replace(**changes)


def test_floor_leaves_a_wide_policy_alone_and_zero_turns_it_off() -> None:
    pi, mu = gaussians(0.1, 0.8)
    assert np.allclose(floored(RatioConfig(), mu, mu).log_std, mu.log_std)
    assert np.allclose(floored(RatioConfig(std_floor=0.0), pi, mu).log_std, pi.log_std)
    assert np.allclose(floored(RatioConfig(), pi, mu).log_std, np.log(0.4))


@pytest.mark.parametrize("form", ["exact", "theorem"])
def test_flow_keeps_all_mass(form: Form) -> None:
    config, batch = RatioConfig(form=form), some_batch()
    log_w = jnp.asarray(RNG.normal(size=64), jnp.float32)
    inflow = flow(config, log_w, batch, product(config, log_w, batch).sum())
    assert np.isclose(inflow.pushed.sum() + inflow.restart, 1.0, atol=1e-5)
    assert (inflow.pushed[batch.terminals == 1] == 0).all()
    assert inflow.restart > 1 - 0.99  # the rows that terminate come back
    assert np.isclose(restart(config, batch).shares.sum(), 1.0)


def test_constant_factor_on_beta_changes_no_mass() -> None:
    config = RatioConfig(log_beta_clip=20.0)
    batch = some_batch()
    log_w = jnp.asarray(RNG.normal(size=64), jnp.float32)
    masses = [
        flow(config, log_w, scaled, product(config, log_w, scaled).sum())
        for scaled in (batch, batch._replace(log_ratio=batch.log_ratio + 2.0))
    ]
    assert np.allclose(masses[0].pushed, masses[1].pushed, rtol=1e-4)
    # With another mean than its own it does not cancel.
    more = flow(config, log_w, batch._replace(log_ratio=batch.log_ratio + 2.0), jnp.ones(()))
    assert more.pushed.sum() > 5 * flow(config, log_w, batch, jnp.ones(())).pushed.sum()


def test_beta_is_clipped_where_it_is_used() -> None:
    config = RatioConfig(log_beta_clip=3.0)
    batch = some_batch(log_ratio=jnp.asarray([-1e4, 1e4] * 32))
    assert np.allclose(product(config, jnp.zeros(64), batch) * 64, np.exp([-3.0, 3.0] * 32), rtol=1e-5)


def test_exact_form_without_initial_states_is_refused() -> None:
    with pytest.raises(UserError, match="initial_states"):
        restart(RatioConfig(), some_batch(initial_states=None))


def test_running_mean_has_no_bias_at_its_start() -> None:
    mean = RunningMean.empty().add(jnp.asarray(5.0))
    assert np.isclose(mean.value, 5.0)
    assert np.isclose(mean.add(jnp.asarray(7.0)).value, (5 * 0.99 + 7) / 1.99)


def test_soft_clip_bounds_and_is_the_identity_near_zero() -> None:
    x = jnp.asarray([-100.0, -0.01, 0.01, 100.0])
    assert np.allclose(soft_clip(x, 2.0), [-2.0, -0.01, 0.01, 2.0], atol=1e-5)
    assert jax.grad(lambda v: soft_clip(v, 2.0))(3.0) > 0


def test_kernels() -> None:
    x, y = RNG.normal(size=(7, 4)), RNG.normal(size=(5, 4))
    difference = x[:, None] - y
    gaussian = np.exp(-(difference**2).sum(-1) / (2 * 1.5**2))
    laplacian = np.exp(-np.abs(difference).sum(-1) / 1.5)
    assert np.allclose(kernel("gaussian", 1.5, jnp.asarray(x), jnp.asarray(y)), gaussian, atol=1e-5)
    assert np.allclose(kernel("laplacian", 1.5, jnp.asarray(x), jnp.asarray(y)), laplacian, atol=1e-5)


@pytest.mark.parametrize(("name", "order"), [("gaussian", 2), ("laplacian", 1)])
def test_median_bandwidth_is_the_median_distance(name: str, order: int) -> None:
    x = RNG.normal(size=(40, 4))
    pairs = [np.linalg.norm(x[i] - x[j], order) for i in range(40) for j in range(i)]
    assert np.isclose(median_bandwidth(name, jnp.asarray(x)), np.median(pairs), rtol=1e-4)
    assert median_bandwidth(name, jnp.ones((5, 4))) > 0
