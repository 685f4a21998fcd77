"""The learned model against a linear world, and where its rollouts are cut."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from exporting.policies import make_policy
from sbac.trust.acting import Actors
from sbac.trust.estimates import judge
from sbac.trust.fitting import Effort, Reporter
from sbac.trust.log import read_log
from sbac.trust.model import disagreements, learn, model_values, roll
from truth.logged import Linear

SMALL = Effort(2, 2, (32, 32), 64, (500, 1_000), 2e-3, 0.1, (32, 32), 4_000)


@pytest.fixture(scope="module")
def linear():
    world = Linear.random(0)
    return world, read_log(sbac.Dataset(**world.log(100, 0)), world.discount)


def test_it_foresees_the_next_state_and_the_reward(linear) -> None:
    world, log = linear
    found = learn(log, SMALL, 0)(log.transitions.states, log.transitions.actions)
    errors = np.asarray(found.next_states.mean(0) - log.transitions.next_states)
    noise = world.noise / log.units.observation_std
    assert (errors.std(0) < 1.25 * noise).all()  # what is left is the world's own noise
    assert np.corrcoef(found.rewards.mean(0), log.transitions.rewards)[0, 1] > 0.98
    assert found.ends.mean() < 0.02  # nothing ever ends here


def test_members_disagree_more_where_there_is_no_data(linear) -> None:
    _, log = linear
    model = learn(log, SMALL, 0)
    limit = float(disagreements(model, log.transitions.states, log.transitions.actions).max())
    far = model(10 * log.transitions.states[:200], log.transitions.actions[:200])
    assert float(jnp.median(far.disagreement)) > limit


@pytest.mark.slow
def test_its_gain_is_near_the_truth_for_a_policy_near_the_log(linear) -> None:
    world, log = linear
    gain = world.better(0.3)
    policies = [world.acts(gain), world.acts(world.beyond())]
    effort = Effort(2, 2, (64, 64), 128, (1_500, 3_000), 2e-3, 0.1)
    judged = judge(log, policies, effort, 0)
    found = model_values(log, policies, judged.fitted, effort, 0, Reporter())
    truth = world.value(gain) - world.value(world.gain, world.deviation)
    assert found.gains[0].mean() == pytest.approx(truth, abs=0.2)
    assert found.shares[1] < found.shares[0]  # far from the log the rollouts are cut earlier


def test_undiscounted_rewards_count_in_full(linear) -> None:
    """Without an end, one step earns the reward and keeps all of its mass; discounted ones keep gamma of it."""
    world, log = linear
    model = learn(log, dataclasses.replace(SMALL, model_steps=300), 0)
    policies = [world.acts(world.gain)]
    fitted = judge(log, policies, dataclasses.replace(SMALL, steps=(50, 50)), 0).fitted
    one, two = (roll(log, model, Actors(log, policies), 1, fitted, np.inf, Reporter(), steps) for steps in (1, 2))
    assert one.left == pytest.approx(1.0, abs=0.1)
    assert two.earned - one.earned == pytest.approx(one.earned, rel=0.5)
    assert roll(log, model, Actors(log, policies), 1, fitted, np.inf, Reporter()).left.max() < 0.02


def test_policies_on_the_device_walk_as_functions_do(linear) -> None:
    """The loop on the device and the one that asks a function at every step are the same rollouts."""
    _, log = linear
    sizes = {"observations": log.data.observations.shape[1], "actions": log.data.actions.shape[1]}
    policies = [make_policy("deterministic", seed=seed, **sizes) for seed in (0, 1)]
    model = learn(log, dataclasses.replace(SMALL, model_steps=300), 0)
    fitted = judge(log, policies, dataclasses.replace(SMALL, steps=(50, 50)), 0).fitted
    on_device, functions = Actors(log, policies), Actors(log, [lambda x, p=p: p(x) for p in policies])
    assert on_device.program is not None
    assert functions.program is None
    limit = float(np.quantile(disagreements(model, log.transitions.states, log.transitions.actions), 0.9))
    found = [roll(log, model, actors, 2, fitted, limit, Reporter()) for actors in (on_device, functions)]
    assert found[0].left.max() > 0.05  # some are cut
    for part in ("earned", "left", "behind"):
        np.testing.assert_allclose(getattr(found[0], part), getattr(found[1], part), rtol=1e-3, atol=1e-3)
