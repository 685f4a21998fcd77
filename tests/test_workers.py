"""The pool of worker processes: order, arrays, progress, errors, deaths, and workers that keep a state."""

import os
import signal
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

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
            time.sleep(fields.get("sleep", 0.0))
            twice = {name: 2 * array for name, array in arrays.items()}
            return Message({"count": self.count, "pid": os.getpid(), **fields}, twice)

    if __name__ == "__main__":
        serve(Handle())
"""


@pytest.fixture(autouse=True)
def worker_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echoing.py").write_text(textwrap.dedent(WORKER))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def pool() -> Iterator[WorkerPool[Message]]:
    with open_pool(1) as opened:
        yield opened


def open_pool(count: int, pinned: bool = False) -> WorkerPool[Message]:
    return WorkerPool("echoing", count, read=lambda answer: answer, pinned=pinned)


def test_answers_belong_to_their_requests(pool: WorkerPool[Message]) -> None:
    answers = [pool.ask(Message({"number": i})) for i in range(20)]
    assert [answer.result(60).fields["number"] for answer in answers] == list(range(20))
    assert [answer.result().fields["count"] for answer in answers] == list(range(1, 21))
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
    assert "Traceback" in capfd.readouterr().err


def test_a_worker_that_died_is_replaced_in_a_shared_pool(pool: WorkerPool[Message]) -> None:
    died, after = pool.ask(Message({"die": True})), pool.ask(Message({}))
    with pytest.raises(RuntimeError, match=r"a worker \(echoing\) ended with exit code 3"):
        died.result(60)
    assert after.result(60).fields["count"] == 1
    assert pool.started == 2


def test_a_worker_that_is_killed_between_two_requests(pool: WorkerPool[Message]) -> None:
    os.kill(pool.ask(Message({})).result(60).fields["pid"], signal.SIGKILL)
    answers = [pool.ask(Message({})) for _ in range(2)]  # the first may reach it before its end is known
    assert answers[1].result(60).fields["pid"]


def test_a_pinned_worker_keeps_its_state_and_is_not_replaced() -> None:
    with open_pool(2, pinned=True) as pool:
        answers = [pool.ask(Message({}), worker=worker) for worker in (0, 1, 0, 0, 1)]
        assert [answer.result(60).fields["count"] for answer in answers] == [1, 1, 2, 3, 2]
        assert len({answer.result().fields["pid"] for answer in answers}) == 2
        died, after = [pool.ask(Message(fields), worker=0) for fields in ({"die": True}, {})]
        for answer in (died, after):
            with pytest.raises(RuntimeError, match="exit code 3"):
                answer.result(60)
        assert pool.ask(Message({}), worker=1).result(60).fields["count"] == 3
        assert pool.started == 2


def test_what_reads_from_the_standard_input_gets_nothing(pool: WorkerPool[Message]) -> None:
    assert pool.ask(Message({"read": True})).result(60).fields["read"] == ""
    assert pool.ask(Message({})).result(60).fields["count"] == 2


def test_a_large_message_to_a_worker_that_dies() -> None:
    arrays = {"wide": np.zeros((1000, 1000))}
    with open_pool(1, pinned=True) as pool:
        pool.ask(Message({"die": True})).exception(60)
        with pytest.raises(RuntimeError, match="exit code 3"):
            pool.ask(Message({}, arrays)).result(60)


@pytest.mark.parametrize("pinned", [False, True])
def test_an_error_cancels_what_waits_and_kills_what_works(pinned: bool) -> None:
    with pytest.raises(KeyboardInterrupt), open_pool(1, pinned) as pool:
        begun, queued = [pool.ask(Message({"sleep": 600.0, "progress": 1})) for _ in range(2)]
        while not pool.started:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert isinstance(begun.exception(5), RuntimeError) and queued.cancelled()
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
