"""Policy files: equal policies are equal files, and what is no policy is refused in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.exporting import policies

from sbac import cli
from sbac.errors import UserError
from sbac.files import read_safetensors, write_safetensors
from sbac.policy import FORMULAS, Policy
from sbac.policy.formulas import COMMITTEE_OF

CRITIC = {"weights": (8, 32), "biases": (32,)}
CONFIG = {"algorithm": "bc", "seed": 0, "label": "seed=0", "grid": []}


def make_policy() -> Policy:
    rng = np.random.default_rng(0)
    arrays = {"policy/weights/0": rng.normal(size=(3, 2)), "policy/biases/0": np.zeros(2)}
    scale = {"observation_mean": np.zeros(3), "observation_std": np.ones(3)}
    scale |= {"action_low": np.full(2, -2.0), "action_high": np.full(2, 2.0)}
    return Policy("deterministic", arrays | {f"scale/{name}": array for name, array in scale.items()}, CONFIG)


def test_a_policy_survives_its_file(tmp_path: Path) -> None:
    policy = make_policy()
    policy.save(tmp_path / "a")
    again = Policy.load(tmp_path / "a")
    again.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert again.config == CONFIG
    np.testing.assert_array_equal(again(np.eye(3)), policy(np.eye(3)))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"other": "{}"}, "not a policy of sbac"),
        ({"sbac": "{"}, "not a policy of sbac"),
        ({"sbac": "[1]"}, "expected an object"),
        ({"sbac": "[" * 100_000}, "not a policy of sbac"),
        ({"sbac": "[" * 200 + "]" * 200}, "not a policy of sbac"),
        ({"sbac": '{"format": ' + "1" * 5_000 + "}"}, "not a policy of sbac"),
        ({"sbac": json.dumps({"format": 1, "kind": "\x1b[2J", "config": CONFIG})}, "not a policy of sbac"),
        ({"sbac": json.dumps({"format": 2})}, "not a policy of this version of sbac .expected format 1"),
        ({"sbac": json.dumps({"format": 1, "kind": "deterministic"})}, "a policy without its algorithm"),
        ({"sbac": json.dumps({"format": 1, "kind": "newer", "config": CONFIG})}, "unknown kind 'newer'"),
        ({"sbac": json.dumps({"format": 1, "config": CONFIG})}, "unknown kind ''"),
    ],
)
def test_what_is_no_policy(header: dict[str, str], message: str, tmp_path: Path) -> None:
    make_policy().save(tmp_path / "policy")
    arrays, _ = read_safetensors(tmp_path / "policy", "policy file")
    write_safetensors(tmp_path / "wrong", arrays, header)
    with pytest.raises(UserError, match=message) as raised:
        Policy.load(tmp_path / "wrong")
    assert str(raised.value).startswith(f"{tmp_path / 'wrong'}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "damaged"),
    [
        ("deterministic", {"policy/weights/0": np.zeros((4, 32))}),
        ("best-of-vae", {f"critic/{part}/0": np.zeros((0, *shape)) for part, shape in CRITIC.items()}),
        ("deterministic", {"policy/weights/0": np.full((5, 32), np.nan)}),
        ("gaussian", {"log_std": np.array([0.0, np.inf, 0.0])}),
        ("gaussian", {"log_std": np.zeros((2, 2, 3))}),
        ("deterministic", {"scale/action_low": np.full(3, 9.0)}),
        ("deterministic", {"scale/observation_mean": np.zeros((5, 1, 5))}),
        ("committee-of-deterministic", {"scale/observation_std": np.ones(4)}),
        ("deterministic", {"policy/weights/0": np.zeros((2, 5, 32)), "policy/biases/0": np.zeros((2, 32))}),
        ("deterministic", {"policy/weights/4": np.zeros((3, 3)), "policy/biases/4": np.zeros(3)}),
        ("deterministic", {"policy/weights/3": np.zeros((3, 3))}),
        ("deterministic", {"policy/biases/3": np.zeros(3)}),
        ("tanh-mixture-per-dim", {f"scale/action_{bound}": np.zeros(0) for bound in ("low", "high")}),
    ],
)
def test_arrays_that_do_not_fit(kind: str, damaged: dict[str, np.ndarray], tmp_path: Path) -> None:
    policy = policies.make_policy(kind)
    Policy(kind, policy.arrays | damaged, CONFIG).save(tmp_path / "policy")
    with pytest.raises(UserError, match="a damaged policy"):
        Policy.load(tmp_path / "policy")


def test_a_policy_without_its_network(tmp_path: Path) -> None:
    policy = policies.make_policy("deterministic", observations=3, actions=3)
    scales = {name: array for name, array in policy.arrays.items() if name.startswith("scale/")}
    Policy(policy.kind, scales, CONFIG).save(tmp_path / "policy")
    with pytest.raises(UserError, match="a damaged policy"):
        Policy.load(tmp_path / "policy")


def test_a_policy_that_diverged_is_read_where_that_is_expected(tmp_path: Path) -> None:
    policy = policies.make_policy("deterministic")
    policy.arrays["policy/biases/2"][:] = np.nan
    policy.save(tmp_path / "policy")
    assert not Policy.load(tmp_path / "policy", diverged=True).is_finite
    assert cli.main(["evaluate", str(tmp_path / "policy"), "--env", "Hopper-v4"]) == 2


@pytest.mark.parametrize("kind", FORMULAS)
def test_every_kind_passes_the_check_of_its_file(kind: str, tmp_path: Path) -> None:
    policy = policies.make_policy(kind, normalise=True)
    policy.save(tmp_path / "policy")
    assert Policy.load(tmp_path / "policy").hash == policy.hash


def test_weights_that_overflow_are_refused_and_not_played_as_nan(tmp_path: Path) -> None:
    policy = policies.make_policy("deterministic")
    for name in ("policy/biases/0", "policy/weights/1"):
        policy.arrays[name] *= 1e30
    policy.save(tmp_path / "policy")
    with pytest.raises(UserError, match="not a finite number"):
        Policy.load(tmp_path / "policy")
    for act in (policy, policy.sample):
        with pytest.raises(UserError, match="not a finite number"):
            act(np.ones((4, 5)))
    assert np.isnan(policy.unchecked(np.ones((4, 5)))).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_observations_that_are_not_finite(value: float) -> None:
    policy = make_policy()
    observations = np.zeros((4, 3))
    observations[2, 1] = value
    for act in (policy, policy.sample):
        with pytest.raises(UserError, match=rf"observations\[2, 1\] is {value}; expected finite numbers"):
            act(observations)
    with pytest.raises(UserError, match=rf"observations\[1\] is {value}"):
        policy(observations[2])
    assert policy.unchecked(observations).shape == (4, 2)


@pytest.mark.parametrize("kind", FORMULAS)
def test_every_kind_gives_actions_of_single_precision_for_any_number_of_rows(kind: str) -> None:
    policy = policies.make_policy(kind)
    observations = np.random.default_rng(0).normal(size=(600, 5)).astype(np.float32)
    acts = (policy,) if kind.startswith(COMMITTEE_OF) else (policy, policy.sample)
    for act in acts:
        assert act(observations).dtype == np.float32 and act(observations).shape == (600, 3)
        assert act(observations[:0]).shape == (0, 3) and act(observations[0]).shape == (3,)
    np.testing.assert_allclose(policy(observations)[550], policy(observations[550]), atol=1e-5)
