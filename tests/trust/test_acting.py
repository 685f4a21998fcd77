"""Policies on the device act as they do in numpy."""

import numpy as np
import pytest

import sbac
from sbac.policy.formulas import SINGLE
from sbac.trust.acting import Actors, alike
from sbac.trust.log import read_log
from tests.exporting.policies import make_policy


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    return read_log(
        sbac.Dataset(
            observations=rng.normal(size=(60, 5)),
            actions=rng.uniform(-1, 1, size=(60, 2)),
            rewards=rng.normal(size=60),
            terminals=np.zeros(60, bool),
            timeouts=np.arange(60) % 20 == 19,
        ),
        0.9,
    )


# Single precision: products are added up in another order, and which order depends on the processor. The longest chain,
# best-of-vae, was 2.3e-5 off on one of two; another policy is off by 3.
TOLERANCE = 1e-4


@pytest.mark.parametrize("kind", [*SINGLE, "committee-of-tanh-gaussian"])
def test_every_kind_acts_as_in_numpy(log, kind) -> None:
    policies = [make_policy(kind, seed=seed, observations=5, actions=2) for seed in (0, 1)]
    assert [numbers for numbers, _ in alike(policies)] == [[0, 1]]
    actors = Actors(log, policies)
    after, first = (np.asarray(part) for part in actors.tables())
    observations = log.data.next_observations[log.rows]
    for number, policy in enumerate(policies, 1):
        np.testing.assert_allclose(after[number], log.act(policy, observations), atol=TOLERANCE)
        np.testing.assert_allclose(first[number], log.act(policy, log.data.initial_observations), atol=TOLERANCE)
    np.testing.assert_array_equal(after[0], log.own_actions()[0])
    states = np.stack([np.asarray(log.starts)] * 2)
    np.testing.assert_allclose(actors.at(states), first[1:], atol=TOLERANCE)
    rows = np.array([3, 40, 7])
    wanted = [log.act(policy, log.data.observations[rows]) for policy in policies]
    np.testing.assert_allclose(actors.at_rows(rows), wanted, atol=TOLERANCE)


def test_other_functions_act_beside_them(log) -> None:
    policies = [make_policy("deterministic", seed=0, observations=5, actions=2), lambda x: np.zeros((len(x), 2))]
    actors = Actors(log, policies)
    assert actors.program is None and [numbers for numbers, _ in alike(policies)] == [[0]]
    after, _ = actors.tables()
    np.testing.assert_allclose(after[2], log.units.actions(np.zeros((len(log.rows), 2))))


def test_kinds_act_on_the_device_each_in_a_group(log) -> None:
    """Policies of two kinds that stand mixed: every action is at its policy's place."""
    kinds = ["deterministic", "tanh-gaussian", "deterministic", "tanh-gaussian"]
    policies = [make_policy(kind, seed=seed, observations=5, actions=2) for seed, kind in enumerate(kinds)]
    assert [numbers for numbers, _ in alike(policies)] == [[0, 2], [1, 3]]
    actors = Actors(log, policies)
    assert actors.program is not None
    rng = np.random.default_rng(0)
    states = rng.normal(size=(4, 30, 5)).astype(np.float32)
    observations = log.units.observations(states)
    wanted = [log.act(policy, rows) for policy, rows in zip(policies, observations, strict=True)]
    np.testing.assert_allclose(actors.at(states), wanted, atol=TOLERANCE)
    after, first = actors.tables()
    following = log.data.next_observations[log.rows]
    np.testing.assert_allclose(after[1:], [log.act(policy, following) for policy in policies], atol=TOLERANCE)
    assert first.shape == (5, log.episodes, 2)


def test_a_policy_that_is_no_number_is_named(log) -> None:
    policy = make_policy("deterministic", seed=0, observations=5, actions=2)
    policy.arrays["policy/biases/0"][:] = np.nan
    with pytest.raises(sbac.UserError, match="not finite"):
        Actors(log, [policy]).tables()
