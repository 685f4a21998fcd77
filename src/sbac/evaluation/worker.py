"""Evaluation beside training: worker processes that read policy files and answer with returns.

A worker is started as `python -m sbac.evaluation.worker`, reads one JSON request a line and answers one JSON line.
It is a fresh interpreter, so the user's script needs no __main__ guard, and it never loads JAX.
"""

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from sbac import workers
from sbac.errors import UserError, positive


class Pool:
    """A few workers fed from one queue."""

    def __init__(self, workers: int | None = None, expected: int | None = None) -> None:
        """None: one for each core, or for each of the `expected` policies if they are fewer."""
        positive("workers", workers)
        self._abandoned = False
        self._processes: set[subprocess.Popen[str]] = set()
        cores = os.cpu_count() or 1
        count = workers or (cores if expected is None else max(1, min(cores, expected)))
        # Not a Queue: Ctrl-C in the middle of its put leaves it locked, and closing would wait for ever.
        self._queue: queue.SimpleQueue[tuple[dict[str, Any], Future[dict[str, Any]]] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        """Waits for what was asked for; after an error, or Ctrl-C, nobody does."""
        if error is not None:
            self._abandoned = True
            self._cancel()
            for process in list(self._processes):
                workers.kill(process)
            # An answer that Ctrl-C left locked, in the middle of being asked whether it is there, holds up its thread.
            self.close(patience=5.0)
            self._cancel()  # what another thread has asked for in the meantime
        else:
            self.close()

    def submit(self, policy: Path, environment: str, episodes: int, seed: int) -> "Future[dict[str, Any]]":
        """Asks for an evaluation; the answer has `returns`, `lengths` and `scores`."""
        answer: Future[dict[str, Any]] = Future()
        request = {"policy": str(policy), "environment": environment, "episodes": episodes, "seed": seed}
        if self._abandoned:
            answer.cancel()
        else:
            self._queue.put((request, answer))
        return answer

    def close(self, patience: float | None = None) -> None:
        """Ends the workers once the queue is empty; `patience`: the most seconds to wait for one of them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(patience)

    def _cancel(self) -> None:
        """Takes back what no worker has begun with, so that a thread that waits for an answer goes on."""
        with contextlib.suppress(queue.Empty):
            while True:
                if (item := self._queue.get_nowait()) is not None:
                    item[1].cancel()

    def _serve(self) -> None:
        process: subprocess.Popen[str] | None = None
        while (item := self._queue.get()) is not None:
            request, answer = item
            try:
                if process is None or process.poll() is not None:
                    process = workers.start("sbac.evaluation.worker")
                    self._processes.add(process)
                    if self._abandoned:
                        workers.kill(process)
                answer.set_result(_ask(process, request))
            except Exception as error:  # whatever it was, the one who waits for the answer must hear of it
                answer.set_exception(error)
        if process is not None:
            with process:  # closes its pipes, which ends it, and waits
                pass


def _ask(process: "subprocess.Popen[str]", request: Mapping[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"an evaluation worker ended with exit code {process.wait()}")
    answer = json.loads(line)
    if "error" in answer:
        raise UserError(answer["error"])
    return answer


def main() -> None:
    from sbac.evaluation.rollout import Evaluator
    from sbac.policy import Policy

    os.nice(5)  # training comes first
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an environment prints must not mix with the answers
    evaluators: dict[str, Evaluator] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            name = request["environment"]
            evaluator = evaluators.setdefault(name, Evaluator(name))
            result = evaluator(Policy.load(request["policy"]), request["episodes"], request["seed"])
            answer: dict[str, Any] = dataclasses.asdict(result)
        except UserError as error:
            answer = {"error": str(error)}
        except Exception as error:  # of the environment, most likely
            answer = {"error": f"{request['environment']}: {type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
