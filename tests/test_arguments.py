"""Arguments of the API that cannot be: one line each, that names the argument, before anything is trained."""

from pathlib import Path
from typing import Any

import h5py
import jaxtyping
import numpy as np
import pytest

import sbac
from sbac.errors import UserError
from sbac.runs import RunRecord, Watch
from tests.small import linear_policy, make_log

TRAIN: dict[str, list[Any]] = {
    "hidden": [[], (), None, "x", [[]], [0], -1, {}, [None]],
    "seeds": [10**7, 10**30, "x", None, 1.5, [], [-1], [0, 0], {}],
    "preset": [None, 3, "", []],
    "algorithm": [None, 3, "no-such", []],
    "episodes": ["x", 0, 1.5, -1, [1]],
    "evaluate_every": ["x", 0, 1.5],
    "evaluation_seed": ["x", -1, None, 1.5],
    "evaluate_at": ["x", 3, [1.5], ["a"], [-5]],
    "workers": ["x", 0, 1.5],
    "checkpoint_seconds": ["x", None, -1, float("nan")],
    "steps": ["x", -1, [1, 2, 3], 1.5, [], {}],
    "environment": [3, "", "No-v0", b"x", "Hopper-v4"],
    "out": [3, b"x"],
    "warm_start": [3, "no-such-run"],
    "warm_phases": [3, "clone"],
    "batch_size": ["x", None, 0, 1.5],
    "learning_rate": ["x", None, -1, float("nan"), [], ["a"], [1, 1]],
    "discount": [2, "x"],
    "reward_scale": ["x", 3, None],
    "validation": [1, "x", -1],
    "no_such_option": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in TRAIN.items() for value in values])
def test_train(name: str, value: Any, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"algorithm": "bc", "steps": 2, "out": tmp_path / "run", "progress": False, name: value}
    with pytest.raises(UserError) as raised:
        sbac.train(make_log(), **arguments)
    assert said_of(name.replace("warm_start", "no-such-run" if value == "no-such-run" else name), raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [("episodes", value) for value in ("x", None, 0, 1.5, -1, [1])]
    + [("seed", value) for value in ("x", None, -1, 1.5)]
    + [("environment", value) for value in (None, 3, "", "No-v0", "a:b:c", b"x", [])]
    + [("policy", value) for value in (None, 3, "x", [])],
)
def test_evaluate(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"policy": linear_policy(), "environment": "Pendulum-v1", "episodes": 1, name: value}
    with pytest.raises(UserError) as raised:
        sbac.evaluate(**arguments)
    assert said_of(name, raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("instances", value) for value in ("x", 0, 1.5)],
        *[("round_steps", value) for value in ("x", 0, 1.5)],
        *[("environment", value) for value in (None, 3, "No-v0")],
        *[("seeds", 10**7), ("episodes", "x"), ("workers", "x"), ("hidden", []), ("algorithm", None), ("steps", "x")],
    ],
)
def test_train_online(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"environment": "Pendulum-v1", "algorithm": "td3", "steps": 2, name: value}
    with pytest.raises(UserError) as raised:
        sbac.train_online(**arguments)
    assert said_of(name, raised.value)


@pytest.mark.parametrize("value", ["x", 0, 1.5, -1, [3]])
def test_the_horizon_of_a_log(value: Any) -> None:
    with pytest.raises(UserError, match="horizon"):
        sbac.load("hopper-demo", horizon=value)


@pytest.mark.parametrize("value", [None, 3, b"x"])
def test_what_is_no_path(value: Any) -> None:
    for load in (sbac.Run.load, sbac.Policy.load):
        with pytest.raises(UserError, match="expected a path"):
            load(value)


@pytest.mark.parametrize("kind", [None, 3, [], "no-such"])
def test_the_kind_of_a_policy(kind: Any) -> None:
    with pytest.raises(UserError, match="kind"):
        sbac.Policy(kind, linear_policy().arrays, {})


SAMPLE: dict[str, Any] = {
    "states": np.eye(8, 2),
    "log_ratio": np.zeros(8),
    "next_states": np.eye(8, 2),
    "terminals": np.zeros(8),
    "initial_states": np.eye(2),
    "discount": 0.9,
    "steps": 1,
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("seed", value) for value in ("x", None, -1, 1.5, [], [1], 2**63)],
        *[("discount", value) for value in ("x", None, 0, 1, [], np.zeros(3), float("nan"))],
        *[("steps", value) for value in ("x", 0, 1.5, 10**30)],
        *[("batch_size", value) for value in ("x", 0, 1.5, 10**30)],
        *[("form", value) for value in (None, 3, "no-such", np.zeros(3))],
        *[("estimator", value) for value in (None, 3, "no-such", np.zeros(3))],
        *[(name, value) for name in ("states", "log_ratio", "terminals") for value in ("x", None, {}, [])],
    ],
)
def test_visitation_ratio(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # what the tests check, a user's call does not
    arguments: dict[str, Any] = SAMPLE | {name: value}
    with pytest.raises(UserError) as raised:
        sbac.visitation_ratio(**arguments)
    assert said_of(name, raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("seed", value) for value in ("x", None, -1, 1.5, [])],
        *[("effort", value) for value in (3, "no-such", "", [], np.zeros(3))],
    ],
)
def test_estimates_without_an_environment(name: str, value: Any) -> None:
    record = RunRecord(1, "bc", "quick", ["seed=0"], [{"seed": 0, "steps": [1]}], Watch(None, 1, 0, None), {})
    run = sbac.Run(record, [linear_policy()], [], [])
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(UserError) as raised:
        sbac.fqe(make_log(), linear_policy(), **arguments)
    assert said_of(name, raised.value)
    with pytest.raises(UserError) as raised:
        sbac.select(run, make_log(), **arguments)
    assert said_of(name, raised.value)


@pytest.mark.parametrize("value", ["x", None, 0, 1, [], np.zeros(3), float("nan")])
def test_the_discount_and_the_policy_of_an_estimate(value: Any) -> None:
    with pytest.raises(UserError, match="discount"):
        sbac.fqe(make_log(), linear_policy(), value)
    with pytest.raises(UserError, match="policy"):
        sbac.fqe(make_log(), value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("source", value) for value in (None, 3, b"x", [], {}, np.zeros(3))],
        *[("columns", value) for value in (3, "x", [1], np.zeros(3))],
        *[("task", value) for value in (3, "no-such", [], b"x")],
        *[("ring_rows", value) for value in ("x", 0, 1.5, 10**30)],
        *[("reuse", value) for value in ("x", None, 0, -1, float("nan"), float("inf"), [], np.zeros(3))],
    ],
)
def test_stream(name: str, value: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for field, column in make_log().arrays().items():
            file[field] = column
    arguments: dict[str, Any] = {"source": tmp_path / "log.hdf5", name: value}
    with pytest.raises(UserError) as raised:
        sbac.stream(**arguments)
    assert said_of(name, raised.value)


@pytest.mark.parametrize("value", [None, 3, b"x", [], {}, np.zeros(3)])
def test_what_is_no_path_to_write_to(value: Any) -> None:
    for write in (linear_policy().save, make_log().save, lambda path: sbac.export(linear_policy(), path)):
        with pytest.raises(UserError, match="path"):
            write(value)


@pytest.mark.parametrize("value", ["x", {}, ["x"], b"x", object(), [[1, 2, 3], [1]]])
def test_observations_that_are_no_numbers(value: Any) -> None:
    policy = linear_policy()
    for act in (policy, policy.sample, policy.unchecked):
        with pytest.raises(UserError, match="observations"):
            act(value)


@pytest.mark.parametrize("value", ["x", None, 3, [], [1]])
def test_other_arguments_of_a_policy(value: Any, tmp_path: Path) -> None:
    for arguments in ((value, {}), (linear_policy().arrays, value), ({}, {})):
        with pytest.raises(UserError, match="arrays of a policy|config of a policy|array scale/"):
            sbac.Policy("deterministic", *arguments)
    with pytest.raises(UserError, match="policy"):
        sbac.export(value, tmp_path / "policy.onnx")
    if value != 3:
        with pytest.raises(UserError, match="seed"):
            linear_policy().sample(np.zeros(3), seed=value)
        with pytest.raises(UserError, match="validation"):
            make_log().split(value)


@pytest.mark.parametrize("value", [3, [], b"x", "no-such", np.zeros(3)])
def test_the_task_and_the_kind_of_a_log(value: Any) -> None:
    columns = make_log().arrays()
    for name in ("task", "kind"):
        arguments: dict[str, Any] = {name: value, "action_low": -2.0, "action_high": 2.0}
        with pytest.raises(UserError, match=name):
            sbac.Dataset(**columns, **arguments)


def said_of(name: str, error: UserError) -> bool:
    text = str(error)
    return "\n" not in text and name.replace("no_such_option", "option").replace("_", "") in text.replace("_", "")
