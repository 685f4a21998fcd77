"""A launch: the groups of runs, their phases, chunk by chunk, with checkpoints and snapshots.

What is on disk at any moment can be resumed: a group's state file is replaced atomically and says how far it is;
rows and snapshots beyond it are cut when the run is taken up again.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sbac import files
from sbac.algorithms.base import Algorithm, Spec
from sbac.data import Dataset
from sbac.evaluation.rollout import EnvSource
from sbac.policy import Policy
from sbac.training.engine import Program
from sbac.training.evaluations import Evaluations
from sbac.training.grid import Member, groups
from sbac.training.progress import Progress, make_progress
from sbac.training.run import Run, read_config
from sbac.training.table import Scaling, build_table
from sbac.training.trees import fill_tree, tree_arrays

Tree = Any
LOGS_PER_PHASE = 50
EVALUATIONS = 10
SAMPLE_STATES = 1000


@dataclass
class Position:
    """How far a group is: its phase and the steps done in it."""

    phase: int
    step: int


@dataclass
class Launch:
    folder: Path
    record: dict[str, Any]
    algorithm: Algorithm
    runs: list[Member]
    data: Dataset
    environment: EnvSource | None
    workers: int | None
    warm_start: Path | None
    warm_phases: Sequence[str] | None
    checkpoint_seconds: float
    progress: bool | None
    _evaluations: Evaluations | None = field(init=False, default=None)
    _saved: float = field(init=False, default=0.0)

    def run(self) -> Run:
        """Trains what is left to train; returns the finished run."""
        use_compilation_cache()
        todo = groups(self.runs)
        self._take_up(todo)
        try:
            with make_progress(self.progress) as progress:
                for group, indices in enumerate(todo):
                    self._train_group(group, [self.runs[i] for i in indices], progress)
                if self._evaluations is not None:
                    self._evaluations.collect(wait=True)
        finally:
            if self._evaluations is not None:
                self._evaluations.close()
        return Run.load(self.folder)

    # --- Where the run stands ---------------------------------------------------------------------------------

    def _state_path(self, group: int) -> Path:
        return self.folder / "checkpoint" / f"state-{group}.safetensors"

    def _position(self, group: int) -> Position:
        path = self._state_path(group)
        if not path.exists():
            return Position(0, 0)
        meta = files.load_arrays(path)[1]
        return Position(meta["phase"], meta["step"])

    def _take_up(self, todo: list[list[int]]) -> None:
        """Cuts what lies beyond the checkpoints and restarts the evaluations that were under way."""
        reached = [self._position(group) for group in range(len(todo))]
        phases = [phase.name for phase in self.algorithm.phases]

        def within(row: Mapping[str, Any]) -> bool:
            at = reached[row["group"]]
            return (phases.index(row["phase"]), row["step"]) <= (at.phase, at.step)

        for name in ("metrics.jsonl", "evaluations.jsonl"):
            path = self.folder / name
            if path.exists():
                files.rewrite_rows(path, [row for row in files.read_rows(path) if within(row)])
        if self.environment is None:
            return
        expected = len(self.runs)
        settings = self.record["evaluation"]
        self._evaluations = Evaluations(
            self.folder, self.environment, settings["episodes"], settings["seed"], self.workers, expected
        )
        written = {self._snapshot_name(row) for row in files.read_rows(self.folder / "evaluations.jsonl")}
        wanted = {
            self._snapshot_name({"group": group, "phase": name, "step": step})
            for group, indices in enumerate(todo)
            for index, name in enumerate(phases)
            for step in self._evaluation_steps(index, self.runs[indices[0]].config.steps[index])
            if within({"group": group, "phase": name, "step": step})
        }
        self._evaluations.resubmit(wanted - written)

    def _evaluation_steps(self, phase: int, steps: int) -> list[int]:
        last = phase == len(self.algorithm.phases) - 1
        wanted = self.record["evaluation"]["at"]
        if wanted is None:
            every = self.record["evaluation"]["every"] or max(1, math.ceil(steps / EVALUATIONS))
            wanted = range(every, steps, every)
        return sorted({*(step for step in wanted if last and 0 < step < steps), steps})

    def _snapshot_name(self, row: Mapping[str, Any]) -> str:
        """Names sort in the order in which snapshots are taken."""
        index = [phase.name for phase in self.algorithm.phases].index(row["phase"])
        return f"{row['group']:03d}-{index}-{row['phase']}-{row['step']:010d}"

    # --- Training ---------------------------------------------------------------------------------------------

    def _train_group(self, group: int, runs: list[Member], progress: Progress) -> None:
        position = self._position(group)
        if position.phase == len(self.algorithm.phases):
            return
        program, scaling = self._program(runs)
        finals, state = self._restore(group, program, position)
        for index in range(position.phase, len(self.algorithm.phases)):
            phase = self.algorithm.phases[index]
            steps = runs[0].config.steps[index]
            done = position.step if index == position.phase else 0
            if state is None:
                state = self._first_state(group, index, program, finals)
            inputs = program.inputs(index, finals)
            snapshots = set(self._evaluation_steps(index, steps))
            every = max(1, steps // LOGS_PER_PHASE)
            progress.phase(phase.name, len(program.members(index)), done, steps)
            stops = {*range(every, steps, every), *snapshots, steps}
            block = program.block(index, math.gcd(*stops))
            for stop in sorted(s for s in stops if s > done):
                state, metrics = program.advance(index, inputs, state, done, stop, block)
                done = stop
                self._log(group, index, done, program, jax.device_get(metrics))
                if done in snapshots:
                    self._snapshot(group, index, done, program, scaling, inputs, state)
                if time.monotonic() - self._saved >= self.checkpoint_seconds:
                    self._save(group, Position(index, done), {**finals, phase.name: state})
                progress.step(done, self._note())
            finals[phase.name], state = state, None
        self._finish(group, program, scaling, finals)

    def _program(self, runs: list[Member]) -> tuple[Program, Scaling]:
        config = runs[0].config
        training, held_out = self.data.split(config.validation)
        scaling = Scaling.of(training, config)
        rows = np.linspace(0, len(training) - 1, min(len(training), SAMPLE_STATES)).astype(int)
        states = jax.numpy.asarray(scaling.states(training.observations[rows]))
        spec = Spec(training.observations.shape[1], training.actions.shape[1], states)
        table = build_table(training, scaling)
        for phase in self.algorithm.phases:
            table.require(phase.needs, self.data.name)
        validation = None if held_out is None else build_table(held_out, scaling)
        return Program(self.algorithm, runs, table, validation, spec), scaling

    def _restore(self, group: int, program: Program, at: Position) -> tuple[dict[str, Tree], Tree]:
        """The final states of the phases that are over, and the current phase's state if it has begun."""
        if not self._state_path(group).exists():
            return {}, None
        arrays, _ = files.load_arrays(self._state_path(group))
        finals: dict[str, Tree] = {}
        for index, phase in enumerate(self.algorithm.phases[: at.phase + 1]):
            shape = program.shape(index, finals)
            finals[phase.name] = fill_tree(shape, _under(arrays, phase.name), str(self._state_path(group)))
        return finals, finals.pop(self.algorithm.phases[at.phase].name)

    def _first_state(self, group: int, index: int, program: Program, finals: Mapping[str, Tree]) -> Tree:
        name = self.algorithm.phases[index].name
        if self.warm_start is None or name not in (self.warm_phases or [name]):
            return program.init(index, finals)
        read_config(self.warm_start)
        path = self.warm_start / "checkpoint" / f"state-{group}.safetensors"
        arrays, _ = files.load_arrays(path)
        return fill_tree(program.shape(index, finals), _under(arrays, name), f"{path}: {name}")

    # --- What is written --------------------------------------------------------------------------------------

    def _where(self, group: int, index: int, step: int, program: Program, row: int) -> dict[str, Any]:
        """The columns that say which run, phase and step a row is about; None where the phase does not read it."""
        member = program.members(index)[row]
        own = program.distinguishing(index)
        return {
            "algorithm": self.algorithm.name,
            "seed": member.seed,
            **{name: value if name in own else None for name, value in member.grid.items()},
            "group": group,
            "phase": self.algorithm.phases[index].name,
            "step": step,
        }

    def _log(self, group: int, index: int, step: int, program: Program, metrics: Mapping[str, Any]) -> None:
        rows = [
            self._where(group, index, step, program, row)
            | {name: _finite(values[row]) for name, values in sorted(metrics.items())}
            for row in range(len(program.members(index)))
        ]
        files.append_rows(self.folder / "metrics.jsonl", rows)
        if self._evaluations is not None:
            self._evaluations.collect()

    def _policies(self, index: int, program: Program, scaling: Scaling, inputs: Tree, state: Tree) -> list[Policy]:
        actor = jax.device_get(program.actors(index, inputs, state))
        policies: list[Policy] = []
        for row, member in enumerate(program.members(index)):
            arrays = scaling.arrays() | {name: np.asarray(value[row]) for name, value in actor.constants.items()}
            for name, net in actor.networks.items():
                arrays |= {f"{name}/weights/{i}": w[row] for i, w in enumerate(net.weights)}
                arrays |= {f"{name}/biases/{i}": b[row] for i, b in enumerate(net.biases)}
                if net.normalise:
                    arrays[f"{name}/normalise"] = np.ones((), np.float32)
            policies.append(Policy(actor.kind, arrays, self._policy_config(member)))
        return policies

    def _policy_config(self, run: Member) -> dict[str, Any]:
        about = {"algorithm": self.algorithm.name, "task": self.data.task, "label": run.label, "grid": list(run.grid)}
        return about | run.record()

    def _snapshot(
        self, group: int, index: int, step: int, program: Program, scaling: Scaling, inputs: Tree, state: Tree
    ) -> None:
        if self._evaluations is None:
            return
        policies = self._policies(index, program, scaling, inputs, state)
        rows = [self._where(group, index, step, program, row) for row in range(len(policies))]
        self._evaluations.submit(self._snapshot_name(rows[0]), policies, rows)

    def _save(self, group: int, position: Position, states: Mapping[str, Tree]) -> None:
        arrays = {f"{phase}/{k}": v for phase, tree in states.items() for k, v in tree_arrays(tree).items()}
        files.save_arrays(self._state_path(group), arrays, dataclasses.asdict(position))
        self._saved = time.monotonic()

    def _finish(self, group: int, program: Program, scaling: Scaling, finals: Mapping[str, Tree]) -> None:
        """The policies first, then the state that says the group is done."""
        last = len(self.algorithm.phases) - 1
        inputs = program.inputs(last, finals)
        distinct = self._policies(last, program, scaling, inputs, finals[self.algorithm.phases[last].name])
        for run, row in zip(program.runs, program.distinct[last], strict=True):
            policy = Policy(distinct[row].kind, distinct[row].arrays, self._policy_config(run))
            policy.save(self.folder / "policies" / f"{run.label}.safetensors")
        self._save(group, Position(last + 1, 0), finals)

    def _note(self) -> str:
        latest = self._evaluations.latest if self._evaluations is not None else {}
        return "  ".join(f"{name} {value:.1f}" for name, value in latest.items())


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {k.removeprefix(f"{prefix}/"): v for k, v in arrays.items() if k.startswith(f"{prefix}/")}


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def use_compilation_cache() -> None:
    """Keeps compiled programs between processes, unless the user has set a cache of their own."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "sbac" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
