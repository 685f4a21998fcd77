"""A computation written down: a list of operations, each of which names an operator of ONNX.

The formulas of `sbac.exporting.formulas` write a policy down once. `sbac.exporting.onnx_file` and
`sbac.exporting.stablehlo_file` read the list.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Constant = NDArray[np.float32] | NDArray[np.int64]
Attribute = int | float | Sequence[int]

INPUT, OUTPUT = "observations", "actions"


@dataclass(frozen=True)
class Operation:
    """`output` is the operator `operator` of `inputs`, which are outputs of earlier operations or constants."""

    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Attribute]


@dataclass
class Graph:
    """The operations in the order in which they run. The first input is called `observations`."""

    operations: list[Operation] = field(default_factory=list[Operation])
    constants: dict[str, Constant] = field(default_factory=dict[str, Constant])

    def input(self) -> "Tensor":
        return Tensor(self, INPUT)

    def constant(self, value: NDArray[Any] | float) -> "Tensor":
        """An array of float32."""
        return Tensor(self, self._named(np.asarray(value, np.float32)))

    def numbers(self, values: Sequence[int]) -> str:
        """The name of whole numbers that an operator takes as an input, such as axes."""
        return self._named(np.asarray(values, np.int64))

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Attribute) -> "Tensor":
        """One more operation; returns its output."""
        name = output or f"t{len(self.operations)}"
        self.operations.append(Operation(operator, inputs, name, attributes))
        return Tensor(self, name)

    def _named(self, value: Constant) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


@dataclass(frozen=True)
class Tensor:
    """A value of a graph. Its methods add operations to it; axes count from the end, as -1."""

    graph: Graph
    name: str

    def __add__(self, other: "Tensor | float") -> "Tensor":
        return self._binary("Add", other)

    def __sub__(self, other: "Tensor | float") -> "Tensor":
        return self._binary("Sub", other)

    def __mul__(self, other: "Tensor | float") -> "Tensor":
        return self._binary("Mul", other)

    def __truediv__(self, other: "Tensor | float") -> "Tensor":
        return self._binary("Div", other)

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return self._binary("MatMul", other)

    def at_least(self, low: "Tensor | float") -> "Tensor":
        return self._binary("Max", low)

    def at_most(self, high: "Tensor | float") -> "Tensor":
        return self._binary("Min", high)

    def relu(self) -> "Tensor":
        return self._unary("Relu")

    def tanh(self) -> "Tensor":
        return self._unary("Tanh")

    def exp(self) -> "Tensor":
        return self._unary("Exp")

    def log(self) -> "Tensor":
        return self._unary("Log")

    def abs(self) -> "Tensor":
        return self._unary("Abs")

    def softplus(self) -> "Tensor":
        """log(1 + exp(x))."""
        return self._unary("Softplus")

    def log_softmax(self) -> "Tensor":
        """Over the last axis."""
        return self.graph.add("LogSoftmax", self.name, axis=-1)

    def softmax(self) -> "Tensor":
        """Over the last axis."""
        return self.graph.add("Softmax", self.name, axis=-1)

    def layer_norm(self, width: int) -> "Tensor":
        """Mean 0 and variance 1 over the last axis, which has `width` entries."""
        ones = self.graph.constant(np.ones(width))
        return self.graph.add("LayerNormalization", self.name, ones.name, axis=-1, epsilon=1e-5)

    def sum(self, axis: int = -1) -> "Tensor":
        return self.graph.add("ReduceSum", self.name, self.graph.numbers([axis]), keepdims=0)

    def log_sum_exp(self) -> "Tensor":
        """Over the last axis, for numbers of any size."""
        top = self.graph.add("ReduceMax", self.name, axes=[-1], keepdims=1)
        return (self - top).exp().sum().log() + top.squeeze()

    def is_largest(self, count: int) -> "Tensor":
        """1 at the first largest entry of the last axis, which has `count` entries, and 0 at the others."""
        best = self.graph.add("ArgMax", self.name, axis=-1, keepdims=1)
        equal = self.graph.add("Equal", best.name, self.graph.numbers(range(count)))
        return equal.as_float()

    def is_at_least(self, other: "Tensor") -> "Tensor":
        """1 where it is, else 0."""
        return self.graph.add("GreaterOrEqual", self.name, other.name).as_float()

    def as_float(self) -> "Tensor":
        return self.graph.add("Cast", self.name, to=1)  # TensorProto.FLOAT

    def columns(self, start: int, stop: int) -> "Tensor":
        """Some entries of the last axis."""
        bounds = (self.graph.numbers([start]), self.graph.numbers([stop]), self.graph.numbers([-1]))
        return self.graph.add("Slice", self.name, *bounds)

    def reshape(self, *shape: int) -> "Tensor":
        return self.graph.add("Reshape", self.name, self.graph.numbers(shape))

    def unsqueeze(self, axis: int = -1) -> "Tensor":
        """With a new axis of length 1, which is then the axis `axis`."""
        return self.graph.add("Unsqueeze", self.name, self.graph.numbers([axis]))

    def squeeze(self, axis: int = -1) -> "Tensor":
        """Without an axis of length 1."""
        return self.graph.add("Squeeze", self.name, self.graph.numbers([axis]))

    def named(self, name: str) -> "Tensor":
        return self.graph.add("Identity", self.name, output=name)

    def _unary(self, operator: str) -> "Tensor":
        return self.graph.add(operator, self.name)

    def _binary(self, operator: str, other: "Tensor | float") -> "Tensor":
        return self.graph.add(operator, self.name, self._other(other))

    def _other(self, other: "Tensor | float") -> str:
        return other.name if isinstance(other, Tensor) else self.graph.constant(other).name


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Along the last axis."""
    return parts[0].graph.add("Concat", *(part.name for part in parts), axis=-1)


def where(mask: Tensor, value: Tensor, otherwise: Tensor) -> Tensor:
    """`value` where the mask (0 or 1) is set."""
    chosen = mask.graph.add("Greater", mask.name, mask.graph.constant(0.5).name)
    return mask.graph.add("Where", chosen.name, value.name, otherwise.name)
