"""The engine: vmap over runs of a loop over steps, compiled once a phase.

The datasets lie on the device, batches are drawn there, metrics are summed there, and the host gets one small
record per chunk. The step counter is shared by all runs; a run's keys come from its seed and the step alone, so a
chunk can start anywhere and a resumed run repeats the same bits. On a machine with several devices each trains its
share of the runs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.stages
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from sbac.algorithms.base import Actor, Algorithm, AnyPhase, Batch, Metrics, Spec, Step
from sbac.config import Value, fields_of, values_of
from sbac.nn import Tree, precision, take
from sbac.nn.typed import Jitted, jit, loop, scan, shapes, strongly_typed
from sbac.training.cost import multiplications
from sbac.training.devices import Device, Devices, local_devices
from sbac.training.grid import Member, stack
from sbac.training.table import Table, draw

VALIDATION_BATCH = 1024
CONCLUDING_BATCH = 8192
LONGEST_BLOCK = 100  # steps whose batches are drawn at once
LONGEST_PERIOD = 8  # of an update that is written out step by step: each is compiled anew

_jax: Any = jax


def run_keys(seed: Array, phase: int) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """A run's keys in a phase: for its first state, its steps, and its validation batches."""
    key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), phase)
    first, steps, validation = jax.random.split(key, 3)
    return first, steps, validation


class Inputs(NamedTuple):
    """The arguments of a phase's programs, with an axis for runs."""

    configs: Tree
    seeds: Array
    datasets: Array
    """The number of the dataset that each run learns from."""
    past: dict[str, Tree]
    """The final states of the earlier phases, by phase."""


class Program:
    """A group of runs that share one compiled program: everything that touches the device.

    They may learn from different datasets, those that lie in `table`; `spec.states` has one sample for each.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        runs: Sequence[Member],
        table: Table,
        validation: Table | None,
        spec: Spec,
        devices: Sequence[Device] | None = None,
    ) -> None:
        """`devices`: those to train on; None: all of this machine."""
        self.algorithm = algorithm
        self.runs = runs
        self._reads, self._work = traced(algorithm, runs[0], table, spec)
        self.distinct = [distinct_runs(runs, reads) for reads in self._reads]
        self._devices = Devices(local_devices() if devices is None else devices, len(set(self.distinct[-1])))
        self.spec = spec
        self.table, self.validation = self._devices.copied((table, validation))
        self._chunks = [self._compile(i) for i in range(len(algorithm.phases))]
        self._actors = [jit(jax.vmap(phase.actor)) for phase in algorithm.phases]
        self._conclusions = [self._conclude(i) for i in range(len(algorithm.phases))]

    def members(self, phase: int) -> list[Member]:
        """The runs a phase trains: one for each distinct value of what it and the phases before it read."""
        rows = self.distinct[phase]
        first: dict[int, int] = {}
        for run, row in enumerate(rows):
            first.setdefault(row, run)
        return [self.runs[first[row]] for row in range(len(first))]

    def work(self, phase: int, steps: int) -> float:
        """The multiplications of so many steps of all the runs of a phase."""
        return steps * len(self.members(phase)) * self._work[phase]

    def distinguishing(self, phase: int) -> set[str]:
        """The config fields that a phase's outcome depends on: the shared ones, and those per policy that it read."""
        fields = fields_of(type(self.runs[0].config))
        return {name for name, f in fields.items() if not f.spec.per_policy} | self._reads[phase]

    def inputs(self, phase: int, finals: Mapping[str, Tree]) -> Inputs:
        """The arguments of a phase's programs: of its runs, and of the copies that fill the devices."""
        rows = self._devices.filled(range(len(self.members(phase))))
        members = [self.members(phase)[row] for row in rows]
        first = [self.distinct[phase].index(row) for row in rows]
        past: dict[str, Tree] = {}
        for earlier in range(phase):
            name = self.algorithm.phases[earlier].name
            past[name] = _taken(finals[name], np.asarray([self.distinct[earlier][run] for run in first]))
        seeds, datasets = jnp.asarray([m.seed for m in members], jnp.uint32), jnp.asarray([m.dataset for m in members])
        return self._devices.spread(Inputs(stack(m.config for m in members), seeds, datasets, past))

    def placed(self, phase: int, state: Tree) -> Tree:
        """A phase's state that has a row for each of its runs, such as a stored one, as the programs take it."""
        rows = self._devices.filled(range(len(self.members(phase))))
        if len(rows) > len(self.members(phase)):
            state = _taken(state, np.asarray(rows))
        return self._devices.spread(state)

    def init(self, phase: int, finals: Mapping[str, Tree]) -> Tree:
        return self._first(phase)(*self.inputs(phase, finals))

    def _first(self, phase: int) -> Jitted[..., Tree]:
        init = self.algorithm.phases[phase].init

        def one(config: Tree, seed: Array, dataset: Array, past: Tree) -> Tree:
            spec = self.spec._replace(states=self.spec.states[dataset])
            return strongly_typed(init(config, spec, past, run_keys(seed, phase)[0]))

        return jit(self._devices.each(jax.vmap(one), spread=[True] * 4))

    def shape(self, phase: int, finals: Mapping[str, Tree]) -> Tree:
        """The state's structure, without computing it: what a checkpoint is read into."""
        return shapes(partial(self.init, phase), dict(finals))

    def advance(
        self, phase: int, inputs: Inputs, state: Tree, start: int, stop: int, block: int = 1
    ) -> tuple[Tree, Metrics]:
        """Steps [start, stop) of all runs, and the mean of each metric over them. Consumes `state`.

        `block` divides both: it is the number of steps that the device takes without a check of whether to go on.
        Each value is a program of its own, and the steps are the same in all.
        """
        assert start % block == stop % block == 0, (start, stop, block)
        return self._chunks[phase](*inputs, state, self.table, self.validation, start, stop, block)

    def replace_table(self, table: Table) -> None:
        """The data that the next steps draw from: another table of the same shape."""
        self.table = self._devices.copied(table)

    def block(self, phase: int, stretch: int) -> int:
        """The best block for training that stops at multiples of `stretch`: a whole number of the update's periods."""
        period = self.algorithm.phases[phase].period(self.runs[0].config)
        divisors = [size for size in range(1, LONGEST_BLOCK + 1) if stretch % size == 0]
        return max(divisors, key=lambda size: (size % period == 0, size))

    def unrolled(self, phase: int, block: int) -> int:
        """How many steps are written out in the loop's body: a period, or 1 where the block is not made of periods."""
        period = self.algorithm.phases[phase].period(self.runs[0].config)
        return period if period <= LONGEST_PERIOD and block % period == 0 else 1

    def compiled(self, phase: int, finals: Mapping[str, Tree], block: int) -> jax.stages.Compiled:
        """The phase's program, compiled and not run (`finals` may be shapes): its cost can be read from it."""
        inputs = shapes(partial(self.inputs, phase), dict(finals))
        state, tables = self.shape(phase, finals), (self.table, self.validation)
        return self._chunks[phase].lower(*inputs, state, *tables, 0, block, block).compile()

    def trained(self, phase: int) -> list[tuple[int, dict[str, Value]]]:
        """The runs of a phase by what it depends on beside its program: their seeds, and the fields that it reads."""
        runs = [(run.seed, values_of(run.config)) for run in self.members(phase)]
        return [(seed, {name: values[name] for name in sorted(self._reads[phase])}) for seed, values in runs]

    def text(self, phase: int, finals: Mapping[str, Tree]) -> list[str]:
        """The phase's programs as text, not compiled (`finals` may be shapes)."""
        inputs, state = shapes(partial(self.inputs, phase), dict(finals)), self.shape(phase, finals)
        block = self.algorithm.phases[phase].period(self.runs[0].config)
        conclusion, held_out = self._conclusions[phase], self.table if self.validation is None else self.validation
        programs = [
            self._first(phase).lower(*inputs),
            self._chunks[phase].lower(*inputs, state, self.table, self.validation, 0, block, block),
            self._actors[phase].lower(inputs.configs, inputs.past, state),
            *([] if conclusion is None else [conclusion.lower(*inputs, state, held_out)]),
        ]
        return [program.as_text() for program in programs]

    def actors(self, phase: int, inputs: Inputs, state: Tree) -> Actor:
        return self._actors[phase](inputs.configs, inputs.past, state)

    def conclude(self, phase: int, inputs: Inputs, state: Tree) -> Tree:
        """The state that the phase hands on, where it has a last look at held-out rows."""
        conclusion = self._conclusions[phase]
        held_out = self.table if self.validation is None else self.validation
        return state if conclusion is None else conclusion(*inputs, state, held_out)

    def _conclude(self, index: int) -> Jitted[..., Tree] | None:
        phase = self.algorithm.phases[index]
        conclude = phase.conclude
        if conclude is None:
            return None

        def all_runs(configs: Tree, seeds: Array, datasets: Array, past: Tree, state: Tree, held_out: Table) -> Tree:
            def one(config: Tree, seed: Array, dataset: Array, before: Tree, last: Tree) -> Tree:
                draw_key, key = jax.random.split(run_keys(seed, index)[2])
                place = held_out.place(dataset)
                batch = draw(held_out, place, draw_key, CONCLUDING_BATCH, phase.needs, self.spec.actions)
                return conclude(config, before, last, batch, key)

            return jax.vmap(one)(configs, seeds, datasets, past, state)

        return jit(all_runs)

    def _compile(self, index: int) -> Jitted[..., tuple[Tree, Metrics]]:
        phase = self.algorithm.phases[index]
        actions = self.spec.actions

        def all_runs(
            configs: Tree,
            seeds: Array,
            datasets: Array,
            pasts: Tree,
            states: Tree,
            table: Table,
            held_out: Table | None,
            start: Array,
            stop: Array,
            block: int,
        ) -> tuple[Tree, Metrics]:
            unrolled = self.unrolled(index, block)

            def one(config: Tree, seed: Array, dataset: Array, past: Tree, state: Tree) -> tuple[Tree, Metrics]:
                _, step_key, validation_key = run_keys(seed, index)

                def first_metrics(state: Tree) -> Metrics:
                    return _metrics(phase, config, past, state, table, actions)

                names = list(shapes(first_metrics, state))
                place = table.place(dataset)

                def turns(carry: tuple[Tree, Array], now: tuple[Array, Batch, PRNGKeyArray]) -> tuple[Tree, Array]:
                    state, sums = carry
                    for turn in range(unrolled):
                        i, batch, key = take(now, turn)
                        state, metrics = phase.update(config, past, state, batch, key, Step(i, unrolled, turn))
                        sums += jnp.stack([metrics[name] for name in names])
                    return state, sums

                def keys_of(step: Array) -> PRNGKeyArray:
                    """One key for the batch, one for the update."""
                    return jax.random.split(jax.random.fold_in(step_key, step))

                def batch_of(key: PRNGKeyArray) -> Batch:
                    return draw(table, place, key, config.batch_size, phase.needs, actions)

                def by_turn(x: Array) -> Array:
                    return x.reshape(block // unrolled, unrolled, *x.shape[1:])

                def steps(b: Array, carry: tuple[Tree, Array]) -> tuple[Tree, Array]:
                    # Keys and batches of a block are drawn at once: a step launches its update alone.
                    numbers = start + b * block + jnp.arange(block)
                    keys = jax.vmap(keys_of)(numbers)
                    drawn = (numbers, jax.vmap(batch_of)(keys[:, 0]), keys[:, 1])
                    return scan(turns, carry, jax.tree.map(by_turn, drawn))

                # A loop of known length is launched ahead of the device; one of unknown length waits for it each time.
                blocks = (stop - start) // block
                state, sums = loop(blocks, steps, (state, jnp.zeros(len(names))))
                means = {name: total / jnp.maximum(stop - start, 1) for name, total in zip(names, sums, strict=True)}
                if held_out is not None and phase.validate is not None:
                    draw_key, loss_key = jax.random.split(jax.random.fold_in(validation_key, stop))
                    batch = draw(held_out, held_out.place(dataset), draw_key, VALIDATION_BATCH, phase.needs, actions)
                    losses = phase.validate(config, past, state, batch, loss_key)
                    means |= {f"validation_{name}": value for name, value in losses.items()}
                return state, means

            with precision(configs.precision):
                return jax.vmap(one)(configs, seeds, datasets, pasts, states)

        def on_devices(*arguments: Tree) -> tuple[Tree, Metrics]:
            *arrays, block = arguments
            return self._devices.each(partial(all_runs, block=block), spread=[True] * 5 + [False] * 4)(*arrays)

        return jit(on_devices, donate=(4,), static=(9,), compiler_options=compiler_options())


def compiler_options() -> dict[str, str]:
    """On a GPU, kernels that do not wait for each other run side by side: a step's networks are many and small."""
    on_gpu = jax.default_backend() == "gpu"
    return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"} if on_gpu else {}


def _metrics(phase: AnyPhase, config: Tree, past: Tree, state: Tree, table: Table, actions: int) -> Metrics:
    key = jax.random.key(0, impl="threefry2x32")
    batch = draw(table, table.place(0), key, config.batch_size, phase.needs, actions)
    return phase.update(config, past, state, batch, key, Step(jnp.zeros((), jnp.int32)))[1]


def traced(algorithm: Algorithm, run: Member, table: Table, spec: Spec) -> tuple[list[set[str]], list[float]]:
    """What tracing a step of each phase tells: the per-policy config fields that it or a phase before it reads, and the
    multiplications of its matrix products."""
    key = jax.random.key(0, impl="threefry2x32")
    names = [name for name, field in fields_of(type(run.config)).items() if field.spec.per_policy]
    config: Tree = take(stack([run.config]), 0)
    past: dict[str, Tree] = {}
    reads: list[set[str]] = []
    work: list[float] = []
    for phase in algorithm.phases:

        def trace(config: Tree, table: Table, past: Tree, phase: AnyPhase = phase) -> tuple[Tree, Metrics, Actor]:
            state = phase.init(config, spec._replace(states=spec.states[0]), past, key)
            batch = draw(table, table.place(0), key, config.batch_size, phase.needs, spec.actions)
            state, metrics = phase.update(config, past, state, batch, key, Step(jnp.zeros((), jnp.int32)))
            return state, metrics, phase.actor(config, past, state)

        closed, (past[phase.name], _, _) = _jax.make_jaxpr(trace, return_shape=True)(config, table, dict(past))
        jaxpr = closed.jaxpr
        used = {id(v) for line in jaxpr.eqns for v in line.invars} | set(map(id, jaxpr.outvars))
        # The config comes first among the inputs: its leaves are the per-policy fields, in their order.
        read = {name for name, v in zip(names, jaxpr.invars, strict=False) if id(v) in used}
        reads.append(read.union(*reads[-1:]))
        work.append(multiplications(jaxpr))
    return reads, work


def distinct_runs(runs: Sequence[Member], reads: set[str]) -> list[int]:
    """Which distinct training each run belongs to: that of its dataset, its seed and its values of the fields read."""
    settings = [values_of(run.config) for run in runs]
    values = [
        (run.dataset, run.seed, *(setting[name] for name in sorted(reads)))
        for run, setting in zip(runs, settings, strict=True)
    ]
    order = {value: i for i, value in enumerate(dict.fromkeys(values))}
    return [order[value] for value in values]


def _take_rows(tree: Tree, rows: np.ndarray) -> Tree:
    return take(tree, rows)


_taken = jit(_take_rows)
"""Rows of every array, in one program: taken one by one, every shape would be a program of its own."""
