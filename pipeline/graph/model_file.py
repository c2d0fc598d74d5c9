"""Records of an ONNX file as it was read: its model, inputs, outputs, size and hash."""

from dataclasses import dataclass
from pathlib import Path

from ltp_pipeline.graph.model import OnnxModel


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a graph.

    Attributes:
        name: Name of the value.
        type: ONNX's name of its type, such as FLOAT.
        shape: Dimensions: a number, the name of a symbol, or None if the file leaves it open.
            None if the file declares no shape.
    """

    name: str
    type: str
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class ModelFile:
    """An ONNX file as read, or a model in memory.

    Attributes:
        model: The model, with its original weights.
        inputs: Inputs of the graph that need data.
        outputs: Outputs of the graph.
        opset: Version of the standard operator set.
        sha256: Hash of the file and the data files next to it.
        path: The file; None for a model in memory.
        num_bytes: Size of the file and the data files next to it.
        data_files: Names of the files next to it that hold weights.
    """

    model: OnnxModel
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    opset: int
    sha256: str
    path: Path | None
    num_bytes: int
    data_files: tuple[str, ...] = ()
