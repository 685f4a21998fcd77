"""Exported policies: the same actions as in numpy, for every kind of policy, and nothing written that is wrong."""

import json
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import onnx
import onnxruntime
import pytest

import sbac
from sbac.algorithms import REGISTRY, find
from sbac.algorithms.base import Algorithm, Spec
from sbac.config import changed, fields_of
from sbac.errors import UserError
from sbac.exporting import export_policy as exporting
from sbac.exporting.formulas import EXPORTED
from sbac.policy import FORMULAS, Policy
from tests.algorithms import harness
from tests.exporting.policies import make_policy

SIZES = {"": {}, "one action": {"actions": 1}, "normalised": {"normalise": True}, "one layer": {"hidden": (16,)}}


def agreement(policy: Policy, format: str) -> exporting.Agreement:
    _, run = exporting.program(policy, format)
    assert run is not None
    return exporting.compare(policy, run, rows=300)


def assert_equal(found: exporting.Agreement) -> None:
    """At most 1e-5 apart. Rows in which rounding decides between two candidates are few."""
    assert found.holds
    assert (found.distances > exporting.TOLERANCE).mean() < 0.01


def test_every_kind_of_policy_is_exported() -> None:
    assert EXPORTED.keys() == FORMULAS.keys()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", FORMULAS)
def test_onnx_equals_numpy(kind: str, size: str) -> None:
    assert_equal(agreement(make_policy(kind, **SIZES[size]), "onnx"))


@pytest.mark.parametrize("kind", FORMULAS)
def test_stablehlo_equals_numpy(kind: str) -> None:
    assert_equal(agreement(make_policy(kind), "stablehlo"))


def random_policies(method: Algorithm, **options: str) -> list[Policy]:
    """A policy for every phase of a method: the names and shapes of its arrays, filled with random numbers."""
    rng = np.random.default_rng(0)
    widths = {name: (16, 16) for name in fields_of(method.config) if name.endswith("hidden")}
    config = changed(method.config(), {**method.presets["quick"], **options, **widths})
    spec = Spec(3, 2, jax.random.normal(jax.random.key(1), (64, 3)))
    past, found = {}, []
    for phase in method.phases:
        state = eqx.filter_eval_shape(phase.init, config, spec, past, jax.random.key(2))
        actor = eqx.filter_eval_shape(phase.actor, config, past, state)
        past[phase.name] = state
        found.append(harness.policy(jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape), actor), actions=2))
    return found


@pytest.mark.parametrize("name", REGISTRY)
def test_the_policies_of_every_method(name: str) -> None:
    for policy in random_policies(find(name)):
        assert_equal(agreement(policy, "onnx"))


@pytest.mark.parametrize("behaviour", ["mixture", "mixture-per-dim", "flow"])
def test_the_policies_of_richer_behaviours(behaviour: str) -> None:
    policies = random_policies(find("fisher-brc"), behaviour=behaviour)
    assert {policy.kind for policy in policies} == {f"tanh-{behaviour}", "tanh-gaussian"}
    for policy in policies:
        assert_equal(agreement(policy, "onnx"))


def test_the_file(tmp_path: Path) -> None:
    """Names, shapes and types as documented; the policy's config as metadata; equal policies make equal files."""
    policy = make_policy("tanh-gaussian")
    sbac.export(policy, tmp_path / "a.onnx")
    sbac.export(policy, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("observations", ["n", 5], "tensor(float)")
    assert (result.name, result.shape, result.type) == ("actions", ["n", 3], "tensor(float)")
    (entry,) = onnx.load(str(tmp_path / "a.onnx")).metadata_props
    assert entry.key == "sbac" and json.loads(entry.value)["config"] == policy.config
    for rows in (1, 7, 0):
        observations = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        (actions,) = session.run(None, {"observations": observations})
        np.testing.assert_allclose(actions, policy(observations), atol=2e-5)


def test_actions_stay_within_bounds(tmp_path: Path) -> None:
    policy = make_policy("deterministic")
    _, run = exporting.program(policy, "onnx")
    assert run is not None
    actions = run(np.random.default_rng(0).normal(size=(500, 5)).astype(np.float32) * 1e4)
    low, high = policy.arrays["scale/action_low"], policy.arrays["scale/action_high"]
    assert (actions >= low).all() and (actions <= high).all()
    assert (actions == low).any() and (actions == high).any()


def test_a_stablehlo_file(tmp_path: Path) -> None:
    policy = make_policy("tanh-gaussian")
    sbac.export(policy, tmp_path / "policy.stablehlo")
    program = jax.export.deserialize(bytearray((tmp_path / "policy.stablehlo").read_bytes()))
    observations = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    np.testing.assert_allclose(program.call(observations), policy(observations), atol=2e-5)
    assert set(program.platforms) == {"cpu", "cuda"}


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        ("policy", None, "of which format"),
        ("policy.onnx", "onyx", "unknown format 'onyx'; did you mean 'onnx'"),
        ("absent/file/policy.onnx", "onnx", "cannot be written"),
    ],
)
def test_what_is_refused(name: str, format: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "absent").write_text("a file, not a folder")
    with pytest.raises(UserError, match=message):
        sbac.export(make_policy("deterministic"), tmp_path / name, format)
    assert [entry.name for entry in tmp_path.iterdir()] == ["absent"]


def test_a_diverged_policy_is_refused(tmp_path: Path) -> None:
    policy = make_policy("deterministic")
    policy.arrays["policy/biases/0"][0] = np.nan
    with pytest.raises(UserError, match="diverged"):
        sbac.export(policy, tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_kind_without_a_graph_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXPORTED, "gaussian")
    with pytest.raises(UserError, match="kind 'gaussian' cannot be exported"):
        sbac.export(make_policy("gaussian"), tmp_path / "policy.onnx")


def test_a_program_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees a scale that is wrong by a part in a thousand."""
    right = exporting.write_down

    def wrong(policy: Policy):
        std = policy.arrays["scale/observation_std"] * 1.001
        return right(Policy(policy.kind, policy.arrays | {"scale/observation_std": std}, policy.config))

    monkeypatch.setattr(exporting, "write_down", wrong)
    with pytest.raises(UserError, match="differs from the policy"):
        sbac.export(make_policy("tanh-gaussian"), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())
