"""Shards of made data: a fixed share of the lanes, played by a worker process from its own seed.

A worker is started as `python -m sbac.making.shards`, reads one JSON request a line, answers with lines that tell how
many steps are done, and leaves the rows in an npz file. How many workers there are does not change any row.
"""

import contextlib
import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbac.environments.lanes import Act, Indices, Lanes, Steps, acting, open_lanes, uniform
from sbac.making.ladder import read_ladders
from sbac.workers import kill, start

Columns = dict[str, NDArray[Any]]
Played = tuple[Columns, float]
"""Rows, and the processor's seconds they took."""
TICK = 200
"""Rounds between two lines of progress."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """What a worker is asked for.

    stages: the rung that acts (None: uniform actions) and the steps every lane takes with it, one after the other
    whole: the episodes under way at the end are finished; otherwise they are cut there as by a time limit
    """

    ladder: str
    stages: Sequence[tuple[int | None, int]]
    whole: bool
    lanes: int
    seed: Sequence[int]

    @property
    def steps(self) -> int:
        """The least number of rows."""
        return self.lanes * sum(rounds for _, rounds in self.stages)


def roll(lanes: Lanes, stages: Sequence[tuple[Act, int]], whole: bool, tick: Callable[[int], None]) -> Columns:
    """The rows of all lanes, one lane after the other."""
    taken: list[tuple[Indices, Steps]] = []
    done = 0

    def step(act: Act, which: Indices) -> None:
        nonlocal done
        taken.append((which, lanes.step(act(lanes.observations[which]), which)))
        done += len(which)
        if len(taken) % TICK == 0:
            tick(done)

    for act, rounds in stages:
        for _ in range(rounds):
            step(act, lanes.everyone)
    if whole:
        act, _ = stages[-1]
        while len(running := lanes.everyone[lanes.ages > 0]):
            step(act, running)
    return by_lane(taken)


def by_lane(taken: Sequence[tuple[Indices, Steps]]) -> Columns:
    """Rows in the order of their lanes. A lane that stops within an episode is cut there as by a time limit."""
    lane = np.concatenate([which for which, _ in taken])
    order = np.argsort(lane, kind="stable")
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    columns = {name: np.concatenate([getattr(steps, name) for _, steps in taken])[order] for name in names}
    columns["terminals"] &= ~columns["timeouts"]  # D4RL: the time limit has priority
    last = np.append(np.diff(lane[order]) > 0, True)
    columns["timeouts"] |= last & ~columns["terminals"]
    return columns


def make_shard(shard: Shard, tick: Callable[[int], None] = lambda done: None) -> Columns:
    """Plays a shard in this process."""
    ladder = read_ladders(shard.ladder)[0]
    rng = np.random.default_rng(shard.seed)
    lanes = open_lanes(ladder.environment, shard.lanes, shard.seed)
    acts = [
        uniform(lanes.actions, rng) if rung is None else acting(ladder.kind, ladder.rungs[rung].policy(), rng)
        for rung, _ in shard.stages
    ]
    return roll(lanes, [(act, rounds) for act, (_, rounds) in zip(acts, shard.stages, strict=True)], shard.whole, tick)


class Pool:
    """Workers fed from one queue; `tick` hears of every few steps done."""

    def __init__(self, workers: int, folder: Path, tick: Callable[[int], None]) -> None:
        # Not a Queue: Ctrl-C in the middle of its put leaves it locked, and closing would wait for ever.
        self._queue: queue.SimpleQueue[tuple[Shard, Path, Future[Played]] | None] = queue.SimpleQueue()
        self._folder, self._tick, self._count = folder, tick, 0
        self._processes = [start("sbac.making.shards") for _ in range(workers)]
        for process in self._processes:
            threading.Thread(target=self._serve, args=(process,), daemon=True).start()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            self._queue.put(None)
            kill(process)
            # Closes its pipes and waits; what its thread was still sending, nobody reads.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def submit(self, shard: Shard) -> "Future[Played]":
        """Asks for a shard."""
        answer: Future[Played] = Future()
        self._count += 1
        self._queue.put((shard, self._folder / f"shard-{self._count}.npz", answer))
        return answer

    def _serve(self, process: "subprocess.Popen[str]") -> None:
        while (item := self._queue.get()) is not None:
            shard, path, answer = item
            try:
                seconds = self._ask(process, shard, path)
                with np.load(path, allow_pickle=False) as file:
                    columns = {name: file[name] for name in file.files}
                path.unlink()  # before the answer: who has it may remove the folder
                answer.set_result((columns, seconds))
            except Exception as error:  # whatever it was, the one who waits for the answer must hear of it
                answer.set_exception(error)

    def _ask(self, process: "subprocess.Popen[str]", shard: Shard, path: Path) -> float:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"shard": dataclasses.asdict(shard), "path": str(path)}) + "\n")
        process.stdin.flush()
        done = 0
        while line := process.stdout.readline():
            answer = json.loads(line)
            if "seconds" in answer:
                self._tick(shard.steps - done)
                return answer["seconds"]
            self._tick(min(answer["done"], shard.steps) - done)
            done = min(answer["done"], shard.steps)
        raise RuntimeError(f"a worker ended with exit code {process.wait()}")


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever an environment prints must not mix with the answers

    def say(answer: dict[str, float]) -> None:
        print(json.dumps(answer), file=out, flush=True)

    for line in sys.stdin:
        request = json.loads(line)
        began = time.process_time()
        columns = make_shard(Shard(**request["shard"]), lambda done: say({"done": done}))
        np.savez(request["path"], allow_pickle=False, **columns)
        say({"seconds": time.process_time() - began})


if __name__ == "__main__":
    main()
