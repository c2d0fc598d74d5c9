"""An ONNX file as it was read: its model, inputs and outputs, size and hash."""

from dataclasses import dataclass
from pathlib import Path

from ltp_pipeline.graph.model import OnnxModel


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of the graph; a dimension is a number, a symbol's name, or None where nothing is said."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file as read; the model keeps the original weights throughout."""

    model: OnnxModel
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    sha256: str
    path: Path | None
    num_bytes: int
    data_files: tuple[
        str, ...
    ] = ()  # names of the files beside it that hold weights; part of the hash and of the bytes
