"""BEAR: its losses, gradients and acting against float64 numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import bear
from sbac.algorithms.base import Step
from sbac.nn import GaussianPolicy, Multiplier
from tests.algorithms import float64, harness

CONFIG = bear.BEARConfig(
    steps=(100,), hidden=(5,), vae_hidden=(6,), discount=0.9, minimum_weight=0.7, target_candidates=4, kernel_width=0.5
)


@pytest.fixture(scope="module")
def state() -> bear.State:
    made, other = harness.two_states(bear.init, CONFIG)
    return bear.State(made.vae, made.critic, other.critic_target, made.policy, Multiplier.create(1.7))


def test_target_is_the_best_of_the_policys_samples(state: bear.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    u, _ = float64.sampled(state.policy.model, batch.next_observations, harness.normal(key, 4, 6, 2))
    values = np.stack([float64.critic(state.critic_target, batch.next_observations, a) for a in np.tanh(u)])
    best = (0.7 * values.min(1) + 0.3 * values.max(1)).max(0)
    ours = jax.jit(lambda s: bear.targets(CONFIG, s, batch, key))(state)
    harness.assert_target(ours, batch, best)


def test_actor_loss_and_gradient(state: bear.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    policy_key, vae_key = jax.random.split(key)
    noise = harness.normal(policy_key, 4, 6, 2)
    codes = np.clip(harness.normal(vae_key, 4, 6, 4), -0.5, 0.5)
    logged = np.stack([float64.mlp(state.vae.model.decoder, batch.observations, z) for z in codes])

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.mean([np.exp(-((a - b) ** 2).sum(-1) / (2 * 0.5)) for a in x for b in y], axis=0)

    def expected(policy: GaussianPolicy) -> float:
        u, _ = float64.sampled(policy, batch.observations, noise)
        distance = np.sqrt(kernel(u, u) + kernel(logged, logged) - 2 * kernel(u, logged) + 1e-6).mean()
        q = float64.critic(state.critic.model, batch.observations, np.tanh(u[0])).min(0).mean()
        return float(-q + 1.7 * (distance - 0.05))

    harness.assert_loss(
        lambda m: bear.actor_loss(m, CONFIG, state, batch, key, jnp.ones(()))[0],
        expected,
        state.policy.model,
    )


def test_the_warm_up_and_the_dual_variable(state: bear.State) -> None:
    """Q enters after 4 % of 100 steps: step 3 does not see the critic, step 4 does. The dual follows the violation."""
    batch, key = harness.small_batch(), jax.random.key(0)
    louder = bear.Trained(jax.tree.map(lambda x: 3 * x, state.critic.model), state.critic.moments)
    loud = dataclasses.replace(state, critic=louder)

    @jax.jit
    def update(config: bear.BEARConfig, state: bear.State, step: int) -> tuple[jax.Array, jax.Array]:
        new = bear.update(config, {}, state, batch, key, Step(jnp.asarray(step)))[0]
        return harness.gradient(new.policy).net.biases[-1], new.dual.value

    np.testing.assert_allclose(update(CONFIG, state, 3)[0], update(CONFIG, loud, 3)[0], rtol=1e-4, atol=1e-6)
    assert not np.allclose(update(CONFIG, state, 4)[0], update(CONFIG, loud, 4)[0], rtol=1e-2, atol=1e-3)
    assert float(update(dataclasses.replace(CONFIG, threshold=0.0), state, 4)[1]) > 1.7
    assert float(update(dataclasses.replace(CONFIG, threshold=9.0), state, 4)[1]) < 1.7


def test_acting_takes_the_best_sample_by_the_first_critic(state: bear.State) -> None:
    actor = bear.actor(CONFIG, {}, state)
    s = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    mean, std = float64.tanh_gaussian(state.policy.model, s)
    noise = np.asarray(actor.constants["noise"], np.float64)
    candidates = np.tanh(mean + std * noise[:, None])
    values = np.stack([float64.critic(state.critic.model, s, a)[0] for a in candidates])
    policy = harness.policy(actor, actions=2)
    harness.assert_best(policy(s), candidates, values)
    assert not np.array_equal(policy.sample(s, 1), policy.sample(s, 2))
