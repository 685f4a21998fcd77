"""The package as others get it: built, installed, and installed without most of what it requires."""

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import distribution, version
from pathlib import Path

import numpy as np
import pytest

import sbac
from sbac.cli import REQUIRED
from tests.exporting.policies import make_policy

ROOT = Path(__file__).parents[1]
COMMANDS = [
    ["train", "--no-evaluate"],
    ["evaluate", "POLICY", "--env", "Pendulum-v1"],
    ["data", "info", "hopper-demo"],
    ["bench", "--tasks", "hopper-demo", "--algorithms", "bc", "--out", "bench"],
    ["export", "POLICY", "--out", "policy.onnx"],
    ["export", "POLICY", "--out", "policy.stablehlo"],
]


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, env=inherited)


def python_with(folder: Path, *requirements: str) -> Path:
    """A Python that has these packages and no others; returns the folder of its packages."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    for package in requirements:
        for file in distribution(package).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(package).locate_file(top))))
    return packages


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with numpy, safetensors and sbac, as after `pip install --no-deps sbac`."""
    folder = tmp_path_factory.mktemp("light")
    (python_with(folder, "numpy", "safetensors") / "sbac").symlink_to(ROOT / "src" / "sbac")
    return str(folder / "bin" / "python")


def test_an_export_acts_with_numpy_and_onnxruntime_alone(tmp_path: Path) -> None:
    policy = make_policy("tanh-gaussian")
    sbac.export(policy, tmp_path / "policy.onnx")
    python_with(tmp_path / "python", "numpy", "onnxruntime")
    code = "import numpy, onnxruntime\nsession = onnxruntime.InferenceSession('policy.onnx')\n"
    code += "(actions,) = session.run(None, {'observations': numpy.full((1, 5), 0.5, numpy.float32)})\n"
    code += "print(actions.tolist())"
    done = run([str(tmp_path / "python" / "bin" / "python"), "-c", code], tmp_path)
    np.testing.assert_allclose(json.loads(done.stdout), policy(np.full((1, 5), 0.5)), atol=1e-5)


def test_a_policy_acts_with_numpy_and_safetensors_alone(light: str, tmp_path: Path) -> None:
    policy = make_policy("best-of-vae")
    policy.save(tmp_path / "policy.safetensors")
    code = (
        "import sys, sbac; p = sbac.Policy.load('policy.safetensors'); print(p([[0.1, 0.2, 0.3, 0.4, 0.5]]).tolist());"
    )
    code += "print(sorted({m.partition('.')[0] for m in sys.modules} & set(sys.argv[1:])))"
    done = run([light, "-c", code, *REQUIRED], tmp_path)
    assert done.returncode == 0, done.stderr
    actions, loaded = done.stdout.splitlines()
    np.testing.assert_allclose(json.loads(actions), policy([[0.1, 0.2, 0.3, 0.4, 0.5]]), atol=1e-6)
    assert loaded == "['numpy', 'safetensors']"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:3]))
def test_commands_that_need_more_say_so_in_one_line(command: list[str], light: str, tmp_path: Path) -> None:
    make_policy("deterministic").save(tmp_path / "POLICY")
    done = run([light, "-m", "sbac", *command], tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert "needs the package" in done.stderr or "No module named" in done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert sbac.__version__ == version("sbac")
    assert f'version = "{sbac.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {sbac.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {sbac.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.slow
def test_the_wheel_installs_and_the_archive_is_complete(tmp_path: Path) -> None:
    """The wheel is built from the source archive, so the archive has all that it needs."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        found = {name.partition("/")[2] for name in opened.getnames()}
    tracked = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True).stdout.splitlines()
    assert not {name for name in tracked if not name.startswith((".ci/", ".github/"))} - found
    with zipfile.ZipFile(wheel) as opened:
        inside = set(opened.namelist())
    sources = {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
    assert not sources - inside
    assert {name.split("/")[0] for name in inside} == {"sbac", f"sbac-{sbac.__version__}.dist-info"}

    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    required = Path(np.__file__).parents[1]  # what it requires, from the venv of the tests, after its own folder
    (site / "required.pth").write_text(f"{required}\n")
    command = str(tmp_path / "venv" / "bin" / "sbac")
    assert run([command, "--version"], tmp_path).stdout == f"sbac {sbac.__version__}\n"
    assert run([str(python), "-c", "import sbac; print(sbac.__file__)"], tmp_path).stdout.startswith(str(site))
    assert "90,000" in run([command, "data", "info", "hopper-demo"], tmp_path).stdout
