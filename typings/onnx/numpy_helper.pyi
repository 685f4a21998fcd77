from typing import Any

from numpy.typing import NDArray
from onnx import TensorProto

def from_array(arr: NDArray[Any], name: str = ...) -> TensorProto: ...
