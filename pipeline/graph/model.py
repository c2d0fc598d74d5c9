"""A model as a graph and its weights, kept apart.

The graph is an ONNX message whose large tensors have no values; the weights are NumPy arrays by
name. Rewrites, encodings and training change one of the two and share the other, so that a new
version of a model costs no second copy of the weights. Nothing changes a model in place:
functions return a new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.graph.tensors import (
    FLOAT_TYPES,
    Weights,
    count_elements,
    get_dtype,
    has_possible_dims,
    iter_named_tensors,
    set_values,
    to_array,
)
from ltp_pipeline.system.arrays import Array

_COPY_THRESHOLD = 1 << 24  # bytes that must be freed before a message is worth a copy
# In models of more tensors than this, small ones stay in the graph: an array object takes more
# memory than a few numbers do there.
_MANY_TENSORS = 10_000
_SMALL_BYTES = 1 << 8


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A graph and the values of its weights.

    Attributes:
        proto: The model. Tensors have their type and dims; those of `weights` need no values.
            It must not be changed.
        weights: Values by the name that nodes read a tensor by. They replace values in `proto`.
        sparse: Values and indices of sparse initializers by name.
    """

    proto: ModelProto = field(repr=False)
    weights: Weights = field(default_factory=dict, repr=False)
    sparse: Mapping[str, tuple[Array, Array]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_proto(cls, proto: ModelProto) -> OnnxModel:
        """Make a model of a message in memory, which stays as it is."""
        return separate_weights(copy_proto(proto))

    @property
    def graph(self) -> GraphProto:
        """Graph of the model, most of its tensors without values."""
        return self.proto.graph

    @cached_property
    def tensors(self) -> dict[str, TensorProto]:
        """Dense stored tensors by name, nested graphs included; the outer one if names collide."""
        tensors: dict[str, TensorProto] = {}
        for name, tensor in iter_named_tensors(self.proto):
            if name:
                tensors.setdefault(name, tensor)
        return tensors

    def get_array(self, name: str, tensor: TensorProto | None = None) -> Array:
        """Return the values of the dense stored tensor that nodes read by a name."""
        if name in self.weights:
            return self.weights[name]
        return to_array(self.tensors[name] if tensor is None else tensor, name)

    def get_arrays(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the values of dense stored tensors by name."""
        return {name: self.get_array(name) for name in names}

    def drop_unstored_weights(self) -> OnnxModel:
        """Return the model without the values of tensors that it no longer has."""
        weights = {name: array for name, array in self.weights.items() if name in self.tensors}
        return replace(self, weights=weights)

    def with_weights(self, weights: Weights) -> OnnxModel:
        """Return the model with other values for some tensors.

        Args:
            weights: Values by name; they are converted to the types that the tensors have.

        Raises:
            ExportFailed: If a tensor does not exist or has another shape.
        """
        missing = weights.keys() - self.tensors.keys()
        if missing:
            raise ExportFailed(
                f"the model has no plain tensor named '{min(missing)}'",
                "put tensors back into the model they came from",
            )
        converted: dict[str, Array] = {}
        for name, array in weights.items():
            tensor = self.tensors[name]
            dims = tuple(tensor.dims)
            if dims != array.shape:
                raise ExportFailed(
                    f"tensor '{name}' has shape {array.shape}, and the file declares {dims}",
                    "put tensors back into the model they came from",
                )
            converted[name] = array.astype(get_dtype(tensor), copy=False)
        return replace(self, weights={**self.weights, **converted})

    def to_proto(self, max_bytes: int | None = None) -> ModelProto:
        """Return the model as one message with the values inside.

        If `max_bytes` is given, only tensors of fewer bytes get their values.
        """
        proto = copy_proto(self.proto)
        weights = dict(self.weights)
        for name, tensor in iter_named_tensors(proto):
            array = weights.pop(name, None)
            if array is not None and (max_bytes is None or array.nbytes < max_bytes):
                set_values(tensor, array)
        for part in proto.graph.sparse_initializer:
            if part.values.name in self.sparse:
                values, indices = self.sparse[part.values.name]
                set_values(part.values, values)
                set_values(part.indices, indices)
        return proto


def separate_weights(proto: ModelProto, weights: Weights | None = None) -> OnnxModel:
    """Make a model of a message by moving the values of its weights out of it.

    Only floats that are stored as bytes under a unique name are moved. Integers are shapes and
    axes, so they are part of the graph.

    Args:
        proto: The message. It is changed and must not be used afterwards.
        weights: Values by name that the message does not hold.
    """
    arrays = dict(weights or {})
    freed_bytes = 0
    is_large = sum(1 for _ in iter_unique_floats(proto)) > _MANY_TENSORS
    min_bytes = _SMALL_BYTES if is_large else 0
    for name, tensor in iter_unique_floats(proto):
        if name in arrays or not tensor.HasField("raw_data") or not has_possible_dims(tensor):
            continue
        content = tensor.raw_data
        dtype = get_dtype(tensor).newbyteorder("<")
        if min_bytes <= len(content) == count_elements(tensor) * dtype.itemsize:
            arrays[name] = np.ndarray(tuple(tensor.dims), dtype, content)
            tensor.ClearField("raw_data")
            freed_bytes += len(content)
    if freed_bytes > _COPY_THRESHOLD:
        proto = copy_proto(proto)  # protobuf frees cleared fields only with the whole message
    return OnnxModel(proto, arrays)


def iter_unique_floats(proto: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield the stored float tensors whose name no other tensor of the graph has, with the name."""
    counts = Counter(name for name, _ in iter_named_tensors(proto))
    for name, tensor in iter_named_tensors(proto):
        if name and counts[name] == 1 and tensor.data_type in FLOAT_TYPES:
            yield name, tensor


def copy_proto(proto: ModelProto) -> ModelProto:
    """Return a copy of a message, which can be changed."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    return copy
