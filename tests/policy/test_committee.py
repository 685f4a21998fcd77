"""A committee does the mean of what its members do, in every form; members that do not fit are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from tests.exporting.policies import make_policy
from tests.training.test_request import make_log

import sbac
from sbac.errors import UserError
from sbac.policy import Policy
from sbac.policy.formulas import SINGLE
from sbac.trust.evidence import Effort

OBSERVATIONS = np.random.default_rng(1).normal(size=(600, 5)).astype(np.float32) * 4


def members(kind: str = "tanh-gaussian", **changes: Any) -> list[Policy]:
    """Three policies of different scaling, numbers and widths."""
    return [make_policy(kind, seed=seed, hidden=(8 + seed, 8), **changes) for seed in range(3)]


def with_config(policy: Policy, **config: Any) -> Policy:
    return Policy(policy.kind, policy.arrays, policy.config | config)


@pytest.mark.parametrize("kind", SINGLE)
def test_it_does_the_mean_of_what_they_do(kind: str, tmp_path: Path) -> None:
    policies = members(kind)
    together = sbac.committee(policies)
    mean = np.mean([np.asarray(policy(OBSERVATIONS), np.float64) for policy in policies], axis=0)
    np.testing.assert_allclose(together(OBSERVATIONS), mean, atol=1e-6)
    np.testing.assert_allclose(together(OBSERVATIONS[3]), mean[3], atol=1e-5)
    together.save(tmp_path / "committee.safetensors")
    again = sbac.Policy.load(tmp_path / "committee.safetensors")
    assert again.config == together.config and again.kind == together.kind
    np.testing.assert_array_equal(again(OBSERVATIONS), together(OBSERVATIONS))


def test_its_action_is_within_the_bounds_where_the_mean_rounds_beyond() -> None:
    high = np.array([0.1, 0.7, 1.3], np.float32)
    policy = damaged(
        damaged(make_policy("deterministic"), "scale/action_high", lambda x: high), "scale/action_low", lambda x: -high
    )
    assert (sum([high] * 11) / 11 > high).any()
    actions = sbac.committee([policy] * 11)(OBSERVATIONS * 1e4)
    assert (np.abs(actions) <= high).all() and (actions == high).any()


@pytest.mark.parametrize("kind", ["deterministic", "best-of-gaussian"])
def test_disagreement_is_their_deviation_in_units_of_the_range(kind: str) -> None:
    policies = members(kind)
    together = sbac.committee(policies)
    actions = np.stack([np.asarray(policy(OBSERVATIONS), np.float64) for policy in policies])
    width = policies[0].arrays["scale/action_high"] - policies[0].arrays["scale/action_low"]
    squares = ((actions - actions.mean(0)) / width) ** 2
    wanted = np.sqrt(squares.sum((0, 2)) / (3 * 3))
    np.testing.assert_allclose(together.disagreement(OBSERVATIONS), wanted, atol=1e-6)
    assert together.disagreement(OBSERVATIONS[0]).shape == () and wanted.max() > 0.1
    np.testing.assert_array_equal(sbac.committee([policies[0]] * 2).disagreement(OBSERVATIONS), 0)


def test_its_config_says_who_the_members_are() -> None:
    settings = [{"seed": 3, "label": "a"}, {"seed": 1, "label": "b"}, {"seed": 2, "label": "c"}]
    fixed: dict[str, Any] = {"grid": ["alpha", "tau"], "alpha": 1.0, "discount": 0.9}
    policies = [
        with_config(policy, **setting, **fixed, tau=tau)
        for policy, setting, tau in zip(members(), settings, (0.5, 0.7, 0.7), strict=True)
    ]
    config = sbac.committee(policies).config
    assert config["label"] == "committee of 3 (alpha=1)" and config["grid"] == ["alpha"]
    assert config["members"] == ["a", "b", "c"] and config["seeds"] == [3, 1, 2] and config["seed"] == 3
    assert config["algorithm"] == "bc" and config["discount"] == 0.9 and "tau" not in config
    mixed = sbac.committee([policies[0], with_config(policies[1], algorithm="sbac", alpha=2.0)]).config
    assert mixed["label"] == "committee of 2" and mixed["algorithm"] == "bc, sbac"


def damaged(policy: Policy, name: str, change: Callable[[Any], Any]) -> Policy:
    return Policy(policy.kind, policy.arrays | {name: change(policy.arrays[name])}, policy.config)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (make_policy("deterministic"), "policies.1. has kind deterministic; expected tanh-gaussian, as in policies.0."),
        (make_policy("tanh-gaussian", observations=4), "observation size 4; expected 5"),
        (make_policy("tanh-gaussian", actions=2), "action size 2; expected 3"),
        (damaged(make_policy("tanh-gaussian"), "scale/action_low", lambda x: x - 1), "has lower bounds .-2"),
        (damaged(make_policy("tanh-gaussian"), "scale/action_high", lambda x: x + 1), "has upper bounds .2"),
        (damaged(make_policy("tanh-gaussian"), "policy/biases/0", lambda x: x * np.nan), "policies.1. .* diverged"),
        (make_policy("committee-of-tanh-gaussian"), "policies.1. is a committee itself"),
        ("policy.safetensors", "policies.1. is str; expected a Policy"),
    ],
)
def test_members_that_do_not_fit(second: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        sbac.committee([make_policy("tanh-gaussian"), second])
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("policies", [[], [make_policy("deterministic")], make_policy("deterministic"), None])
def test_fewer_than_two_members(policies: Any) -> None:
    with pytest.raises(UserError, match="expected at least two"):
        sbac.committee(policies)


def test_what_only_one_of_them_can_do() -> None:
    together = sbac.committee(members())
    with pytest.raises(UserError, match="nothing to sample"):
        together.sample(OBSERVATIONS)
    with pytest.raises(UserError, match="has no density"):
        together.log_prob(OBSERVATIONS, np.zeros((600, 3)))
    with pytest.raises(UserError, match="has no members that could disagree"):
        make_policy("deterministic").disagreement(OBSERVATIONS)
    with pytest.raises(UserError, match=r"observations\[0\] is nan"):
        together.disagreement(np.full(5, np.nan))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("member/1/scale/observation_std", np.zeros_like),
        ("member/1/policy/weights/0", lambda x: x[:-1]),
        ("member/1/scale/action_low", None),
    ],
)
def test_a_damaged_file(name: str, change: Callable[[Any], Any] | None, tmp_path: Path) -> None:
    together = sbac.committee(members())
    whole = together.arrays.pop(name)
    if change is not None:
        together.arrays[name] = change(whole)
    together.save(tmp_path / "policy")
    with pytest.raises(UserError, match="a damaged policy"):
        sbac.Policy.load(tmp_path / "policy")


def test_a_committee_of_a_run_plays_and_is_judged() -> None:
    log = make_log(200)
    options: dict[str, Any] = {"hidden": (4,), "batch_size": 8, "steps": 4, "progress": False, "evaluate": False}
    run = sbac.train(log, "td3-bc", seeds=2, **options)
    together = sbac.committee(run.policies)
    assert np.isfinite(sbac.evaluate(together, lambda: gymnasium.make("Pendulum-v1"), episodes=1).returns).all()
    run.policies.append(together)
    choice = sbac.select(run, log, effort=Effort(2, 2, (16,), 32, (50, 50), 1e-3, 0.1, (16,), 50))
    values = {row["label"]: row["value"] for row in choice.table}
    assert values.keys() == {*together.config["members"], "committee of 2 (alpha=2.5)", "clone"}
    assert np.isfinite([*values.values()]).all()
