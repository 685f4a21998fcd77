"""A policy as the bytes of an ONNX file: its formula runs on tensors that write down what is computed with them."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Union

import numpy as np
from numpy.typing import NDArray

from sbac.errors import UserError
from sbac.policy import Floats, Policy
from sbac.policy.formulas import act
from sbac.policy.policy import FORMAT

INPUT, OUTPUT = "observations", "actions"
OPSET, IR_VERSION = 17, 8  # of 2022: ONNX Runtime reads them since 1.12
NOTE = (
    "Observations and actions are in the log's units, in the order of their names. NaN in, NaN out: where a number of "
    "an observation is not finite, all its actions are NaN."
)
END = np.iinfo(np.int64).max  # of a slice without one

Value = Union["Tensor", NDArray[Any], Sequence[int], float]


class Node(NamedTuple):
    """`output` is the operator of ONNX of `inputs`, which are outputs of earlier nodes or constants."""

    operator: str
    inputs: list[str]
    output: str
    attributes: dict[str, Any]


class Graph:
    """The nodes in the order in which they run, and the namespace of tensors: a function adds the node that it names.

    It has the functions that formulas use, and no others.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, NDArray[Any]] = {}
        operators = ("Tanh", "Exp", "Log", "Sqrt", "Max", "Min")
        self.tanh, self.exp, self.log, self.sqrt, self.maximum, self.minimum = (
            partial(self.add, operator) for operator in operators
        )

    def equal(self, x: Value, y: Value) -> "Tensor":
        """1 where they are, else 0."""
        return self.add("Cast", self.add("Equal", x, y), to=1)  # TensorProto.FLOAT

    def concat(self, parts: Sequence[Value], axis: int) -> "Tensor":
        return self.add("Concat", *parts, axis=axis)

    def add(self, operator: str, *inputs: Value, **attributes: Any) -> "Tensor":
        """One more node; returns its output."""
        node = Node(operator, [self._name(value) for value in inputs], f"t{len(self.nodes)}", attributes)
        self.nodes.append(node)
        return Tensor(self, node.output)

    def _name(self, value: Value) -> str:
        """Of a tensor, or of a constant, which is added: whole numbers of an array as int64, all others as float32."""
        if isinstance(value, Tensor):
            return value.name
        name, array = f"c{len(self.constants)}", np.asarray(value)
        self.constants[name] = array.astype(np.int64 if array.ndim and array.dtype.kind == "i" else np.float32)
        return name


def _operator(name: str, reflected: bool = False) -> Callable[["Tensor", Value], "Tensor"]:
    def method(self: "Tensor", other: Value) -> "Tensor":
        return self.graph.add(name, other, self) if reflected else self.graph.add(name, self, other)

    return method


class Tensor:
    """A value of a graph, used as an array is; axes count from the end."""

    __array_ufunc__ = None  # so that numpy leaves `array * tensor` to the tensor

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __array_namespace__(self) -> Graph:
        return self.graph

    __add__ = __radd__ = _operator("Add")
    __mul__ = __rmul__ = _operator("Mul")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", reflected=True)
    __truediv__, __matmul__ = _operator("Div"), _operator("MatMul")

    def __neg__(self) -> "Tensor":
        return self.graph.add("Neg", self)

    def __getitem__(self, index: Any) -> "Tensor":
        """With an index such as [..., None, 2:5]: an ellipsis, then slices and new axes."""
        _, *entries = index
        x, slices = self, [entry for entry in entries if entry is not None]
        for axis, entry in enumerate(slices, -len(slices)):
            if entry != slice(None):
                stop = END if entry.stop is None else entry.stop
                x = self.graph.add("Slice", x, [entry.start or 0], [stop], [axis])
        new = [axis for axis, entry in enumerate(entries, -len(entries)) if entry is None]
        return self.graph.add("Unsqueeze", x, new) if new else x

    def reshape(self, *shape: int) -> "Tensor":
        return self.graph.add("Reshape", self, shape)

    def sum(self, axis: int, keepdims: bool = False) -> "Tensor":
        return self.graph.add("ReduceSum", self, [axis], keepdims=int(keepdims))

    def mean(self, axis: int, keepdims: bool = False) -> "Tensor":
        return self.graph.add("ReduceMean", self, axes=[axis], keepdims=int(keepdims))

    def max(self, axis: int, keepdims: bool = False) -> "Tensor":
        return self.graph.add("ReduceMax", self, axes=[axis], keepdims=int(keepdims))

    def argmax(self, axis: int) -> "Tensor":
        return self.graph.add("ArgMax", self, axis=axis, keepdims=0)


def onnx_bytes(policy: Policy) -> bytes:
    """The file's content, with the policy's config. Equal policies give equal bytes."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        raise UserError("--format onnx needs the package onnx: pip install 'sbac[export]'") from None
    graph = Graph()
    actions = act(policy.kind, policy.arrays, Tensor(graph, INPUT))
    graph.nodes.append(Node("Identity", [actions.name], OUTPUT, {}))
    made = helper.make_graph(
        [helper.make_node(node.operator, node.inputs, [node.output], **node.attributes) for node in graph.nodes],
        "policy",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", policy.observation_size])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", policy.action_size])],
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="sbac"
    )
    about = {"kind": policy.kind, "format": FORMAT, "config": policy.config}
    names = {field: json.dumps(names, ensure_ascii=False) for field, names in policy.columns.items()}
    helper.set_model_props(model, {"sbac": json.dumps(about, sort_keys=True), **names, "note": NOTE})
    checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def onnx_runner(data: bytes) -> Callable[[Floats], Floats] | None:
    """A function that runs the file in ONNX Runtime on one core; None where ONNX Runtime is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def run(observations: Floats) -> Floats:
        return np.asarray(session.run([OUTPUT], {INPUT: observations})[0])

    return run
