"""A model on its way to a file, its large tensors beside it: putting them into protobuf copies each of them twice."""

from dataclasses import dataclass, field

from onnx import ModelProto, TensorProto

from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.tensors import Array

LARGE = 1 << 16  # bytes: below, protobuf is fast enough


@dataclass(frozen=True)
class Draft:
    """A model, and the values that some of its tensors are to get: arrays, or tensors of the original to take over."""

    model: ModelProto
    content: dict[str, Array | TensorProto] = field(default_factory=dict)
    indices: dict[str, Array] = field(default_factory=dict)  # of sparse tensors

    def filled(self) -> ModelProto:
        """The model with everything inside."""
        for tensor in self.model.graph.initializer:
            self._fill(tensor)
        for sparse in self.model.graph.sparse_initializer:
            if sparse.values.name in self.indices:
                tensors.fill(sparse.indices, self.indices.pop(sparse.values.name))
            self._fill(sparse.values)
        return self.model

    def _fill(self, tensor: TensorProto) -> None:
        found = self.content.pop(tensor.name, None)
        if isinstance(found, TensorProto):
            tensor.raw_data = found.raw_data
        elif found is not None:
            tensors.fill(tensor, found)


def put_or_hold(tensor: TensorProto, data_type: int, array: Array, held: dict[str, Array], name: str) -> None:
    """Give an empty tensor its type, its dims and, if they are few, its values; else these are held under a name."""
    if array.nbytes < LARGE:
        tensors.store(tensor, data_type, array)
        return
    tensor.data_type = data_type
    tensor.dims.extend(array.shape)
    held[name] = array
