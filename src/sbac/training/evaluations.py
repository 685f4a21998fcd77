"""Evaluations during training: snapshots that wait on disk, workers that play, rows in a fixed order.

A snapshot is a folder of policies, written before training goes on. When all its episodes are played and the rows of
every earlier snapshot are written, its rows are appended to evaluations.jsonl and the snapshot is removed. So the file
of an interrupted and resumed run equals that of an unbroken one.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sbac import files
from sbac.callbacks import NO_CALLBACKS, Callback
from sbac.environments.opening import EnvSource
from sbac.errors import remedy
from sbac.evaluation.rollout import Evaluator
from sbac.evaluation.worker import Pool, play
from sbac.policy import Policy
from sbac.records import parse
from sbac.runs import (
    Episodes,
    EvaluationRow,
    Place,
    RunRecord,
    Watch,
    evaluation_json,
    parse_place,
    place_columns,
)

EVALUATIONS = 10
"""How many evaluations a phase has where nothing else is asked for."""
Answer = Future[dict[str, Any]]


class Latest(NamedTuple):
    """The mean over the policies of the newest snapshot: of their scores, or of their returns if there are none."""

    name: str
    value: float


@dataclass(frozen=True)
class SnapshotRows:
    """rows.json of a snapshot: for each policy the columns that say which run it is of, and when."""

    rows: list[Mapping[str, object]]


@dataclass(frozen=True)
class Snapshot:
    """Policies whose episodes are being played, and the places of their rows."""

    folder: Path
    places: Sequence[Place]
    answers: Sequence[Answer]


def interval(watch: Watch, steps: int) -> int:
    return watch.every or max(1, math.ceil(steps / EVALUATIONS))


def evaluation_steps(watch: Watch, steps: Sequence[int], phase: int) -> list[int]:
    """When policies are evaluated in a phase; `steps` has the length of each phase. Always at the phase's end."""
    end = steps[phase]
    if phase < len(steps) - 1:
        return [end]
    wanted = range(interval(watch, end), end, interval(watch, end)) if watch.at is None else watch.at
    return sorted({*(step for step in wanted if 0 < step < end), end})


def snapshot_name(group: int, number: int, phase: str, step: int) -> str:
    """Of the snapshot at a step of the phase with this number. Names sort in the order in which snapshots are taken."""
    return f"{group:03d}-{number}-{phase}-{step:010d}"


def note(latest: Iterable[Latest | None]) -> str:
    """The newest scores, over all folders, for the progress bar."""
    newest = [entry for entry in latest if entry is not None]
    if not newest:
        return ""
    name = newest[0].name
    return f"{name} {_mean([entry.value for entry in newest if entry.name == name]):.1f}"


class Evaluations:
    """Takes snapshots, has them evaluated and writes evaluations.jsonl."""

    def __init__(
        self,
        folder: Path,
        record: RunRecord,
        environment: EnvSource,
        pool: Pool | None,
        callbacks: Callback = NO_CALLBACKS,
    ) -> None:
        """`pool` plays in environments known by name; one that is a function is stepped here, in a thread."""
        self._path = folder / "evaluations.jsonl"
        self._pending = folder / "checkpoint" / "pending"
        self._record, self._watch, self._environment = record, record.evaluation, environment
        self._waiting: deque[Snapshot] = deque()
        self.latest: Latest | None = None
        self._pool, self._callbacks = pool, callbacks
        self._local = ThreadPoolExecutor(1) if callable(environment) else None
        self._evaluator = Evaluator(environment) if callable(environment) else None

    def submit(self, name: str, policies: Sequence[Policy], places: Sequence[Place]) -> None:
        folder = self._pending / name
        building = folder.with_name(name + ".tmp")
        files.remove(building)
        building.mkdir(parents=True)
        for i, policy in enumerate(policies):
            policy.save(building / f"{i}.safetensors")
        files.write_json(building / "rows.json", [place_columns(place) for place in places])
        files.remove(folder)
        building.rename(folder)
        self._start(folder, places)

    def pending(self, names: Collection[str]) -> dict[str, int]:
        """The snapshots on disk, of these names, and how many policies each has."""
        folders = [folder for folder in sorted(self._pending.glob("*")) if folder.name in names]
        return {folder.name: len(self._read_places(folder / "rows.json")) for folder in folders}

    def resubmit(self, names: Collection[str]) -> None:
        """After a restart: evaluates the snapshots on disk with these names, and removes the others."""
        for folder in sorted(self._pending.glob("*")):
            if folder.name in names:
                self._start(folder, self._read_places(folder / "rows.json"))
            else:
                files.remove(folder)

    def _read_places(self, path: Path) -> list[Place]:
        with remedy(f"remove {path.parent.name}, and it is left out of evaluations.jsonl"):
            rows = parse(SnapshotRows, {"rows": files.read_json(path)}, str(path)).rows
            return [parse_place(row, self._record.runs[0], f"{path}: rows[{i}]") for i, row in enumerate(rows)]

    def _start(self, folder: Path, places: Sequence[Place]) -> None:
        answers = [self._ask(folder / f"{i}.safetensors") for i in range(len(places))]
        self._waiting.append(Snapshot(folder, places, answers))

    def _ask(self, policy: Path) -> Answer:
        episodes, seed = self._watch.episodes, self._watch.seed
        if self._local is not None and self._evaluator is not None:
            return self._local.submit(play, self._evaluator, policy, episodes, seed)
        assert self._pool is not None and isinstance(self._environment, str)
        return self._pool.submit(policy, self._environment, episodes, seed)

    def collect(self, wait: bool = False) -> None:
        """Writes the rows of snapshots whose answers are in; with `wait`, of all of them."""
        while self._waiting and (wait or all(a.done() for a in self._waiting[0].answers)):
            snapshot = self._waiting.popleft()
            rows = [
                EvaluationRow(place, parse(Episodes, answer.result(), f"evaluation of {snapshot.folder}"))
                for place, answer in zip(snapshot.places, snapshot.answers, strict=True)
            ]
            added = [evaluation_json(row) for row in rows]
            finite = [{name: files.finite(value) for name, value in row.items()} for row in added]
            files.append_rows(self._path, finite)
            files.remove(snapshot.folder)
            self._callbacks.on_evaluation(added)
            measured = [_mean(row.episodes.scores or row.episodes.returns) for row in rows]
            self.latest = Latest("score" if rows[0].episodes.scores else "return", _mean(measured))

    def close(self) -> None:
        """Ends the thread, if there is one. Snapshots that still wait stay on disk."""
        if self._local is not None:
            self._local.shutdown(cancel_futures=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
