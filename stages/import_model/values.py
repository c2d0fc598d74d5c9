"""ONNX tensors as torch tensors and back, without a detour through lists."""

from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from ltp_pipeline.graph.tensors import Weights, get_type_name

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
HALF_TYPES = frozenset({torch.float16, torch.bfloat16})


def to_torch(tensor: TensorProto, weights: Weights | None = None) -> Tensor:
    """Read a dense ONNX tensor, whose values may be among the weights, into memory of its own."""
    if weights and tensor.name in weights:
        return array_to_torch(weights[tensor.name])
    if tensor.data_type not in TORCH_TYPES:
        raise ValueError(
            f"tensor {tensor.name!r} has type {get_type_name(tensor.data_type)}, which torch does not have"
        )
    return array_to_torch(numpy_helper.to_array(tensor))


def array_to_torch(array: "np.ndarray[Any, Any]") -> Tensor:
    """Copy a numpy array, ml_dtypes' bfloat16 included, into a tensor."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))


def to_single_precision(value: Any) -> Any:
    """Half-precision tensors in single precision, everything else as it is."""
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF_TYPES else value


def to_numpy(tensor: Tensor, data_type: int) -> "np.ndarray[Any, Any]":
    """Tensor as a numpy array of the given ONNX type, e.g. an fp32 master as the fp16 of its file."""
    array = tensor.detach().cpu()
    if array.dtype == torch.bfloat16:
        array = array.float()
    return array.numpy().astype(helper.tensor_dtype_to_np_dtype(data_type), copy=False)
