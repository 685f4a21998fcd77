"""The learned model against a linear world, and where its rollouts are cut."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from exporting.policies import make_policy
from sbac.policy import Policy
from sbac.trust.dynamics import disagreements, learn
from sbac.trust.evidence import Effort, Question
from sbac.trust.log import read_log
from sbac.trust.model import roll, rollouts
from sbac.trust.walking import episode_returns
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
    assert np.corrcoef(found.earned.mean(0)[:, 0], log.data.rewards[log.rows])[0, 1] > 0.98
    assert found.ends.mean() < 0.02  # nothing ever ends here


def test_members_disagree_more_where_there_is_no_data(linear) -> None:
    """More than at 99 rows of 100; not always than at the log's worst row: LayerNorm flattens what is far."""
    _, log = linear
    model = learn(log, SMALL, 0)
    limit = float(jnp.quantile(disagreements(model, log.transitions.states, log.transitions.actions), 0.99))
    far = model(10 * log.transitions.states[:200], log.transitions.actions[:200])
    assert float(jnp.median(far.disagreement)) > limit


@pytest.mark.slow
def test_its_gain_is_near_the_truth_for_a_policy_near_the_log(linear) -> None:
    world, log = linear
    gain = world.better(0.3)
    policies = [world.acts(gain), world.acts(world.beyond())]
    effort = Effort(2, 2, (64, 64), 128, (1_500, 3_000), 2e-3, 0.1)
    found = rollouts(Question(log, policies, effort))
    truth = world.value(gain) - world.value(world.gain, world.deviation)
    assert found.gains[0].mean() == pytest.approx(truth, abs=0.2)
    assert found.shares[1] < found.shares[0]  # far from the log the rollouts are cut earlier


def test_whole_episodes_earn_what_they_do_in_the_world(linear) -> None:
    """Every reward counts in full, for as many steps as the log's episodes have."""
    world, log = linear
    laws = [world.gain, world.better(0.5)]
    policies = [world.acts(law) for law in laws]
    found = rolled(log, policies, SMALL)
    for law, earned in zip(laws, found.episodes, strict=True):
        closed = world.dynamics + world.control @ law
        spread, truth = world.start**2 * np.eye(len(closed)), 0.0
        for _ in range(world.length):
            truth += 1.0 - np.trace(world.cost @ spread) - 0.1 * np.trace(law @ spread @ law.T)
            spread = closed @ spread @ closed.T + world.noise**2 * np.eye(len(closed))
        assert earned.mean() == pytest.approx(truth, rel=0.05)
    np.testing.assert_allclose(episode_returns(log), log.data.rewards.reshape(-1, world.length).sum(1), rtol=1e-4)


def test_a_whole_episode_shows_an_early_end() -> None:
    """Actions above 0 end an episode in three steps of ten; every step earns 1."""
    rng = np.random.default_rng(0)
    lengths, ended, actions = [], [], []
    for _ in range(300):
        acted = rng.uniform(-1, 1, 30)
        ends = (acted > 0) & (rng.random(30) < 0.3)
        length = int(ends.argmax()) + 1 if ends.any() else 30
        lengths.append(length)
        ended.append(bool(ends.any()))
        actions.append(acted[:length])
    last = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(sum(lengths), bool), np.zeros(sum(lengths), bool)
    terminals[last], timeouts[last] = ended, ~np.array(ended)
    states = rng.normal(size=(len(terminals), 2))
    columns = {"observations": states, "next_observations": states, "actions": np.concatenate(actions)[:, None]}
    data = sbac.Dataset(**columns, rewards=np.ones(len(terminals)), terminals=terminals, timeouts=timeouts)
    log = read_log(data, 0.9)
    stays, falls = rolled(log, [lambda x, a=a: np.full((len(x), 1), a) for a in (-0.5, 0.5)], SMALL).episodes.mean(1)
    assert stays == pytest.approx(30, rel=0.1)
    assert falls == pytest.approx((1 - 0.7**30) / 0.3, rel=0.3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_rollout_that_leaves_the_data_does_not_gain_by_it(linear, sign: float) -> None:
    """Cut at once, rewards bring nothing; costs go on as they are in the log."""
    world, _ = linear
    columns = world.log(30, 0)
    columns["rewards"] = sign * (columns["rewards"] + 5.0)
    log = read_log(sbac.Dataset(**columns), world.discount)
    found = rolled(log, [world.acts(world.gain)], dataclasses.replace(SMALL, model_steps=50), limit=-1.0)
    assert found.episodes == pytest.approx(0.0 if sign > 0 else world.length * log.data.rewards.mean(), rel=1e-4)


def rolled(log, policies, effort, limit=np.inf):
    """Rollouts in a model of this effort; fitted Q evaluation, which is not looked at, takes a few steps."""
    short = dataclasses.replace(effort, steps=(50, 50))
    return roll(Question(log, policies, short), learn(log, effort, 0), limit)


def test_policies_on_the_device_walk_as_functions_do(linear) -> None:
    """The loop on the device and the one that asks a function at every step are the same rollouts."""
    _, log = linear
    sizes = {"observations": log.data.observations.shape[1], "actions": log.data.actions.shape[1]}
    made = [make_policy("deterministic", seed=seed, **sizes) for seed in (1, 2)]
    scale = {"observation_mean": np.zeros(sizes["observations"]), "observation_std": log.units.observation_std}
    scaled = {f"scale/{name}": values for name, values in scale.items()}
    policies = [Policy(policy.kind, policy.arrays | scaled, policy.config) for policy in made]
    assert all(policy(log.data.observations).std() > 0.3 for policy in policies)  # what they do changes with the state
    model = learn(log, dataclasses.replace(SMALL, model_steps=300), 0)
    short = dataclasses.replace(SMALL, steps=(50, 50))
    on_device, functions = Question(log, policies, short), Question(log, [lambda x, p=p: p(x) for p in policies], short)
    assert on_device.actors.program is not None
    assert functions.actors.program is None
    limit = float(np.quantile(disagreements(model, log.transitions.states, log.transitions.actions), 0.9))
    found = [roll(question, model, limit) for question in (on_device, functions)]
    assert found[0].shares.min() < 0.95  # some are cut
    for part in ("gains", "episodes", "shares"):
        # A rollout near the limit may be cut a step earlier by the last bits of an action.
        np.testing.assert_allclose(getattr(found[0], part), getattr(found[1], part), rtol=0.05, atol=1e-3)
