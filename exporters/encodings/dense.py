"""The dense encoding: every weight is written out, for tools that know no sparse format."""

from collections.abc import Collection

from ltp_pipeline.exporters.encodings.encoding import DecodedTensors, Encoding
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.graph.model import OnnxModel


def encode(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Return the model with 0.0 for every -0.0 in its layer weights."""
    return NonzeroIndex.from_names(model, weight_names).replace_negative_zeros(model)


def find_encoded_names(model: OnnxModel) -> list[str]:
    """Return an empty list: a dense file has no encoded tensors."""
    del model
    return []


def decode(model: OnnxModel, names: Collection[str]) -> DecodedTensors:
    """Return no tensors: a dense file has no encoded ones."""
    del model, names
    return DecodedTensors()


ENCODING = Encoding(
    name="dense",
    description="zeros written out; every tool reads it",
    tool_support={
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
    encode=encode,
    find_encoded_names=find_encoded_names,
    decode=decode,
)
