"""A graph as the bytes of a StableHLO program, written and read by `jax.export`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.export
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.exporting.graph import INPUT, OUTPUT, Constant, Graph
from sbac.policy import Floats

PLATFORMS = ("cpu", "cuda")
Whole = NDArray[np.int64]
"""Whole numbers that an operator takes as an input, such as axes: one axis, known when the program is traced."""

# JAX annotates these in part; the functions below say what comes back.
_jax: Any = jax
_jnp: Any = jax.numpy


def _matmul(x: Array, y: Array) -> Array:
    return _jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)


def _layer_norm(x: Array, scale: Array, axis: int, epsilon: float) -> Array:
    centred = x - x.mean(axis, keepdims=True)
    return scale * centred / _jnp.sqrt((centred**2).mean(axis, keepdims=True) + epsilon)


def _sum(x: Array, axes: Whole, keepdims: int) -> Array:
    return _jnp.sum(x, int(axes[0]))


def _max(x: Array, axes: Sequence[int], keepdims: int) -> Array:
    return _jnp.max(x, axes[0], keepdims=True)


def _argmax(x: Array, axis: int, keepdims: int) -> Array:
    return _jnp.argmax(x, axis, keepdims=True)


def _as_float(x: Array, to: int) -> Array:
    return x.astype(np.float32)


def _slice(x: Array, start: Whole, stop: Whole, axis: Whole) -> Array:
    return x[..., int(start[0]) : int(stop[0])]


def _reshape(x: Array, shape: Whole) -> Array:
    return _jnp.reshape(x, tuple(int(size) for size in shape))


def _unsqueeze(x: Array, axes: Whole) -> Array:
    return _jnp.expand_dims(x, int(axes[0]))


def _squeeze(x: Array, axes: Whole) -> Array:
    return _jnp.squeeze(x, int(axes[0]))


def _concatenate(*parts: Array, axis: int) -> Array:
    return _jnp.concatenate(parts, axis)


def _identity(x: Array) -> Array:
    return x


OPERATORS: dict[str, Callable[..., Array]] = {
    "Add": _jnp.add,
    "Sub": _jnp.subtract,
    "Mul": _jnp.multiply,
    "Div": _jnp.divide,
    "Max": _jnp.maximum,
    "Min": _jnp.minimum,
    "MatMul": _matmul,
    "Relu": _jax.nn.relu,
    "Tanh": _jnp.tanh,
    "Exp": _jnp.exp,
    "Log": _jnp.log,
    "Abs": _jnp.abs,
    "Softplus": _jax.nn.softplus,
    "LogSoftmax": _jax.nn.log_softmax,
    "Softmax": _jax.nn.softmax,
    "LayerNormalization": _layer_norm,
    "ReduceSum": _sum,
    "ReduceMax": _max,
    "ArgMax": _argmax,
    "Equal": _jnp.equal,
    "Greater": _jnp.greater,
    "GreaterOrEqual": _jnp.greater_equal,
    "Where": _jnp.where,
    "Cast": _as_float,
    "Slice": _slice,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Concat": _concatenate,
    "Identity": _identity,
}


def computed(graph: Graph, observations: Array, replaced: Mapping[str, Array] | None = None) -> Array:
    """The graph's result, operation by operation; `replaced` takes the place of the constants that it names."""
    constants: dict[str, Array | Constant] = {**graph.constants, **(replaced or {})}
    values: dict[str, Array] = {INPUT: observations}
    for entry in graph.operations:
        inputs = [values[name] if name in values else constants[name] for name in entry.inputs]
        values[entry.output] = OPERATORS[entry.operator](*inputs, **entry.attributes)
    return values[OUTPUT]


def stablehlo_bytes(graph: Graph, observations: int) -> bytes:
    """The file's content, for any number of observations, on a CPU or an NVIDIA GPU."""

    def policy(states: Array) -> Array:
        return computed(graph, states)

    shape = _jax.ShapeDtypeStruct(jax.export.symbolic_shape(f"n, {observations}"), np.float32)
    exported = jax.export.export(_jax.jit(policy), platforms=PLATFORMS)(shape)
    try:
        return bytes(exported.serialize())
    except ImportError:
        raise UserError("--format stablehlo needs the package flatbuffers: pip install 'sbac[export]'") from None


def stablehlo_runner(data: bytes) -> Callable[[Floats], Floats]:
    """A function that runs the file."""
    program: Any = jax.export.deserialize(bytearray(data))
    call = _jax.jit(program.call)
    return lambda observations: np.asarray(call(observations))
