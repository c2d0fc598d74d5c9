"""The dense format: the original graph with every weight written out, for tools that know nothing of zeros."""

from collections.abc import Collection

from onnx import ModelProto

from ltp_pipeline.exporters import tensors


def encode(model: ModelProto, kernels: Collection[str]) -> ModelProto:
    """Copy a model; the only change is that -0.0 in its kernels becomes 0.0."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tidy(copy, kernels)
    return copy


def tidy(model: ModelProto, kernels: Collection[str]) -> None:
    """Turn -0.0 into 0.0 in the kernels that are stored plainly."""
    wanted = set(kernels)
    for graph in tensors.graphs(model.graph):
        for name, tensor in tensors.stored(graph).items():
            if name in wanted and tensor.data_type in tensors.FLOATS:
                array = tensors.to_array(tensor, name)
                cleaned = tensors.without_negative_zero(array)
                if cleaned is not array:
                    tensors.fill(tensor, cleaned)
