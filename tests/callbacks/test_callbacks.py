"""Callbacks hear what is written; the loggers write the same numbers."""

import functools
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from tensorboardX.proto.event_pb2 import Event

import sbac
from sbac import cli
from sbac.callbacks import Row, TensorBoard, WeightsAndBiases
from sbac.callbacks.callback import curves, row_label
from sbac.errors import UserError
from sbac.runs import Run
from tests.small import make_log

METRICS: list[Row] = [
    {"algorithm": "bc", "seed": 0, "alpha": 0.5, "w": None, "group": 0, "phase": "clone", "step": 3, "loss": 1.5},
    {"algorithm": "bc", "seed": 1, "alpha": 2.0, "w": None, "group": 0, "phase": "clone", "step": 3, "loss": None},
]
PLAYED: list[Row] = [
    {"algorithm": "bc", "seed": 0, "alpha": 0.5, "w": None, "group": 0, "phase": "clone", "step": 3}
    | {"environment": "Hopper-v4", "returns": [1.0, 3.0], "lengths": [5, 6], "scores": None, "versions": {}}
]


class Recorder(sbac.Callback):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.metrics: list[Row] = []
        self.evaluations: list[Row] = []
        self.ended: list[Run] = []

    def on_metrics(self, rows: Sequence[Row]) -> None:
        self.metrics += rows

    def on_evaluation(self, rows: Sequence[Row]) -> None:
        self.evaluations += rows

    def on_end(self, run: Run) -> None:
        self.ended.append(run)


def small_training(callbacks: Sequence[sbac.Callback], **options: Any) -> Run:
    settings: dict[str, Any] = {
        "hidden": (8,),
        "batch_size": 16,
        "steps": 100,
        "seeds": 2,
        "learning_rate": [1e-3, 3e-3],
    }
    return sbac.train(make_log(60, 20), "bc", callbacks=callbacks, progress=False, **(settings | options))


def test_a_callback_hears_every_row() -> None:
    recorder = Recorder()

    def pendulum() -> gymnasium.Env:
        return gymnasium.wrappers.TimeLimit(gymnasium.make("Pendulum-v1").unwrapped, 5)

    run = small_training([recorder], environment=pendulum, episodes=1, evaluate_every=50)
    assert recorder.metrics == run.metrics and len(run.metrics) == 4 * 50
    assert recorder.evaluations == run.evaluations and len(run.evaluations) == 4 * 2
    assert recorder.ended == [run]


def test_an_object_that_is_no_callback() -> None:
    with pytest.raises(UserError, match="callbacks: dict has no method on_metrics; inherit from sbac.Callback"):
        small_training([{}])  # pyright: ignore[reportArgumentType]


def test_an_error_in_a_callback_ends_the_training_which_can_be_resumed(tmp_path: Path) -> None:
    class Broken(sbac.Callback):
        def on_metrics(self, rows: Sequence[Row]) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        small_training([Broken()], evaluate=False, out=tmp_path / "run")
    run = small_training([], evaluate=False, out=tmp_path / "run", resume=True)
    assert len(run.policies) == 4


def test_what_a_logger_makes_of_a_row() -> None:
    assert [row_label(row) for row in METRICS] == ["alpha=0.5_seed=0", "alpha=2_seed=1"]
    assert [dict(curves(row)) for row in METRICS] == [{"clone/loss": 1.5}, {}]
    assert dict(curves(PLAYED[0])) == {"clone/return": 2.0}
    assert dict(curves({**PLAYED[0], "scores": [10.0, 20.0]})) == {"clone/return": 2.0, "clone/score": 15.0}


def logged(folder: Path) -> list[tuple[str, int, float]]:
    """The numbers in TensorBoard's event files: records of a length, its checksum, an event, its checksum."""
    found: list[tuple[str, int, float]] = []
    for path in folder.glob("events*"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            at += length + 16
    return found


def test_tensorboard(tmp_path: Path) -> None:
    logger = TensorBoard(tmp_path)
    logger.on_metrics(METRICS)
    logger.on_evaluation(PLAYED)
    logger.on_end(small_run())
    assert logged(tmp_path / "alpha=0.5_seed=0") == [("clone/loss", 3, 1.5), ("clone/return", 3, 2.0)]


def test_weights_and_biases_offline(tmp_path: Path) -> None:
    """A run there for each run of the grid, its files complete without an account or a network."""
    logger = WeightsAndBiases(tmp_path, mode="offline")
    logger.on_metrics(METRICS)
    logger.on_evaluation(PLAYED)
    logger.on_end(small_run())
    last = {b"alpha=0.5_seed=0": b"clone/return", b"alpha=2_seed=1": b"clone/step"}
    found: list[bytes] = []
    # Another process of the library writes the files, and may still be at it after its `finish`.
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not all(
        any(name in data and word in data for data in found) for name, word in last.items()
    ):
        time.sleep(0.1)
        found = [path.read_bytes() for path in (tmp_path / "wandb").glob("offline-run-*/*.wandb")]
    assert len(found) == 2
    first, second = (next(data for data in found if name in data) for name in last)
    assert b"clone/loss" in first and b"clone/return" in first and b"clone/step" in first
    assert b"clone/loss" not in second and b"clone/step" in second  # its loss was no number


@functools.cache
def small_run() -> Run:
    return small_training([], evaluate=False)


def test_an_unknown_logger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(["train", "hopper-demo", "--log", "tensorbord", "--out", str(tmp_path / "run"), "--no-evaluate"]) == 2
    )
    assert capsys.readouterr().err == "error: unknown logger 'tensorbord'; did you mean 'tensorboard'?\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("module", "name"), [("tensorboardX", "tensorboard"), ("wandb", "wandb")])
def test_a_logger_that_is_not_installed(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(["train", "hopper-demo", "--log", name, "--out", str(tmp_path / "run"), "--no-evaluate"]) == 2
    assert f"needs the package {module}: pip install 'sbac[log]'" in capsys.readouterr().err


def test_the_option_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbac.data.load", lambda *_, **__: make_log(60, 20))
    options = ["--no-evaluate", "--steps", "50", "--hidden", "8", "--batch-size", "16", "--log", "tensorboard"]
    assert cli.main(["train", "hopper-demo", "--algorithm", "bc", "--out", str(tmp_path / "run"), *options]) == 0
    assert len(logged(tmp_path / "run" / "tensorboard" / "seed=0")) == 2 * 50  # the loss, and that of episodes held out
