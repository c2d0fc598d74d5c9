"""Tensors and attributes of an ONNX graph as torch tensors and Python values, and back.

Values are copied straight between NumPy and torch, without a detour through lists. Half precision
is widened to single precision for training, because small updates would be lost in it; it is
rounded again when values go back into the file.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.tensors import Weights, get_type_name
from ltp_pipeline.stages.import_model.unsupported import find_constant_problem
from ltp_pipeline.system.arrays import Array

TORCH_TYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.UINT8: torch.uint8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.BOOL: torch.bool,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
}
HALF_DATA_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
HALF_TYPES = frozenset({torch.float16, torch.bfloat16})


def to_torch(tensor: TensorProto, weights: Weights | None = None) -> Tensor:
    """Copy an ONNX tensor into a torch tensor; `weights` has values that replace its own.

    Raises:
        ValueError: If torch does not have the tensor's type.
    """
    if weights and tensor.name in weights:
        return array_to_torch(weights[tensor.name])
    if tensor.data_type not in TORCH_TYPES:
        type_name = get_type_name(tensor.data_type)
        raise ValueError(f"tensor {tensor.name!r} has type {type_name}, which torch does not have")
    return array_to_torch(numpy_helper.to_array(tensor))


def array_to_torch(array: Array) -> Tensor:
    """Copy a NumPy array into a torch tensor; bfloat16 of ml_dtypes is supported."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))


def to_numpy(tensor: Tensor, data_type: int) -> Array:
    """Copy a torch tensor into a NumPy array of an ONNX type, such as the fp16 of the file."""
    values = tensor.detach().cpu()
    if values.dtype == torch.bfloat16:
        values = values.float()
    array: Array = values.numpy().astype(helper.tensor_dtype_to_np_dtype(data_type), copy=False)
    return array


def to_single_precision(value: Any) -> Any:
    """Return a half-precision tensor in single precision, and any other value as it is."""
    if isinstance(value, Tensor) and value.dtype in HALF_TYPES:
        return value.float()
    return value


def is_number_constant(node: NodeProto) -> bool:
    """Return True if a node is a Constant that holds numbers."""
    is_constant = is_standard(node, "Constant") and len(node.output) == 1
    return is_constant and find_constant_problem(node) is None


def get_constant_value(node: NodeProto, weights: Weights) -> Tensor:
    """Return the value of a Constant node as a tensor; `weights` has values that replace its own.

    Raises:
        ValueError: If the node holds something else than numbers.
    """
    if node.output[0] in weights:
        return array_to_torch(weights[node.output[0]])
    problem = find_constant_problem(node)
    if problem is not None:
        raise ValueError(problem)
    attribute = node.attribute[0]
    value = get_attribute_value(attribute)
    if isinstance(value, Tensor):
        return value
    dtype = torch.int64
    if "float" in attribute.name:
        dtype = torch.float32
    return torch.tensor(value, dtype=dtype)


def get_attribute_value(attribute: AttributeProto) -> Any:
    """Return an attribute as a Python value: decoded text, torch tensors, lists."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.TENSOR:
        return to_torch(value)
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    if isinstance(value, Sequence):
        return list(value)
    return value
