"""Runs a bench: cell by cell, whatever is left to do, with the final episodes of one beside the training of the next.

A cell's training is a run like any other, in `runs/` of the results folder, and is resumed like any other. Cells of one
method on data of equal shape may train together, in one program. A cell's file appears in `cells/` when its training is
over and is completed by the final evaluation, which needs only the policies.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbac import files, interrupts
from sbac.bench.code import code_version
from sbac.bench.final import Say, finish, is_final, say_at_once
from sbac.bench.plan import Cell, Protocol
from sbac.config import RETIRED, fields_of
from sbac.errors import InUseError, UserError
from sbac.evaluation.worker import Pool
from sbac.results.cells import (
    Record,
    cell_path,
    describe,
    machine,
    now,
    read_cell,
    stem,
    write_cell,
)

if TYPE_CHECKING:
    from sbac.data import Dataset
    from sbac.runs import Run

DONE, TRAINED, STARTED, TO_DO, FAILED, IN_USE = "done", "trained", "started", "to do", "failed", "in use"


@dataclass
class Bench:
    """A plan, the folder its results go to, and where each cell stands."""

    cells: Sequence[Cell]
    results: Path
    protocol: Protocol = field(default_factory=Protocol)
    workers: int | None = None
    any_code: bool = False
    """Whether cells that another version of the code has finished count as done."""
    together: int | None = None
    """How many cells of a method may train in one program; None: one on a CPU, as many as fit on anything else."""
    say: Say = say_at_once
    failures: dict[Cell, str] = field(default_factory=dict[Cell, str])
    _states: dict[Cell, str] = field(init=False, default_factory=dict[Cell, str])
    _seconds: list[float] = field(init=False, default_factory=list[float])
    _data: "tuple[str, Dataset] | None" = field(init=False, default=None)

    def run(self, evaluate: bool = True) -> None:
        """Trains and measures what is missing. A cell that cannot be run is told of, and the others go on.

        A cell that another process trains at this moment is left to it.
        """
        with ThreadPoolExecutor(1) as background, Pool(self.workers) as pool:
            try:
                self._run(evaluate, background, pool)
            except BaseException:
                background.shutdown(wait=False, cancel_futures=True)
                raise

    def _run(self, evaluate: bool, background: ThreadPoolExecutor, pool: Pool) -> None:
        waiting: list[tuple[Cell, Future[Record]]] = []
        seen: set[Cell] = set()
        for cell in self.cells:
            if cell in seen:  # trained together with one before it
                continue
            for trained, record in self._trained(cell):
                seen.add(trained)
                final = is_final(record, self.protocol)
                self._states[trained] = DONE if final else TRAINED
                if evaluate and not final:
                    waiting.append((trained, background.submit(finish, record, self.results, self.protocol, pool)))
            waiting = self._collect(waiting)
        while waiting:
            interrupts.check()
            waiting[0][1].exception()
            waiting = self._collect(waiting)

    def _tell(self, cell: Cell, error: UserError) -> None:
        if isinstance(error, InUseError):
            self._states[cell] = IN_USE
        else:
            self._states[cell] = FAILED
            self.failures[cell] = str(error)
        self.say(f"{cell.name}: {error}")

    def _collect(self, waiting: list[tuple[Cell, "Future[Record]"]]) -> list[tuple[Cell, "Future[Record]"]]:
        """Tells of the final evaluations that are over; returns the others."""
        for cell, answer in waiting:
            if not answer.done():
                continue
            error = answer.exception()
            if isinstance(error, UserError):
                self._tell(cell, error)
            elif error is not None:
                raise error
            else:
                self._states[cell] = DONE
                self.say(f"{cell.name}: {self.protocol.final_episodes} episodes of each policy played")
        return [(cell, answer) for cell, answer in waiting if not answer.done()]

    def _trained(self, cell: Cell) -> list[tuple[Cell, Record]]:
        """The cell's record, after training if there is none yet, and those of the cells that trained with it."""
        try:
            data = self._load(cell)
            found = self._finished(cell, data, self._key(cell, data)[1])
            if found is not None:
                return [(cell, found)]
            group = [(cell, data)] if data is None else [(cell, data), *self._company(cell, data)]
        except UserError as error:
            self._tell(cell, error)
            return []
        return self._train_or_tell(group)

    def _train_or_tell(self, group: "Sequence[tuple[Cell, Dataset | None]]") -> list[tuple[Cell, Record]]:
        try:
            return self._train(group)
        except UserError as error:
            if len(group) == 1:
                self._tell(group[0][0], error)
                return []
        # One by one it will show which of them it was.
        return [record for member in group for record in self._train_or_tell([member])]

    def _company(self, cell: Cell, data: "Dataset") -> "list[tuple[Cell, Dataset]]":
        """Later cells of the same method and settings that lack a record and whose data have the same shape."""
        company: list[tuple[Cell, Dataset]] = []
        for other in self.cells[self.cells.index(cell) + 1 :]:
            if len(company) + 1 >= self._at_once():
                break
            if other in self._states or method_of(other) != method_of(cell):
                continue
            try:
                found = self._load(other)
            except UserError:
                continue  # it will be told of when its turn comes
            assert found is not None
            if self._finished(other, found, self._key(other, found)[1]) is None and widths(found) == widths(data):
                company.append((other, found))
        return company

    def _at_once(self) -> int:
        if self.together is not None:
            return self.together
        import jax

        return 1 if jax.default_backend() == "cpu" else len(self.cells)

    def _train(self, group: "Sequence[tuple[Cell, Dataset | None]]") -> list[tuple[Cell, Record]]:
        """Trains cells of one method, together, and writes their files."""
        keys = [self._key(cell, data)[0] for cell, data in group]
        folders = [self._folder(cell, data, key) for (cell, data), key in zip(group, keys, strict=True)]
        first, data = group[0]
        resumed = any(folder.exists() for folder in folders) and not first.online
        names = " + ".join([first.name, *(cell.data for cell, _ in group[1:])])
        count = " + ".join(f"{n:,}" for n in steps_of(first, data))
        number = f"[{self.cells.index(first) + 1}/{len(self.cells)}]"
        self.say(f"{number} {names}: {count} steps{', resumed' if resumed else ''}{self._left()}")
        began = time.monotonic()
        runs = self._runs(group, folders)
        seconds = (time.monotonic() - began) / len(group)
        self._seconds += [seconds] * len(group)
        records: list[Record] = []
        for (cell, data), key, folder, run in zip(group, keys, folders, runs, strict=True):
            measured = describe(run, data)
            measured["data"]["identity"] = data_identity(cell, data)
            record = {
                "key": key,
                **measured,
                "length": None if cell.length is None else list(cell.length),
                "settings": dict(cell.settings),
                "protocol": asdict(self.protocol),
                "code": code_version(cell.algorithm),
                "machine": machine(),
                "date": now(),
                "seconds": None if resumed else round(seconds, 1),
                "together": len(group),
                "final": [],
            }
            write_cell(self.results, record)
            if run.diverged:
                self.say(f"{cell.name}: diverged, no longer numbers: {', '.join(run.diverged)}")
            files.remove(folder / "checkpoint")  # the policies stay
            records.append(record)
        return [(cell, record) for (cell, _), record in zip(group, records, strict=True)]

    def _runs(self, group: "Sequence[tuple[Cell, Dataset | None]]", folders: Sequence[Path]) -> "list[Run]":
        from sbac.training.launch import Launch
        from sbac.training.loop import train_launches
        from sbac.training.online.request import OnlineRequest
        from sbac.training.online.train import train_in_environment
        from sbac.training.request import OfflineRequest

        cell, data = group[0]
        if data is None:
            assert cell.environment is not None
            schedule = self.protocol.schedule(steps_of(cell, None)[-1])
            request = OnlineRequest(
                environment=cell.environment,
                algorithm=cell.algorithm,
                folder=folders[0],
                seeds=cell.seeds,
                preset=cell.preset,
                steps=cell.length,
                options=cell.settings,
                episodes=self.protocol.episodes,
                evaluation_seed=self.protocol.seed,
                evaluate_every=schedule[-1] - schedule[-2] if len(schedule) > 1 else None,
                overwrite=True,
            )
            return [train_in_environment(request, workers=self.workers)]
        for cell, data in group:
            assert data is not None
            if data.task is None and cell.environment is None:
                raise UserError("no environment is known for this data; name one with --env")
        with ExitStack() as stack:
            launches: list[Launch] = []
            for (cell, data), folder in zip(group, folders, strict=True):
                assert data is not None
                request = OfflineRequest(
                    data=data,
                    algorithm=cell.algorithm,
                    folder=folder,
                    seeds=cell.seeds,
                    preset=cell.preset,
                    steps=cell.length,
                    options=cell.settings,
                    environment=cell.environment,
                    episodes=self.protocol.episodes,
                    evaluation_seed=self.protocol.seed,
                    evaluate_at=self.protocol.schedule(steps_of(cell, data)[-1]),
                    resume=True,
                )
                launches.append(Launch.open(request))
                stack.callback(launches[-1].opened.close)
            return train_launches(launches, workers=self.workers)

    def _left(self) -> str:
        """How long the rest may take, if it takes as long as what this bench has trained so far."""
        if not self._seconds:
            return ""
        rest = len(self.cells) - len(self._states)
        return f", about {rest * sum(self._seconds) / len(self._seconds) / 60:.0f} min left"

    def _load(self, cell: Cell) -> "Dataset | None":
        """Cells come task by task, so the dataset last used is kept."""
        from sbac.data import load

        if cell.online:
            return None
        if self._data is None or self._data[0] != cell.data:
            self._data = (cell.data, load(cell.data))
        return self._data[1]

    def _key(self, cell: Cell, data: "Dataset | None") -> tuple[str, Path]:
        task = None if data is None else data.task
        key = cell.key(task, data_identity(cell, data), self.protocol, code_version(cell.algorithm))
        about = {"data": {"name": _data_name(cell, data)}, "algorithm": cell.algorithm, "key": key}
        return key, cell_path(self.results, about)

    def _folder(self, cell: Cell, data: "Dataset | None", key: str) -> Path:
        return self.results / "runs" / stem(_data_name(cell, data), cell.algorithm, key)

    def _finished(self, cell: Cell, data: "Dataset | None", path: Path) -> Record | None:
        if path.exists():
            return read_cell(path)
        if not self.any_code:
            return None
        runs = cell.runs(None if data is None else data.task)
        defaults = {name: f.default for name, f in fields_of(type(runs[0].config)).items()}
        wanted = _as_json([run.record() for run in runs])
        identity = data_identity(cell, data)
        for other in sorted(path.parent.glob("*.json"), reverse=True):
            record = read_cell(other)
            same = record["data"]["identity"] == identity and record["algorithm"] == cell.algorithm
            # Options that the other version did not have yet stood where they stand by default.
            recorded = {name: value for name, value in record["config"].items() if name not in RETIRED}
            known = {name: _as_json(defaults[name]) for name in wanted[0] if name in defaults} | recorded
            if same and [{**known, **run} for run in record["runs"]] == wanted:
                return record
        return None

    # --- Where it stands ----------------------------------------------------------------------------------------

    def state(self, cell: Cell) -> str:
        """done, trained (its final episodes are missing), started, to do, failed, or in use by another process."""
        known = self._states.get(cell)
        if known not in (None, IN_USE):  # the other process may be through by now
            return known
        try:
            data = self._load(cell)
        except UserError as error:
            self.failures[cell] = str(error)
            return FAILED
        key, path = self._key(cell, data)
        record = self._finished(cell, data, path)
        if record is None:
            return known or (STARTED if self._folder(cell, data, key).exists() else TO_DO)
        return DONE if is_final(record, self.protocol) else TRAINED

    def view(self) -> str:
        """The whole grid, tasks by methods."""
        tasks = list(dict.fromkeys(cell.data for cell in self.cells))
        methods = list(dict.fromkeys(_label(cell) for cell in self.cells))
        states = {(cell.data, _label(cell)): self.state(cell) for cell in self.cells}
        rows = [["", *methods], *([task, *(states.get((task, method), "") for method in methods)] for task in tasks)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        done = sum(state == DONE for state in states.values())
        return "\n".join([*lines, f"{done} of {len(states)} cells done"])


def method_of(cell: Cell) -> tuple[Any, ...]:
    """What cells must agree in to train together; their datasets may differ."""
    return cell.algorithm, cell.preset, cell.seeds, cell.length, _as_json(dict(cell.settings))


def steps_of(cell: Cell, data: "Dataset | None") -> tuple[int, ...]:
    """Of every phase; where no length was asked for they may be published ones of the task."""
    return cell.runs(None if data is None else data.task)[0].config.steps


def widths(data: "Dataset") -> tuple[int, int]:
    return data.observations.shape[1], data.actions.shape[1]


def _label(cell: Cell) -> str:
    return f"{cell.algorithm}@{cell.preset}"


def data_identity(cell: Cell, data: "Dataset | None") -> str:
    """The hash of the transitions; of made data, whose bits may differ between processors, what it was made from."""
    from sbac.data.loading import locate
    from sbac.making.making import made_identity

    if data is None:
        return cell.data
    made = made_identity(locate(cell.data).path) if data.kind == "made" else None
    return data.hash if made is None else str(made)


def _data_name(cell: Cell, data: "Dataset | None") -> str:
    return cell.data if data is None else data.name


def _as_json(value: Any) -> Any:
    import json

    return json.loads(json.dumps(value))
