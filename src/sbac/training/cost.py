"""How long a training will take, told before it is compiled: by the multiplications of its matrix products."""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from sbac.nn.typed import jit, loop

LONG = 3600.0
"""Seconds from which on a training is a long one."""
SLOWEST = 1e9
"""Multiplications a second that every machine reaches: what is short at this speed needs no look at the machine."""
SHARE = 0.5
"""Of the time, what goes into matrix products: the rest goes into gradients, optimisers and batches."""
WIDTH, PRODUCTS = 256, 200


def multiplications(jaxpr: Any) -> float:
    """Of all matrix products in a traced function; loops count as often as they run, where that is known."""
    total = 0.0
    for line in jaxpr.eqns:
        if line.primitive.name == "dot_general":
            summed: Sequence[int] = line.params["dimension_numbers"][0][0]
            left: Sequence[int] = line.invars[0].aval.shape
            total += math.prod(line.outvars[0].aval.shape) * math.prod(left[axis] for axis in summed)
        total += line.params.get("length", 1) * sum(map(multiplications, _inner(list(line.params.values()))))
    return total


def _inner(values: list[Any]) -> Iterator[Any]:
    """The traced functions among the parameters of an operation."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _inner([*value])
        elif hasattr(value, "eqns") or hasattr(value, "jaxpr"):
            yield getattr(value, "jaxpr", value)


def seconds(work: float) -> float:
    """How long so many multiplications take; no look at the machine where that cannot be long."""
    return work / SLOWEST if work / SLOWEST < LONG else work / (SHARE * speed())


def speed() -> float:
    """Multiplications a second in products of matrices as large as those of a usual layer."""

    x = jnp.ones((WIDTH, WIDTH))

    def product(_: jax.Array, y: jax.Array) -> jax.Array:
        return (x @ y) / WIDTH

    def products(y: jax.Array) -> jax.Array:
        return loop(PRODUCTS, product, y)

    run = jit(products)
    run(x).block_until_ready()
    began = time.perf_counter()
    run(x).block_until_ready()
    return PRODUCTS * WIDTH**3 / (time.perf_counter() - began)
