"""JAX's transformations with types. JAX annotates them with a bare `Callable`, so a type checker learns nothing of
what they return; each function below calls the one it names and says what comes back."""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import jax
import jax.stages
import numpy as np
from jaxtyping import Array

Tree = Any
"""Any pytree of arrays: a state, a config with an axis for runs, or the shapes of either."""

Value = TypeVar("Value")
Carry = TypeVar("Carry")
Item = TypeVar("Item")
Extras = TypeVar("Extras")
Kept = TypeVar("Kept")
Result = TypeVar("Result", covariant=True)
Arguments = ParamSpec("Arguments")

_jax: Any = jax


def gradient(function: Callable[[Value], Array], at: Value) -> Value:
    """`jax.grad`, evaluated: the slope of a scalar in every array of `at`."""
    return _jax.grad(function)(at)


def gradient_and_extras(function: Callable[[Value], tuple[Array, Extras]], at: Value) -> tuple[Value, Extras]:
    """`jax.grad` of a function that returns (scalar, extras): the slope, and the extras."""
    return _jax.grad(function, has_aux=True)(at)


def with_slope(
    forward: Callable[[Array], tuple[Array, Kept]], slope: Callable[[Kept, Array], Array]
) -> Callable[[Array], Array]:
    """`jax.custom_vjp` of one array: `forward` returns the value and what `slope` needs besides the slope above."""

    def value(x: Array) -> Array:
        return forward(x)[0]

    def backward(kept: Kept, above: Array) -> tuple[Array]:
        return (slope(kept, above),)

    function = _jax.custom_vjp(value)
    function.defvjp(forward, backward)
    return function


def choose(predicate: bool | Array, do: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
    """`jax.lax.cond` without operands."""
    return _jax.lax.cond(predicate, do, otherwise)


def loop(count: int | Array, body: Callable[[Array, Carry], Carry], start: Carry) -> Carry:
    """`jax.lax.fori_loop` from 0 to `count`."""
    return _jax.lax.fori_loop(0, count, body, start)


def scan(body: Callable[[Carry, Item], Carry], start: Carry, items: Item) -> Carry:
    """`jax.lax.scan` over the first axis of `items`, without outputs."""

    def without_output(carry: Carry, item: Item) -> tuple[Carry, None]:
        return body(carry, item), None

    return _jax.lax.scan(without_output, start, items)[0]


@runtime_checkable
class Lowered(Protocol):
    """A program that is not compiled yet."""

    def compile(self) -> jax.stages.Compiled: ...

    def as_text(self) -> str: ...


@runtime_checkable
class Jitted(Protocol[Arguments, Result]):
    """A function that `jax.jit` compiles at its first call."""

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result: ...

    def lower(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Lowered:
        """The program for these arguments, or for their shapes, not yet compiled."""
        ...


def jit(
    function: Callable[Arguments, Value],
    *,
    donate: tuple[int, ...] = (),
    static: tuple[int, ...] = (),
    compiler_options: dict[str, str] | None = None,
) -> Jitted[Arguments, Value]:
    """`jax.jit`: `donate` and `static` are the positions of arguments."""
    return _jax.jit(function, donate_argnums=donate, static_argnums=static, compiler_options=compiler_options)


def shapes(function: Callable[[Item], Value], argument: Item) -> Value:
    """`jax.eval_shape`: the structure of the result, with shapes in place of arrays."""
    return _jax.eval_shape(function, argument)


def leaf_names(tree: Tree) -> list[str]:
    """A name for every leaf: its path, with `/` between the steps."""
    paths = [path for path, _ in _jax.tree_util.tree_leaves_with_path(tree)]
    return [_jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]


def in_chunks(function: Callable[[Array], Array], rows: Array, size: int) -> Array:
    """`jax.lax.map` of a function of one row, over `size` rows at a time."""
    return _jax.lax.map(function, rows, batch_size=size)


def take(tree: Value, index: int | slice | Array | np.ndarray) -> Value:
    """The entries `index` of the first axis of every array."""

    def entries(x: Array) -> Array:
        return x[index]

    return jax.tree.map(entries, tree)


def strongly_typed(tree: Value) -> Value:
    """The same numbers, none of a weak type.

    An array made of a plain Python number is of a weak type, and what is computed from it is not: without this, a
    program that takes its own result again is compiled twice.
    """

    def typed(x: Array) -> Array:
        return x if _jax.dtypes.issubdtype(x.dtype, _jax.dtypes.extended) else x.astype(x.dtype)

    return jax.tree.map(typed, tree)


def on_device(array: np.ndarray) -> Array:
    """The array on the device; on a CPU, where it is well aligned, without a copy."""
    return _jax.device_put(array)
