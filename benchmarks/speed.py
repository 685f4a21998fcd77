"""How fast methods train on the device found, beside what the device could do.

    python benchmarks/speed.py --algorithms sbac td3-bc iql --runs 1 5 20 80 300

Hopper-shaped made-up data (speed does not depend on its values), each method's `paper` networks and a batch of 256. A
run-step is one call of the method's update for one run; evaluation and logging are left out. Operations and bytes of a
step are XLA's own count of the compiled program; their shares are of the two ceilings, a large matrix product and a
large copy, measured first. Every row goes to --out as it comes, so that a table can be made in parts.
"""

import argparse
import itertools
import json
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbac.algorithms import find
from sbac.algorithms.base import Spec
from sbac.data import Dataset
from sbac.training.engine import Program
from sbac.training.grid import members
from sbac.training.table import Scaling, build_table

BATCH = 256
OBSERVATIONS, ACTIONS = 11, 3  # Hopper's
Row = dict[str, Any]


def made_up(rows: int) -> Dataset:
    rng = np.random.default_rng(0)
    timeouts = np.zeros(rows, bool)
    timeouts[999::1000] = True
    return Dataset(
        observations=rng.standard_normal((rows, OBSERVATIONS), np.float32),
        actions=np.tanh(rng.standard_normal((rows, ACTIONS), np.float32)),
        rewards=rng.standard_normal(rows, np.float32),
        terminals=np.zeros(rows, bool),
        timeouts=timeouts,
    )


def program(data: Dataset, algorithm: str, runs: int, options: Mapping[str, Any], preset: str = "paper") -> Program:
    """`runs` seeds of every setting."""
    method = find(algorithm)
    launch = members(method, preset, runs, options)
    scaling = Scaling.of(data, launch[0].config)
    states = jnp.asarray(scaling.states(data.observations[:1000]))
    spec = Spec(data.observations.shape[1], data.actions.shape[1], states[None])
    return Program(method, launch, build_table(data, scaling), None, spec)


def measure(prog: Program, seconds: float, phases: Sequence[str] = ()) -> Iterator[Row]:
    """A row per phase, or per phase named; a phase that is left out hands on its first state."""
    finals: dict[str, Any] = {}
    for index, phase in enumerate(prog.algorithm.phases):
        block, count = 100, len(prog.members(index))
        state, inputs = prog.init(index, finals), prog.inputs(index, finals)
        if phases and phase.name not in phases:
            finals[phase.name] = state
            continue
        began = time.perf_counter()
        step = prog.compiled(index, finals, block)
        compiled = time.perf_counter() - began
        tables = (prog.table, prog.validation)
        state, _ = jax.block_until_ready(step(*inputs, state, *tables, 0, block))
        steps, rate = block, 0.0
        while True:
            began = time.perf_counter()
            state, _ = jax.block_until_ready(step(*inputs, state, *tables, 0, steps))
            taken = time.perf_counter() - began
            rate = steps / taken
            if taken > seconds / 2:
                break
            steps = block * int(min(max(2 * steps, rate * seconds), 1e6) // block)
        row: Row = {
            "algorithm": prog.algorithm.name,
            "phase": phase.name,
            "runs": count,
            "steps_per_second": rate,
            "run_steps_per_second": rate * count,
            "compile_seconds": compiled,
            **memory(),
        }
        period = prog.unrolled(index, block)
        counted = prog.compiled(index, finals, period).cost_analysis()  # of so many steps and no more
        assert counted is not None
        row["flops_per_second"] = rate / period * counted["flops"]
        row["bytes_per_second"] = rate / period * counted["bytes accessed"]
        finals[phase.name] = state
        yield row


def memory() -> Row:
    """Peaks so far, in MB: the device's where it tells, and the process's."""
    stats = jax.devices()[0].memory_stats() or {}
    device = stats.get("peak_bytes_in_use")
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"device_mb": None if device is None else device / 1e6, "host_mb": host}


def ceilings() -> Row:
    """Bytes a second of a large copy (read and written), operations a second of a large product."""
    on_cpu = jax.default_backend() == "cpu"
    long, wide = (1 << 24, 1024) if on_cpu else (1 << 28, 8192)
    vector = jax.random.normal(jax.random.key(0), (long,))
    square = jax.random.normal(jax.random.key(1), (wide, wide))

    def rate(function: Any, value: jax.Array, work: float) -> float:
        repeated = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: function(y), x))
        jax.block_until_ready(repeated(value))
        began = time.perf_counter()
        jax.block_until_ready(repeated(value))
        return 20 * work / (time.perf_counter() - began)

    return {
        "bytes_per_second": rate(lambda x: x + 1, vector, 2 * vector.nbytes),
        "flops_per_second": rate(lambda x: x @ square / wide, square, 2 * wide**3),
    }


def table_line(row: Row, ceiling: Row) -> str:
    cells = [
        row["algorithm"],
        row["phase"],
        str(row["runs"]),
        f"{row['run_steps_per_second']:,.0f}",
        *(f"{row[name] / ceiling[name]:.0%}" for name in ("bytes_per_second", "flops_per_second")),
        f"{row['compile_seconds']:.1f}",
        f"{row['device_mb']:,.0f}" if row["device_mb"] else "",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--algorithms", nargs="*", default=["sbac", "sbac-no-w", "bc", "td3-bc", "iql", "cql", "rebrac"]
    )
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings of the method")
    parser.add_argument("--phases", nargs="+", default=[], help="measure these only")
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 5, 20])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a measurement, about")
    parser.add_argument("--out", type=Path, help="a file to which every row is added")
    told = parser.parse_args()
    ceiling = ceilings()
    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", end="; ")
    print(
        f"copy {ceiling['bytes_per_second'] / 1e9:,.0f} GB/s, product {ceiling['flops_per_second'] / 1e9:,.0f} GFLOP/s"
    )
    print("\n| method | phase | runs | run-steps/s | of the copy | of the product | compile s | device MB |")
    print("|---" * 8 + "|")
    data = made_up(told.rows)

    options: dict[str, Any] = {"batch_size": BATCH} if told.preset == "paper" else {}
    for name, value in (pair.split("=") for pair in told.set):
        options[name] = json.loads(value) if value[0] in "[0123456789-" else value
    for algorithm, runs in itertools.product(told.algorithms, told.runs):
        for row in measure(program(data, algorithm, runs, options, told.preset), told.seconds, told.phases):
            print(table_line(row, ceiling), flush=True)
            if told.out:
                with told.out.open("a") as file:
                    file.write(json.dumps({"options": options, **row, "device": jax.devices()[0].device_kind}) + "\n")


if __name__ == "__main__":
    main()
