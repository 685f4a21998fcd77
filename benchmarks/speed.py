"""How fast methods train on the device found, beside what the device could do and, if asked, beside d3rlpy.

    python benchmarks/speed.py --algorithms sbac td3-bc iql --runs 1 5 20 80 300
    python benchmarks/speed.py --peer peer/bin/python            # an environment with d3rlpy, measured in the same run
    python benchmarks/speed.py --sweep runs batch width rows --plot lab-notes/speed/speed.png      # how cost grows
    python benchmarks/speed.py --column --algorithms sbac        # the paper's 15 MuJoCo tasks, 5 seeds, 4 alphas

Hopper-shaped made-up data (speed does not depend on its values), each method's `paper` networks and a batch of 256. A
run-step is one call of the method's update for one run; evaluation and logging are left out. Operations and bytes of a
step are XLA's own count of the compiled program; their shares are of the two ceilings, a large matrix product and a
large copy, measured first. Every row goes to --out as it comes, so that a table can be made in parts.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbac.algorithms import find
from sbac.algorithms.base import Spec
from sbac.config import fields_of
from sbac.data import Dataset
from sbac.training.engine import Program
from sbac.training.grid import members
from sbac.training.table import Scaling, build_table, join

BATCH = 256
HOPPER, CHEETAH = (11, 3), (17, 6)  # observations and actions; Walker2d has HalfCheetah's
COLUMN = ((HOPPER, 5), (CHEETAH, 10))  # tasks of each shape, every one on five kinds of data
COLUMN_SEEDS, COLUMN_ALPHAS, COLUMN_STEPS = 5, [0.2, 0.5, 2.0, 5.0], 1_000_000
PEERS = ("td3-bc", "iql", "cql", "bc")
SWEEPS: dict[str, Sequence[int]] = {
    "runs": (1, 5, 20, 80, 300),
    "batch": (64, 256, 1024, 4096),
    "width": (64, 128, 256, 512, 1024),
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
}
AXES = {"runs": "runs at once", "batch": "batch", "width": "width of two hidden layers", "rows": "transitions"}
Row = dict[str, Any]


def made_up(rows: int, shape: tuple[int, int] = HOPPER) -> Dataset:
    observations, actions = shape
    rng = np.random.default_rng(0)
    timeouts = np.zeros(rows, bool)
    timeouts[999::1000] = True
    return Dataset(
        observations=rng.standard_normal((rows, observations), np.float32),
        actions=np.tanh(rng.standard_normal((rows, actions), np.float32)),
        rewards=rng.standard_normal(rows, np.float32),
        terminals=np.zeros(rows, bool),
        timeouts=timeouts,
    )


def program(
    data: Dataset, algorithm: str, runs: int, options: Mapping[str, Any], preset: str = "paper", tasks: int = 1
) -> Program:
    """`runs` seeds of every setting on each of `tasks` datasets, which here are the same one over again."""
    method = find(algorithm)
    launch = members(method, preset, runs, options)
    scaling = Scaling.of(data, launch[0].config)
    states = jnp.asarray(scaling.states(data.observations[:1000]))
    spec = Spec(data.observations.shape[1], data.actions.shape[1], jnp.stack([states] * tasks))
    everywhere = [dataclasses.replace(run, dataset=task) for task in range(tasks) for run in launch]
    return Program(method, everywhere, join([build_table(data, scaling)] * tasks), None, spec)


def measure(prog: Program, seconds: float, phases: Sequence[str] = (), cost: bool = True) -> Iterator[Row]:
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
        if cost:
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


def peer_rates(peer: str, data: Dataset, hidden: Sequence[int], steps: int) -> Iterator[Row]:
    """d3rlpy on the same data, batch and networks, on the same device."""
    columns = ("observations", "actions", "rewards", "terminals", "timeouts")
    arrays = {name: np.asarray(getattr(data, name), np.float32) for name in columns}
    device = "cpu:0" if jax.default_backend() == "cpu" else "cuda:0"
    script = Path(__file__).with_name("d3rlpy_peer.py")
    settings = {
        "hidden": list(hidden),
        "batch_size": BATCH,
        "discount": 0.99,
        "learning_rate": 3e-4,
        "alpha": 2.5,
        "expectile": 0.7,
        "temperature": 3.0,
        "samples": 10,
        "speed_steps": steps,
        "device": device,
    }
    for name in PEERS:
        with tempfile.TemporaryDirectory() as folder:
            source, destination = Path(folder, "in.npz"), Path(folder, "out.npz")
            np.savez(source, allow_pickle=False, job=np.asarray(json.dumps([name, settings])), **arrays)
            done = subprocess.run([peer, script, "speed", source, destination], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"error: {peer} failed: {done.stderr.strip().splitlines()[-1]}")
            rate = float(np.load(destination)["rate"])
        yield {"algorithm": f"d3rlpy {name}", "phase": "", "runs": 1, "run_steps_per_second": rate}


def sweep(kind: str, data: Dataset, algorithms: Sequence[str], seconds: float, phases: Sequence[str]) -> Iterator[Row]:
    """One size after the other, the rest as it is."""
    for size in SWEEPS[kind]:
        log = made_up(size) if kind == "rows" else data
        runs = size if kind == "runs" else 1
        for algorithm in algorithms:
            fields = fields_of(find(algorithm).config)
            hidden = {name: [size, size] for name in ("hidden", "ratio_hidden") if name in fields}
            options = {"batch": {"batch_size": size}, "width": hidden}.get(kind, {})
            prog = program(log, algorithm, runs, {"batch_size": BATCH} | options)
            for row in measure(prog, seconds, phases, cost=False):
                yield {"sweep": kind, "size": size, **row}


def column(
    algorithm: str, preset: str, options: Mapping[str, Any], rows: int, seconds: float, phases: Sequence[str]
) -> Iterator[Row]:
    """The paper's column: tasks of equal shape in one program, each phase for the time of a million steps."""
    for shape, tasks in COLUMN:
        grid = {"alpha": COLUMN_ALPHAS, **options}
        prog = program(made_up(rows, shape), algorithm, COLUMN_SEEDS, grid, preset, tasks)
        for row in measure(prog, seconds, phases, cost=False):
            minutes = COLUMN_STEPS / row["steps_per_second"] / 60
            yield {"column": f"{tasks} tasks of {shape[0]} and {shape[1]}", "minutes": minutes, **row}


def table_line(row: Row, ceiling: Row) -> str:
    def share(name: str) -> str:
        return f"{row[name] / ceiling[name]:.0%}" if name in row else ""

    compiled = f"{row['compile_seconds']:.1f}" if "compile_seconds" in row else ""
    device = f"{row['device_mb']:,.0f}" if row.get("device_mb") else ""
    what = f"{row['sweep']} {row['size']:,}: " if "sweep" in row else f"{row['column']}: " if "column" in row else ""
    cells = [
        what + row["algorithm"],
        row["phase"],
        str(row["runs"]),
        f"{row['run_steps_per_second']:,.0f}",
        share("bytes_per_second"),
        share("flops_per_second"),
        compiled,
        device,
    ]
    return f"| {' | '.join(cells)} |"


def plot(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    rows = [row for row in rows if "sweep" in row]
    if not rows:
        raise SystemExit("error: --plot: no sweep was measured, and --out has none")
    kinds = [kind for kind in SWEEPS if any(row["sweep"] == kind for row in rows)]
    figure = Figure(figsize=(2.6 * len(kinds), 3.0), layout="constrained")
    axes: Any = figure.subplots(1, len(kinds), squeeze=False, sharey=True)[0]
    for axis, kind in zip(axes, kinds, strict=True):
        chosen = [row for row in rows if row["sweep"] == kind]
        for name in dict.fromkeys((row["algorithm"], row["phase"]) for row in chosen):
            line = [row for row in chosen if (row["algorithm"], row["phase"]) == name]
            sizes, rates = [row["size"] for row in line], [row["run_steps_per_second"] for row in line]
            axis.loglog(sizes, rates, marker="o", markersize=3, label=" ".join(name))
        axis.set(xlabel=AXES[kind], ylabel="run-steps per second" if kind == kinds[0] else "")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small", frameon=False, loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


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
    parser.add_argument("--sweep", nargs="+", choices=list(SWEEPS), default=[])
    parser.add_argument("--column", action="store_true", help="the time of the paper's column, in place of --runs")
    parser.add_argument("--plot", type=Path, help="the sweeps as a PNG, those that --out has from before among them")
    parser.add_argument("--peer", help="a Python that has d3rlpy")
    parser.add_argument("--peer-steps", type=int, default=500)
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

    def rows() -> Iterator[Row]:
        for kind in told.sweep:
            yield from sweep(kind, data, told.algorithms, told.seconds, told.phases)
        if told.sweep:
            return
        options: dict[str, Any] = {"batch_size": BATCH} if told.preset == "paper" else {}
        for name, value in (pair.split("=") for pair in told.set):
            options[name] = json.loads(value) if value[0] in "[0123456789-" else value
        for algorithm in told.algorithms:
            if told.column:
                yield from column(algorithm, told.preset, options, told.rows, told.seconds, told.phases)
                continue
            for runs in told.runs:
                for row in measure(program(data, algorithm, runs, options, told.preset), told.seconds, told.phases):
                    yield {"options": options, **row}
        if told.peer:
            yield from peer_rates(told.peer, data, (256, 256), told.peer_steps)

    found: list[Row] = []
    for row in rows():
        found.append(row)
        print(table_line(row, ceiling), flush=True)
        if told.out:
            with told.out.open("a") as file:
                file.write(json.dumps(row | {"device": jax.devices()[0].device_kind}) + "\n")
    if told.plot:
        plot([json.loads(line) for line in told.out.read_text().splitlines()] if told.out else found, told.plot)
    if told.column:
        for algorithm in told.algorithms:
            minutes = {row["column"]: 0.0 for row in found}
            for row in found:
                minutes[row["column"]] += row["minutes"] * (row["algorithm"] == algorithm)
            print(f"{algorithm}: {' + '.join(f'{m:.1f}' for m in minutes.values())} = {sum(minutes.values()):.1f} min")


if __name__ == "__main__":
    main()
