"""The part of onnx that `sbac.exporting` uses. onnx's own types need protobuf's."""

from onnx import checker as checker
from onnx import helper as helper
from onnx import numpy_helper as numpy_helper

class TensorProto:
    FLOAT: int

class NodeProto: ...
class GraphProto: ...
class ValueInfoProto: ...
class OperatorSetIdProto: ...

class StringStringEntryProto:
    key: str
    value: str

class ModelProto:
    metadata_props: list[StringStringEntryProto]
    ir_version: int
    opset_import: list[OperatorSetIdProto]

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes: ...

def load_from_string(s: bytes) -> ModelProto: ...
def load(f: str) -> ModelProto: ...
