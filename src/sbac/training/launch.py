"""A launch: a run's folder, the groups of runs that train in it, and all that is written of them.

What is on disk at any moment can be resumed: a group's state file is replaced atomically and says how far it is;
rows and snapshots beyond it are cut when the run is taken up again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbac import files
from sbac.algorithms.base import Actor, Algorithm, AnyPhase
from sbac.data import Dataset
from sbac.environments.opening import EnvSource
from sbac.evaluation.worker import Pool
from sbac.policy import Policy
from sbac.runs import read_config
from sbac.training.engine import Program
from sbac.training.evaluations import Evaluations
from sbac.training.folder import OpenFolder
from sbac.training.grid import Member, groups, static_fields
from sbac.training.table import Scaling, Table, build_table
from sbac.training.trees import fill_tree

Tree = Any
Arrays = Mapping[str, np.ndarray]
EVALUATIONS = 10
SAMPLE_STATES = 1000


class Position(NamedTuple):
    """How far a group is: its phase and the steps done in it."""

    phase: int
    step: int


@dataclass
class Launch:
    """What was asked for, of one dataset, and the folder it goes to."""

    folder: Path
    record: dict[str, Any]
    algorithm: Algorithm
    runs: list[Member]
    data: Dataset
    environment: EnvSource | None
    opened: OpenFolder
    warm_start: Path | None = None
    warm_phases: Sequence[str] | None = None
    evaluations: Evaluations | None = field(init=False, default=None)

    def take_up(self, pool: Pool | None) -> "list[Part]":
        """The groups that are left to train. Cuts what lies beyond their checkpoints, and restarts the evaluations
        that were under way."""
        parts = [
            Part(self, group, [self.runs[i] for i in indices], self._position(group))
            for group, indices in enumerate(groups(self.runs))
        ]
        phases = [phase.name for phase in self.algorithm.phases]
        finished = all((self.folder / "policies" / f"{run.label}.safetensors").exists() for run in self.runs)
        if finished and not any(self.state_path(part.group).exists() for part in parts):
            return []  # its checkpoint was removed

        def within(row: Mapping[str, Any]) -> bool:
            return (phases.index(row["phase"]), row["step"]) <= parts[row["group"]].at

        for name in ("metrics.jsonl", "evaluations.jsonl"):
            path = self.folder / name
            if path.exists():
                files.rewrite_rows(path, [row for row in files.read_rows(path) if within(row)])
        if self.environment is not None:
            settings = self.record["evaluation"]
            self.evaluations = Evaluations(self.folder, self.environment, settings["episodes"], settings["seed"], pool)
            written = {self.snapshot_name(row) for row in files.read_rows(self.folder / "evaluations.jsonl")}
            places = [
                {"group": part.group, "phase": name, "step": step}
                for part in parts
                for index, name in enumerate(phases)
                for step in part.evaluation_steps(index)
            ]
            self.evaluations.resubmit({self.snapshot_name(row) for row in places if within(row)} - written)
        return [part for part in parts if part.at.phase < len(phases)]

    def state_path(self, group: int) -> Path:
        return self.folder / "checkpoint" / f"state-{group}.safetensors"

    def _position(self, group: int) -> Position:
        path = self.state_path(group)
        if not path.exists():
            return Position(0, 0)
        meta = files.load_arrays(path)[1]
        return Position(meta["phase"], meta["step"])

    def snapshot_name(self, row: Mapping[str, Any]) -> str:
        """Names sort in the order in which snapshots are taken."""
        index = [phase.name for phase in self.algorithm.phases].index(row["phase"])
        return f"{row['group']:03d}-{index}-{row['phase']}-{row['step']:010d}"

    def policy_config(self, run: Member) -> dict[str, Any]:
        about = {"algorithm": self.algorithm.name, "task": self.data.task, "label": run.label, "grid": list(run.grid)}
        return about | run.record()


class Source(NamedTuple):
    """A dataset as the device holds it: for training, for validation, and a sample of its states."""

    table: Table
    validation: Table | None
    states: np.ndarray


@dataclass(eq=False)
class Part:
    """The runs of a launch that share one program, perhaps with those of other launches.

    `join` tells it the program and which of its datasets is its own. What it is handed afterwards has an axis for all
    the runs of the program; it takes its own from it.
    """

    launch: Launch
    group: int
    runs: list[Member]
    at: Position
    program: Program = field(init=False)
    dataset: int = field(init=False, default=0)
    scaling: Scaling = field(init=False)

    def join(self, program: Program, dataset: int) -> None:
        self.program, self.dataset = program, dataset

    def rows(self, phase: int) -> slice:
        """Which of the program's runs in a phase are its own: they lie side by side."""
        own = [i for i, member in enumerate(self.program.members(phase)) if member.dataset == self.dataset]
        return slice(own[0], own[-1] + 1)

    # --- What it learns from ----------------------------------------------------------------------------------

    def learn_from(self) -> Source:
        """Its data as the device will hold them. The scaling is kept: every policy carries it."""
        training, held_out = self._halves()
        self.scaling = Scaling.of(training, self.runs[0].config)
        table = build_table(training, self.scaling)
        for phase in self.launch.algorithm.phases:
            table.require(phase.needs, self.launch.data.name)
        validation = None if held_out is None else build_table(held_out, self.scaling)
        rows = np.linspace(0, len(training) - 1, SAMPLE_STATES).astype(int)  # some twice, if there are fewer
        return Source(table, validation, self.scaling.states(training.observations[rows]))

    def joins_with(self) -> Any:
        """Parts for which this is equal can share a program: the same code on arrays of the same shape."""
        training, held_out = self._halves()
        shape = training.observations.shape[1], training.actions.shape[1], held_out is None
        launch = self.launch
        start = launch.warm_start is None, tuple(launch.warm_phases or ())
        return launch.algorithm.name, static_fields(self.runs[0].config), self.at, shape, start

    def _halves(self) -> tuple[Dataset, Dataset | None]:
        """For training and for validation; none for the latter if the held-out rows would not do for every phase."""
        training, held_out = self.launch.data.split(self.runs[0].config.validation)
        if held_out is None:
            return training, None
        known = held_out.has_next | held_out.terminals
        rows = {"row": True, "next_state": known.any(), "next_action": (known & held_out.has_next_action).any()}
        if all(rows[phase.needs] for phase in self.launch.algorithm.phases):
            return training, held_out
        return self.launch.data, None

    # --- Where it begins --------------------------------------------------------------------------------------

    @cached_property
    def _saved(self) -> Arrays:
        path = self.launch.state_path(self.group)
        return files.load_arrays(path)[0] if path.exists() else {}

    def saved(self, phase: AnyPhase, shape: Tree) -> Tree:
        """A phase's state as the checkpoint has it; `shape` is that of its own runs."""
        return fill_tree(shape, _under(self._saved, phase.name), str(self.launch.state_path(self.group)))

    def starts_warm(self, phase: AnyPhase) -> bool:
        """Whether the phase begins where another run has ended."""
        return self.launch.warm_start is not None and phase.name in (self.launch.warm_phases or [phase.name])

    def warm(self, phase: AnyPhase, shape: Tree) -> Tree:
        """The other run's last state."""
        assert self.launch.warm_start is not None
        read_config(self.launch.warm_start)
        path = self.launch.warm_start / "checkpoint" / f"state-{self.group}.safetensors"
        arrays, _ = files.load_arrays(path)
        return fill_tree(shape, _under(arrays, phase.name), f"{path}: {phase.name}")

    # --- What is written --------------------------------------------------------------------------------------

    def evaluation_steps(self, phase: int) -> list[int]:
        steps = self.runs[0].config.steps[phase]
        last = phase == len(self.launch.algorithm.phases) - 1
        wanted = self.launch.record["evaluation"]["at"]
        if wanted is None:
            every = self.launch.record["evaluation"]["every"] or max(1, math.ceil(steps / EVALUATIONS))
            wanted = range(every, steps, every)
        return sorted({*(step for step in wanted if last and 0 < step < steps), steps})

    def _where(self, phase: int, step: int) -> list[dict[str, Any]]:
        """For each run the columns that say which it is, and when; None where the phase does not read it."""
        own = self.program.distinguishing(phase)
        return [
            {
                "algorithm": self.launch.algorithm.name,
                "seed": member.seed,
                **{name: value if name in own else None for name, value in member.grid.items()},
                "group": self.group,
                "phase": self.launch.algorithm.phases[phase].name,
                "step": step,
            }
            for member in self.program.members(phase)[self.rows(phase)]
        ]

    def log(self, phase: int, step: int, metrics: Arrays) -> None:
        self.launch.opened.begun()
        values = {name: column[self.rows(phase)] for name, column in sorted(metrics.items())}
        rows = [
            row | {name: _finite(column[i]) for name, column in values.items()}
            for i, row in enumerate(self._where(phase, step))
        ]
        files.append_rows(self.launch.folder / "metrics.jsonl", rows)
        if self.launch.evaluations is not None:
            self.launch.evaluations.collect()

    def snapshot(self, phase: int, step: int, actors: Actor) -> None:
        if self.launch.evaluations is None:
            return
        rows = self._where(phase, step)
        self.launch.evaluations.submit(self.launch.snapshot_name(rows[0]), self._policies(phase, actors), rows)

    def _policies(self, phase: int, actors: Actor) -> list[Policy]:
        policies: list[Policy] = []
        own = self.rows(phase)
        members = self.program.members(phase)[own]
        for row, member in zip(range(own.start, own.stop), members, strict=True):
            arrays: dict[str, Any] = self.scaling.arrays()
            arrays |= {name: np.asarray(value[row]) for name, value in actors.constants.items()}
            for name, net in actors.networks.items():
                arrays |= {f"{name}/weights/{i}": w[row] for i, w in enumerate(net.weights)}
                arrays |= {f"{name}/biases/{i}": b[row] for i, b in enumerate(net.biases)}
                if net.normalise:
                    arrays[f"{name}/normalise"] = np.ones((), np.float32)
            policies.append(Policy(actors.kind, arrays, self.launch.policy_config(member)))
        return policies

    def save(self, at: Position, states: Mapping[str, Arrays]) -> None:
        """`states`: the arrays of the phases so far."""
        names = [phase.name for phase in self.launch.algorithm.phases]
        arrays = {
            f"{name}/{leaf}": value[self.rows(names.index(name))]
            for name, leaves in states.items()
            for leaf, value in leaves.items()
        }
        files.save_arrays(self.launch.state_path(self.group), arrays, at._asdict())

    def finish(self, actors: Actor, states: Mapping[str, Arrays]) -> None:
        """The policies first, then the state that says the group is done."""
        last = len(self.launch.algorithm.phases) - 1
        distinct = self._policies(last, actors)
        first = self.rows(last).start
        for run, row in zip(self.program.runs, self.program.distinct[last], strict=True):
            if run.dataset == self.dataset:
                like = distinct[row - first]
                policy = Policy(like.kind, like.arrays, self.launch.policy_config(run))
                policy.save(self.launch.folder / "policies" / f"{run.label}.safetensors")
        self.save(Position(last + 1, 0), states)


def _under(arrays: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(f"{prefix}/"): v for k, v in arrays.items() if k.startswith(f"{prefix}/")}


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
