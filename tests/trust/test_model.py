"""The learned model against a linear world, and where its rollouts are cut."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sbac
from sbac.policy import Policy
from sbac.trust.dynamics import Model, disagreements, learn
from sbac.trust.evidence import AS_LOGGED, Effort, Question
from sbac.trust.log import read_log
from sbac.trust.model import ended_as_logged, evidence, learned, roll, rollouts
from sbac.trust.walking import episode_returns
from tests.exporting.policies import make_policy
from tests.truth.logged import Linear

SMALL = Effort(2, 2, (32, 32), 64, (500, 1_000), 2e-3, 0.1, (32, 32), 4_000)


@pytest.fixture(scope="module")
def linear():
    world = Linear.random(0)
    return world, read_log(sbac.Dataset(**world.log(100, 0)), world.discount)


@pytest.fixture(scope="module")
def model(linear):
    return learn(linear[1], SMALL, 0)


def test_it_foresees_the_next_state_and_the_reward(linear, model) -> None:
    world, log = linear
    found = model(log.transitions.states, log.transitions.actions)
    errors = np.asarray(found.next_states.mean(0) - log.transitions.next_states)
    noise = world.noise / log.units.observation_std
    assert (errors.std(0) < 1.25 * noise).all()  # what is left is the world's own noise
    assert np.corrcoef(found.earned.mean(0)[:, 0], log.data.rewards[log.rows])[0, 1] > 0.98
    assert found.ends.mean() < 0.02  # nothing ever ends here


def test_members_disagree_more_where_there_is_no_data(linear, model) -> None:
    """More than at 99 rows of 100; not always than at the log's worst row: LayerNorm flattens what is far."""
    _, log = linear
    limit = float(jnp.quantile(disagreements(model, log.transitions.states, log.transitions.actions), 0.99))
    far = model(10 * log.transitions.states[:200], log.transitions.actions[:200])
    assert float(jnp.median(far.disagreement)) > limit


@pytest.mark.slow
def test_its_gain_is_near_the_truth_for_a_policy_near_the_log(linear) -> None:
    world, log = linear
    gain = world.better(0.3)
    effort = Effort(2, 2, (64, 64), 128, (1_500, 3_000), 2e-3, 0.1)
    found = rollouts(Question(log, [world.acts(gain)], effort))
    truth = world.value(gain) - world.value(world.gain, world.deviation)
    assert found.gains[0].mean() == pytest.approx(truth, abs=0.2)


def test_whole_episodes_earn_what_they_do_in_the_world(linear, model) -> None:
    """Every reward counts in full, for as many steps as the log's episodes have."""
    world, log = linear
    laws = [world.gain, world.better(0.5)]
    policies = [world.acts(law) for law in laws]
    found = rolled(log, policies, model)
    for law, earned in zip(laws, found.episodes, strict=True):
        closed = world.dynamics + world.control @ law
        spread, truth = world.start**2 * np.eye(len(closed)), 0.0
        for _ in range(world.length):
            truth += 1.0 - np.trace(world.cost @ spread) - 0.1 * np.trace(law @ spread @ law.T)
            spread = closed @ spread @ closed.T + world.noise**2 * np.eye(len(closed))
        assert earned.mean() == pytest.approx(truth, rel=0.05)
    np.testing.assert_allclose(episode_returns(log), log.data.rewards.reshape(-1, world.length).sum(1), rtol=1e-4)


@pytest.fixture(scope="module")
def ending():
    """A log in which actions above 0 end an episode in one step of 25, and its model; every step earns 1. Actions are
    watched."""
    rng = np.random.default_rng(0)
    acted = rng.uniform(-1, 1, (400, STEPS))
    ends = (acted > 0) & (rng.random(acted.shape) < 0.04)
    kept = np.cumsum(ends, axis=1) - ends == 0
    timeouts = np.zeros(acted.shape, bool)
    timeouts[:, -1] = ~ends[:, -1]
    states = rng.normal(size=(kept.sum(), 2))
    columns: dict[str, Any] = {"observations": states, "next_observations": states, "actions": acted[kept][:, None]}
    data = sbac.Dataset(**columns, rewards=np.ones(len(states)), terminals=ends[kept], timeouts=timeouts[kept])
    log = read_log(data, 0.9, ["a0"])
    return log, learn(log, SMALL, 0)


STEPS, ENDS = 30, 1 - 0.96**30
STAYS, FALLS = (lambda x, a=a: np.full((len(x), 1), a) for a in (-0.5, 0.5))


def test_a_whole_episode_shows_an_early_end(ending) -> None:
    log, model = ending
    stays, falls = rolled(log, [STAYS, FALLS], model).episodes.mean(1)
    assert stays == pytest.approx(STEPS, rel=0.1)
    assert falls == pytest.approx(ENDS / 0.04, rel=0.15)


class Hasty(Model):
    """Ends an episode by one chance in 20 besides, and sees less of what is watched."""

    def __call__(self, *arguments):
        outcome = super().__call__(*arguments)
        less = outcome.earned - jnp.array([0.0, 0.2])
        return dataclasses.replace(outcome, ends=outcome.ends + 0.05, earned=less)


def test_a_model_is_put_right_as_the_logs_own_episodes_end_and_show_what_is_watched(ending) -> None:
    log, model = ending
    question = Question(log, [FALLS], dataclasses.replace(SMALL, steps=(50, 50)))
    question._results[learned] = Hasty(**{name: getattr(model, name) for name in model.__dataclass_fields__})
    said, (acted, ended) = evidence(question)[0], log.watches
    assert said.diagnostics["model_spurious_ends"] == pytest.approx(0.05, rel=0.1)
    assert said.draws["episode"].mean() < 0.7 * ENDS / 0.04
    assert said.draws["episode" + AS_LOGGED].mean() == pytest.approx(ENDS / 0.04, rel=0.15)
    assert ended.rate + said.draws[ended.quantity + AS_LOGGED].mean() == pytest.approx(ENDS, rel=0.15)
    assert acted.rate + said.draws[acted.quantity].mean() == pytest.approx(0.3, abs=0.03)
    assert acted.rate + said.draws[acted.quantity + AS_LOGGED].mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("spurious", [-0.005, 0.0, 0.2])
def test_ends_at_a_constant_chance_are_put_right_exactly(spurious: float) -> None:
    """Whether rollouts last to the last step or are cut half way."""
    chance = np.array([0.01, 0.04]) + spurious
    for followed in (STEPS, STEPS // 2):
        early = 1 - (1 - chance) ** followed
        lasting, ending = ended_as_logged(early / chance, early, spurious, STEPS)
        np.testing.assert_allclose(lasting, (1 - np.array([0.99, 0.96]) ** STEPS) / [0.01, 0.04])
        np.testing.assert_allclose(ending, 1 - np.array([0.99, 0.96]) ** STEPS)
    never = ended_as_logged(np.array([STEPS]), np.zeros(1), max(spurious, 0.0), STEPS)
    np.testing.assert_allclose(never, [[STEPS], [0.0]], atol=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_rollout_that_leaves_the_data_does_not_gain_by_it(linear, sign: float) -> None:
    """Cut at once, rewards bring nothing; costs go on as they are in the log."""
    world, _ = linear
    columns = world.log(30, 0)
    columns["rewards"] = sign * (columns["rewards"] + 5.0)
    log = read_log(sbac.Dataset(**columns), world.discount)
    found = rolled(log, [world.acts(world.gain)], learn(log, dataclasses.replace(SMALL, model_steps=50), 0), limit=-1.0)
    assert found.episodes == pytest.approx(0.0 if sign > 0 else world.length * log.data.rewards.mean(), rel=1e-4)


def rolled(log, policies, model, limit=np.inf):
    """Rollouts in a model; fitted Q evaluation, which is not looked at, takes a few steps."""
    return roll(Question(log, policies, dataclasses.replace(SMALL, steps=(50, 50))), model, limit)


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
