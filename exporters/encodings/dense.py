"""The dense encoding: every weight written out, for tools that know nothing of zeros."""

from collections.abc import Collection

from ltp_pipeline.exporters.encodings.encoding import Decoded, Encoding
from ltp_pipeline.exporters.files.nonzeros import Scan
from ltp_pipeline.graph.model import OnnxModel


def encode(model: OnnxModel, kernels: Collection[str]) -> OnnxModel:
    """The same model; the only change is that -0.0 in kernels becomes 0.0."""
    return Scan.of(model, kernels).without_negative_zeros(model)


def encoded_names(model: OnnxModel) -> list[str]:
    """Nothing is encoded."""
    del model
    return []


def decode(model: OnnxModel, names: Collection[str]) -> Decoded:
    """Nothing has to be decoded."""
    del model, names
    return Decoded()


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
    encode=encode,
    encoded_names=encoded_names,
    decode=decode,
)
