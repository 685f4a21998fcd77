"""Several runs in one program: each folder comes out as if its run had been alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.small import make_log, pendulum

import sbac
from sbac import files
from sbac.environments.opening import EnvSource
from sbac.runs import Run
from sbac.training import loop
from sbac.training.folder import Folder
from sbac.training.loop import train_runs
from sbac.training.open_run import Group, OpenRun
from sbac.training.request import Evaluating, Grid, OfflineRequest
from sbac.training.writer import Writer

SMALL: dict[str, Any] = {"hidden": [8], "batch_size": 16}


LOGS = [make_log(800, 50), make_log(2000, 50, 1)]


def open_runs(
    folder: Path, algorithm: str, logs: list[sbac.Dataset], environment: EnvSource | None = pendulum, **options: Any
) -> list[OpenRun]:
    return [
        OpenRun.open(
            OfflineRequest(
                data=log,
                algorithm=algorithm,
                folder=Folder(folder / str(i), resume=True),
                grid=Grid(seeds=2, steps=12, options={**SMALL, **options}),
                evaluating=Evaluating(environment=environment, episodes=1, evaluation_seed=0),
            )
        )
        for i, log in enumerate(logs)
    ]


def train(started: list[OpenRun], checkpoint_seconds: float = 30.0) -> list[Run]:
    return train_runs(started, workers=1, checkpoint_seconds=checkpoint_seconds, progress=False)


def count_programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of groups of every program that is trained from now on."""
    sizes: list[int] = []
    real = loop.Training

    def training(groups: list[Group], *rest: Any) -> loop.Training:
        sizes.append(len(groups))
        return real(groups, *rest)

    monkeypatch.setattr(loop, "Training", training)
    return sizes


def assert_same(ours: Run, theirs: Run) -> None:
    assert ours.config == theirs.config
    assert [p.config for p in ours.policies] == [p.config for p in theirs.policies]
    for a, b in zip(ours.policies, theirs.policies, strict=True):
        assert a.arrays.keys() == b.arrays.keys()
        for name in a.arrays:
            np.testing.assert_allclose(a.arrays[name], b.arrays[name], rtol=2e-3, atol=2e-4, err_msg=name)
    for rows in ("metrics", "evaluations"):
        mine, other = getattr(ours, rows), getattr(theirs, rows)
        assert [r.keys() for r in mine] == [r.keys() for r in other]
        for a, b in zip(mine, other, strict=True):
            for name in ("seed", "alpha", "group", "phase", "step", "lengths"):
                assert a.get(name) == b.get(name)
            for name in (name for name, value in a.items() if isinstance(value, float)):
                np.testing.assert_allclose(a[name], b[name], rtol=2e-2, atol=1e-3, err_msg=name)


def test_each_folder_is_that_of_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything of a dataset that a run may read: its rows, initial states, scale, and sample of states."""
    options: dict[str, Any] = {
        "alpha": [0.05, 50.0],
        "ratio_hidden": [8],
        "ratio_form": "exact",
        "ratio_estimator": "mmd",
    }
    sizes = count_programs(monkeypatch)
    ours = train(open_runs(tmp_path / "together", "sbac", LOGS, **options))
    assert sizes == [2]
    alone = train(open_runs(tmp_path / "alone", "sbac", LOGS, **options)[1:])[0]
    assert_same(ours[1], alone)
    folders = [tmp_path / "together" / "1", tmp_path / "alone" / "1"]
    saved = [files.load_arrays(folder / "checkpoint" / "state-0.safetensors") for folder in folders]
    assert saved[0][1] == saved[1][1] and saved[0][0].keys() == saved[1][0].keys()
    for name, values in saved[0][0].items():
        np.testing.assert_allclose(values, saved[1][0][name], rtol=2e-2, atol=1e-3, err_msg=name)
    probe = LOGS[0].observations[:50]
    assert np.abs(ours[0].policies[0](probe) - ours[1].policies[0](probe)).max() > 1e-2  # the data do matter


def test_only_runs_that_fit_share_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = count_programs(monkeypatch)
    wider = make_log(1200, 50, 3, observations=4)
    started = open_runs(tmp_path, "bc", [LOGS[0], wider, LOGS[1]], environment=None)
    started += open_runs(tmp_path / "other", "bc", [LOGS[0]], environment=None, batch_size=8)
    runs = train(started)
    assert sizes == [2, 1, 1]
    assert [len(run.policies) for run in runs] == [2, 2, 2, 2]


def test_a_broken_one_goes_on_together_or_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped between the checkpoints of two folders they stand apart, stopped after both level; they end the same."""
    whole = train(open_runs(tmp_path / "whole", "sbac-no-w", LOGS, None))
    real, saves = Writer.save, [0]

    def save(self: Writer, *what: Any) -> None:
        saves[0] += 1
        if saves[0] == 6:
            raise KeyboardInterrupt
        real(self, *what)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "save", save)
        with pytest.raises(KeyboardInterrupt):
            train(open_runs(tmp_path / "broken", "sbac-no-w", LOGS, None), checkpoint_seconds=0.0)
    sizes = count_programs(monkeypatch)
    broken = train(open_runs(tmp_path / "broken", "sbac-no-w", LOGS, None))
    assert sizes == [1, 1]
    for ours, theirs in zip(broken, whole, strict=True):
        assert_same(ours, theirs)

    with monkeypatch.context() as patch:
        saves[0] = 1
        patch.setattr(Writer, "save", save)
        with pytest.raises(KeyboardInterrupt):
            train(open_runs(tmp_path / "level", "sbac-no-w", LOGS, None), checkpoint_seconds=0.0)
    sizes.clear()
    level = train(open_runs(tmp_path / "level", "sbac-no-w", LOGS, None))
    assert sizes == [2]
    for ours, theirs in zip(level, whole, strict=True):
        assert_same(ours, theirs)
