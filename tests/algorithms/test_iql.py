"""IQL: its losses and gradients against float64 numpy, its policy outside JAX."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import iql
from sbac.algorithms.base import Step
from sbac.nn import MLP
from tests.algorithms import float64, harness

CONFIG = iql.IQLConfig(hidden=(5,), steps=(10,), discount=0.9, expectile=0.8, temperature=2.0)


@pytest.fixture(scope="module")
def state() -> iql.State:
    made, other = harness.two_states(iql.init, CONFIG)
    policy = iql.Policy(made.policy.model.net, jnp.asarray([-0.3, 0.4]))
    return iql.State(made.value, made.critic, other.critic.model, iql.Trained.create(policy))


def test_value_loss_and_gradient(state: iql.State) -> None:
    batch = harness.small_batch()
    q = float64.critic(state.target, batch.observations, batch.actions).min(0)

    def expected(value: MLP) -> float:
        u = q - float64.mlp(value, batch.observations)[:, 0]
        return float(np.mean(np.abs(0.8 - (u < 0)) * u**2))

    assert 0 < (q - float64.mlp(state.value.model, batch.observations)[:, 0] > 0).mean() < 1  # both sides are met
    harness.assert_loss(lambda v: iql.value_loss(CONFIG, v, state.target, batch)[0], expected, state.value.model)


def test_critic_loss_and_gradient(state: iql.State) -> None:
    batch = harness.small_batch()
    v = float64.mlp(state.value.model, batch.next_observations)[:, 0]
    target = np.where(batch.terminals == 1, batch.rewards, batch.rewards + 0.9 * v)

    def expected(critic: iql.Critic) -> float:
        q = float64.critic(critic, batch.observations, batch.actions)
        return float(np.mean((q[0] - target) ** 2) + np.mean((q[1] - target) ** 2))

    harness.assert_loss(lambda q: iql.critic_loss(CONFIG, q, state.value.model, batch)[0], expected, state.critic.model)


@pytest.mark.parametrize("temperature", [2.0, 200.0])  # the second meets the ceiling of 100
def test_policy_loss_and_gradient(state: iql.State, temperature: float) -> None:
    batch = harness.small_batch()
    config = iql.IQLConfig(hidden=(5,), steps=(10,), temperature=temperature)
    advantage = float64.critic(state.target, batch.observations, batch.actions).min(0)
    advantage -= float64.mlp(state.value.model, batch.observations)[:, 0]
    weight = np.minimum(np.exp(temperature * advantage), 100)
    assert (weight == 100).any() == (temperature == 200)

    def expected(policy: iql.Policy) -> float:
        mean = np.tanh(float64.mlp(policy.net, batch.observations))
        return float(-(weight * float64.log_normal(batch.actions, mean, np.exp(policy.raw_log_std))).mean())

    def loss(policy: iql.Policy) -> jax.Array:
        return iql.policy_loss(config, policy, state.value.model, state.target, batch, None)[0]

    harness.assert_loss(loss, expected, state.policy.model)


def test_dropout_silences_its_share_and_keeps_the_mean() -> None:
    """One hidden layer and a linear output: the mean over masks is the network without dropout."""
    net = MLP.create(jax.random.key(0), 3, (40,), 2)
    x = jax.random.normal(jax.random.key(1), (1, 3))
    outputs = jax.jit(jax.vmap(lambda k: net(x, dropout=0.3, key=k)))(jax.random.split(jax.random.key(2), 4000))
    error = np.asarray(outputs.std(0)) / math.sqrt(4000)
    assert (error > 1e-4).all()
    assert (np.abs(outputs.mean(0) - net(x)) < 5 * error).all()


def test_dropout_acts_in_training_only(state: iql.State) -> None:
    batch = harness.small_batch()
    config = iql.IQLConfig(hidden=(5,), steps=(10,), dropout=0.5)
    update = jax.jit(lambda k: iql.update(config, {}, state, batch, k, Step(jnp.asarray(0)))[1]["policy_loss"])
    assert update(jax.random.key(0)) != update(jax.random.key(1))
    validate = jax.jit(lambda k: iql.validate(config, {}, state, batch, k)["policy_loss"])
    assert validate(jax.random.key(0)) == validate(jax.random.key(1))


def test_the_policy_stops_at_the_last_step_and_the_critic_does_not(state: iql.State) -> None:
    update = jax.jit(
        lambda step: iql.update(CONFIG, {}, state, harness.small_batch(), jax.random.key(0), Step(step))[0]
    )
    last = update(jnp.asarray(10))
    np.testing.assert_array_equal(last.policy.model.net.weights[0], state.policy.model.net.weights[0])
    assert not np.array_equal(last.critic.model.nets.weights[0], state.critic.model.nets.weights[0])


def test_the_policy_is_the_same_outside_jax() -> None:
    model = iql.Policy(MLP.create(jax.random.key(0), 3, (8,), 1), jnp.asarray([-9.0]))  # below the floor of -5
    numpy = harness.policy(iql.Actor("gaussian", {"policy": model.net}, {"log_std": model.log_std}))
    s, a = harness.small_batch(actions=1)[:2]
    np.testing.assert_allclose(numpy(s), jnp.tanh(model.net(s)), atol=1e-6)
    np.testing.assert_allclose(numpy.log_prob(s, a), model.log_prob(s, a), rtol=1e-4)
    many = np.repeat(np.asarray(s[:1]), 20_000, 0)
    assert numpy.sample(many).std() == pytest.approx(math.exp(-5), rel=0.05)
