"""The TD target and loss that the methods share, against float64 numpy."""

import jax
import jax.numpy as jnp
import numpy as np

from sbac.algorithms import evaluation
from sbac.nn import Critic
from tests.algorithms import float64, harness


def test_td_loss_and_gradient() -> None:
    batch, target = harness.small_batch(), np.arange(6.0)

    def expected(critic: Critic) -> float:
        q = float64.critic(critic, batch.observations, batch.actions)
        return float(sum(np.mean((q[i] - target) ** 2) for i in range(2)))

    critic = Critic.create(jax.random.key(0), 3, 2, (5,))
    target32 = jnp.asarray(target, jnp.float32)
    harness.assert_loss(lambda q: evaluation.td_loss(q, batch, target32)[0], expected, critic)
    loss, metrics = evaluation.td_loss(critic, batch, target32)
    assert float(metrics["critic_loss"]) == float(loss)
    np.testing.assert_allclose(
        metrics["q"], float64.critic(critic, batch.observations, batch.actions).mean(), rtol=1e-5
    )


def test_td_target_has_no_future_after_the_end() -> None:
    batch = harness.small_batch()
    next_value = jnp.arange(12.0).reshape(2, 6)
    expected = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * np.asarray(next_value))
    np.testing.assert_allclose(evaluation.td_target(batch, 0.9, next_value), expected, rtol=1e-6)
