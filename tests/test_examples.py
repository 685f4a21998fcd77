"""The scripts of examples/ run, for a few steps, and say what they should."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sbac.algorithms import REGISTRY
from tests.exporting.policies import make_policy
from tests.small import make_log

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def small_log(tmp_path: Path) -> str:
    """For scripts whose data are larger."""
    make_log(60, 20).save(tmp_path / "log.npz")
    return str(tmp_path / "log.npz")


def run(name: str, *words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a script prints. It runs in this process, where JAX is loaded already."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_every_example_is_tested() -> None:
    listed = {"own_arrays.py", "own_environment.py", "custom_method.py", "act_without_jax.py", "callback.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == listed | {"demo.py"}


METHODS = ["bc", pytest.param("sbac", marks=pytest.mark.slow)]
"""Compiling SBAC takes longer."""


@pytest.mark.parametrize("method", METHODS)
def test_own_arrays(method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--steps", "50", "--algorithm", method)
    printed = run("own_arrays.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert printed.startswith("4,800 rows in 200 episodes") and printed.count("heater at") == 3


@pytest.mark.parametrize("method", METHODS)
def test_own_environment(method: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--steps", "50", "--algorithm", method)
    printed = run("own_environment.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert re.fullmatch(r"mean return of the log -\d+\.\d\d, of the policy -\d+\.\d\d\n", printed)


def test_custom_method(small_log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        words = ("--steps", "50", "--data", small_log)
        printed = run("custom_method.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    finally:
        REGISTRY.pop("huber-bc", None)
    assert re.fullmatch(r"delta 0\.1: loss 0\.\d+\ndelta 1\.0: loss 0\.\d+\n", printed)


def test_callback(small_log: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--steps", "50", "--data", small_log, "--no-evaluate")
    printed = run("callback.py", *words, monkeypatch=monkeypatch, capsys=capsys)
    assert printed.count("clone, step") == 10 and printed.endswith("finished: 2 policies\n")


def test_act_without_jax(tmp_path: Path) -> None:
    make_policy("tanh-gaussian").save(tmp_path / "policy")
    words = [sys.executable, str(EXAMPLES / "act_without_jax.py"), str(tmp_path / "policy")]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert printed.endswith("JAX was imported: False\n")


NOTEBOOK = EXAMPLES / "tour.ipynb"


def code_cells() -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_was_executed() -> None:
    """From the first cell to the last, without an error, and with nothing of the machine it ran on."""
    cells = code_cells()
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert "/tmp/" not in NOTEBOOK.read_text() and "/home/" not in NOTEBOOK.read_text()


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    source = "\n\n".join("".join(cell["source"]) for cell in code_cells())
    exec(source.replace("STEPS = 5_000", "STEPS = 50"), {"__name__": "notebook"})
    assert (tmp_path / "policy.onnx").exists()
