"""Arguments of the API that cannot be: one line each, that names the argument, before anything is trained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbac
from sbac.errors import UserError

from .training.test_request import make_log


def linear_policy() -> sbac.Policy:
    arrays = {"policy/weights/0": np.ones((3, 1)), "policy/biases/0": np.zeros(1)}
    scale = {"observation_mean": np.zeros(3), "observation_std": np.ones(3)}
    scale |= {"action_low": np.full(1, -2.0), "action_high": np.full(1, 2.0)}
    return sbac.Policy("deterministic", arrays | {f"scale/{name}": a for name, a in scale.items()}, {})


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


def said_of(name: str, error: UserError) -> bool:
    text = str(error)
    return "\n" not in text and name.replace("no_such_option", "option").replace("_", "") in text.replace("_", "")
