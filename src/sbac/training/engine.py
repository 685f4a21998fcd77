"""The engine: vmap over runs of a loop over steps, compiled once a phase.

The datasets lie on the device, batches are drawn there, metrics are summed there, and the host sees one small
record per chunk. The step counter is shared by all runs; a run's keys come from its seed and the step alone, so a
chunk can start anywhere and a resumed run repeats the same bits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbac.algorithms.base import Actor, Algorithm, Batch, Metrics, Phase, Spec, Step
from sbac.config import fields_of, values_of
from sbac.nn import precision
from sbac.training.grid import Member, Recorder, stack
from sbac.training.table import Table, draw

Tree = Any
VALIDATION_BATCH = 1024
LONGEST_BLOCK = 100  # steps whose batches are drawn at once
LONGEST_PERIOD = 8  # of an update that is written out step by step: each is compiled anew


def run_keys(seed: Array, phase: int) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """A run's keys in a phase: for its first state, its steps, and its validation batches."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), phase)
    first, steps, validation = jax.random.split(key, 3)
    return first, steps, validation


class Inputs(NamedTuple):
    """What the runs of a phase are given, with an axis for runs."""

    configs: Tree
    seeds: Array
    datasets: Array
    """Which dataset each learns from."""
    past: dict[str, Tree]
    """The final states that each builds upon, by phase."""


class Program:
    """A group of runs that share one compiled program: everything that touches the device.

    They may learn from different datasets, those that lie in `table`; `spec.states` has one sample for each.
    """

    def __init__(
        self, algorithm: Algorithm, runs: Sequence[Member], table: Table, validation: Table | None, spec: Spec
    ) -> None:
        self.algorithm = algorithm
        self.runs = runs
        self.spec = spec
        self.table = table
        self.validation = validation
        self._reads = fields_read(algorithm, runs[0], table, spec)
        self.distinct = [distinct_runs(runs, reads) for reads in self._reads]
        self._chunks = [self._compile(i) for i in range(len(algorithm.phases))]
        self._actors = [jax.jit(jax.vmap(phase.actor)) for phase in algorithm.phases]

    def members(self, phase: int) -> list[Member]:
        """The runs a phase trains: one for each distinct value of what it and the phases before it read."""
        rows = self.distinct[phase]
        first: dict[int, int] = {}
        for run, row in enumerate(rows):
            first.setdefault(row, run)
        return [self.runs[first[row]] for row in range(len(first))]

    def distinguishing(self, phase: int) -> set[str]:
        """The config fields a phase's outcome depends on: those shared by the group, and the per-run ones it read."""
        fields = fields_of(type(self.runs[0].config))
        return {name for name, f in fields.items() if not f.spec.per_run} | self._reads[phase]

    def inputs(self, phase: int, finals: Mapping[str, Tree]) -> Inputs:
        members = self.members(phase)
        first = [self.distinct[phase].index(row) for row in range(len(members))]
        past: dict[str, Tree] = {}
        for earlier in range(phase):
            name = self.algorithm.phases[earlier].name
            rows = np.asarray([self.distinct[earlier][run] for run in first])
            past[name] = _take(finals[name], rows)
        seeds = jnp.asarray([m.seed for m in members], jnp.uint32)
        return Inputs(stack(m.config for m in members), seeds, jnp.asarray([m.dataset for m in members]), past)

    def init(self, phase: int, finals: Mapping[str, Tree]) -> Tree:
        """The first state of every run of the phase."""
        init = self.algorithm.phases[phase].init

        def one(config: Tree, seed: Array, dataset: Array, past: Tree) -> Tree:
            spec = self.spec._replace(states=self.spec.states[dataset])
            return init(config, spec, past, run_keys(seed, phase)[0])

        return jax.jit(jax.vmap(one))(*self.inputs(phase, finals))

    def shape(self, phase: int, finals: Mapping[str, Tree]) -> Tree:
        """The state's structure, without computing it: what a checkpoint is read into."""
        return jax.eval_shape(lambda f: self.init(phase, f), dict(finals))

    def advance(
        self, phase: int, inputs: Inputs, state: Tree, start: int, stop: int, block: int = 1
    ) -> tuple[Tree, Metrics]:
        """Steps [start, stop) of all runs, and the mean of each metric over them. Consumes `state`.

        `block` divides both: how many steps the device makes without asking the host whether to go on. Each value is
        a program of its own, and the steps are the same in all.
        """
        assert start % block == stop % block == 0, (start, stop, block)
        return self._chunks[phase](*inputs, state, self.table, self.validation, start, stop, block)

    def block(self, phase: int, stretch: int) -> int:
        """The best block for training that stops at multiples of `stretch`: a whole number of the update's periods."""
        period = self.algorithm.phases[phase].period(self.runs[0].config)
        divisors = [size for size in range(1, LONGEST_BLOCK + 1) if stretch % size == 0]
        return max(divisors, key=lambda size: (size % period == 0, size))

    def unrolled(self, phase: int, block: int) -> int:
        """How many steps are written out in the loop's body: a period, or 1 where the block is not made of periods."""
        period = self.algorithm.phases[phase].period(self.runs[0].config)
        return period if period <= LONGEST_PERIOD and block % period == 0 else 1

    def compiled(self, phase: int, finals: Mapping[str, Tree], block: int) -> Any:
        """The phase's program, compiled and not run (`finals` may be shapes): what it will cost can be read from it."""
        inputs = jax.eval_shape(lambda f: self.inputs(phase, f), dict(finals))
        state, tables = self.shape(phase, finals), (self.table, self.validation)
        return self._chunks[phase].lower(*inputs, state, *tables, 0, block, block).compile()

    def actors(self, phase: int, inputs: Inputs, state: Tree) -> Actor:
        """The policies of all runs, stacked."""
        return self._actors[phase](inputs.configs, inputs.past, state)

    def _compile(self, index: int) -> Any:
        phase = self.algorithm.phases[index]
        actions = self.spec.actions

        def one(
            config: Tree,
            seed: Array,
            dataset: Array,
            past: Tree,
            state: Tree,
            table: Table,
            held_out: Table | None,
            start: Array,
            stop: Array,
            block: int,
        ) -> tuple[Tree, Metrics]:
            _, step_key, validation_key = run_keys(seed, index)

            shapes = jax.eval_shape(lambda s: _metrics(phase, config, past, s, table, actions), state)
            names = list(shapes)
            place = table.place(dataset)
            unrolled = self.unrolled(index, block)

            def turns(carry: tuple[Tree, Array], now: tuple[Array, Batch, PRNGKeyArray]) -> tuple[Any, None]:
                state, sums = carry
                for turn in range(unrolled):
                    i, batch, key = jax.tree.map(lambda x: x[turn], now)  # noqa: B023 (used at once)
                    state, metrics = phase.update(config, past, state, batch, key, Step(i, unrolled, turn))
                    sums += jnp.stack([metrics[name] for name in names])
                return (state, sums), None

            def steps(b: Array, carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
                # Keys and batches of a block are drawn at once: what a step launches is its update alone.
                numbers = start + b * block + jnp.arange(block)
                keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(step_key, i)))(numbers)
                batches = jax.vmap(lambda k: draw(table, place, k, config.batch_size, phase.needs, actions))(keys[:, 0])
                drawn = (numbers, batches, keys[:, 1])
                drawn = jax.tree.map(lambda x: x.reshape(block // unrolled, unrolled, *x.shape[1:]), drawn)
                return jax.lax.scan(turns, carry, drawn)[0]

            # A loop of known length is launched ahead of the device; one of unknown length waits for it every time.
            blocks = (stop - start) // block
            state, sums = jax.lax.fori_loop(0, blocks, steps, (state, jnp.zeros(len(names))))
            sums = dict(zip(names, sums, strict=True))
            means = jax.tree.map(lambda x: x / jnp.maximum(stop - start, 1), sums)
            if held_out is not None and phase.validate is not None:
                key = jax.random.fold_in(validation_key, stop)
                draw_key, loss_key = jax.random.split(key)
                batch = draw(held_out, held_out.place(dataset), draw_key, VALIDATION_BATCH, phase.needs, actions)
                losses = phase.validate(config, past, state, batch, loss_key)
                means |= {f"validation_{name}": value for name, value in losses.items()}
            return state, means

        def all_runs(
            configs: Tree,
            seeds: Array,
            datasets: Array,
            past: Tree,
            state: Tree,
            table: Table,
            held_out: Table | None,
            *span: Any,
        ) -> tuple[Tree, Metrics]:
            def run(config: Tree, seed: Array, dataset: Array, before: Tree, own: Tree) -> tuple[Tree, Metrics]:
                return one(config, seed, dataset, before, own, table, held_out, *span)

            with precision(configs.precision):
                return jax.vmap(run)(configs, seeds, datasets, past, state)

        return jax.jit(all_runs, donate_argnums=(4,), static_argnums=(9,), compiler_options=compiler_options())


def compiler_options() -> dict[str, str]:
    """On a GPU, kernels that do not wait for each other run side by side: a step's networks are many and small."""
    on_gpu = jax.default_backend() == "gpu"
    return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if on_gpu else {}


def _metrics(phase: Phase, config: Tree, past: Tree, state: Tree, table: Table, actions: int) -> Metrics:
    key = jax.random.key(0, impl="threefry2x32")
    batch = draw(table, table.place(0), key, config.batch_size, phase.needs, actions)
    return phase.update(config, past, state, batch, key, Step(jnp.zeros((), jnp.int32)))[1]


def fields_read(algorithm: Algorithm, run: Member, table: Table, spec: Spec) -> list[set[str]]:
    """For each phase, the per-run config fields that it or a phase before it reads, found by tracing it once."""
    key = jax.random.key(0, impl="threefry2x32")
    past: dict[str, Tree] = {}
    read: set[str] = set()
    reads: list[set[str]] = []
    for phase in algorithm.phases:
        recorder = Recorder(run.config)

        def trace(table: Table, past: Tree, phase: Phase = phase, recorder: Recorder = recorder) -> Tree:
            state = phase.init(recorder, spec._replace(states=spec.states[0]), past, key)
            batch = draw(table, table.place(0), key, run.config.batch_size, phase.needs, spec.actions)
            state, _ = phase.update(recorder, past, state, batch, key, Step(jnp.zeros((), jnp.int32)))
            phase.actor(recorder, past, state)
            return state

        past[phase.name] = jax.eval_shape(trace, table, dict(past))
        read = read | recorder.read
        reads.append(read)
    return reads


def distinct_runs(runs: Sequence[Member], reads: set[str]) -> list[int]:
    """Which distinct training each run belongs to: that of its dataset, its seed and its values of the fields read."""
    settings = [values_of(run.config) for run in runs]
    values = [
        (run.dataset, run.seed, *(own[name] for name in sorted(reads))) for run, own in zip(runs, settings, strict=True)
    ]
    order = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return [order[value] for value in values]


@jax.jit
def _take(tree: Tree, rows: Array) -> Tree:
    """Rows of every array, in one program: by themselves each shape would be compiled."""
    return jax.tree.map(lambda x: x[rows], tree)
