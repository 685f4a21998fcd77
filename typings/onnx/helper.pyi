from collections.abc import Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto

def make_node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], **kwargs: int | float | Sequence[int]
) -> NodeProto: ...
def make_graph(
    nodes: Sequence[NodeProto],
    name: str,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto],
    initializer: Sequence[TensorProto] = ...,
) -> GraphProto: ...
def make_tensor_value_info(name: str, elem_type: int, shape: Sequence[str | int]) -> ValueInfoProto: ...
def make_opsetid(domain: str, version: int) -> OperatorSetIdProto: ...
def make_model(
    graph: GraphProto, *, opset_imports: Sequence[OperatorSetIdProto], ir_version: int, producer_name: str
) -> ModelProto: ...
def set_model_props(model: ModelProto, dict_value: Mapping[str, str]) -> None: ...
