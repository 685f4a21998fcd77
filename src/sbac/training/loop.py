"""The training loop: the groups of one run after the other, or groups of several runs in one program.

Groups on datasets of equal shape that run the same code share a program, each run with its own rows: a GPU is as
busy with ten runs as with five. Every folder comes out as if its run had been alone, up to rounding, and can be
resumed alone or with others.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbac.algorithms.base import Actor, Metrics, Spec
from sbac.config import static_fields
from sbac.data.streaming import StreamedLog
from sbac.errors import remedy
from sbac.evaluation.worker import Pool
from sbac.files import cache_folder
from sbac.nn import Tree
from sbac.progress import Progress
from sbac.runs import Run
from sbac.training.checkpoint import BEGINNING, START_AGAIN, Checkpoint, Position, tree_arrays
from sbac.training.cost import LONG, seconds
from sbac.training.device_data import DeviceData, halves
from sbac.training.engine import Inputs, Program
from sbac.training.evaluations import note
from sbac.training.health import Health, Moment, keep
from sbac.training.open_run import Group, OpenRun, take_up
from sbac.training.sharing import taken_over, with_leaders
from sbac.training.table import join
from sbac.training.writer import Slot, Writer

LOGS_PER_PHASE = 50


def train_runs(
    open_runs: Sequence[OpenRun],
    *,
    workers: int | None = None,
    checkpoint_seconds: float = 30.0,
    progress: bool | None = None,
) -> list[Run]:
    """Trains what is left to train; returns the finished runs."""
    use_compilation_cache()
    # A function cannot travel to another process: its episodes are played in this one.
    named = [open_run.request for open_run in open_runs if isinstance(open_run.request.watched_in, str)]
    with ExitStack() as stack:
        for open_run in open_runs:
            stack.enter_context(open_run.opened)
        pool = None
        if named:
            pool = stack.enter_context(Pool(workers, sum(len(request.runs) for request in named)))
        remaining = [take_up(open_run, pool) for open_run in open_runs]
        groups = [group for of_run, _ in remaining for group in of_run]
        if len(open_runs) == 1 and not all(group.is_done for group in groups):
            groups = with_leaders(groups)
        evaluations = [entry for _, entry in remaining if entry is not None]
        for entry in evaluations:
            stack.callback(entry.close)
        with Progress(progress) as bar:
            for together in by_program([group for group in groups if not group.is_done]):
                Training([taken_over(group) for group in together], checkpoint_seconds, bar).run()
            for entry in evaluations:
                entry.collect(wait=True)
    return [Run.load(open_run.folder) for open_run in open_runs]


def by_program(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each program. Those of one run never share one."""
    if len({id(group.open_run) for group in groups}) < 2:
        return [[group] for group in groups]
    programs: dict[Hashable, list[Group]] = {}
    for group in groups:
        programs.setdefault(program_key(group), []).append(group)
    return list(programs.values())


def program_key(group: Group) -> Hashable:
    """Groups for which this is equal can share a program: the same code on arrays of the same shape."""
    request, config = group.open_run.request, group.runs[0].config
    data = request.dataset
    if isinstance(data, StreamedLog):
        return id(group)
    _, held_out = halves(request.method, data, config.validation)
    shape = data.observations.shape[1], data.actions.shape[1], data.stores_next, held_out is None
    start = request.warm_start
    warm = None if start is None else tuple(start.phases or ())
    return request.algorithm, static_fields(config), group.checkpoint.at, shape, warm


class Training:
    """One program, from where its groups stand to the end. They all stand at the same position."""

    def __init__(self, groups: Sequence[Group], checkpoint_seconds: float, bar: Progress) -> None:
        self._groups, self._checkpoint_seconds, self._bar = groups, checkpoint_seconds, bar
        first = groups[0].open_run.request
        self._method = first.method
        sources = [self._source(group) for group in groups]
        self._stream = sources[0].stream  # a program with one has no other group
        validations = [source.validation for source in sources if source.validation is not None]
        self._program = Program(
            self._method,
            [dataclasses.replace(run, dataset=i) for i, group in enumerate(groups) for run in group.runs],
            join([source.table for source in sources]),
            join(validations) if validations else None,
            Spec(*first.sizes, jnp.stack([source.states for source in sources])),
        )
        self._slots = [Slot(self._program, dataset) for dataset in range(len(groups))]
        self._writers = [
            Writer(group, slot, source.scaling)
            for group, slot, source in zip(groups, self._slots, sources, strict=True)
        ]
        failed = [group.checkpoint.failed for group in groups]
        self._health = Health(
            self._program.distinct,
            {i for i, run in enumerate(self._program.runs) if run.label in failed[run.dataset]},
        )
        self._saved = 0.0

    def _source(self, group: Group) -> DeviceData:
        data, config, at = group.open_run.request.dataset, group.runs[0].config, group.checkpoint.at
        if isinstance(data, StreamedLog):
            return DeviceData.streamed(self._method, data, config, sum(config.steps[: at.phase]) + at.step)
        return DeviceData.of(self._method, data, config)

    def run(self) -> None:
        try:
            self._run()
        finally:
            if self._stream is not None:
                self._stream.close()

    def _run(self) -> None:
        at, phases = self._groups[0].checkpoint.at, self._method.phases
        self._say_if_long(at)
        finals: dict[str, Tree] = {}
        state: Tree = None
        if at != BEGINNING:
            stored = [group.checkpoint for group in self._groups]
            with remedy(START_AGAIN):
                for index in range(min(at.phase + 1, len(phases))):
                    finals[phases[index].name] = self._read(index, finals, stored)
            if at.phase < len(phases):
                state = finals.pop(phases[at.phase].name)
        for index in range(at.phase, len(phases)):
            done = at.step if index == at.phase else 0
            finals[phases[index].name], state = self._phase(index, finals, state, done), None
        actors = jax.device_get(self._last_actors(len(phases) - 1, finals))
        if at.phase == len(phases):
            for writer in self._writers:
                writer.complete(actors)
            return
        states = _on_host(finals)
        for writer in self._writers:
            writer.finish(actors, states)

    def _say_if_long(self, at: Position) -> None:
        """Where the command line asks: that it will take more than an hour, and what takes less."""
        request = self._groups[0].open_run.request
        if request.command is None:
            return
        left = [*self._program.runs[0].config.steps[at.phase :]]
        left[:1] = [steps - at.step for steps in left[:1]]
        needed = seconds(sum(self._program.work(at.phase + i, steps) for i, steps in enumerate(left)))
        if needed > LONG:
            log = (request.record.paths or [request.dataset.name])[0]
            self._bar.say(
                f"this will take about {max(2, round(needed / 3600))} hours on this machine; "
                f"sbac learn {log} --minutes 15 does what can be done in 15 minutes"
            )

    def _last_actors(self, index: int, finals: Mapping[str, Tree]) -> Actor:
        inputs = self._program.inputs(index, finals)
        return self._program.actors(index, inputs, finals[self._method.phases[index].name])

    def _phase(self, index: int, finals: Mapping[str, Tree], state: Tree, done: int) -> Tree:
        """Steps from `done` to the phase's end; its last state."""
        program, phase = self._program, self._method.phases[index]
        if state is None:
            state = self._first_state(index, finals)
        steps = program.runs[0].config.steps[index]
        inputs = program.inputs(index, finals)
        snapshots = [set(group.evaluation_steps(index)) for group in self._groups]
        every = max(1, steps // LOGS_PER_PHASE)
        stops = {*range(every, steps, every), *(step for wanted in snapshots for step in wanted), steps}
        block = program.block(index, math.gcd(done, *stops))
        if index == 0 or done > 0:
            self._health.begin(Moment(index, done, program.actors(index, inputs, state)))
        elif self._health.last is None:  # resumed between two phases
            before = index - 1
            self._health.begin(Moment(before, program.runs[0].config.steps[before], self._last_actors(before, finals)))
        runs = len(program.members(index))
        self._bar.begin(f"{phase.name} ({runs} runs)" if runs > 1 else phase.name, steps, done)
        for stop in sorted(s for s in stops if s > done):
            state, metrics = self._advance(index, inputs, state, done, stop, block)
            if stop == steps:
                state = program.conclude(index, inputs, state)
            kept, finite = keep(program.actors(index, inputs, state), metrics)
            done, metrics, finite = stop, *jax.device_get((metrics, finite))
            for writer in self._writers:
                writer.log(index, done, metrics)
            self._note_failures(index, done, kept, finite)
            if any(done in wanted for wanted in snapshots):
                actors = jax.device_get(kept)
                for writer, wanted in zip(self._writers, snapshots, strict=True):
                    if done in wanted:
                        writer.snapshot(index, done, actors)
            if time.monotonic() - self._saved >= self._checkpoint_seconds:
                states = _on_host({**finals, phase.name: state})
                for writer in self._writers:
                    writer.save(Position(index, done), states)
                self._saved = time.monotonic()
            self._bar.reach(done, note(g.evaluations.latest for g in self._groups if g.evaluations is not None))
        return state

    def _advance(
        self, index: int, inputs: Inputs, state: Tree, done: int, stop: int, block: int
    ) -> tuple[Tree, Metrics]:
        """Steps from `done` to `stop`, and the mean of each metric. A stream's table changes on the way."""
        program = self._program
        if self._stream is None:
            return program.advance(index, inputs, state, done, stop, block)
        before = sum(program.runs[0].config.steps[:index])
        parts: list[tuple[float, Metrics]] = []
        for start, end in self._stream.cuts(done, stop, block):
            program.replace_table(self._stream.table(before + start))
            state, metrics = program.advance(index, inputs, state, start, end, block)
            parts.append(((end - start) / (stop - done), metrics))
        shares, means = [share for share, _ in parts], [part for _, part in parts]
        return state, jax.tree.map(lambda *values: _weighted(shares, values), *means)

    def _note_failures(self, index: int, done: int, actors: Actor, finite: np.ndarray) -> None:
        """Keeps the last good policies of the runs whose numbers are no longer finite."""
        failed, before = self._health.look(index, done, actors, finite)
        if not failed or before is None:
            return
        good = before._replace(actors=jax.device_get(before.actors))
        for number in failed:
            run = self._program.runs[number]
            self._writers[run.dataset].fail(run, index, done, good)

    def _first_state(self, index: int, finals: Mapping[str, Tree]) -> Tree:
        starts = [group.start_of(self._method.phases[index].name) for group in self._groups]
        warm = [start for start in starts if start is not None]
        return self._read(index, finals, warm) if warm else self._program.init(index, finals)

    def _read(self, index: int, finals: Mapping[str, Tree], stored: Sequence[Checkpoint]) -> Tree:
        """A phase's state, from what each group has on disk."""
        shape, phase = self._program.shape(index, finals), self._method.phases[index].name
        states = [
            entry.read(phase, rows_shape(shape, slot.rows(index)))
            for entry, slot in zip(stored, self._slots, strict=True)
        ]
        return self._program.placed(index, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states))


def _weighted(shares: Sequence[float], means: Sequence[jax.Array]) -> jax.Array:
    return jnp.tensordot(jnp.asarray(shares), jnp.stack(means), 1)


def rows_shape(shape: Tree, rows: slice) -> Tree:
    """The structure of a state that has only these rows."""

    def cut(x: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows.stop - rows.start, *x.shape[1:]), x.dtype)

    return jax.tree.map(cut, shape)


def _on_host(states: Mapping[str, Tree]) -> dict[str, dict[str, np.ndarray]]:
    return {name: tree_arrays(tree) for name, tree in states.items()}


def use_compilation_cache() -> None:
    """Keeps compiled programs between processes, unless the user has set a cache of their own."""
    options: Any = jax.config
    if options.jax_compilation_cache_dir is None:
        options.update("jax_compilation_cache_dir", str(cache_folder() / "xla"))
        options.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
