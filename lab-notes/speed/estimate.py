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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas
from jax.experimental.pallas import triton

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import speed

from sbac.nn import mlp
from sbac.nn.typed import shapes
from sbac.training.engine import compiler_options

FIRST_FORM = {"critics": 2, "behaviour_dropout": 0.0}
HALF = {"precision": "bfloat16"}
EPSILON = 1e-5
LT = {"xla_gpu_enable_cublaslt": True}
BLOCKS = {"xla_gpu_experimental_enable_fusion_block_level_rewriter": True}
FORMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # which ReLU and LayerNorm, options, compiler options
    "first form": ("none", FIRST_FORM, {}),
    "no LayerNorm": ("none", {}, {}),
    "no LayerNorm, bfloat16": ("none", HALF, {}),
    "as it is": ("as it is", {}, {}),
    "as it is, bfloat16": ("as it is", HALF, {}),
    "as it is, one clone": ("as it is", {"behaviour_dropout": 0.0}, {}),
    "as it is, cublasLt": ("as it is", {}, LT),
    "as it is, block level": ("as it is", {}, BLOCKS),
    "centred": ("centred", {}, {}),
    "centred, its own slope": ("centred, its own slope", {}, {}),
    "centred, block level": ("centred", {}, BLOCKS),
    "one kernel": ("kernel", {}, {}),
    "one kernel, bfloat16": ("kernel", HALF, {}),
}
SMALL_ONLY = {"as it is, one clone", "as it is, cublasLt", "as it is, block level", "centred, block level"}
"""Timed with twenty runs alone."""
LIST: dict[str, tuple[str, dict[str, Any]]] = {
    "mu": ("estimate", {"critic": "mu"}),
    "expectile": ("estimate", {"critic": "expectile"}),
    "mu, two alphas": ("improve", {"critic": "mu", "alpha": [1 / 16, 1.0]}),
    "pi, three alphas": ("improve", {"critic": "pi", "alpha": [1 / 8, 1 / 4, 1 / 2]}),
    "expectile, one alpha": ("improve", {"critic": "expectile", "alpha": [1 / 4]}),
}
SHAPES = {"Hopper": (11, 3, 25), "HalfCheetah and Walker2d": (17, 6, 50)}


# --- ReLU and LayerNorm, in several ways ---------------------------------------------------------------------------


def centred(x: Array, bias: Array) -> Array:
    """The mean first, then the deviation: what XLA knows how to make one kernel of."""
    h = jax.nn.relu(x + bias).astype(jnp.float32)
    apart = h - h.mean(-1, keepdims=True)
    return (apart * jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + EPSILON)).astype(x.dtype)


def slope_in_input(y: Array, scale: Array, above: Array) -> Array:
    return scale * (above - above.mean(-1, keepdims=True) - y * (above * y).mean(-1, keepdims=True))


@jax.custom_vjp
def centred_with_slope(x: Array, bias: Array) -> Array:
    return centred(x, bias)


def forward_centred(x: Array, bias: Array) -> tuple[Array, Any]:
    y = centred(x, bias)
    return y, (x, bias, y)


def backward_centred(kept: Any, above: Array) -> tuple[Array, Array]:
    x, bias, y = kept
    h = jax.nn.relu(x + bias).astype(jnp.float32)
    scale = jax.lax.rsqrt(h.var(-1, keepdims=True) + EPSILON)
    inside = slope_in_input(y.astype(jnp.float32), scale, above.astype(jnp.float32))
    slope = jnp.where(h > 0, inside, 0.0).astype(above.dtype)
    return slope, slope.sum(0)


centred_with_slope.defvjp(forward_centred, backward_centred)


def rows_normalised(x: Any, bias: Any) -> tuple[Array, Array, Array]:
    """Of a block: x + bias, its normalised rows, and what each was multiplied by."""
    before = x[...].astype(jnp.float32) + bias[...].astype(jnp.float32)
    h = jnp.maximum(before, 0.0)
    apart = h - h.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt((apart * apart).mean(-1, keepdims=True) + EPSILON)
    return before, apart * scale, scale


def forward_kernel(x: Any, bias: Any, result: Any) -> None:
    result[...] = rows_normalised(x, bias)[1].astype(result.dtype)


def backward_kernel(x: Any, bias: Any, above: Any, slope: Any) -> None:
    # Worked out again: cheaper than to write the rows' numbers down and to read them.
    before, y, scale = rows_normalised(x, bias)
    inside = slope_in_input(y, scale, above[...].astype(jnp.float32))
    slope[...] = jnp.where(before > 0.0, inside, 0.0).astype(slope.dtype)


def by_blocks(kernel: Any, x: Array, bias: Array, *others: Array) -> Array:
    """The kernel over blocks of eight rows; its result is like x."""
    units = x.shape[-1]
    rows = [part.reshape(-1, units) for part in (x, *others)]
    block, whole = pallas.BlockSpec((8, units), lambda i: (i, 0)), pallas.BlockSpec((units,), lambda i: (0,))
    result = pallas.pallas_call(
        kernel,
        grid=(len(rows[0]) // 8,),
        in_specs=[block, whole, *(block for _ in others)],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(rows[0].shape, x.dtype),
        compiler_params=triton.CompilerParams(num_warps=4),
        interpret=jax.default_backend() != "gpu",
    )(rows[0], bias, *rows[1:])
    return result.reshape(x.shape)


@jax.custom_vjp
def in_one_kernel(x: Array, bias: Array) -> Array:
    return by_blocks(forward_kernel, x, bias)


def forward(x: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return by_blocks(forward_kernel, x, bias), (x, bias)


def backward(kept: tuple[Array, Array], above: Array) -> tuple[Array, Array]:
    slope = by_blocks(backward_kernel, *kept, above)
    return slope, slope.reshape(-1, slope.shape[-1]).sum(0)


in_one_kernel.defvjp(forward, backward)


def plain(x: Array, bias: Array) -> Array:
    return mlp.layer_norm(jax.nn.relu(x + bias))


NORMS = {
    "none": lambda x, bias: jax.nn.relu(x + bias),
    "as it is": plain,
    "centred": centred,
    "centred, its own slope": centred_with_slope,
    "kernel": in_one_kernel,
}


def layers_with(norm: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """`MLP.__call__` with another norm."""

    def call(self: mlp.MLP, *inputs: Array, dropout: float = 0.0, key: Any = None) -> Array:
        if not self.normalise:
            return AS_IT_IS(self, *inputs, dropout=dropout, key=key)
        x = jnp.concatenate(inputs, axis=-1)
        hidden = jnp.bfloat16 if mlp._precision.get() == "bfloat16" else x.dtype
        full, x = x.dtype, x.astype(hidden)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = norm(x @ weight.astype(hidden), bias.astype(hidden))
        return x.astype(full) @ self.weights[-1] + self.biases[-1]

    return call


AS_IT_IS = mlp.MLP.__call__


# --- Programs -------------------------------------------------------------------------------------------------------


class Timed:
    """A phase's program, traced at once, compiled and timed when asked."""

    def __init__(
        self, row: dict[str, Any], shape: tuple[int, int], options: dict[str, Any], block: int, flags: dict[str, Any]
    ) -> None:
        speed.OBSERVATIONS, speed.ACTIONS = shape
        self.row, self.block, self.flags = row, block, flags
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
        try:
            self.compiled: Any = self.lowered.compile({**compiler_options(), **self.flags})
        except Exception as error:  # an option that this XLA does not know
            print(self.row, str(error)[:300], flush=True)
            self.compiled = None
            return
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


def check(name: str) -> float:
    """How far a norm's values and slopes lie from those of the one in use, relative to the largest."""
    keys = jax.random.split(jax.random.key(0), 3)
    x, above = (jax.random.normal(key, (5, 256, 256)) for key in keys[:2])
    bias = jax.random.normal(keys[2], (5, 256))

    def all_of(function: Callable[..., jax.Array]) -> Any:
        def one(x: jax.Array, bias: jax.Array, above: jax.Array) -> Any:
            value, back = jax.vjp(function, x, 0.3 * bias)
            return value, back(above)

        return jax.jit(jax.vmap(one))(x, bias, above)

    ours, theirs = (jax.tree.leaves(all_of(NORMS[name])) for name in (name, "as it is"))
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--small", action="store_true", help="a trial of the script")
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    began = time.perf_counter()
    for name in ("centred", "centred, its own slope", "kernel"):
        print(f"{name}: {check(name):.1e} from the one in use", flush=True)
    sizes, block = ([2], 2) if asked.small else ([20, 300], 100)
    timed: list[Timed] = []
    for seeds in sizes:
        for form, (kind, options, flags) in FORMS.items():
            if seeds > 20 and form in SMALL_ONLY:
                continue
            mlp.MLP.__call__ = layers_with(NORMS[kind])
            row = {"what": "forms", "form": form, "phase": "estimate", "seeds": seeds, "shape": "HalfCheetah"}
            timed.append(Timed(row, (17, 6), {"critic": "mu", **options}, block, flags))
    mlp.MLP.__call__ = AS_IT_IS
    for shape, (observations, actions, seeds) in SHAPES.items():
        for job, (phase, options) in LIST.items():
            row = {"what": "list", "form": job, "phase": phase, "seeds": 2 if asked.small else seeds, "shape": shape}
            timed.append(Timed(row, (observations, actions), options, block, {}))
    print(f"traced: {time.perf_counter() - began:.0f} s", flush=True)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(Timed.compile, timed))
    print(f"compiled: {time.perf_counter() - began:.0f} s", flush=True)
    with asked.out.open("a") as file:
        for each in timed:
            if each.compiled is None:
                continue
            if each.row["form"] in ("as it is", "one kernel", "centred") and each.row["seeds"] == 20:
                (asked.out.parent / f"hlo-{each.row['form'].replace(' ', '-')}.txt").write_text(each.compiled.as_text())
            row = each.time(0.1 if asked.small else asked.seconds)
            del each.state, each.inputs
            told = [str(row[name]) for name in ("what", "form", "shape", "runs")]
            print(*told, f"{row['steps_per_second']:,.0f} steps/s", flush=True)
            file.write(json.dumps({**row, "device": jax.devices()[0].device_kind, "jax": jax.__version__}) + "\n")
            file.flush()
    print(f"done: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
