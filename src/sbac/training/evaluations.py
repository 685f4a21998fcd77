"""Evaluations during training: snapshots that wait on disk, workers that answer, rows in a fixed order.

A snapshot is a folder of policies, written before training goes on. Its rows are appended to evaluations.jsonl
when all its answers are in and those of every earlier snapshot are written, so that the file of an interrupted and
resumed run equals that of an unbroken one. Then the snapshot is removed.
"""

import dataclasses
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbac import files, interrupts
from sbac.environments.opening import EnvSource
from sbac.evaluation.rollout import Evaluator
from sbac.evaluation.worker import Pool
from sbac.policy import Policy


@dataclass(frozen=True)
class Snapshot:
    """Policies that wait for their episodes, and what their rows will say beside the returns."""

    folder: Path
    rows: list[dict[str, Any]]
    answers: "list[Future[dict[str, Any]]]"


class Evaluations:
    """Takes snapshots, has them evaluated and keeps evaluations.jsonl."""

    def __init__(self, folder: Path, environment: EnvSource, episodes: int, seed: int, pool: Pool | None) -> None:
        """`pool` plays in environments known by name; one that is a function is stepped here, in a thread."""
        self._path = folder / "evaluations.jsonl"
        self._pending = folder / "checkpoint" / "pending"
        self._environment, self._episodes, self._seed = environment, episodes, seed
        self._waiting: deque[Snapshot] = deque()
        self.latest: dict[str, float] = {}
        self._pool = pool
        self._local = ThreadPoolExecutor(1) if callable(environment) else None
        self._evaluator = Evaluator(environment) if callable(environment) else None

    def submit(self, name: str, policies: Sequence[Policy], rows: list[dict[str, Any]]) -> None:
        """Puts the policies on disk, then asks for their evaluation."""
        folder = self._pending / name
        building = folder.with_name(name + ".tmp")
        files.remove(building)
        building.mkdir(parents=True)
        for i, policy in enumerate(policies):
            policy.save(building / f"{i}.safetensors")
        files.write_json(building / "rows.json", rows)
        files.remove(folder)
        building.rename(folder)
        self._start(folder, rows)

    def resubmit(self, keep: "set[str]") -> None:
        """After a restart: the snapshots on disk that are in `keep` are evaluated, the others dropped."""
        found = sorted(self._pending.glob("*"))
        for folder in found:
            if folder.name not in keep:
                files.remove(folder)
        for folder in found:
            if folder.name in keep:
                self._start(folder, files.read_json(folder / "rows.json"))

    def _start(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        answers = [self._ask(folder / f"{i}.safetensors") for i in range(len(rows))]
        self._waiting.append(Snapshot(folder, rows, answers))

    def _ask(self, policy: Path) -> "Future[dict[str, Any]]":
        if self._local is None:
            assert self._pool is not None and isinstance(self._environment, str)
            return self._pool.submit(policy, self._environment, self._episodes, self._seed)

        def work() -> dict[str, Any]:
            assert self._evaluator is not None
            return dataclasses.asdict(self._evaluator(Policy.load(policy), self._episodes, self._seed))

        return self._local.submit(work)

    def collect(self, wait: bool = False) -> None:
        """Writes the rows of snapshots whose answers are in; with `wait`, of all of them."""
        while self._waiting and (wait or all(a.done() for a in self._waiting[0].answers)):
            interrupts.check()
            snapshot = self._waiting.popleft()
            rows = [row | answer.result() for row, answer in zip(snapshot.rows, snapshot.answers, strict=True)]
            files.append_rows(self._path, rows)
            files.remove(snapshot.folder)
            measured = [row["scores"] or row["returns"] for row in rows]
            self.latest = {"score" if rows[0]["scores"] else "return": sum(map(_mean, measured)) / len(measured)}

    def close(self) -> None:
        """What still waits stays on disk."""
        if self._local is not None:
            self._local.shutdown(cancel_futures=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
