"""What an encoding is: how the zeros of a model's kernels are written into a file, and read back."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from onnx import ModelProto, TensorProto

from ltp_pipeline.exporters.draft import Draft

Decoded = tuple[dict[str, TensorProto], set[str]]


@dataclass(frozen=True)
class Encoding:
    """One way to write a model. Its name is its part of the file name."""

    name: str
    about: str  # what the file is, for HANDOFF.md
    readers: Mapping[str, str]  # who reads it, for HANDOFF.md: tool -> "yes", or what happens
    draft: Callable[..., Draft]  # (model with final dense weights, kernels) -> the encoded model, for `save`
    encoded_names: Callable[[ModelProto], list[str]]  # the tensors of a file that are encoded
    decode: Callable[[ModelProto, Collection[str]], Decoded]  # these tensors, dense, and the names that encoding added
    full_check: bool = True  # whether onnx.checker can infer the shapes of such a file

    def encode(self, model: ModelProto, kernels: Collection[str], **how: str) -> ModelProto:
        """The encoded model itself, everything inside. Encode last: every other tool works on the dense model."""
        return self.draft(model, kernels, **how).filled()
