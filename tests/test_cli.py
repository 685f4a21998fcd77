"""Bad input: one line on stderr, exit code 2, nothing half-written, nothing lost."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sbac
from sbac.cli import build_parser, main


def columns(n: int = 100) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    ends = np.zeros(n, bool)
    ends[9::10] = True
    return {
        "observations": rng.normal(size=(n, 3)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, 2)).astype(np.float32),
        "rewards": rng.normal(size=n).astype(np.float32),
        "terminals": np.zeros(n, bool),
        "timeouts": ends,
    }


def write(path: Path, **changes: np.ndarray) -> str:
    np.savez(path, allow_pickle=False, **(columns() | changes))
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error line of a command that must be refused."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and err.count("\n") == 1, err
    return err


def test_bad_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = columns()
    for name, changes, named in (
        ("nan", {"rewards": np.where(np.arange(100) == 17, np.nan, whole["rewards"])}, ["rewards", "row 17"]),
        ("short", {"rewards": whole["rewards"][:-1]}, ["rewards"]),
        ("wide", {"actions": np.where(np.arange(100)[:, None] == 23, 1.5, whole["actions"])}, ["actions", "23"]),
        ("none", {k: v[:0] for k, v in whole.items()}, ["none.npz"]),
        ("discrete", {"actions": np.zeros(100, np.int64)}, ["discrete"]),
    ):
        line = refused(capsys, "train", write(tmp_path / f"{name}.npz", **changes), "--out", str(tmp_path / "run"))
        assert all(word in line for word in named), line
    (tmp_path / "truncated.npz").write_bytes(Path(write(tmp_path / "whole.npz")).read_bytes()[:500])
    for name in ("truncated.npz", "missing.npz"):
        assert name in refused(capsys, "train", str(tmp_path / name), "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


NAMED = {  # by what is refused; mostly the option itself, with a dash or an underscore
    "--batch-size -1": "batch_size",
    "--hidden 0": "hidden",
    "--learning-rate -1": "learning_rate",
    "--learning-rate 0.001 0.001": "learning_rate",
    "--learning-rate fast": "learning_rate",
    "--learning-rate nan": "learning_rate",
    "--discount 2": "discount",
    "--validation 1": "validation",
    "--horizon -3": "horizon",
    "--episodes 0": "episodes",
    "--evaluate-every -5": "evaluate_every",
    "--workers -1": "workers",
    "--steps 1 2 3": "steps",
    "--preset fast": "preset",
    "--seeds 4294967296 1": "seeds",
    "--seeds 0": "seeds",
    "--seeds many": "seeds",
    "--seed 3": "seed",  # no abbreviation of --seeds
    "--env Walker2d-v4": "environment",
    "--env nope:Nope-v1": "environment",
    "--env NoSuchEnv-v9 --steps 1": "NoSuchEnv",
    "--warm-start nope": "nope",
    "--learning-rat 1": "'learning_rate'",
    "--algorithm td3bc": "'td3-bc'",
}


@pytest.mark.parametrize("options", NAMED)
def test_what_cannot_be_is_refused_before_the_folder_is_made(
    options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, "train", "hopper-demo", "--algorithm", "bc", *options.split(), "--out", f"{tmp_path}/run")
    assert NAMED[options] in line
    assert not (tmp_path / "run").exists()


def test_options_of_a_method_take_the_values_that_follow_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value is no dataset, wherever that stands."""
    train, out = ["train", "hopper-demo"], ["--out", str(tmp_path / "run")]
    assert "alpha" in refused(capsys, *train, "--alpha", "0.5", "two", *out)
    assert "which data?" in refused(capsys, "train", "--alpha", "0.5", "2", *out)
    assert "'nope'" in refused(capsys, *train, "--algorithm", "bc", "--nope", "3", *out)
    for option in ("--environment", "--evaluate", "--callbacks", "--data"):  # arguments of sbac.train alone
        for method in ("bc", "sac"):
            line = refused(capsys, *train, "--algorithm", method, option, "3", *out)
            assert "not an option of this command" in line or f"'{option[2:]}'" in line


def test_an_error_is_one_line_whatever_is_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["data", "info", "a\nb.csv"], ["no-such-command"], []):
        refused(capsys, *words)


def test_a_broken_configuration_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text('{"format": 1}')
    for command in ("report", "evaluate"):
        assert "config.json" in refused(capsys, command, str(tmp_path))


def test_folders_that_are_not_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "data.npz")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    for flag in ("--resume", "--overwrite"):
        assert "not a run" in refused(capsys, "train", data, "--out", str(other), flag)
    assert (other / "thesis.tex").read_text() == "years of work"
    assert "not a run" in refused(capsys, "evaluate", str(other))
    assert "no such folder" in refused(capsys, "evaluate", str(tmp_path / "absent"))
    assert "not a policy file" in refused(capsys, "evaluate", str(other / "thesis.tex"))


def test_the_rules_of_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write(tmp_path / "data.npz"), str(tmp_path / "run")
    common = ["train", data, "--algorithm", "bc", "--hidden", "4", "--out", out]
    assert main([*common, "--steps", "10", "--resume"]) == 0  # resume on an absent folder starts
    before = {p: p.read_bytes() for p in Path(out).rglob("*") if p.is_file()}
    assert main([*common, "--steps", "10", "--resume"]) == 0  # on a finished run it changes nothing
    capsys.readouterr()
    assert "runs[0].steps[0] is 10, not 20" in refused(capsys, *common, "--steps", "20", "--resume")
    assert "already" in refused(capsys, *common, "--steps", "10")
    assert {p: p.read_bytes() for p in Path(out).rglob("*") if p.is_file()} == before
    assert main([*common, "--steps", "20", "--overwrite"]) == 0


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The third file finds no space: one line, exit code 2, and the folder still loads."""
    data, run = write(tmp_path / "data.npz"), tmp_path / "run"
    left, sync = [3], os.fsync

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    common = ["train", data, "--algorithm", "bc", "--hidden", "4", "--steps", "10", "--out", str(run)]
    line = refused(capsys, *common)
    assert str(run) in line and "cannot be written" in line
    assert not list(run.rglob("*.tmp"))
    sbac.Run.load(run)


def test_help_is_quick_and_loads_no_jax() -> None:
    code = """
import sys
from sbac.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
assert "jax" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """As in `sbac data list | head -1`."""
    code = "import sys; from sbac.cli import main; sys.exit(main(['data', 'list']))"
    child = subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stderr is not None
    child.stdout.close()
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() == 141


def test_policies_that_diverged_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "log.npz")
    rates = ["--learning-rate", "1e-3", "1e38", "--out", str(tmp_path / "run")]
    assert main(["train", data, "--algorithm", "bc", "--steps", "20", "--seeds", "2", "--no-evaluate", *rates]) == 0
    line = capsys.readouterr().err.splitlines()[-1]
    assert "diverged" in line and "learning_rate=1e+38_seed=1" in line and "0.001" not in line


# --- Help ---------------------------------------------------------------------------------------------------------

SCREEN = 45
"""Lines of a screen that is not small."""


def commands() -> list[list[str]]:
    """Every command, and every action of `data`."""
    below = build_parser().below
    return [[], *([name] for name in below), *(["data", action] for action in below["data"].below)]


@pytest.mark.parametrize("words", commands(), ids=lambda words: "-".join(words) or "sbac")
def test_help_fits_a_screen_has_an_example_and_tells_every_option(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0
    assert len(lines) <= SCREEN and max(map(len, lines)) <= 80
    assert any(line.startswith("example") for line in lines) and lines[0].startswith(" ".join(["usage: sbac", *words]))
    parser = build_parser()
    for word in words:
        parser = parser.below[word]
    assert not [action.dest for action in parser._actions if not action.help]


def test_a_run_is_continued_by_its_folder_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write(tmp_path / "data.npz"), str(tmp_path / "run")
    options = ["--algorithm", "bc", "--hidden", "4", "4", "--learning-rate", "1e-3", "1e-2", "--seeds", "2"]
    assert main(["train", data, *options, "--steps", "10", "--out", out]) == 0
    told = capsys.readouterr().out
    for path in (Path(out) / "checkpoint").glob("*"):
        assert path.is_file()
        path.unlink()
    before = {p.name: p.read_bytes() for p in Path(out, "policies").iterdir()}
    next(Path(out, "policies").iterdir()).unlink()  # with it the run is not finished
    assert main(["train", "--resume", "--out", out]) == 0
    assert capsys.readouterr().out == told
    assert {p.name: p.read_bytes() for p in Path(out, "policies").iterdir()} == before


def test_what_says_no_run_or_two_things_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = write(tmp_path / "data.npz"), str(tmp_path / "run")
    assert "which data?" in refused(capsys, "train")
    assert "no such folder; expected a run's folder" in refused(capsys, "train", "--resume", "--out", out)
    assert "expected the name of a folder" in refused(capsys, "train", data, "--algorithm", "bc", "--out", "")
    both = ["--resume", "--overwrite", "--out", out]
    assert "expected one of them" in refused(capsys, "train", data, "--algorithm", "bc", *both)
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.npz"]


def test_an_environment_of_the_users_is_not_taken_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write(tmp_path / "data.npz"), tmp_path / "run"
    assert main(["train", data, "--algorithm", "bc", "--steps", "1", "--hidden", "4", "--out", str(out)]) == 0
    record = json.loads((out / "config.json").read_text())
    record["command"] += ["--env", "os:Nothing-v0"]
    (out / "config.json").write_text(json.dumps(record))
    capsys.readouterr()
    assert "--env" in refused(capsys, "train", "--resume", "--out", str(out))
