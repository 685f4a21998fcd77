"""Training: the groups of one launch after the other, or those of several launches side by side in one program.

Launches on datasets of equal shape that run the same code share a program, each run with its own rows: a GPU is as
busy with ten runs as with five. Every folder comes out as if its launch had been alone, up to rounding, and can be
resumed alone or in other company.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbac import interrupts
from sbac.algorithms.base import AnyPhase, Spec
from sbac.evaluation.worker import Pool
from sbac.runs import Run
from sbac.training.engine import Program
from sbac.training.launch import Launch, Part, Position
from sbac.training.progress import Progress, make_progress
from sbac.training.table import join
from sbac.training.trees import tree_arrays

Tree = Any
LOGS_PER_PHASE = 50


def train_together(
    launches: Sequence[Launch], *, workers: int | None, checkpoint_seconds: float, progress: bool | None
) -> list[Run]:
    """Trains what is left to train; returns the finished runs."""
    use_compilation_cache()
    # A function cannot travel to another process: its episodes are played in this one.
    travelling = [launch for launch in launches if isinstance(launch.environment, str)]
    with ExitStack() as stack:
        for launch in launches:
            stack.enter_context(launch.opened)
        pool = None
        if travelling:
            pool = stack.enter_context(Pool(workers, sum(len(launch.runs) for launch in travelling)))
        todo = [part for launch in launches for part in launch.take_up(pool)]
        for launch in launches:
            if launch.evaluations is not None:
                stack.callback(launch.evaluations.close)
        with make_progress(progress) as bar:
            for parts in sharing(todo):
                Training(parts, checkpoint_seconds, bar).run()
            for launch in launches:
                if launch.evaluations is not None:
                    launch.evaluations.collect(wait=True)
    return [Run.load(launch.folder) for launch in launches]


def sharing(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that can share a program, together. Those of one launch never can."""
    if len({id(part.launch) for part in parts}) < 2:
        return [[part] for part in parts]
    found: dict[Any, list[Part]] = {}
    for part in parts:
        found.setdefault(part.joins_with(), []).append(part)
    return list(found.values())


class Training:
    """One program from where its parts stand to the end."""

    def __init__(self, parts: Sequence[Part], checkpoint_seconds: float, bar: Progress) -> None:
        self.parts, self.checkpoint_seconds, self.bar = parts, checkpoint_seconds, bar
        self.algorithm = parts[0].launch.algorithm
        sources = [part.learn_from() for part in parts]
        validations = [source.validation for source in sources if source.validation is not None]
        data = parts[0].launch.data
        self.program = Program(
            self.algorithm,
            [dataclasses.replace(run, dataset=i) for i, part in enumerate(parts) for run in part.runs],
            join([source.table for source in sources]),
            join(validations) if validations else None,
            Spec(data.observations.shape[1], data.actions.shape[1], jnp.stack([source.states for source in sources])),
        )
        for dataset, part in enumerate(parts):
            part.join(self.program, dataset)
        self._saved = 0.0

    def run(self) -> None:
        at, phases = self.parts[0].at, self.algorithm.phases
        finals: dict[str, Tree] = {}
        state: Tree = None
        if at != (0, 0):
            for index in range(at.phase + 1):
                finals[phases[index].name] = self._assembled(index, finals, Part.saved)
            state = finals.pop(phases[at.phase].name)
        for index in range(at.phase, len(phases)):
            done = at.step if index == at.phase else 0
            finals[phases[index].name], state = self._phase(index, finals, state, done), None
        last = len(phases) - 1
        actors = jax.device_get(self.program.actors(last, self.program.inputs(last, finals), finals[phases[last].name]))
        states = _on_host(finals)
        for part in self.parts:
            part.finish(actors, states)

    def _phase(self, index: int, finals: Mapping[str, Tree], state: Tree, done: int) -> Tree:
        """Steps from `done` to the phase's end; its last state."""
        program, phase = self.program, self.algorithm.phases[index]
        if state is None:
            state = self._first_state(index, finals)
        steps = program.runs[0].config.steps[index]
        inputs = program.inputs(index, finals)
        snapshots = [set(part.evaluation_steps(index)) for part in self.parts]
        every = max(1, steps // LOGS_PER_PHASE)
        stops = {*range(every, steps, every), *set.union(*snapshots), steps}
        block = program.block(index, math.gcd(*stops))
        self.bar.phase(phase.name, len(program.members(index)), done, steps)
        for stop in sorted(s for s in stops if s > done):
            interrupts.check()
            state, metrics = program.advance(index, inputs, state, done, stop, block)
            done, metrics = stop, jax.device_get(metrics)
            for part in self.parts:
                part.log(index, done, metrics)
            if any(done in wanted for wanted in snapshots):
                actors = jax.device_get(program.actors(index, inputs, state))
                for part, wanted in zip(self.parts, snapshots, strict=True):
                    if done in wanted:
                        part.snapshot(index, done, actors)
            if time.monotonic() - self._saved >= self.checkpoint_seconds:
                states = _on_host({**finals, phase.name: state})
                for part in self.parts:
                    part.save(Position(index, done), states)
                self._saved = time.monotonic()
            self.bar.step(done, self._note())
        return state

    def _first_state(self, index: int, finals: Mapping[str, Tree]) -> Tree:
        if self.parts[0].starts_warm(self.algorithm.phases[index]):
            return self._assembled(index, finals, Part.warm)
        return self.program.init(index, finals)

    def _assembled(self, index: int, finals: Mapping[str, Tree], read: Callable[[Part, AnyPhase, Tree], Tree]) -> Tree:
        """A phase's state, its parts read one by one."""
        shape = self.program.shape(index, finals)

        def own(part: Part) -> Tree:
            return jax.eval_shape(lambda tree: jax.tree.map(lambda x: x[part.rows(index)], tree), shape)

        read_states = [read(part, self.algorithm.phases[index], own(part)) for part in self.parts]
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *read_states)

    def _note(self) -> str:
        """The newest scores, over all folders."""
        latest = [part.launch.evaluations.latest for part in self.parts if part.launch.evaluations is not None]
        found = [scores for scores in latest if scores]
        names = found[0] if found else {}
        return "  ".join(f"{name} {np.mean([scores.get(name, np.nan) for scores in found]):.1f}" for name in names)


def _on_host(states: Mapping[str, Tree]) -> dict[str, dict[str, np.ndarray]]:
    return {name: tree_arrays(tree) for name, tree in states.items()}


def use_compilation_cache() -> None:
    """Keeps compiled programs between processes, unless the user has set a cache of their own."""
    if jax.config.jax_compilation_cache_dir is None:  # pyright: ignore[reportAttributeAccessIssue]
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "sbac" / "xla"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
