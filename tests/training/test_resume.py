"""Killed with -9 again and again, a run resumes to the same bits as one that was never broken."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.training.test_request import make_log

import sbac

ARGUMENTS = ["--algorithm", "sbac", "--seeds", "2", "--alpha", "0.5", "2", "--steps", "60", "--env", "Pendulum-v1"]
ARGUMENTS += ["--episodes", "1", "--hidden", "8", "--ratio-hidden", "8", "--batch-size", "16", "--workers", "1"]

DRIVER = """
    import os, signal, sys
    from sbac import cli, files
    from sbac.training import writer

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    what, *arguments = sys.argv[1:]
    kind, _, detail = what.partition(":")
    if kind == "step":  # after the metrics of this phase and step are written, before its checkpoint
        phase, step = detail.split(",")
        real_log = writer.Writer.log
        def log(self, index, done, metrics):
            real_log(self, index, done, metrics)
            if self.phases[index].name == phase and done >= int(step):
                die()
        writer.Writer.log = log
    if kind == "write":  # half-way through writing the checkpoint's bytes
        real_write = files.write_atomic
        count = [0]
        def write(path, data):
            if path.name.startswith("state-"):
                count[0] += 1
                if count[0] == int(detail):
                    path.with_name(f".{'0' * 16}.tmp").write_bytes(data[: len(data) // 2])
                    die()
            real_write(path, data)
        files.write_atomic = write
    if kind == "snapshot":  # a snapshot is on disk, its evaluation has not answered
        from sbac.training import evaluations
        real_start = evaluations.Evaluations._start
        count = [0]
        def start(self, folder, rows):
            count[0] += 1
            if count[0] == int(detail):
                die()
            real_start(self, folder, rows)
        evaluations.Evaluations._start = start
    if kind == "finish":  # policies are written, the last checkpoint is not
        real_save = writer.Writer.save
        def save(self, position, states):
            if position.phase == len(self.phases):
                die()
            real_save(self, position, states)
        writer.Writer.save = save
    sys.exit(cli.main(arguments))
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "log.npz"
    make_log(600, 50).save(path)
    return path


def launch(kill: str, log: Path, out: Path) -> int:
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), kill, "train", str(log), *ARGUMENTS]
    command += ["--out", str(out), "--resume", "--checkpoint-seconds", "0"]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode


def contents(folder: Path) -> dict[str, bytes]:
    wanted = [*(folder / "policies").iterdir(), *(folder / "checkpoint").iterdir()]
    wanted += [folder / "metrics.jsonl", folder / "evaluations.jsonl", folder / "config.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in wanted if path.is_file()}


def test_kills_leave_no_trace(log: Path, tmp_path: Path) -> None:
    assert launch("none", log, tmp_path / "unbroken") == 0
    kills = ["step:estimate,5", "write:3", "step:estimate,40", "snapshot:1", "step:improve,20", "write:2", "finish"]
    for kill in kills:
        assert launch(kill, log, tmp_path / "broken") == -signal.SIGKILL, kill
        sbac.Run.load(tmp_path / "broken")  # at any moment, after any kill, the folder loads
    assert launch("none", log, tmp_path / "broken") == 0
    expected, found = contents(tmp_path / "unbroken"), contents(tmp_path / "broken")
    assert expected.keys() == found.keys()
    assert [name for name in expected if expected[name] != found[name]] == []
    rows = sbac.Run.load(tmp_path / "broken").evaluations
    assert [row["step"] for row in rows if row["phase"] == "improve" and row["seed"] == 0 and row["alpha"] == 2.0] == [
        *range(6, 61, 6)
    ]
    assert launch("none", log, tmp_path / "broken") == 0  # a finished run resumes to itself
