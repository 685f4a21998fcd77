"""Ctrl-C ends a command, wherever it hits it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import sbac
from sbac import cli, interrupts
from sbac.errors import UserError
from sbac.evaluation.worker import Pool
from sbac.lab.bench.plan import Protocol
from sbac.training.writer import Writer

TRAIN = ["train", "hopper-demo", "--algorithm", "bc", "--steps", "500", "--hidden", "8", "--checkpoint-seconds", "0"]
BENCH = ["bench", "--tasks", "hopper-demo", "--algorithms", "bc", "--steps", "10", "--seeds", "1", "--no-grid"]
BENCH += ["--episodes", "1", "--final-episodes", "1"]
PATIENCE = 300.0
"""Seconds after which a process counts as hung. On a busy machine everything takes long, so no test waits for less."""

SWALLOWED = """
    import signal, sys
    from sbac import cli
    from sbac.training.writer import Writer

    class Dies:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    log = Writer.log
    def log_and_press(self, phase, step, metrics):
        log(self, phase, step, metrics)
        Dies()
    Writer.log = log_and_press
    sys.exit(cli.main())
"""


@pytest.fixture(autouse=True)
def pythons_own_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main([*TRAIN, "--steps", "10", "--no-evaluate", "--out", str(folder)]) == 0
    return folder


def test_swallowed_in_training_it_ends_the_command_all_the_same(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = [*TRAIN, "--steps", "1000000", "--no-evaluate", "--out", str(out)]
    command = [sys.executable, "-c", textwrap.dedent(SWALLOWED), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "Exception ignored" in done.stderr
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == f"interrupted; continue with: sbac train --resume --out {out}"
    assert sbac.Run.load(out).metrics


STUCK = """
    import os, time
    import gymnasium
    import numpy as np

    class Stuck(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (11,), np.float32)  # Hopper's
        action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(11, np.float32), {}

        def step(self, action):
            if self.np_random_seed >= int(os.environ["STUCK_FROM"]):
                open(os.environ["STUCK_MARK"], "w").close()
                time.sleep(3600)
            return np.zeros(11, np.float32), 0.0, True, False, {}

    gymnasium.register("Stuck-v0", Stuck, max_episode_steps=10)
"""
"""An environment whose episodes do not end, for seeds from STUCK_FROM on; it leaves a mark when one has begun."""


def interrupted_when(ready: Callable[[], bool], arguments: list[str], folder: Path, stuck_from: int) -> None:
    """Runs a command with the environment above and presses Ctrl-C as soon as it is ready; the command must end.

    It cannot end by finishing, because the episodes take an hour: how long the machine needs does not matter.
    """
    (folder / "stuck.py").write_text(textwrap.dedent(STUCK))
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    mark = {"STUCK_FROM": str(stuck_from), "STUCK_MARK": str(folder / "mark")}
    code = "import sys; from sbac.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, *arguments, "--env", "stuck:Stuck-v0", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": paths, **mark}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment) as child:
        try:
            began = time.monotonic()
            while not ready() and child.poll() is None and time.monotonic() - began < PATIENCE:
                time.sleep(0.1)
            os.killpg(child.pid, signal.SIGINT)
            _, text = child.communicate(timeout=PATIENCE)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 130 and text.splitlines()[-1].startswith("interrupted"), text


def test_ctrl_c_does_not_wait_for_the_evaluations(tmp_path: Path) -> None:
    arguments = ["train", "hopper-demo", "--algorithm", "bc", "--steps", "100000", "--evaluate-every", "20"]
    arguments += ["--episodes", "3", "--hidden", "8", "--out", str(tmp_path / "run")]
    pending, mark = tmp_path / "run" / "checkpoint" / "pending", tmp_path / "mark"

    def many_are_pending() -> bool:
        return mark.exists() and len(list(pending.glob("*"))) > 20

    interrupted_when(many_are_pending, arguments, tmp_path, stuck_from=0)
    assert many_are_pending()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["algorithm"] == "bc"


def test_a_bench_is_gone_at_once_though_its_last_episodes_are_being_played(tmp_path: Path) -> None:
    """They are played in a thread, which Python would wait for before it ends."""
    mark = tmp_path / "mark"
    final_seed = Protocol().final_seed
    interrupted_when(mark.exists, [*BENCH, "--out", str(tmp_path / "results")], tmp_path, stuck_from=final_seed)
    assert mark.exists() and list(tmp_path.glob("results/cells/*/*.json"))


def press() -> int:
    """What a command does when Ctrl-C is pressed."""
    signal.raise_signal(signal.SIGINT)
    return 0


def guarded(work: Callable[[], int]) -> int:
    return interrupts.guarded(work, print, own_process=False)


def test_who_ignores_interrupts_is_not_interrupted() -> None:
    """As a job in a shell's background does."""
    assert guarded(press) == 130 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert guarded(press) == 0 and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_of_ones_own_stays() -> None:
    numbers: list[int] = []

    def own(number: int, frame: object) -> None:
        numbers.append(number)

    signal.signal(signal.SIGINT, own)
    assert guarded(press) == 0
    assert numbers == [signal.SIGINT] and signal.getsignal(signal.SIGINT) is own


def test_the_handler_is_restored_after_an_error() -> None:
    def fail() -> int:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        guarded(fail)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_command_in_another_thread(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cli.main(["data", "list"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_nobody_waits_for_an_answer_that_will_not_come(run: Path) -> None:
    (policy,) = (run / "policies").iterdir()
    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        begun, queued = [pool.submit(policy, "Pendulum-v1", 100_000, 0) for _ in range(2)]
        while not pool.started:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert isinstance(begun.exception(PATIENCE), UserError) and queued.cancelled()
    assert pool.submit(policy, "Pendulum-v1", 1, 0).cancelled()


SPAWNING = """
    import os, subprocess
    import gymnasium

    def make():
        child = subprocess.Popen(["sleep", "3600"])
        with open(os.environ["SPAWNED"], "w") as file:
            print(child.pid, file=file)
        return gymnasium.make("Pendulum-v1")

    gymnasium.register("Spawning-v0", make)
"""


def test_what_a_worker_has_started_goes_with_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import or an environment may start a process, whose last words would follow ours."""
    (tmp_path / "spawning.py").write_text(textwrap.dedent(SPAWNING))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("SPAWNED", str(tmp_path / "pid"))
    (policy,) = (run / "policies").iterdir()
    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        pool.submit(policy, "spawning:Spawning-v0", 1, 0).exception(PATIENCE)
        raise KeyboardInterrupt
    stat = Path("/proc") / (tmp_path / "pid").read_text().strip() / "stat"
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if not stat.exists() or stat.read_text().split()[2] == "Z":  # whoever adopted it has not buried it yet
            return
        time.sleep(0.1)
    pytest.fail("it is still running")


def test_sigterm_says_what_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    arguments = [*TRAIN, "--no-evaluate", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "log", lambda *_: signal.raise_signal(signal.SIGTERM))
        assert cli.main(arguments) == 143
    assert capsys.readouterr().err.splitlines()[-1] == "terminated; nothing was kept, since it had not begun"
    assert not out.exists() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    for name, resumed in (("finish", []), ("finish", ["--resume"])):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, name, lambda *_: signal.raise_signal(signal.SIGTERM))
            assert cli.main([*arguments, *resumed]) == 143
        line = capsys.readouterr().err.splitlines()[-1]
        assert line == f"terminated; continue with: sbac train --resume --out {out}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "log", lambda *_: signal.raise_signal(signal.SIGTERM))
        assert cli.main([*arguments, "--overwrite", "--hidden", "4"]) == 143
    assert capsys.readouterr().err.splitlines()[-1] == f"terminated; the run that was in {out} before is kept"
    assert cli.main([*arguments, "--resume"]) == 0


BUSY = """
    import hashlib, sys
    from sbac import cli
    from sbac.training import train

    def busy(open_runs, **_):
        print("busy", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # half an hour without a line of Python, as XLA may need

    train.train_runs = busy
    sys.exit(cli.main())
"""


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (signal.SIGINT, ["--overwrite", "--hidden", "4"], "interrupted; the run that was in {out} before is kept"),
        (signal.SIGTERM, ["--no-evaluate"], "terminated; nothing was kept, since it had not begun"),
    ],
)
def test_compiling_is_not_waited_for(number: int, words: list[str], said: str, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    if "--overwrite" in words:
        shutil.copytree(run, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    command = [sys.executable, "-c", textwrap.dedent(BUSY), *TRAIN, *words, "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "busy\n"
        child.send_signal(number)
        _, text = child.communicate(timeout=PATIENCE)
    assert child.returncode == 128 + number and text.splitlines()[-1] == said.format(out=out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
