"""Shards of made data: a fixed share of the lanes, played by a worker process from its own seed.

How many workers there are does not change any row.
"""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from sbac.environments.lanes import Act, Indices, Lanes, Steps, acting, open_lanes, uniform
from sbac.files import Arrays
from sbac.making.ladder import read_ladders
from sbac.records import Json
from sbac.workers import Message, Progress, WorkerPool, serve

TICK = 200
"""Rounds between two lines of progress."""


@dataclasses.dataclass(frozen=True)
class Shard:
    """A request to a worker.

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


def roll(lanes: Lanes, stages: Sequence[tuple[Act, int]], whole: bool, tick: Callable[[int], None]) -> Arrays:
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
            step(act, lanes.all_lanes)
    if whole:
        act, _ = stages[-1]
        while len(running := lanes.all_lanes[lanes.ages > 0]):
            step(act, running)
    return by_lane(taken)


def by_lane(taken: Sequence[tuple[Indices, Steps]]) -> Arrays:
    """Rows in the order of their lanes. A lane that stops within an episode is cut there as by a time limit."""
    lane = np.concatenate([which for which, _ in taken])
    order = np.argsort(lane, kind="stable")
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    columns = {name: np.concatenate([getattr(steps, name) for _, steps in taken])[order] for name in names}
    after = np.concatenate([steps.next_observations for _, steps in taken])[order]
    columns["terminals"] &= ~columns["timeouts"]  # D4RL: the time limit has priority
    last = np.append(np.diff(lane[order]) > 0, True)
    columns["timeouts"] |= last & ~columns["terminals"]
    return columns | {"terminal_observations": after[columns["terminals"]]}


def make_shard(shard: Shard, tick: Callable[[int], None] = lambda done: None) -> Arrays:
    ladder = read_ladders(shard.ladder)[0]
    rng = np.random.default_rng(shard.seed)
    lanes = open_lanes(ladder.environment, shard.lanes, shard.seed)
    noise = float(ladder.about.get("exploration", 0.0))
    acts = [
        uniform(lanes.actions, rng) if rung is None else acting(ladder.kind, ladder.rungs[rung].policy(), rng, noise)
        for rung, _ in shard.stages
    ]
    return roll(lanes, [(act, rounds) for act, (_, rounds) in zip(acts, shard.stages, strict=True)], shard.whole, tick)


class ShardPool(WorkerPool[Arrays]):
    def __init__(self, workers: int, tick: Callable[[int], object] = lambda done: None) -> None:
        """`tick` is called every now and then with the number of steps that all workers have played."""
        super().__init__("sbac.making.shards", workers, read=lambda answer: answer.arrays)
        self._tick = tick
        self._done: list[int] = []

    def submit(self, shard: Shard) -> "Future[Arrays]":
        number = len(self._done)
        self._done.append(0)

        def progress(steps: Json) -> None:
            assert isinstance(steps, int)
            self._done[number] = min(steps, shard.steps)  # the steps that finish its last episodes do not count
            self._tick(sum(self._done))

        return self.ask(Message(dataclasses.asdict(shard)), progress=progress)


def answer_shard(request: Message, progress: Progress) -> Message:
    shard = Shard(**request.fields)
    columns = make_shard(shard, progress)
    progress(shard.steps)
    return Message({}, columns)


if __name__ == "__main__":
    serve(answer_shard)
