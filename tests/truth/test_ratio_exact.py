"""The ratio without sampling: every transition of an MDP is enumerated with its probability, so that the losses as
shipped are their own expectations, and the answers are known to the last digit."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from tests.truth.problems import TabularMDP

from sbac.ratio import FitConfig, RatioBatch, RatioConfig, classifier, mmd, printed
from sbac.ratio.base import product

Loss = Callable[[RatioConfig, RatioBatch, Array, Array], Array]  # the last two: tables of log w and the target's
SETTINGS = [(gamma, ends) for gamma in (0.9, 0.99) for ends in (False, True)]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def expected_batch(mdp: TabularMDP) -> RatioBatch:
    """All transitions with their probabilities; states are one-hot rows."""
    rows = mdp.enumerate()
    one_hot = np.eye(mdp.size)
    return RatioBatch(
        states=jnp.asarray(one_hot[rows["states"]]),
        log_ratio=jnp.asarray(rows["log_ratio"]),
        next_states=jnp.asarray(one_hot[rows["next_states"]]),
        terminals=jnp.asarray(rows["terminals"]),
        initial_states=jnp.asarray(one_hot),
        weights=jnp.asarray(rows["weights"]),
        initial_weights=jnp.asarray(mdp.initial),
    )


def swap_states(batch: RatioBatch) -> RatioBatch:
    return batch._replace(states=batch.next_states, next_states=batch.states)


MUTATIONS: dict[str, Callable[[Any], RatioBatch]] = {
    "beta dropped": lambda batch: batch._replace(log_ratio=jnp.zeros_like(batch.log_ratio)),
    "beta inverted": lambda batch: batch._replace(log_ratio=-batch.log_ratio),
    "s and s' swapped": swap_states,
    "initial term removed": lambda batch: batch._replace(initial_weights=jnp.zeros_like(batch.initial_weights)),
    "restart at other states": lambda batch: batch._replace(initial_weights=batch.initial_weights[::-1]),
    "done ignored": lambda batch: batch._replace(terminals=jnp.zeros_like(batch.terminals)),
    "terminal rows lost": lambda batch: batch._replace(weights=batch.weights * (1 - batch.terminals)),
}


def mutations(form: str, ends: bool) -> dict[str, Callable[[Any], RatioBatch]]:
    """Those that change anything: the theorem form reads no initial states."""
    idle = set() if ends else {"done ignored", "terminal rows lost"}
    idle |= {"initial term removed", "restart at other states"} if form == "theorem" else set()
    return {name: mutate for name, mutate in MUTATIONS.items() if name not in idle}


def config_of(gamma: float, form: Any = "exact", **fields: Any) -> FitConfig:
    # No clip binds: the MDPs' true ratios are inside it, and so are their betas.
    return FitConfig(discount=gamma, form=form, log_beta_clip=20.0, **fields)


def classifier_loss(config: RatioConfig, batch: RatioBatch, table: Array, target: Array) -> Array:
    at_states = batch.states @ target
    return classifier.loss(config, lambda s: s @ table, at_states, batch, product(config, at_states, batch).sum())


def mmd_loss(config: RatioConfig, batch: RatioBatch, table: Array, target: Array) -> Array:
    at_states = batch.states @ target
    mean = product(config, at_states, batch).sum()
    return mmd.loss(config, lambda s: s @ table, at_states, batch, mean, bandwidth=1.0, distinct=False)


def printed_loss(config: RatioConfig, batch: RatioBatch, table: Array, target: Array) -> Array:
    return printed.loss(config, lambda s: s @ table, batch, bandwidth=1.0) / len(batch.states) ** 2


@partial(jax.jit, static_argnums=0)
def slope(loss: Loss, config: RatioConfig, batch: RatioBatch, log_w: Array) -> Array:
    return jnp.abs(jax.grad(loss, argnums=2)(config, batch, log_w, log_w)).max()


def largest_gradient(loss: Loss, config: RatioConfig, batch: RatioBatch, w: np.ndarray) -> float:
    """Of the loss at log w, the target being the same w."""
    return float(slope(loss, config, batch, jnp.asarray(np.log(w))))


@jax.jit
def iterate(config: RatioConfig, batch: RatioBatch) -> Array:
    """w after minimising the classifier's loss again and again from w = 1, the target being the last minimiser.

    The loss is a sum over states: Newton steps on its diagonal minimise it.
    """
    gradient = jax.grad(classifier_loss, argnums=2)

    def newton(target: Array, table: Array) -> Array:
        at_table = lambda t: gradient(config, batch, t, target)  # noqa: E731
        value, curvature = jax.jvp(at_table, (table,), (jnp.ones_like(table),))
        return table - value / curvature

    def improve(_: Array, table: Array) -> Array:
        return newton(table, newton(table, table))

    return jnp.exp(jax.lax.fori_loop(0, 400, improve, jnp.zeros(batch.states.shape[1])))


@pytest.mark.parametrize(("gamma", "ends"), SETTINGS)
@pytest.mark.parametrize("loss", [classifier_loss, mmd_loss])
@pytest.mark.parametrize("form", ["exact", "theorem"])
def test_gradient_vanishes_at_the_true_ratio(gamma: float, ends: bool, loss: Loss, form: str) -> None:
    """exact: at d^pi / d^D from the initial states; theorem: from the data. No mutation passes the same assertion."""
    mdp = TabularMDP.random(seed=1, terminates=ends)
    w = mdp.ratio(gamma, start=mdp.data if form == "theorem" else None)
    config, batch = config_of(gamma, form), expected_batch(mdp)
    assert largest_gradient(loss, config, batch, w) < 1e-6
    for name, mutate in mutations(form, ends).items():
        assert largest_gradient(loss, config, mutate(batch), w) > 1e-4, name


@pytest.mark.parametrize(("gamma", "ends"), SETTINGS)
@pytest.mark.parametrize("form", ["exact", "theorem"])
def test_operator_reaches_the_true_ratio_from_one(gamma: float, ends: bool, form: str) -> None:
    """The default's; and the two forms' fixed points are not each other's."""
    mdp = TabularMDP.random(seed=2, terminates=ends)
    config, batch = config_of(gamma, form), expected_batch(mdp)
    from_start, from_data = mdp.ratio(gamma), mdp.ratio(gamma, start=mdp.data)
    w, other = (from_start, from_data) if form == "exact" else (from_data, from_start)

    def error(batch: RatioBatch, truth: np.ndarray) -> float:
        return float(np.abs(np.asarray(iterate(config, batch)) / truth - 1).max())

    assert np.abs(w - 1).max() > 0.3
    assert error(batch, w) < 1e-3
    assert error(batch, other) > 1e-2
    for name, mutate in mutations(form, ends).items():
        assert not error(mutate(batch), w) < 1e-2, name  # not a number counts as missed


def test_theorem_needs_no_initial_states() -> None:
    mdp = TabularMDP.random(seed=3)
    batch = expected_batch(mdp)._replace(initial_states=None, initial_weights=None)
    w = mdp.ratio(0.99, start=mdp.data)
    assert largest_gradient(classifier_loss, config_of(0.99, "theorem"), batch, w) < 1e-6


@pytest.mark.parametrize("gamma", [0.9, 0.99])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
def test_printed_form_has_one_as_its_solution_on_stationary_data(gamma: float, kernel: str) -> None:
    """Whatever pi is: Eq. (7) does not see it. The forms that are right do."""
    for seed in range(3):
        mdp = TabularMDP.random(seed)
        mdp = mdp.with_data(mdp.stationary(mdp.mu))
        ones = np.ones(mdp.size)
        batch = expected_batch(mdp)
        config = config_of(gamma, "printed", kernel=kernel)
        assert largest_gradient(printed_loss, config, batch, ones) < 1e-12
        for form in ("exact", "theorem"):
            assert np.abs(mdp.ratio(gamma, mdp.data if form == "theorem" else None) - 1).max() > 0.1
            assert largest_gradient(classifier_loss, config_of(gamma, form), batch, ones) > 1e-3
        # Only on stationary data, and only where s is the source: elsewhere the same loss moves w.
        shifted = expected_batch(mdp.with_data(np.roll(mdp.data, 1)))
        assert largest_gradient(printed_loss, config, shifted, ones) > 1e-6
        assert largest_gradient(printed_loss, config, swap_states(batch), ones) > 1e-6
