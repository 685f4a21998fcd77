"""BEAR: its losses, gradients and acting against float64 numpy, and the small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import bear
from sbac.algorithms.base import Spec
from sbac.nn import GaussianPolicy, Multiplier
from tests.algorithms import acting, float64, harness

CONFIG = bear.BEARConfig(
    steps=(100,), hidden=(5,), vae_hidden=(6,), discount=0.9, minimum_weight=0.7, target_candidates=4, kernel_width=0.5
)


@pytest.fixture(scope="module")
def state() -> bear.State:
    """With a target that differs from what it follows."""
    made, other = (bear.init(CONFIG, Spec(3, 2, jnp.zeros((1, 3))), {}, jax.random.key(i)) for i in (0, 1))
    return bear.State(made.vae, made.critic, other.critic_target, made.policy, Multiplier.create(1.7))


def test_target_is_the_best_of_the_policys_samples(state: bear.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    mean, std = float64.tanh_gaussian(state.policy.model, batch.next_observations)
    noise = np.asarray(jax.random.normal(key, (4, 6, 2)), np.float64)
    values = np.stack(
        [float64.critic(state.critic_target, batch.next_observations, np.tanh(mean + std * e)) for e in noise]
    )
    best = (0.7 * values.min(1) + 0.3 * values.max(1)).max(0)
    expected = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * best)
    np.testing.assert_allclose(bear.targets(CONFIG, state, batch, key), expected, atol=1e-5)


@pytest.mark.parametrize("improving", [0.0, 1.0])
def test_actor_loss_and_gradient(state: bear.State, improving: float) -> None:
    batch, key = harness.small_batch(), jax.random.key(4)
    policy_key, vae_key = jax.random.split(key)
    noise = np.asarray(jax.random.normal(policy_key, (4, 6, 2)), np.float64)
    codes = np.clip(np.asarray(jax.random.normal(vae_key, (4, 6, 4)), np.float64), -0.5, 0.5)
    logged = np.stack([float64.mlp(state.vae.model.decoder, batch.observations, z) for z in codes])

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.mean([np.exp(-((a - b) ** 2).sum(-1) / (2 * 0.5)) for a in x for b in y], axis=0)

    def expected(policy: GaussianPolicy) -> float:
        mean, std = float64.tanh_gaussian(policy, batch.observations)
        u = mean + std * noise
        distance = np.sqrt(kernel(u, u) + kernel(logged, logged) - 2 * kernel(u, logged) + 1e-6).mean()
        q = float64.critic(state.critic.model, batch.observations, np.tanh(u[0])).min(0).mean()
        return float(-improving * q + 1.7 * (distance - 0.05))

    harness.assert_loss(
        lambda m: bear.actor_loss(m, CONFIG, state, batch, key, jnp.asarray(improving))[0],
        expected,
        state.policy.model,
    )


def test_q_enters_after_the_warm_up_alone(state: bear.State) -> None:
    """4 % of 100 steps: step 3 does not see the critic, step 4 does."""
    batch, key = harness.small_batch(), jax.random.key(0)
    louder = jax.tree.map(lambda x: 3 * x, state.critic.model)
    loud = bear.State(
        state.vae, bear.Trained(louder, state.critic.moments), state.critic_target, state.policy, state.dual
    )
    update = jax.jit(lambda s, step: bear.update(CONFIG, {}, s, batch, key, step)[0].policy.model.net.biases[-1])
    np.testing.assert_array_equal(update(state, 3), update(loud, 3))
    assert not np.array_equal(update(state, 4), update(loud, 4))


def test_the_dual_variable_follows_the_violation(state: bear.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(0)
    for threshold, sign in ((10.0, -1), (0.0, 1)):
        config = bear.BEARConfig(steps=(100,), hidden=(5,), vae_hidden=(6,), threshold=threshold)
        new, _ = jax.jit(lambda s, c=config: bear.update(c, {}, s, batch, key, jnp.asarray(0)))(state)
        assert sign * (float(new.dual.value) - 1.7) > 0


def test_acting_takes_the_best_sample_by_the_first_critic(state: bear.State) -> None:
    actor = bear.actor(CONFIG, {}, state)
    s = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32)
    mean, std = float64.tanh_gaussian(state.policy.model, s)
    noise = np.asarray(actor.constants["noise"], np.float64)
    candidates = np.tanh(mean + std * noise[:, None])
    values = np.stack([float64.critic(state.critic.model, s, a)[0] for a in candidates])
    policy = acting.policy(actor)
    np.testing.assert_allclose(policy(s), candidates[values.argmax(0), np.arange(9)], atol=2e-5)
    assert not np.array_equal(policy.sample(s, 1), policy.sample(s, 2))
