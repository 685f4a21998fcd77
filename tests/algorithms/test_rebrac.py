"""ReBRAC: its losses and gradients against float64 numpy, its published settings, and the small problem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import rebrac
from sbac.algorithms.base import Spec
from sbac.nn import DeterministicPolicy
from tests.algorithms import float64, harness

CONFIG = rebrac.ReBRACConfig(hidden=(5,), steps=(10,), discount=0.9, policy_penalty=0.3, critic_penalty=0.7)


@pytest.fixture(scope="module")
def state() -> rebrac.State:
    """Networks moved away from where they start, so that no learned number is a plain 0 or 1."""
    make = jax.jit(lambda key: rebrac.init(CONFIG, Spec(3, 2, jnp.zeros((1, 3))), {}, key))
    first, second = make(jax.random.key(0)), make(jax.random.key(1))
    made, other = (jax.tree.map(lambda x: 1.5 * x + 0.05, state) for state in (first, second))
    return rebrac.State(made.policy, made.critic, other.policy_target, other.critic_target)


def test_networks_start_as_the_authors_have_them() -> None:
    made = rebrac.init(CONFIG, Spec(3, 2, jnp.zeros((1, 3))), {}, jax.random.key(0))
    policy, critics = made.policy.model.net, made.critic.model.nets
    assert critics.normalise
    assert not policy.normalise
    assert len(critics.scales) == len(critics.offsets) == 1
    assert (critics.scales[0] == 1).all()
    assert (critics.offsets[0] == 0).all()
    for net, bound in ((policy, 1e-3), (critics, 3e-3)):
        np.testing.assert_allclose(net.biases[0], 0.1)
        assert 0.5 * bound < np.abs(net.weights[-1]).max() <= bound


def test_critic_target_pays_for_the_distance_to_the_next_action(state: rebrac.State) -> None:
    batch, key = harness.small_batch(), jax.random.key(3)
    noise = np.clip(0.2 * np.asarray(jax.random.normal(key, batch.actions.shape)), -0.5, 0.5)
    a = np.clip(np.tanh(float64.mlp(state.policy_target.net, batch.next_observations)) + noise, -1, 1)
    q = float64.critic(state.critic_target, batch.next_observations, a).min(0)
    q -= 0.7 * ((a - np.asarray(batch.next_actions)) ** 2).sum(-1)
    expected = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * q)
    actual = jax.jit(rebrac.critic_target)(CONFIG, state, batch, key)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_policy_loss_and_gradient(state: rebrac.State) -> None:
    """The squared distance is summed over the action's dimensions; the normaliser of Q is a constant."""
    batch = harness.small_batch()
    now = np.tanh(float64.mlp(state.policy.model.net, batch.observations))
    size = np.abs(float64.critic(state.critic.model, batch.observations, now).min(0)).mean()

    def expected(policy: DeterministicPolicy) -> float:
        a = np.tanh(float64.mlp(policy.net, batch.observations))
        q = float64.critic(state.critic.model, batch.observations, a).min(0)
        return float(0.3 * ((a - np.asarray(batch.actions)) ** 2).sum(-1).mean() - q.mean() / size)

    harness.assert_loss(
        lambda p: rebrac.policy_loss(CONFIG, p, state.critic.model, batch)[0], expected, state.policy.model
    )


def test_published_settings_cover_the_tasks() -> None:
    settings = rebrac.REBRAC.task_settings
    assert len(settings) == 19
    for task, fields in settings.items():
        made = rebrac.ReBRACConfig(**{**rebrac.REBRAC.presets["paper"], **fields})
        assert made.batch_size == (256 if "human" in task else 1024)
    assert settings["hopper-medium-replay-v2"] == {"policy_penalty": 0.05, "critic_penalty": 0.5}


@pytest.mark.slow
def test_learns_the_small_problem() -> None:
    harness.assert_in_band(
        "rebrac", harness.scores("rebrac", seeds=2, steps=(2500,), **harness.FAST, learning_rate=2e-3)
    )
