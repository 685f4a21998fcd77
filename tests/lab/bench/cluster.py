"""What the tests of a bench share: small logs, small cells, and a cluster that is this process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.small import make_log

from sbac.lab.bench.bench import Bench
from sbac.lab.bench.finding import CellFinder
from sbac.lab.bench.node import run_task
from sbac.lab.bench.plan import Cell, plan
from sbac.lab.bench.ray_cluster import Lost, RayCluster
from sbac.lab.bench.status import Status
from sbac.lab.protocol import Protocol

PROTOCOL = Protocol(episodes=1, final_episodes=2)
SMALL = {"batch_size": 8, "hidden": [8]}


class InProcess(RayCluster):
    """A cluster of one node, this process, which loses the tasks that it is told to."""

    def __init__(self, lost: Sequence[int] = (), gpus: int = 0) -> None:
        self.has_accelerators, self.devices = gpus > 0, max(gpus, 1)
        self.lost, self.sent, self.stored = set(lost), list[tuple[bytes, Sequence[Any]]](), list[bytes]()

    def store(self, data: bytes) -> int:
        self.stored.append(data)
        return len(self.stored) - 1

    def send(self, task: bytes, stored: Sequence[Any]) -> int:
        self.sent.append((task, stored))
        return len(self.sent) - 1

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Any]:
        return list(tickets[-1:])  # answers come in any order

    def answer(self, ticket: Any) -> bytes:
        if ticket in self.lost:
            raise Lost("NodeDied")
        task, stored = self.sent[ticket]
        return run_task(task, *(self.stored[i] for i in stored))


def save_log(path: Path, rows: int = 600, episode: int = 50, **options: Any) -> str:
    make_log(rows, episode, **options).save(path)
    return str(path)


def small_cells(logs: Sequence[str], algorithm: str = "bc", **changes: Any) -> list[Cell]:
    """Each trains in a moment, and is evaluated in Pendulum."""
    options: dict[str, Any] = {"seeds": 1, "length": [20], "environment": "Pendulum-v1"}
    return plan(logs, [algorithm], **{**options, "grids": {algorithm: SMALL}, **changes})


def make_bench(cells: Sequence[Cell], results: Path, **options: Any) -> Bench:
    finder = CellFinder(results, PROTOCOL)
    return Bench(cells, finder, **{"workers": 1, "say": lambda line: None, **options})


def status_of(bench: Bench) -> Status:
    """Where its cells stand, by what lies in the results folder."""
    return Status(bench.cells, bench.finder)
