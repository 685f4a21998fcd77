"""TD3, TD3+BC and ReBRAC: their targets, losses and gradients against float64 numpy; delayed updates."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbac.algorithms import rebrac, td3, td3_bc
from sbac.algorithms.base import Step
from sbac.nn import DeterministicPolicy
from tests.algorithms import float64, harness

CONFIGS: dict[ModuleType, Any] = {
    td3: td3.TD3Config(hidden=(5,), discount=0.9),
    td3_bc: td3_bc.TD3BCConfig(hidden=(5,), steps=(10,), discount=0.9, alpha=1.7),
    rebrac: rebrac.ReBRACConfig(hidden=(5,), steps=(10,), discount=0.9, policy_penalty=0.3, critic_penalty=0.7),
}


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda method: method.__name__.rsplit(".", 1)[1])
def method(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def state(method: Any) -> td3_bc.State:
    """Networks moved away from where they start, so that no learned number is a plain 0 or 1."""
    made, other = harness.two_states(method.init, CONFIGS[method])
    if method is rebrac:
        made, other = (jax.tree.map(lambda x: 1.5 * x + 0.05, state) for state in (made, other))
    return td3_bc.State(made.policy, made.critic, other.policy_target, other.critic_target)


def test_critic_target(method: Any, state: td3_bc.State) -> None:
    """ReBRAC's pays for the distance to the log's next action."""
    batch, key = harness.small_batch(), jax.random.key(3)
    noise = np.clip(0.2 * harness.normal(key, 6, 2), -0.5, 0.5)
    a = np.clip(np.tanh(float64.mlp(state.policy_target.net, batch.next_observations)) + noise, -1, 1)
    q = float64.critic(state.critic_target, batch.next_observations, a).min(0)
    if method is rebrac:
        q -= 0.7 * ((a - np.asarray(batch.next_actions)) ** 2).sum(-1)
    harness.assert_target(jax.jit(method.critic_target)(CONFIGS[method], state, batch, key), batch, q)


def test_noise_is_clipped_and_actions_stay_inside_the_bounds() -> None:
    moved = td3_bc.smoothed(jnp.full((1000, 1), 0.8), 5.0, 0.5, jax.random.key(0))
    assert float(moved.max()) == 1.0
    assert float(moved.min()) == pytest.approx(0.3)


def test_policy_loss_and_gradient(method: Any, state: td3_bc.State) -> None:
    """The normaliser of Q is a constant: its derivative is not taken. ReBRAC sums over dimensions, TD3+BC averages."""
    batch, critic = harness.small_batch(), state.critic.model

    def q(policy: DeterministicPolicy) -> tuple[np.ndarray, np.ndarray]:
        a = np.tanh(float64.mlp(policy.net, batch.observations))
        values = float64.critic(critic, batch.observations, a)
        return values.min(0) if method is rebrac else values[0], (a - np.asarray(batch.actions)) ** 2

    size = np.abs(q(state.policy.model)[0]).mean()

    def expected(policy: DeterministicPolicy) -> float:
        values, distance = q(policy)
        if method is td3:
            return float(-values.mean())
        if method is td3_bc:
            return float(distance.mean() - 1.7 / size * values.mean())
        return float(0.3 * distance.sum(-1).mean() - values.mean() / size)

    first = () if method is td3 else (CONFIGS[method],)
    harness.assert_loss(lambda p: method.policy_loss(*first, p, critic, batch)[0], expected, state.policy.model)


def test_policy_and_targets_wait_for_every_second_step(method: Any, state: td3_bc.State) -> None:
    config, batch = CONFIGS[method], harness.small_batch()
    update = jax.jit(lambda i: method.update(config, {}, state, batch, jax.random.key(0), Step(i))[0])
    first, second = update(jnp.asarray(0)), update(jnp.asarray(1))
    kept = (first.policy, first.policy_target, first.critic_target)
    assert harness.are_same(kept, (state.policy, state.policy_target, state.critic_target))
    assert not harness.are_same(first.critic, state.critic)
    assert harness.are_same(first.critic, second.critic)
    assert not harness.are_same(second.policy, state.policy)
    expected = 0.995 * state.critic_target.nets.weights[0] + 0.005 * second.critic.model.nets.weights[0]
    np.testing.assert_allclose(second.critic_target.nets.weights[0], expected, rtol=1e-5)


def test_networks_of_rebrac_start_as_the_authors_have_them() -> None:
    made = rebrac.init(CONFIGS[rebrac], harness.SPEC, {}, jax.random.key(0))
    policy, critics = made.policy.model.net, made.critic.model.nets
    assert critics.normalise and not policy.normalise
    assert len(critics.scales) == len(critics.offsets) == 1
    assert (critics.scales[0] == 1).all() and (critics.offsets[0] == 0).all()
    for net, bound in ((policy, 1e-3), (critics, 3e-3)):
        np.testing.assert_allclose(net.biases[0], 0.1)
        assert 0.5 * bound < np.abs(net.weights[-1]).max() <= bound


def test_published_settings_of_rebrac_cover_the_tasks() -> None:
    settings = rebrac.REBRAC.task_settings
    assert len(settings) == 19
    for task, fields in settings.items():
        made = rebrac.ReBRACConfig(**{**rebrac.REBRAC.presets["paper"], **fields})
        assert made.batch_size == (256 if "human" in task else 1024)
    assert settings["hopper-medium-replay-v2"] == {"policy_penalty": 0.05, "critic_penalty": 0.5}
