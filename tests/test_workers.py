"""The pool of worker processes: order, arrays, progress, errors, deaths, and workers that keep a state."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sbac.errors import UserError
from sbac.workers import Message, WorkerPool

WORKER = """
    import os, sys, time
    from sbac.errors import UserError
    from sbac.workers import Message, serve

    class Handle:
        count = 0

        def __call__(self, request, progress):
            self.count += 1
            fields, arrays = request.fields, request.arrays
            print("printed by an environment")
            if fields.get("refuse"):
                raise UserError("no: expected yes")
            if fields.get("fail"):
                raise ZeroDivisionError("by zero")
            if fields.get("die"):
                os._exit(3)
            if fields.get("read"):
                return Message({"read": sys.stdin.read()})
            for i in range(fields.get("progress", 0)):
                progress(i)
            if fields.get("say_pid"):
                progress(os.getpid())
            while fields.get("spin"):
                pass
            time.sleep(fields.get("sleep", 0.0))
            twice = {name: 2 * array for name, array in arrays.items()}
            return Message({"count": self.count, "pid": os.getpid(), **fields}, twice)

    if __name__ == "__main__":
        serve(Handle())
"""


@pytest.fixture(autouse=True)
def worker_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echoing.py").write_text(textwrap.dedent(WORKER))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def pool() -> Iterator[WorkerPool[Message]]:
    with open_pool(1) as opened:
        yield opened


def open_pool(count: int, pinned: bool = False) -> WorkerPool[Message]:
    return WorkerPool("echoing", count, read=lambda answer: answer, pinned=pinned)


def test_answers_belong_to_their_requests(pool: WorkerPool[Message]) -> None:
    """What reads from the standard input, where requests come from, gets nothing."""
    answers = [pool.ask(Message({"number": i})) for i in range(20)]
    assert [answer.result(60).fields["number"] for answer in answers] == list(range(20))
    assert [answer.result().fields["count"] for answer in answers] == list(range(1, 21))
    assert pool.ask(Message({"read": True})).result(60).fields["read"] == ""
    assert pool.ask(Message({})).result(60).fields["count"] == 22
    assert pool.started == 1


def test_arrays_come_back_as_they_were_sent(pool: WorkerPool[Message]) -> None:
    rng = np.random.default_rng(0)
    arrays = {"wide": rng.normal(size=(700, 300)), "half": rng.normal(size=3).astype(np.float16), "one": np.array(4)}
    arrays["columns"] = arrays["wide"][:, ::7]  # not contiguous
    back = pool.ask(Message({}, arrays)).result(60).arrays
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], 2 * array)


def test_progress_is_heard_while_the_request_is_under_way(pool: WorkerPool[Message]) -> None:
    heard: list[object] = []
    ready = threading.Event()

    def progress(value: object) -> None:
        heard.append(value)
        ready.set()

    answer = pool.ask(Message({"progress": 3, "sleep": 1.0}), progress=progress)
    assert ready.wait(60) and not answer.done()
    answer.result(60)
    assert heard == [0, 1, 2]


def test_errors_are_answers(pool: WorkerPool[Message], capfd: pytest.CaptureFixture[str]) -> None:
    refused, failed, after = [pool.ask(Message(fields)) for fields in ({"refuse": True}, {"fail": True}, {})]
    with pytest.raises(UserError, match="no: expected yes"):
        refused.result(60)
    with pytest.raises(RuntimeError, match="echoing: ZeroDivisionError: by zero") as raised:
        failed.result(60)
    assert not isinstance(raised.value, UserError)
    assert after.result(60).fields["count"] == 3  # the same worker
    assert "Traceback" not in capfd.readouterr().err
    assert "ZeroDivisionError" in raised.value.__notes__[0]


def test_a_request_that_kills_three_workers_is_given_up(
    pool: WorkerPool[Message], capfd: pytest.CaptureFixture[str]
) -> None:
    died, after = pool.ask(Message({"die": True})), pool.ask(Message({}))
    with pytest.raises(UserError, match=r"^a worker process \(echoing\) ended with exit code 3 in the middle"):
        died.result(60)
    assert after.result(60).fields["count"] == 1
    assert pool.started == 4
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_killed_at_work_is_replaced_and_its_request_made_again(
    ending: signal.Signals, pool: WorkerPool[Message], capfd: pytest.CaptureFixture[str]
) -> None:
    heard: list[Any] = []
    begun = threading.Event()

    def progress(value: object) -> None:
        heard.append(value)
        begun.set()

    os.kill(pool.ask(Message({})).result(60).fields["pid"], 0)
    answer = pool.ask(Message({"say_pid": True, "sleep": 1.0, "number": 7}), progress=progress)
    assert begun.wait(60)
    os.kill(heard[0], ending)
    assert answer.result(60).fields["number"] == 7
    assert answer.result().fields["pid"] != heard[0] and pool.started == 2
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_is_not_for_workers(pool: WorkerPool[Message]) -> None:
    first = pool.ask(Message({})).result(60).fields
    os.kill(first["pid"], signal.SIGINT)
    assert pool.ask(Message({})).result(60).fields == {**first, "count": 2}


PARENT = """
    import time
    from sbac.workers import Message, WorkerPool
    pool = WorkerPool("echoing", 2, read=lambda answer: answer)
    for worker in range(2):
        pool.ask(Message({"say_pid": True, "spin": True}), progress=lambda pid: print(f"{pid}\\n", end="", flush=True))
    time.sleep(600)
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_are_gone_soon_after_their_parent(ending: signal.Signals) -> None:
    """Though they are busy, and read nothing from the pipe that has closed."""
    command = [sys.executable, "-c", textwrap.dedent(PARENT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.send_signal(ending)
        parent.wait(60)
        assert all(is_gone(pid, 5.0) for pid in pids)
        assert "Traceback" not in parent.stderr.read()


def test_a_worker_that_is_busy_watches_its_parent() -> None:
    code = "import sys, sbac.workers as w; w.end_with_parent(int(sys.argv[1]))"
    code += "; print(flush=True); import time; time.sleep(600)"
    parent = f"import subprocess, sys, os; c = subprocess.Popen([sys.executable, '-c', {code!r}, str(os.getpid())], "
    parent += "stdout=subprocess.PIPE); c.stdout.readline(); print(c.pid)"
    done = subprocess.run([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, timeout=60)
    assert is_gone(int(done.stdout), 5.0)


def is_gone(pid: int, seconds: float) -> bool:
    """Whether a process has ended, or ends within so many seconds."""
    stat = Path("/proc") / str(pid) / "stat"
    began = time.monotonic()
    while stat.exists() and stat.read_text().split()[2] != "Z":  # nobody may have buried it
        if time.monotonic() - began > seconds:
            return False
        time.sleep(0.05)
    return True


INTRUDER = "import pathlib; (pathlib.Path(__file__).parent / 'intruded').write_text(__name__); raise SystemExit(9)"


def test_workers_import_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = tmp_path / "strange"
    strange.mkdir()
    for name in ("numpy", "safetensors", "json", "select", "gymnasium"):
        (strange / f"{name}.py").write_text(INTRUDER)
    monkeypatch.chdir(strange)
    with open_pool(1) as pool:
        assert pool.ask(Message({}, {"x": np.ones(2)})).result(60).fields["count"] == 1
    monkeypatch.setattr(sys, "path", ["", *sys.path])  # as in a notebook: what is there is found, but not first
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    with open_pool(1) as pool:
        assert pool.ask(Message({}, {"x": np.ones(2)})).result(60).fields["count"] == 1
    assert not (strange / "intruded").exists()


def test_a_worker_finds_the_modules_that_its_parent_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "beside.py").write_text((tmp_path / "echoing.py").read_text())
    monkeypatch.chdir(tmp_path / "own")
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with WorkerPool[Message]("beside", 1, read=lambda answer: answer) as pool:
        assert pool.ask(Message({})).result(60).fields["count"] == 1


def test_a_pinned_worker_keeps_its_state_and_is_not_replaced() -> None:
    with open_pool(2, pinned=True) as pool:
        answers = [pool.ask(Message({}), worker=worker) for worker in (0, 1, 0, 0, 1)]
        assert [answer.result(60).fields["count"] for answer in answers] == [1, 1, 2, 3, 2]
        assert len({answer.result().fields["pid"] for answer in answers}) == 2
        died, after = [pool.ask(Message(fields), worker=0) for fields in ({"die": True}, {})]
        for answer in (died, after):
            with pytest.raises(UserError, match="exit code 3"):
                answer.result(60)
        assert pool.ask(Message({}), worker=1).result(60).fields["count"] == 3
        assert pool.started == 2


def test_a_large_message_to_a_worker_that_dies() -> None:
    arrays = {"wide": np.zeros((1000, 1000))}
    with open_pool(1, pinned=True) as pool:
        pool.ask(Message({"die": True})).exception(60)
        with pytest.raises(UserError, match="exit code 3"):
            pool.ask(Message({}, arrays)).result(60)


@pytest.mark.parametrize("pinned", [False, True])
def test_an_error_cancels_what_waits_and_kills_what_works(pinned: bool) -> None:
    with pytest.raises(KeyboardInterrupt), open_pool(1, pinned) as pool:
        begun, queued = [pool.ask(Message({"sleep": 600.0, "progress": 1})) for _ in range(2)]
        while not pool.started:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert isinstance(begun.exception(5), UserError) and queued.cancelled()
    assert pool.ask(Message({})).cancelled()


def test_the_end_of_a_pool_waits_for_its_answers() -> None:
    with open_pool(2) as pool:
        answers = [pool.ask(Message({"sleep": 0.2, "number": i})) for i in range(4)]
    assert [answer.result(0).fields["number"] for answer in answers] == [0, 1, 2, 3]


def test_nothing_in_the_package_unpickles() -> None:
    """Loading must not run code: `pickle` stands in the source only where it is refused."""
    import sbac

    allowed = ("allow_pickle=False", "(a pickle)", "is unpickled")
    modules = ("multiprocessing", "ProcessPoolExecutor", "import pickle", "marshal", "shelve", "joblib", "dill")
    source = Path(sbac.__file__).parent
    for path in sorted(source.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            rest = line
            for word in allowed:
                rest = rest.replace(word, "")
            assert "pickle" not in rest, f"{path.relative_to(source)}:{number}: {line.strip()}"
            assert not any(module in line for module in modules), f"{path.relative_to(source)}:{number}"
