"""A model: a graph and its weights, apart, so that a change of the one does not copy the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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

_WORTH_A_COPY = 1 << 24  # bytes
_MANY, _SMALL = 10_000, 1 << 8  # tensors of a model; bytes of a tensor


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A graph whose tensors have their type and dims, and the values of those that are in `weights`.

    Weights go by the name that nodes read them by. What is in `weights` counts, whatever values the graph has.
    """

    proto: ModelProto = field(repr=False)  # not changed once it is here
    weights: Weights = field(default_factory=dict, repr=False)
    sparse: Mapping[str, tuple[Array, Array]] = field(
        default_factory=dict, repr=False
    )  # values and indices by name

    @classmethod
    def from_proto(cls, proto: ModelProto) -> OnnxModel:
        """Take a model in memory apart; the caller's own stays as it is."""
        return separate_weights(copy_proto(proto))

    @property
    def graph(self) -> GraphProto:
        """The graph, most of its tensors without values."""
        return self.proto.graph

    @cached_property
    def tensors(self) -> dict[str, TensorProto]:
        """The tensors that the graph and those nested in it store plainly; of two with one name, the outer one."""
        found: dict[str, TensorProto] = {}
        for name, tensor in iter_named_tensors(self.proto):
            if name:
                found.setdefault(name, tensor)
        return found

    def get_array(self, name: str) -> Array:
        """The values of a tensor that is stored plainly."""
        return self.weights[name] if name in self.weights else to_array(self.tensors[name], name)

    def with_weights(self, weights: Weights) -> OnnxModel:
        """The same graph with other values for these tensors, in the types that they have; no other is copied."""
        missing = weights.keys() - self.tensors.keys()
        if missing:
            what = f"the model has no plain tensor named '{min(missing)}'"
            raise ExportFailed(what, "put tensors back into the model they came from")
        for name, array in weights.items():
            dims = tuple(self.tensors[name].dims)
            if dims != array.shape:
                what = f"tensor '{name}' has shape {array.shape} but the file says {dims}"
                raise ExportFailed(what, "give the tensors of the model they are put back into")
        typed = {
            name: a.astype(get_dtype(self.tensors[name]), copy=False) for name, a in weights.items()
        }
        return replace(self, weights={**self.weights, **typed})

    def to_proto(self, max_bytes: int | None = None) -> ModelProto:
        """The graph with the values inside; with `below`, only with those of fewer bytes."""
        whole, left = copy_proto(self.proto), dict(self.weights)
        for name, tensor in iter_named_tensors(whole):
            array = left.pop(name, None)
            if array is not None and (max_bytes is None or array.nbytes < max_bytes):
                set_values(tensor, array)
        for part in whole.graph.sparse_initializer:
            if part.values.name in self.sparse:
                for tensor, array in zip(
                    (part.values, part.indices), self.sparse[part.values.name], strict=True
                ):
                    set_values(tensor, array)
        return whole


def separate_weights(proto: ModelProto, weights: Weights | None = None) -> OnnxModel:
    """Turn a proto, which is used up, into a model; `weights` are values that it lacks already.

    Lifted out are the floats that are stored as bytes under a name of their own, of very many only those that are not
    small. What else there is stays: integers are shapes and axes, so they are part of the graph.
    """
    held, cleared = dict(weights or {}), 0
    many = sum(1 for _ in iter_unique_floats(proto)) > _MANY
    least = _SMALL if many else 0  # an array takes more memory than a few numbers in the graph
    for name, tensor in iter_unique_floats(proto):
        if name not in held and tensor.HasField("raw_data") and has_possible_dims(tensor):
            content, dtype = tensor.raw_data, get_dtype(tensor).newbyteorder("<")
            if least <= len(content) == count_elements(tensor) * dtype.itemsize:
                held[name] = np.ndarray(tuple(tensor.dims), dtype, content)
                tensor.ClearField("raw_data")
                cleared += len(content)
    # protobuf frees what was cleared only with the whole
    return OnnxModel(copy_proto(proto) if cleared > _WORTH_A_COPY else proto, held)


def iter_unique_floats(proto: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """The floating-point tensors under a name that no other tensor of the graph, or nested in it, has."""
    names, twice = set[str](), {""}
    for name, _ in iter_named_tensors(proto):
        (twice if name in names else names).add(name)
    return (
        (n, t)
        for n, t in iter_named_tensors(proto)
        if n not in twice and t.data_type in FLOAT_TYPES
    )


def copy_proto(proto: ModelProto) -> ModelProto:
    """A copy that can be changed."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    return copy
