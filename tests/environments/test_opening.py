"""A name that a file gives imports nothing but known packages; one that a person gives may import a module."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from sbac.cli import main
from sbac.environments.opening import may_open, open_environment
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.final import finish
from sbac.lab.cells import read_cell
from sbac.lab.protocol import Protocol
from tests.report.synthetic import record_json
from tests.small import linear_policy

INTRUDER = """
import pathlib
(pathlib.Path(__file__).parent / "intruded").write_text(__name__)
import gymnasium
gymnasium.register("Own-v0", entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv", max_episode_steps=3)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported; the file that it leaves if it is."""
    folder = tmp_path / "module"
    folder.mkdir()
    (folder / "intruder.py").write_text(INTRUDER)
    monkeypatch.syspath_prepend(folder)
    yield folder / "intruded"
    sys.modules.pop("intruder", None)
    gymnasium.registry.pop("Own-v0", None)


def save_run(folder: Path, environment: str) -> Path:
    config = {
        "format": 1,
        "algorithm": "bc",
        "preset": "quick",
        "labels": ["seed=0"],
        "runs": [{"seed": 0, "steps": [10]}],
        "evaluation": {"environment": environment, "episodes": 1, "seed": 0, "every": None},
        "versions": {},
        "data": {"name": "log.npz", "kind": "user", "task": None, "rows": 10, "episodes": 1, "hash": "d" * 64},
    }
    linear_policy().save(folder / "policies" / "seed=0.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["hopper-demo", "Pendulum-v1", "sbac/AdroitPen-v1", "AdroitHandPen-v1"])
def test_what_a_file_may_name(name: str) -> None:
    assert may_open(name)


def test_what_a_file_may_not_name(module: Path) -> None:
    gymnasium.register("Foreign-v0", entry_point="intruder:Own")  # pyright: ignore[reportUnknownMemberType]
    try:
        for name in ("intruder:Own-v0", "gymnasium:Pendulum-v1", "No-v0", "Foreign-v0", "a:b:c", ""):
            assert not may_open(name), name
    finally:
        del gymnasium.registry["Foreign-v0"]
    assert not module.exists()


@pytest.mark.parametrize("holder", ["policy", "task", "run"])
def test_evaluate_asks_for_an_environment_that_is_a_module(
    holder: str, module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if holder == "run":
        target = save_run(tmp_path / "run", "intruder:Own-v0")
    else:
        field = {"policy": "environment", "task": "task"}[holder]
        target = tmp_path / "policy"
        linear_policy(**{field: "intruder:Own-v0"}).save(target)
    assert main(["evaluate", str(target), "--episodes", "1"]) == 2
    said = (
        f"error: {target}: names the environment 'intruder:Own-v0', which is not opened unasked; name it with --env\n"
    )
    assert capsys.readouterr().err == said
    assert not module.exists()
    assert main(["evaluate", str(target), "--episodes", "1", "--env", "intruder:Own-v0"]) == 0
    assert module.exists()


def test_a_bench_opens_no_module_that_a_cell_names(module: Path, tmp_path: Path) -> None:
    cell = record_json() | {"environment": "intruder:Own-v0", "final": []}
    file = tmp_path / "cells" / "hopper-medium-made" / f"sbac-{cell['key']}.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(cell))
    (tmp_path / "runs" / cell["data"]["name"] / f"sbac-{cell['key']}" / "policies").mkdir(parents=True)
    with Pool(1) as pool, pytest.raises(UserError, match=r"intruder:Own-v0.*--env"):
        finish(read_cell(file), tmp_path, Protocol(), pool)
    assert not module.exists()


def test_the_error_of_a_module_that_is_asked_for_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("raise ZeroDivisionError('by\\nzero')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"'broken_module:A-v0': ZeroDivisionError: by$"):
        open_environment("broken_module:A-v0")
    with pytest.raises(UserError, match="looked for on PYTHONPATH"):
        open_environment("no_such_module:A-v0")
    with pytest.raises(UserError, match="a:b:c"):
        open_environment("a:b:c")


@pytest.mark.parametrize("start", [["-m", "sbac"], ["SCRIPT"]])
def test_the_command_imports_nothing_from_the_current_folder(start: list[str], tmp_path: Path) -> None:
    """Packages and modules of Python alike, for all that evaluating a policy needs."""
    strange = tmp_path / "strange"
    strange.mkdir()
    intruder = "import pathlib; (pathlib.Path(__file__).parent / 'intruded').write_text(__name__); raise SystemExit(9)"
    for name in ("typing", "argparse", "select", "json", "numpy", "gymnasium", "jax", "safetensors", "intruder"):
        (strange / f"{name}.py").write_text(intruder)
    script = tmp_path / "bin" / "sbac"  # as installing the package makes it
    script.parent.mkdir()
    script.write_text("import sys\nfrom sbac.cli import main\nsys.exit(main())\n")
    words = [str(script) if word == "SCRIPT" else word for word in start]
    linear_policy(environment="Pendulum-v1").save(tmp_path / "policy")
    command = [sys.executable, *words, "evaluate", str(tmp_path / "policy"), "--episodes", "1"]
    done = subprocess.run(command, cwd=strange, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (strange / "intruded").exists()
