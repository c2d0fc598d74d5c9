"""The dense format: the original graph with every weight written out, for tools that know nothing of zeros."""

from collections.abc import Collection

from onnx import ModelProto

from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.scan import Scan


def encode(model: ModelProto, kernels: Collection[str]) -> ModelProto:
    """Copy a model; the only change is that -0.0 in its kernels becomes 0.0."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tidy(copy, Scan.of(model, kernels))
    return copy


def tidy(model: ModelProto, kernels: Scan) -> None:
    """Turn -0.0 into 0.0 in the kernels that are stored plainly; those without one are not copied out to be seen."""
    clean = kernels.without_negative_zeros()
    for graph in tensors.graphs(model.graph):
        known = clean if graph is model.graph else ()
        for name, tensor in tensors.stored(graph).items():
            if name in kernels and name not in known and tensor.data_type in tensors.FLOATS:
                array = tensors.to_array(tensor, name)
                cleaned = tensors.without_negative_zero(array)
                if cleaned is not array:
                    tensors.fill(tensor, cleaned)
