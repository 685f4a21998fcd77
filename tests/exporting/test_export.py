"""One text of every formula: JAX, ONNX and StableHLO act as numpy does, and nothing is written that is wrong."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
from sbac.policy import FORMULAS, Floats, Policy
from sbac.policy.formulas import COMMITTEE_OF, SINGLE, act
from tests.algorithms import harness
from tests.exporting.policies import make_policy

SIZES = {"": {}, "one action": {"actions": 1}, "normalised": {"normalise": True}, "one layer": {"hidden": (16,)}}
FORMS = [*(("onnx", size) for size in SIZES), ("stablehlo", ""), ("jax", "normalised")]
COMMITTEES = [COMMITTEE_OF + kind for kind in ("tanh-gaussian", "tanh-mixture-per-dim", "best-of-vae")]
CASES = [(kind, *form) for kind in SINGLE for form in FORMS]
CASES += [(kind, form, "") for kind in COMMITTEES for form in ("onnx", "stablehlo", "jax")]


def agreement(policy: Policy, format: str) -> exporting.Agreement:
    _, run = exporting.program(policy, format)
    assert run is not None
    return exporting.compare(policy, run, rows=300)


def assert_equal(found: exporting.Agreement) -> None:
    """At most 1e-5 apart. Rows in which rounding decides between two candidates are few."""
    assert found.holds
    assert (found.distances > exporting.TOLERANCE).mean() < 0.01


@pytest.mark.parametrize(("kind", "form", "size"), CASES)
def test_every_form_of_a_formula_equals_numpy(kind: str, form: str, size: str) -> None:
    policy = make_policy(kind, **SIZES[size])
    if form == "jax":
        in_jax = jax.jit(lambda observations: act(kind, policy.arrays, observations))
        assert_equal(exporting.compare(policy, lambda observations: np.asarray(in_jax(observations)), rows=300))
    else:
        assert_equal(agreement(policy, form))


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


@pytest.mark.parametrize("behaviour", ["mixture", "mixture-per-dim"])
def test_the_policies_of_richer_behaviours(behaviour: str) -> None:
    policies = random_policies(find("fisher-brc"), behaviour=behaviour)
    assert {policy.kind for policy in policies} == {f"tanh-{behaviour}", "tanh-gaussian"}
    for policy in policies:
        assert_equal(agreement(policy, "onnx"))


def test_the_file(tmp_path: Path) -> None:
    """Names, shapes and types as documented; the policy's config as metadata; equal policies make equal files."""
    policy = make_policy("tanh-gaussian")
    names = {"observations": ["glucose [mg/dl]", "b", "c", "d", "e"], "actions": ["dose [U]", "v", "w"]}
    policy.config["columns"] = names
    sbac.export(policy, tmp_path / "a.onnx")
    sbac.export(policy, tmp_path / "b.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.shape, given.type) == ("observations", ["n", 5], "tensor(float)")
    assert (result.name, result.shape, result.type) == ("actions", ["n", 3], "tensor(float)")
    about = {entry.key: entry.value for entry in onnx.load(str(tmp_path / "a.onnx")).metadata_props}
    assert json.loads(about["sbac"])["config"] == policy.config and "NaN in, NaN out" in about["note"]
    assert {field: json.loads(about[field]) for field in names} == names
    for rows in (1, 7, 0):
        observations = np.random.default_rng(rows).normal(size=(rows, 5)).astype(np.float32)
        (actions,) = session.run(None, {"observations": observations})
        np.testing.assert_allclose(actions, policy(observations), atol=2e-5)


@pytest.mark.parametrize("kind", FORMULAS)
def test_nan_in_nan_out(kind: str) -> None:
    """Of a row alone: a bound or a choice among candidates must not make a number of it."""
    _, run = exporting.program(make_policy(kind), "onnx")
    assert run is not None
    observations = np.zeros((6, 5), np.float32)
    for row, value in enumerate((np.nan, np.inf, -np.inf)):
        observations[row, row] = value
    actions = run(observations)
    assert np.isnan(actions[:3]).all() and np.isfinite(actions[3:]).all()


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


@pytest.mark.parametrize("name", ["policy.onnx", "policy.stablehlo"])
def test_a_program_that_differs_is_not_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check sees a scale that is wrong by a part in a thousand."""

    def wrong(kind: str, arrays: Mapping[str, Floats], observations: Any) -> Any:
        return act(kind, {**arrays, "scale/observation_std": arrays["scale/observation_std"] * 1.001}, observations)

    monkeypatch.setattr(f"sbac.exporting.{name.split('.')[1]}_file.act", wrong)
    with pytest.raises(UserError, match="differs from the policy"):
        sbac.export(make_policy("tanh-gaussian"), tmp_path / name)
    assert not list(tmp_path.iterdir())
