"""A run's folder: rows come back as they were written, and damage is named with file and line."""

import json
from pathlib import Path

import pytest

from sbac.cli import main
from sbac.errors import UserError
from sbac.runs import (
    Episodes,
    EvaluationRow,
    MetricRow,
    Place,
    Run,
    evaluation_json,
    metric_json,
    read_evaluations,
    read_metrics,
    read_record,
)

CONFIG = {
    "format": 1,
    "algorithm": "brac-plus",
    "preset": "quick",
    "labels": ["alpha=2_seed=0"],
    "runs": [{"seed": 0, "steps": [10, 10], "alpha": 2.0, "multiplier": 1.0, "hidden": [8]}],
    "evaluation": {"environment": "Pendulum-v1", "episodes": 2, "seed": 0, "every": None},
    "versions": {"sbac": "0.1.0"},
    "data": {"name": "log.npz", "kind": "file", "task": None, "rows": 10, "episodes": 1, "hash": "d" * 64},
}
PLACE = Place("brac-plus", 0, {"alpha": 2.0}, "train", 10)
METRICS = MetricRow(PLACE, {"loss": 0.5, "multiplier": 3.0, "objective": None})
EVALUATION = EvaluationRow(PLACE, Episodes("Pendulum-v1", [-1.0, -2.0], [200, 200], None, {"mujoco": "3.4.0"}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "metrics.jsonl").write_text(json.dumps(metric_json(METRICS)) + "\n")
    (tmp_path / "evaluations.jsonl").write_text(json.dumps(evaluation_json(EVALUATION)) + "\n")
    return tmp_path


def test_rows_come_back_as_they_were_written(folder: Path) -> None:
    run = Run.load(folder)
    assert run.config == CONFIG
    assert run.metric_rows == [METRICS] and run.evaluation_rows == [EVALUATION]
    assert list(run.evaluations[0]) == [
        *("algorithm", "seed", "alpha", "group", "phase", "step"),
        *("environment", "returns", "lengths", "scores", "versions"),
    ]
    assert run.record.common[0].steps == [10, 10]


def test_a_metric_may_have_the_name_of_a_field_that_is_not_in_the_grid(folder: Path) -> None:
    """BRAC+ logs the value of its multiplier, which is also the name of a field of its config."""
    (row,) = read_metrics(folder / "metrics.jsonl", read_record(folder))
    assert row.values["multiplier"] == 3.0 and row.place.setting == {"alpha": 2.0}


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("metrics.jsonl", {"loss": "high"}, "line 1: loss is 'high'; expected a number"),
        ("metrics.jsonl", {"step": 1.5}, "line 1: step is 1.5; expected a whole number"),
        ("evaluations.jsonl", {"returns": 3.0}, "line 1: returns is 3.0; expected a list"),
        ("evaluations.jsonl", {"lengths": None}, "line 1: lengths is None; expected a list"),
    ],
)
def test_a_damaged_row_is_named(folder: Path, file: str, damage: dict[str, object], said: str) -> None:
    row = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(row | damage) + "\n")
    with pytest.raises(UserError) as error:
        Run.load(folder)
    assert str(error.value) == f"{folder / file}: {said}"


def test_a_row_without_its_columns_is_named(folder: Path) -> None:
    (folder / "evaluations.jsonl").write_text('{"algorithm": "bc", "seed": 0}\n')
    with pytest.raises(UserError, match="line 1: phase is missing"):
        read_evaluations(folder / "evaluations.jsonl", read_record(folder))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"data": {"name": "log.npz"}}, "data.kind is missing"),
        ({"evaluation": None}, "evaluation is None; expected an object"),
        ({"runs": [{"steps": [10]}]}, "runs[0]: seed is missing"),
        ({"runs": [{"seed": 0, "steps": 10}]}, "runs[0]: steps is 10; expected a list"),
        ({"runs": [{"seed": 0, "steps": []}]}, "runs[0]: steps is []; expected the steps of every phase"),
        ({"runs": []}, "1 labels for 0 runs; expected one for each"),
        ({"format": 9}, "not a run of this version of sbac (expected format 1)"),
    ],
)
def test_a_damaged_config_ends_each_command_with_one_line(
    folder: Path, damage: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | damage))
    page = folder / "page.html"
    for words in (["report", str(folder), "--out", str(page)], ["compare", str(folder), str(folder)]):
        assert main(words) == 2
        assert capsys.readouterr().err == f"error: {folder / 'config.json'}: {said}\n"
    assert main(["evaluate", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not page.exists()
