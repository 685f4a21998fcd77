"""What can be proved about w in objective (8), where Q, w and the return are exact (lab-notes/w)."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax

from truth.improvement import (
    WEIGHTINGS,
    Worlds,
    aggregated_critic,
    among,
    gaussian_step,
    greedy,
    improve,
    policy_step,
    shared,
)
from truth.problems import TabularMDP

GAMMAS = [0.9, 0.99]


def some_worlds(discount: float, count: int = 6, states: int = 12, terminates: bool = False) -> Worlds:
    """MDPs in which every policy visits every state, with mu's own data."""
    mdps = [TabularMDP.random(seed, states, terminates=terminates) for seed in range(count)]
    return Worlds.stack([mdp.with_data(mdp.visitation(mdp.mu, discount)) for mdp in mdps], discount)


def found(worlds: Worlds, alpha: float, weighting: str, entropy: float = 0.0) -> np.ndarray:
    q = worlds.values(worlds.mu)[1]
    alphas = np.full((1, worlds.shape[0]), alpha)
    return improve(worlds, lambda w: q, alphas, weighting=weighting, entropy=entropy).policy


@pytest.mark.parametrize("terminates", [False, True])
def test_stacked_worlds_agree_with_each_mdp(terminates: bool) -> None:
    mdps = [TabularMDP.random(seed, terminates=terminates) for seed in range(3)]
    worlds = Worlds.stack(mdps, 0.99)
    for i, mdp in enumerate(mdps):
        assert np.allclose(worlds.visitation(worlds.mu)[i], mdp.visitation(mdp.mu, 0.99))
        assert np.allclose(worlds.values(worlds.mu)[1][i], mdp.values(mdp.mu, 0.99)[1])


def test_return_std_of_a_coin_tossed_forever() -> None:
    """One state, reward 1 or 0 with probabilities p and 1 - p: the variance is p (1 - p) / (1 - gamma^2)."""
    coin = Worlds(
        transitions=np.ones((1, 1, 2, 1)),
        termination=np.zeros((1, 1, 2)),
        rewards=np.array([[[1.0, 0.0]]]),
        initial=np.ones((1, 1)),
        mu=np.array([[[0.3, 0.7]]]),
        data=np.ones((1, 1)),
        discount=0.9,
    )
    assert np.allclose(coin.return_std(coin.mu) ** 2, 0.3 * 0.7 / (1 - 0.9**2))


# --- Where w cannot matter --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entropy", [0.0, 1.0])
def test_w_is_alpha_divided_by_w_in_each_state(entropy: float) -> None:
    """And so it is if it stands under the penalty; on the whole objective it cancels."""
    worlds = some_worlds(0.9)
    q, alpha = worlds.values(worlds.mu)[1], 0.3
    w = np.exp(np.random.default_rng(0).normal(size=(1, *worlds.shape[:2])))

    def maximiser(alpha: np.ndarray) -> np.ndarray:
        return softmax(q / alpha + np.log(worlds.mu), -1) if entropy else greedy(q + alpha * np.log(worlds.mu))

    divided, plain = maximiser((alpha / w)[..., None]), maximiser(np.full((1, 1, 1, 1), alpha))
    for weighting, expected in {"q": divided, "penalty": divided, "state": plain, "none": plain}.items():
        got = policy_step(worlds, q, w, np.full((1, worlds.shape[0]), alpha), weighting=weighting, entropy=entropy)
        assert np.allclose(got, expected, atol=1e-6), weighting
    assert np.abs(divided - plain).max() > 0.05


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("terminates", [False, True])
def test_both_ends_of_alpha_are_the_same_with_w_and_without(gamma: float, terminates: bool) -> None:
    """An unrestricted pi with w > 0 is greedy on Q^mu at alpha 0, and takes mu's likeliest action at infinity."""
    worlds = some_worlds(gamma, terminates=terminates)
    for weighting in WEIGHTINGS:
        assert np.array_equal(found(worlds, 1e-9, weighting)[0], greedy(worlds.values(worlds.mu)[1]))
        assert np.array_equal(found(worlds, 1e9, weighting)[0], greedy(worlds.mu))
        assert np.allclose(found(worlds, 1e9, weighting, entropy=1.0)[0], worlds.mu)


def test_w_does_matter_in_between() -> None:
    """Guards the tests above: at alpha 0.2 the two sides differ, and each w fits its policy."""
    worlds = some_worlds(0.9, count=20)
    q = worlds.values(worlds.mu)[1]
    ours = improve(worlds, lambda w: q, np.full((1, 20), 0.2), weighting="q", entropy=1.0)
    assert np.abs(ours.policy - found(worlds, 0.2, "none", entropy=1.0)).max() > 0.05
    assert ours.settled.all()
    assert np.allclose(ours.w * worlds.data, worlds.visitation(ours.policy), atol=1e-3)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_w_on_the_loss_of_an_unrestricted_critic_changes_nothing(gamma: float) -> None:
    worlds = some_worlds(gamma, terminates=True)
    alone = np.broadcast_to(np.eye(12), (6, 12, 12))
    w = np.exp(np.random.default_rng(0).normal(size=(1, *worlds.shape[:2])))
    fit = aggregated_critic(worlds, alone, weighted=True)
    assert np.allclose(fit(w)[0], worlds.values(worlds.mu)[1], rtol=1e-4)
    pairs = np.repeat(np.eye(6), 2, axis=1)  # two states share: now the weights count
    fit = aggregated_critic(worlds, np.broadcast_to(pairs, (6, 6, 12)), weighted=True)
    assert np.abs(fit(w) - fit(np.ones_like(w))).max() > 0.01


# --- What w held fixed leaves out -------------------------------------------------------------------------------------


def test_w_that_moves_with_pi_is_the_whole_problem_and_w_held_fixed_is_one_step() -> None:
    """E_data[w^pi A^mu] is (1 - gamma) (J(pi) - J(mu)): over all policies its maximiser is optimal. With w held fixed
    in the step, as Algorithm 1 has it, the maximiser is greedy on Q^mu, which is not."""
    worlds = some_worlds(0.9, count=8, states=6)
    v, q = worlds.values(worlds.mu)
    every = np.eye(3)[np.array(list(product(range(3), repeat=6)))][:, None]
    ratio = worlds.visitation(np.broadcast_to(every, (len(every), 8, 6, 3))) / worlds.data
    surrogate = (worlds.data * ratio * (every * (q - v[..., None])).sum(-1)).sum(-1)
    gained = worlds.best_returns() - worlds.returns(worlds.mu)
    assert np.allclose(surrogate.max(0), (1 - 0.9) * gained)
    one_step = worlds.returns(found(worlds, 1e-9, "q")[0]) - worlds.returns(worlds.mu)
    assert np.all(one_step > 0) and (one_step < 0.999 * gained).sum() >= 2


def test_w_makes_the_step_a_policy_gradient_only_if_q_follows_pi() -> None:
    """The gradient of J at pi is that of E_data[w Q^pi]; with Q^mu in its place, or without w, it is another."""
    worlds = some_worlds(0.9, count=1)
    pi = softmax(3 * np.random.default_rng(0).normal(size=worlds.mu.shape), -1)
    push = 1e-5 * (softmax(np.random.default_rng(1).normal(size=pi.shape), -1) - pi)
    w = worlds.visitation(pi) / worlds.data
    true = (1 - 0.9) * (worlds.returns(pi + push) - worlds.returns(pi - push))[0] / 2

    def slope(weight: np.ndarray, policy: np.ndarray) -> float:
        return float((worlds.data * weight * (push * worlds.values(policy)[1]).sum(-1)).sum())

    assert np.isclose(slope(w, pi), true, rtol=1e-5)
    assert not np.isclose(slope(w, worlds.mu), true, rtol=0.02)
    assert not np.isclose(slope(np.ones_like(w), pi), true, rtol=0.02)


# --- Restricted policies ----------------------------------------------------------------------------------------------


def test_states_that_share_a_choice_are_weighted_by_w() -> None:
    """Two states, one choice: the heavier one decides, and w says which is heavier."""
    world = replace(
        some_worlds(0.9, count=1, states=2),
        data=np.array([[0.6, 0.4]]),
        mu=np.full((1, 2, 3), 1 / 3),
    )
    q = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    listed = among(np.repeat(np.eye(3)[:, None], 2, axis=1))
    together, alpha = shared(np.ones((1, 1, 2))), np.full((1, 1), 0.01)
    for w, action in (([[[1.0, 1.0]]], 0), ([[[0.5, 1.75]]], 1)):
        assert np.array_equal(
            policy_step(world, q, np.array(w), alpha, maximise=together)[0, 0], np.eye(3)[[action] * 2]
        )
        assert np.array_equal(policy_step(world, q, np.array(w), alpha, maximise=listed)[0, 0], np.eye(3)[[action] * 2])


# --- The entropy term -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("w", [0.3, 2.0])
@pytest.mark.parametrize("curvature", [3.0, -0.5])
def test_spread_of_a_gaussian_policy_in_closed_form(w: float, curvature: float) -> None:
    """Against a maximisation by quadrature; without entropy the mean is the same and the spread is 0."""
    mean, std, slope, alpha = 0.4, 0.7, 1.5, 0.8
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)

    def loss(x: np.ndarray) -> float:
        a = x[0] + np.exp(x[1]) * nodes
        q = slope * (a - mean) - 0.5 * curvature * (a - mean) ** 2
        log_mu = -0.5 * ((a - mean) / std) ** 2
        return -float(weights @ (w * q + alpha * log_mu) / weights.sum() + alpha * x[1])

    best = minimize(loss, np.zeros(2), tol=1e-12).x
    assert np.allclose(gaussian_step(mean, std, slope, curvature, w, alpha, 1.0), (best[0], np.exp(best[1])), rtol=1e-4)
    no_entropy = gaussian_step(mean, std, slope, curvature, w, alpha, 0.0)
    assert np.isclose(no_entropy[0], best[0], rtol=1e-4) and no_entropy[1] == 0
