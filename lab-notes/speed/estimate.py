"""What phase *estimate* of SBAC costs, part by part, beside SBAC's first form; and what the list of six costs.

python lab-notes/speed/estimate.py OUT [--small]

OUT gets a row a program. All programs are compiled first, side by side, and then timed one after the other, in one
process. "list" rows are the programs of the third form's list at the sizes of the paper's column: five tasks of
Hopper's shape and ten of HalfCheetah's and Walker2d's, five seeds each.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import speed

from sbac.nn import mlp
from sbac.nn.typed import shapes

FIRST_FORM = {"critics": 2, "behaviour_dropout": 0.0}
HALF = {"precision": "bfloat16"}
FORMS: dict[str, tuple[bool, dict[str, Any]]] = {
    # whether the critics have LayerNorm; options
    "first form": (False, FIRST_FORM),
    "no LayerNorm": (False, {}),
    "no LayerNorm, bfloat16": (False, HALF),
    "as it is": (True, {}),
    "as it is, bfloat16": (True, HALF),
    "as it is, one clone": (True, {"behaviour_dropout": 0.0}),
}
LIST: dict[str, tuple[str, dict[str, Any]]] = {
    "mu": ("estimate", {"critic": "mu"}),
    "expectile": ("estimate", {"critic": "expectile"}),
    "mu, two alphas": ("improve", {"critic": "mu", "alpha": [1 / 16, 1.0]}),
    "pi, three alphas": ("improve", {"critic": "pi", "alpha": [1 / 8, 1 / 4, 1 / 2]}),
    "expectile, one alpha": ("improve", {"critic": "expectile", "alpha": [1 / 4]}),
}
LAYER_NORM = mlp.layer_norm
SHAPES = {"Hopper": (11, 3, 25), "HalfCheetah and Walker2d": (17, 6, 50)}


class Timed:
    """A phase's program, traced at once, compiled and timed when asked."""

    def __init__(self, row: dict[str, Any], shape: tuple[int, int], options: dict[str, Any], block: int) -> None:
        speed.OBSERVATIONS, speed.ACTIONS = shape
        self.row, self.block = row, block
        self.prog = speed.program(speed.made_up(200_000), "sbac", row["seeds"], options, "tuned")
        self.index = [phase.name for phase in self.prog.algorithm.phases].index(row["phase"])
        finals: dict[str, Any] = {}
        for earlier in range(self.index):
            finals[self.prog.algorithm.phases[earlier].name] = self.prog.shape(earlier, finals)
        inputs = shapes(partial(self.prog.inputs, self.index), finals)
        chunk, tables = self.prog._chunks[self.index], (self.prog.table, self.prog.validation)
        self.lowered = chunk.lower(*inputs, self.prog.shape(self.index, finals), *tables, 0, block, block)
        self.row["runs"] = len(self.prog.members(self.index))

    def compile(self) -> None:
        began = time.perf_counter()
        self.compiled: Any = self.lowered.compile()
        self.row["compile_seconds"] = time.perf_counter() - began
        finals: dict[str, Any] = {}
        for earlier in range(self.index):
            finals[self.prog.algorithm.phases[earlier].name] = self.prog.init(earlier, finals)
        self.inputs, self.state = self.prog.inputs(self.index, finals), self.prog.init(self.index, finals)

    def time(self, seconds: float) -> dict[str, Any]:
        inputs, state, tables, steps = self.inputs, self.state, (self.prog.table, self.prog.validation), self.block
        state, _ = jax.block_until_ready(self.compiled(*inputs, state, *tables, 0, steps))
        while True:
            began = time.perf_counter()
            state, metrics = jax.block_until_ready(self.compiled(*inputs, state, *tables, 0, steps))
            taken = time.perf_counter() - began
            if taken > seconds / 2:
                break
            steps = self.block * max(1, int(steps * seconds / taken) // self.block)
        finite = all(bool(jnp.isfinite(value).all()) for value in metrics.values())
        rate = steps / taken
        return {**self.row, "steps_per_second": rate, "run_steps_per_second": rate * self.row["runs"], "finite": finite}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--small", action="store_true", help="a trial of the script")
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    began = time.perf_counter()
    sizes, block = ([2], 2) if asked.small else ([20, 300], 100)
    timed: list[Timed] = []
    for seeds in sizes:
        for form, (normalised, options) in FORMS.items():
            mlp.layer_norm = LAYER_NORM if normalised else (lambda x: x)
            row = {"what": "forms", "form": form, "phase": "estimate", "seeds": seeds, "shape": "HalfCheetah"}
            timed.append(Timed(row, (17, 6), {"critic": "mu", **options}, block))
    mlp.layer_norm = LAYER_NORM
    for shape, (observations, actions, seeds) in SHAPES.items():
        for job, (phase, options) in LIST.items():
            row = {"what": "list", "form": job, "phase": phase, "seeds": 2 if asked.small else seeds, "shape": shape}
            timed.append(Timed(row, (observations, actions), options, block))
    print(f"traced: {time.perf_counter() - began:.0f} s", flush=True)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(Timed.compile, timed))
    print(f"compiled: {time.perf_counter() - began:.0f} s", flush=True)
    with asked.out.open("a") as file:
        for each in timed:
            row = each.time(0.1 if asked.small else asked.seconds)
            del each.state, each.inputs
            told = [str(row[name]) for name in ("what", "form", "shape", "runs")]
            print(*told, f"{row['steps_per_second']:,.0f} steps/s", flush=True)
            file.write(json.dumps({**row, "device": jax.devices()[0].device_kind, "jax": jax.__version__}) + "\n")
            file.flush()
    print(f"done: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
