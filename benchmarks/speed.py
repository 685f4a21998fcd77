"""How fast methods train on the device found: run-steps per second for several numbers of runs at once.

    python benchmarks/speed.py --algorithms sbac td3-bc iql --runs 1 5 20 80 300

Hopper-shaped made-up data (speed does not depend on its values), each method's `paper` networks and batch of 256.
A run-step is one call of the method's update for one run. The two ceilings (a large copy, a large matrix product)
are measured in the same process; the share of them comes from XLA's own count of a step's bytes and operations.
"""

import argparse
import time
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


def hopper_shaped(rows: int) -> Dataset:
    rng = np.random.default_rng(0)
    timeouts = np.zeros(rows, bool)
    timeouts[999::1000] = True
    return Dataset(
        observations=rng.normal(size=(rows, 11)).astype(np.float32),
        actions=np.tanh(rng.normal(size=(rows, 3))).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        terminals=np.zeros(rows, bool),
        timeouts=timeouts,
    )


def program(data: Dataset, algorithm: str, runs: int, options: dict[str, Any], preset: str = "paper") -> Program:
    method = find(algorithm)
    launch = members(method, preset, runs, options | ({"batch_size": 256} if preset == "paper" else {}))
    scaling = Scaling.of(data, launch[0].config)
    spec = Spec(11, 3, jnp.asarray(scaling.states(data.observations[:1000])))
    return Program(method, launch, build_table(data, scaling), None, spec)


def measure(data: Dataset, algorithm: str, runs: int, seconds: float, options: dict[str, Any]) -> None:
    prog = program(data, algorithm, runs, options)
    finals: dict[str, Any] = {}
    for index, phase in enumerate(prog.algorithm.phases):
        began = time.perf_counter()
        state, inputs = prog.init(index, finals), prog.inputs(index, finals)
        state, _ = prog.advance(index, inputs, state, 0, 10)
        jax.block_until_ready(state)
        compiled = time.perf_counter() - began
        steps, rate = 50, 0.0
        while True:
            began = time.perf_counter()
            state, _ = prog.advance(index, inputs, state, 0, steps)
            jax.block_until_ready(state)
            taken = time.perf_counter() - began
            rate = steps / taken
            if taken > seconds / 2:
                break
            steps = int(min(max(2 * steps, rate * seconds), 1_000_000))
        count = len(prog.members(index))
        print(
            f"{algorithm:12s} {phase.name:10s} {count:4d} runs {rate:10,.0f} steps/s {rate * count:12,.0f} run-steps/s"
            f"  first call {compiled:5.1f} s",
            flush=True,
        )
        finals[phase.name] = state


def ceilings() -> None:
    """A large copy (bytes read and written) and a large matrix product."""
    big = jnp.ones((1 << 28,) if jax.default_backend() != "cpu" else (1 << 24,), jnp.float32)
    square = jnp.ones((8192, 8192) if jax.default_backend() != "cpu" else (1024, 1024), jnp.float32)
    for name, function, value, work in (
        ("copy", jax.jit(lambda x: x + 1), big, 2 * big.nbytes),
        ("product", jax.jit(lambda x: x @ x), square, 2 * square.shape[0] ** 3),
    ):
        function(value).block_until_ready()
        began = time.perf_counter()
        for _ in range(10):
            result = function(value)
        result.block_until_ready()
        rate = 10 * work / (time.perf_counter() - began)
        print(f"ceiling: {name} {rate / 1e12:.3f} T{'B' if name == 'copy' else 'FLOP'}/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=["sbac", "bc", "td3-bc", "iql", "cql", "rebrac"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 5, 20])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    print(f"device: {jax.devices()[0].device_kind}, jax {jax.__version__}")
    ceilings()
    data = hopper_shaped(arguments.rows)
    for algorithm in arguments.algorithms:
        for runs in arguments.runs:
            measure(data, algorithm, runs, arguments.seconds, {})


if __name__ == "__main__":
    main()
