"""What training writes into a run's folder: rows of metrics, snapshots, checkpoints and policies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sbac import files
from sbac.algorithms.base import Actor
from sbac.callbacks import Row
from sbac.policy import Floats, Policy
from sbac.records import as_json
from sbac.runs import Failure, MetricRow, Place, metric_json, policy_file
from sbac.training.checkpoint import Arrays, Position, write_state
from sbac.training.engine import Program
from sbac.training.evaluations import snapshot_name
from sbac.training.grid import Member
from sbac.training.health import Moment
from sbac.training.open_run import Group
from sbac.training.table import Scaling


@dataclass(frozen=True)
class Slot:
    """A group's runs among all the runs of a program: those that learn from this dataset of the program's."""

    program: Program
    dataset: int

    def rows(self, phase: int) -> slice:
        """Which of the program's runs in a phase are the group's: they lie side by side."""
        numbers = [i for i, member in enumerate(self.program.members(phase)) if member.dataset == self.dataset]
        return slice(numbers[0], numbers[-1] + 1)

    def members(self, phase: int) -> list[Member]:
        return self.program.members(phase)[self.rows(phase)]


class Writer:
    """Writes what one group of runs leaves behind.

    The arrays that it is given have an axis for all the runs of the program; it writes those of its slot.
    """

    def __init__(self, group: Group, slot: Slot, scaling: Scaling) -> None:
        self._group, self._slot, self._scaling = group, slot, scaling
        self._request, self._folder = group.open_run.request, group.open_run.folder
        self.phases = self._request.method.phases
        self._failed = dict(group.checkpoint.failed)

    def log(self, phase: int, step: int, metrics: Arrays) -> None:
        """Appends to metrics.jsonl; writes the evaluations that are finished."""
        columns = {name: column[self._slot.rows(phase)] for name, column in metrics.items()}
        rows = append_metrics(self._folder, self._places(phase, step), columns)
        self._group.open_run.callbacks.on_metrics(rows)
        if self._group.evaluations is not None:
            self._group.evaluations.collect()

    def snapshot(self, phase: int, step: int, actors: Actor) -> None:
        if self._group.evaluations is not None:
            name = snapshot_name(self._group.number, phase, self.phases[phase].name, step)
            self._group.evaluations.submit(name, self._policies(phase, actors), self._places(phase, step))

    def save(self, at: Position, states: Mapping[str, Arrays]) -> None:
        """Replaces the checkpoint. `states`: the arrays of the phases so far."""
        arrays: dict[str, Arrays] = {}
        for number, phase in enumerate(self.phases):
            if phase.name in states:
                rows = self._slot.rows(number)
                arrays[phase.name] = {leaf: value[rows] for leaf, value in states[phase.name].items()}
        write_state(self._group.checkpoint.path, at, arrays, self._failed)
        self._group.open_run.opened.begun()

    def fail(self, run: Member, phase: int, step: int, kept: Moment) -> None:
        """Notes that one of the group's runs has failed. It keeps its policy of an earlier moment, now on the host."""
        row = self._slot.program.distinct[kept.phase][self._slot.program.runs.index(run)]
        names = self.phases[phase].name, self.phases[kept.phase].name
        failure = Failure(names[0], step, names[1], kept.step)
        config = {**self._policy_config(run), "failed": as_json(failure)}
        self._failed[run.label] = self._policy(kept.actors, row, config)

    def finish(self, actors: Actor, states: Mapping[str, Arrays]) -> None:
        """Writes the policies, then the checkpoint that says the group is done."""
        for path, policy in self._last_policies(actors):
            policy.save(path)
        self.save(Position(len(self.phases), 0), states)

    def complete(self, actors: Actor) -> None:
        """Writes the policies of a group that is done whose files are missing."""
        for path, policy in self._last_policies(actors):
            if not path.exists():
                policy.save(path)

    def _last_policies(self, actors: Actor) -> Iterator[tuple[Path, Policy]]:
        """The policy of each run and its file: the last one, or the last good one of a run that failed."""
        program = self._slot.program
        for run, row in zip(program.runs, program.distinct[-1], strict=True):
            if run.dataset == self._slot.dataset:
                policy = self._failed.get(run.label) or self._policy(actors, row, self._policy_config(run))
                yield policy_file(self._folder, run.label), policy

    def _places(self, phase: int, step: int) -> list[Place]:
        """The place of each distinct run; a setting is None where the phase does not read it."""
        read = self._slot.program.distinguishing(phase)
        if phase < len(self._group.followed):
            read -= self._group.followed[phase]
        return [
            Place(
                algorithm=self._request.algorithm,
                seed=member.seed,
                setting={name: value if name in read else None for name, value in member.grid.items()},
                phase=self.phases[phase].name,
                step=step,
                group=self._group.number,
            )
            for member in self._slot.members(phase)
        ]

    def _policies(self, phase: int, actors: Actor) -> list[Policy]:
        rows = self._slot.rows(phase)
        return [
            self._policy(actors, row, self._policy_config(member))
            for row, member in zip(range(rows.start, rows.stop), self._slot.members(phase), strict=True)
        ]

    def _policy(self, actors: Actor, row: int, config: Mapping[str, object]) -> Policy:
        return Policy(actors.kind, {**self._scaling.arrays(), **actor_arrays(actors, row)}, config)

    def _policy_config(self, run: Member) -> dict[str, object]:
        data = self._request.dataset
        return policy_config(run, self._request.algorithm, data.task) | {"columns": data.columns}


def append_metrics(folder: Path, places: Sequence[Place], metrics: Arrays) -> list[Row]:
    """Adds a row for each place to metrics.jsonl; every metric has an entry for each. Returns what it added."""
    names = sorted(metrics)
    rows = [
        MetricRow(place, {name: _finite(float(metrics[name][i])) for name in names}) for i, place in enumerate(places)
    ]
    added: list[Row] = [metric_json(row) for row in rows]
    files.append_rows(folder / "metrics.jsonl", added)
    return added


def actor_arrays(actors: Actor, row: int) -> dict[str, Floats]:
    """The arrays of one of the policies that left the device together."""
    arrays: dict[str, Floats] = {name: np.asarray(value[row]) for name, value in actors.constants.items()}
    for name, net in actors.networks.items():
        arrays |= {f"{name}/weights/{i}": np.asarray(w[row]) for i, w in enumerate(net.weights)}
        arrays |= {f"{name}/biases/{i}": np.asarray(b[row]) for i, b in enumerate(net.biases)}
        if net.normalise:
            arrays[f"{name}/normalise"] = np.ones((), np.float32)
    return arrays


def policy_config(run: Member, algorithm: str, task: str | None) -> dict[str, object]:
    return {"algorithm": algorithm, "task": task, "label": run.label, "grid": list(run.grid), **run.record()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
