"""`sbac export` on run folders and policy files."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from sbac import cli
from sbac.files import write_json
from sbac.policy import Policy
from sbac.runs import Run
from sbac.trust.choice import CHOICE_FORMAT, CandidateRecord, ChoiceRecord, LogRecord, write_choice
from tests.exporting.policies import make_policy

LABELS = ["alpha=1_seed=0", "alpha=2_seed=0"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder with two policies."""
    folder = tmp_path / "run"
    for number, label in enumerate(LABELS):
        policy = make_policy("deterministic", actions=number + 1)
        about = {"algorithm": "sbac", "seed": 0, "label": label, "grid": ["alpha"], "alpha": number + 1.0}
        Policy(policy.kind, policy.arrays, about).save(folder / "policies" / f"{label}.safetensors")
    record = {"format": 1, "algorithm": "sbac", "preset": "quick", "labels": LABELS, "versions": {}}
    record |= {"runs": [{"seed": 0, "steps": [1, 1], "alpha": alpha} for alpha in (1.0, 2.0)]}
    record |= {"evaluation": {"environment": None, "episodes": 1, "seed": 0, "every": None}}
    write_json(folder / "config.json", record)
    return folder


def exported_actions(path: Path) -> int:
    """How many numbers an action of the file has."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"observations": np.zeros((1, 5), np.float32)})[0].shape[1]


def test_a_policy_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "policy.onnx"
    assert cli.main(["export", str(run), "--label", LABELS[1], "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: {LABELS[1]}, observations (n, 5) to actions (n, 2)\n"
    assert exported_actions(out) == 2


def test_a_policy_file_with_the_format_named(run: Path, tmp_path: Path) -> None:
    source, out = run / "policies" / f"{LABELS[0]}.safetensors", tmp_path / "policy.bin"
    assert cli.main(["export", str(source), "--format", "onnx", "--out", str(out)]) == 0
    assert exported_actions(out) == 1


def test_the_selected_policy_while_it_is_the_one_that_was_judged(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = [
        CandidateRecord(label, 0, {}, *(None,) * 6, warnings=[], set_aside=True, policy=policy.hash)
        for label, policy in zip(LABELS, Run.load(run).policies, strict=True)
    ]
    log = LogRecord("log", "hash", 0.0, 0.0, 1.0, 0.0, [0.0])
    write_choice(run, ChoiceRecord(CHOICE_FORMAT, LABELS[1], True, "", log, 0.99, judged))
    out = tmp_path / "policy.onnx"
    assert cli.main(["export", str(run), "--out", str(out)]) == 0
    assert exported_actions(out) == 2
    out.unlink()
    policy = Policy.load(run / "policies" / f"{LABELS[1]}.safetensors")
    Policy(policy.kind, policy.arrays | {"policy/biases/0": policy.arrays["policy/biases/0"] + 1}, policy.config).save(
        run / "policies" / f"{LABELS[1]}.safetensors"
    )
    assert cli.main(["export", str(run), "--out", str(out)]) == 2
    assert "it is about other policies" in capsys.readouterr().err and not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x.onnx"], "holds 2 policies; name one with --label, such as alpha=1_seed=0"),
        (["--out", "x.onnx", "--label", "alpha=2_seed=1"], "did you mean 'alpha=2_seed=0'?"),
        (["--out", "x.onnx", "--label", LABELS[0], "--format", "pickle"], "unknown format 'pickle'"),
        (["--out", "x.txt", "--label", LABELS[0]], "x.txt: of which format?"),
        ([], "--out"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parent)
    assert cli.main(["export", str(run), *words]) == 2
    wrong = capsys.readouterr().err
    assert wrong.startswith("error: ") and message in wrong and wrong.count("\n") == 1
    assert [entry.name for entry in run.parent.iterdir()] == ["run"]


def test_a_missing_policy(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "policies" / f"{LABELS[0]}.safetensors").unlink()
    assert cli.main(["export", str(run), "--label", LABELS[0], "--out", str(tmp_path / "x.onnx")]) == 2
    assert "no such policy yet; finish the run" in capsys.readouterr().err
