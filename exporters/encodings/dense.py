"""The dense encoding: every weight written out, for tools that know nothing of zeros."""

from collections.abc import Collection

from onnx import ModelProto

from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.draft import LARGE, Draft
from ltp_pipeline.exporters.encodings.encoding import Decoded, Encoding
from ltp_pipeline.exporters.scan import Scan


def draft(model: ModelProto, kernels: Collection[str]) -> Draft:
    """Copy a model, its large tensors still in the original; the only change is that -0.0 in kernels becomes 0.0."""
    scan = Scan.of(model, kernels)
    outside = {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensors.byte_size(tensor) >= LARGE and tensor.HasField("raw_data") and not scan.negative_zeros(tensor)
    }
    copy = tensors.copy_model(model, empty=outside)
    clear_negative_zeros(copy, scan, outside)
    return Draft(copy, {name: scan.content(tensor) for name, tensor in outside.items()})


def clear_negative_zeros(model: ModelProto, kernels: Scan, clean: Collection[str] = ()) -> None:
    """Turn -0.0 into 0.0 in the kernels that are stored plainly; those known to be `clean` are not looked at."""
    for nested, graph in enumerate(tensors.graphs(model.graph)):
        known = () if nested else {*clean, *kernels.clean()}
        for name, tensor in tensors.stored(graph).items():
            if name in kernels and name not in known and tensor.data_type in tensors.FLOATS:
                array = tensors.to_array(tensor, name)
                cleaned = tensors.without_negative_zero(array)
                if cleaned is not array:
                    tensors.fill(tensor, cleaned)


def encoded_names(model: ModelProto) -> list[str]:
    """Nothing is encoded."""
    del model
    return []


def decode(model: ModelProto, names: Collection[str]) -> Decoded:
    """Nothing has to be decoded."""
    del model, names
    return {}, set()


ENCODING = Encoding(
    name="dense",
    about="zeros written out; every tool reads it",
    readers={
        "onnxruntime": "yes",
        "OpenVINO": "yes",
        "onnx: checker": "yes",
        "onnx: shape inference, version converter": "yes",
        "onnx: ReferenceEvaluator": "yes",
        "onnx: compose": "yes",
        "onnx-ir": "yes",
        "onnxscript's optimizer": "yes",
        "onnxsim, onnxslim": "yes",
    },
    draft=draft,
    encoded_names=encoded_names,
    decode=decode,
)
