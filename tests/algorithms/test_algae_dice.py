"""AlgaeDICE: its losses and gradients against float64 numpy, its bootstrap mask."""

from typing import Any

import jax
import numpy as np
import pytest

from sbac.algorithms import algae_dice
from sbac.algorithms.base import Step
from sbac.nn import GaussianPolicy, Multiplier
from tests.algorithms import float64, harness

CONFIG = algae_dice.AlgaeDICEConfig(
    hidden=(5,), discount=0.9, alpha=0.4, exponent=1.6, online_share=0.2, orthogonality=0.01
)


@pytest.fixture(scope="module")
def state() -> algae_dice.State:
    made, other = harness.two_states(algae_dice.init, CONFIG)
    return algae_dice.State(made.policy, made.critic, other.critic_target, Multiplier.create(0.3))


def parts(policy: Any, critic: Any, state: algae_dice.State, batch: Any, key: jax.Array) -> tuple[Any, Any]:
    """delta of both critics, and the value of the initial states."""
    next_key, initial_key = jax.random.split(key)
    u, log_pi = float64.sampled(policy, batch.next_observations, harness.normal(next_key, 6, 2))
    online = float64.critic(critic, batch.next_observations, np.tanh(u))
    steady = float64.critic(state.critic_target, batch.next_observations, np.tanh(u)).min(0)
    following = np.where(np.asarray(batch.terminals) == 1, 0, 0.2 * online + 0.8 * steady - 0.3 * log_pi)
    rewards = np.asarray(batch.rewards, np.float64)
    delta = rewards + 0.9 * following - float64.critic(critic, batch.observations, batch.actions)
    first, _ = float64.sampled(policy, batch.initial_observations, harness.normal(initial_key, 6, 2))
    return delta, float64.critic(critic, batch.initial_observations, np.tanh(first))


def test_critic_loss_and_gradient_which_passes_through_the_online_share(state: algae_dice.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)

    def expected(critic: Any) -> float:
        delta, first = parts(state.policy.model, critic, state, batch, key)
        return float((np.abs(delta) ** 1.6 / 1.6 + 0.4 * 0.1 * first).mean(1).sum())

    harness.assert_loss(lambda m: algae_dice.critic_loss(m, CONFIG, state, batch, key)[0], expected, state.critic.model)


def test_actor_loss_and_gradient_with_the_ratio_held_fixed(state: algae_dice.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    now, _ = parts(state.policy.model, state.critic.model, state, batch, key)
    assert (now > 0).any() and (now < 0).any()
    ratio = np.maximum(now, 0) ** 0.6

    def expected(policy: GaussianPolicy) -> float:
        delta, first = parts(policy, state.critic.model, state, batch, key)
        inner = 0.0
        for w in policy.net.weights:
            inner += sum((w[:, i] @ w[:, j]) ** 2 for i in range(w.shape[1]) for j in range(w.shape[1]) if i != j)
        return float(0.01 * inner - (ratio * delta + 0.4 * 0.1 * first).mean())

    def loss(policy: GaussianPolicy) -> jax.Array:
        return algae_dice.actor_loss(policy, CONFIG, state, state.critic.model, batch, key)[0]

    harness.assert_loss(loss, expected, state.policy.model)


def test_terminal_rows_alone_stop_the_bootstrap(state: algae_dice.State) -> None:
    """With the mask inverted, as in the published evaluation on D4RL, this is the other way round."""
    batch = harness.small_batch()
    elsewhere = batch._replace(next_observations=batch.next_observations + 3)

    @jax.jit
    def delta(b: Any) -> jax.Array:
        arguments = (CONFIG, state.policy.model, state.critic.model, state.critic_target, state.temperature.value)
        return algae_dice.residuals(*arguments, b, jax.random.key(0))[0]

    moved = np.asarray(delta(batch) != delta(elsewhere)).any(0)
    np.testing.assert_array_equal(moved, np.asarray(batch.terminals) == 0)


def test_the_policy_and_the_targets_move_every_other_step(state: algae_dice.State) -> None:
    batch = harness.small_batch()
    update = jax.jit(lambda s, step: algae_dice.update(CONFIG, {}, s, batch, jax.random.key(0), Step(step))[0])
    for step, moves in ((6, True), (7, False)):
        new = update(state, step)
        for old, now in (
            (state.policy.model.net.biases[-1], new.policy.model.net.biases[-1]),
            (state.critic_target.nets.biases[-1], new.critic_target.nets.biases[-1]),
            (state.temperature.value, new.temperature.value),
        ):
            assert (not np.array_equal(old, now)) == moves
