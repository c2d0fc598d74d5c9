"""What an encoding is: how the zeros of a model's kernels are written into a file, and read back."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from onnx import TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system import memory
from ltp_pipeline.system.arrays import Array


@dataclass(frozen=True)
class DecodedTensors:
    """Tensors of a file, dense: their declarations, their values, and the names that encoding them added."""

    tensors: dict[str, TensorProto] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    added_names: set[str] = field(default_factory=set)

    def update(self, other: "DecodedTensors") -> None:
        """Add what was decoded elsewhere."""
        self.tensors.update(other.tensors)
        self.weights.update(other.weights)
        self.added_names.update(other.added_names)


def check_memory(size: int) -> None:
    """Refuse to decode what has more bytes than there is free memory; zeros take none in a file."""
    free = memory.available()
    if free is not None and size > free:
        dense, there = size / memory.GIGABYTE, free / memory.GIGABYTE
        what = f"the encoded tensors take {dense:,.1f} GB once they are dense, and {there:,.1f} GB of memory are free"
        raise InputError(
            what, "use a machine with more memory, or get the file again from where it came from"
        )


@dataclass(frozen=True)
class Encoding:
    """One way to write a model. Its name is its part of the file name.

    `encode` takes a model with its final dense weights and the names of the kernels. Encode last: every other tool
    works on the dense model.
    """

    name: str
    description: str  # what the file is, for HANDOFF.md
    tool_support: Mapping[str, str]  # who reads it, for HANDOFF.md: tool -> "yes", or what happens
    encode: Callable[..., OnnxModel]
    find_encoded_names: Callable[[OnnxModel], list[str]]  # the tensors of a file that are encoded
    decode: Callable[[OnnxModel, Collection[str]], DecodedTensors]  # these tensors of a file
    passes_full_check: bool = True  # whether onnx.checker can infer the shapes of such a file
