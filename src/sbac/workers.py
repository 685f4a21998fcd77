"""The pool of worker processes, and the loop that a worker runs.

A worker is a fresh interpreter that runs a module (`python -m module`), so a user's script needs no __main__ guard. It
reads requests from its input and writes messages to its output. A message is one line of JSON, followed by as many
bytes of safetensors as the line announces. While a request is under way the worker may send any number of progress
messages; it ends the request with an answer or an error.

A worker imports from where its parent does, ends when its parent does, and prints nothing of its own.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, Self, TypeVar

from sbac.errors import UserError
from sbac.files import Arrays, pack_arrays, unpack_arrays
from sbac.records import Json

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 5.0
"""The most seconds to wait for each thread of a pool that ends by an error."""
MOST_DEATHS = 3
"""As many workers may die of one request."""

Answer = TypeVar("Answer")


class WorkerDiedError(UserError):
    """A worker ended in the middle of a request."""


@dataclass(frozen=True)
class Message:
    """A request or an answer: JSON fields, and arrays."""

    fields: Mapping[str, Any]
    arrays: Arrays = field(default_factory=Arrays)


Progress = Callable[[Json], None]


@dataclass(frozen=True)
class PendingRequest(Generic[Answer]):
    """A request on its way to a worker, where its answer goes, and what is called with its progress."""

    message: Message
    answer: "Future[Answer]"
    progress: Progress


Requests = queue.SimpleQueue[PendingRequest[Answer] | None]
"""The requests of a worker; None ends it. Not a Queue: Ctrl-C in the middle of its `put` leaves its lock closed, and
closing the pool would wait for ever."""


class WorkerPool(Generic[Answer]):
    """Worker processes that run one module. A worker starts with its first request.

    The requests are shared: each goes to the next free worker. A worker that dies is replaced, and its request is made
    again, so the answer to a request must depend on the request alone. In a `pinned` pool every request names its
    worker. Such a worker keeps a state between requests, so when it dies, all its later requests fail.
    """

    def __init__(self, module: str, count: int, read: Callable[[Message], Answer], pinned: bool = False) -> None:
        """`read` turns a worker's answer into what the caller receives; it runs in a thread of the pool."""
        self._module, self._read, self._pinned = module, read, pinned
        self._abandoned = False
        self._workers: set[Worker] = set()
        shared: Requests[Answer] = queue.SimpleQueue()
        self._queues: list[Requests[Answer]] = [queue.SimpleQueue() if pinned else shared for _ in range(count)]
        self._threads = [threading.Thread(target=self._serve, args=(q,), daemon=True) for q in self._queues]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Waits for the requests that were made; after an error or Ctrl-C it cancels them and kills the workers."""
        if error is None:
            self.close()
            return
        self._abandoned = True
        self._cancel()
        for worker in list(self._workers):
            worker.kill()
        # Ctrl-C in the middle of a call to a future can leave its lock closed; the thread that answers it then hangs.
        self.close(PATIENCE)
        self._cancel()  # the requests that another thread has made in the meantime

    def ask(self, message: Message, worker: int = 0, progress: Progress = lambda value: None) -> "Future[Answer]":
        """Makes a request, in a pinned pool of this worker; `progress` is called in a thread of the pool."""
        answer: Future[Answer] = Future()
        if self._abandoned:
            answer.cancel()
        else:
            self._queues[worker].put(PendingRequest(message, answer, progress))
        return answer

    @property
    def started(self) -> int:
        """How many worker processes have been started."""
        return len(self._workers)

    def close(self, patience: float | None = None) -> None:
        """Ends the workers once all requests are answered; `patience`: the most seconds to wait for each of them."""
        for requests in self._queues:
            requests.put(None)
        for thread in self._threads:
            thread.join(patience)

    def _cancel(self) -> None:
        """Cancels the requests that no worker has begun, so that a thread that waits for an answer goes on."""
        for requests in self._queues:
            with contextlib.suppress(queue.Empty):
                while True:
                    if (request := requests.get_nowait()) is not None:
                        request.answer.cancel()

    def _serve(self, requests: "Requests[Answer]") -> None:
        """The thread of one worker."""
        worker: Worker | None = None
        while (request := requests.get()) is not None:
            deaths = 0
            while not request.answer.done():
                try:
                    if worker is not None and worker.has_died and not self._pinned:
                        worker.close()
                        worker = None
                    worker = worker or self._start()
                    request.answer.set_result(self._read(worker.ask(request.message, request.progress)))
                except WorkerDiedError as error:
                    deaths += 1
                    if self._pinned or self._abandoned or deaths == MOST_DEATHS:
                        request.answer.set_exception(error)
                except Exception as error:  # every error belongs to the caller that waits for the answer
                    request.answer.set_exception(error)
        if worker is not None:
            worker.close()

    def _start(self) -> "Worker":
        worker = Worker(self._module)
        self._workers.add(worker)
        if self._abandoned:
            worker.kill()
        return worker


class Worker:
    """One worker process: the only place where one is started, and where its death is noticed."""

    def __init__(self, module: str) -> None:
        self._module = module
        # A session of its own: Ctrl-C in the terminal reaches the parent alone, and `kill` ends the whole group.
        # -P: without it Python would import from the current folder first.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": import_path()},
            start_new_session=True,
        )

    @property
    def has_died(self) -> bool:
        return self._process.poll() is not None

    def ask(self, request: Message, progress: Progress) -> Message:
        """Sends a request and waits for its answer. An error of the worker is raised here."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the worker is dead, so its output is at its end
            _write(self._process.stdin, {"request": request.fields}, request.arrays)
        while (message := _read(self._process.stdout)) is not None:
            if "progress" in message.fields:
                progress(message.fields["progress"])
            elif "refused" in message.fields:
                raise UserError(message.fields["refused"])
            elif "failed" in message.fields:
                error = RuntimeError(f"{self._module}: {message.fields['failed']}")
                error.add_note(message.fields["trace"])
                raise error
            else:
                return Message(message.fields["answer"], message.arrays)
        raise WorkerDiedError(
            f"a worker process ({self._module}) {_ending(self._process.wait())} in the middle of its work; "
            "look for a lack of memory, or a crash in the environment"
        )

    def kill(self) -> None:
        """Kills the process and all that it has started: environments may have processes of their own."""
        if not self.has_died:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the pipes, which ends the process, and waits for it."""
        with contextlib.suppress(BrokenPipeError), self._process:
            pass


def _ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def import_path() -> str:
    """Where a process that this one starts imports from, as PYTHONPATH has it: from where this one does.

    The current folder comes last if this process has it, so that no file in it takes the place of a package.
    """
    package = str(Path(__file__).parents[1])
    asked = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    folders = dict.fromkeys(os.path.join(here, folder).rstrip(os.sep) for folder in [*sys.path, *asked])
    others = [folder for folder in folders if folder not in ("", package, here) and os.pathsep not in folder]
    return os.pathsep.join([package, *others, *([here] if here in folders and here != package else [])])


def end_with_parent(parent: int) -> None:
    """Ends this process when its parent has ended, in whatever way."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def serve(handle: Callable[[Message, Progress], Message]) -> None:
    """A worker's main loop: answers requests until its input ends.

    A `UserError` of `handle` is raised as one in the parent; any other error as a RuntimeError, with the worker's
    traceback as a note.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then ends its workers
    end_with_parent(int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid())
    # Environments may read from the standard input and print: neither must mix with the messages.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)

    def say(fields: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        try:
            _write(answers, fields, arrays)
        except BrokenPipeError:
            os._exit(0)  # the parent has ended; a normal exit would complain that the buffer cannot be written

    while (message := _read(requests)) is not None:
        try:
            answer = handle(Message(message.fields["request"], message.arrays), lambda value: say({"progress": value}))
            say({"answer": answer.fields}, answer.arrays)
        except UserError as error:
            say({"refused": str(error)})
        except Exception as error:
            say({"failed": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})


def _write(stream: IO[bytes], fields: Mapping[str, Any], arrays: Arrays | None = None) -> None:
    data = pack_arrays(arrays) if arrays else b""
    stream.write(json.dumps({"bytes": len(data), **fields}).encode() + b"\n")
    stream.write(data)
    stream.flush()


def _read(stream: IO[bytes]) -> Message | None:
    """The next message; None at the end of the stream, also where a message was cut short."""
    line = stream.readline()
    if not line.endswith(b"\n"):
        return None
    fields: dict[str, Any] = json.loads(line)
    data = stream.read(fields["bytes"])
    if len(data) < fields["bytes"]:
        return None
    return Message(fields, unpack_arrays(data) if data else {})
