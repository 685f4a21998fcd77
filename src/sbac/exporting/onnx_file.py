"""A graph as the bytes of an ONNX file, and ONNX Runtime to run them."""

from collections.abc import Callable, Mapping

import numpy as np

from sbac.errors import UserError
from sbac.exporting.graph import INPUT, OUTPUT, Graph
from sbac.policy import Floats

OPSET, IR_VERSION = 17, 8  # of 2022: ONNX Runtime reads them since 1.12
INSTALL = "pip install 'sbac[export]'"


def onnx_bytes(graph: Graph, observations: int, actions: int, about: Mapping[str, str]) -> bytes:
    """The file's content. Equal graphs with equal `about` give equal bytes."""
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        raise UserError(f"--format onnx needs the package onnx: {INSTALL}") from None
    nodes = [
        helper.make_node(entry.operator, entry.inputs, [entry.output], **entry.attributes) for entry in graph.operations
    ]
    made = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", observations])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", actions])],
        [numpy_helper.from_array(value, name) for name, value in graph.constants.items()],
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="sbac"
    )
    helper.set_model_props(model, dict(about))
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
