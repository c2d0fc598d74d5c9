"""Verify that an exported file is valid ONNX and holds its weights bit for bit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from ltp_pipeline.errors import ExportFailed, InputError, summarize_error
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.nonzeros import replace_negative_zeros, view_bits
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.schemas import make_checkable
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.system.arrays import Array

EXPORT_AGAIN = "export again; if it happens twice, report it as a bug"


def verify_weights(file: Path | OnnxModel, expected: Mapping[str, Array], encoding: str) -> None:
    """Raise ExportFailed unless a file is valid ONNX and holds the expected weights bit for bit.

    Args:
        file: The file, or its content.
        expected: Dense values by tensor name. They are converted to the file's types first, and
            -0.0 equals 0.0.
        encoding: Name of the file's encoding.
    """
    try:
        model = file if isinstance(file, OnnxModel) else read_model(file)
        weights = read_tensors(model, list(expected))
    except InputError as error:
        raise ExportFailed(
            f"the exported file cannot be read back: {error.message}", EXPORT_AGAIN
        ) from None
    path = file if isinstance(file, Path) else None
    try:
        _check_onnx(model, path, ENCODINGS[encoding].passes_full_check)
    except Exception as error:  # noqa: BLE001 (the checker's C++ errors share no narrower type)
        reason = summarize_error(error)
        raise ExportFailed(f"the exported file is not valid ONNX: {reason}", EXPORT_AGAIN) from None
    for name, array in expected.items():
        _compare_tensor(name, np.asarray(array), weights[name])


def _check_onnx(model: OnnxModel, path: Path | None, full_check: bool) -> None:
    """Raise an error of onnx.checker if a model is not valid."""
    types = [value.type for value in (*model.graph.input, *model.graph.output)]
    has_shapes = all(
        type_.tensor_type.HasField("shape") for type_ in types if type_.HasField("tensor_type")
    )
    if has_shapes and not make_checkable(copy_proto(model.proto)):
        onnx.checker.check_model(str(path) if path else model.to_proto(), full_check=full_check)
        return
    # The checker rejects an output without a shape, and operators that only onnxruntime has.
    # The rest of such a model can still be checked, in a copy where both are fixed.
    copy = model.to_proto()
    make_checkable(copy)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copy)


def _compare_tensor(name: str, expected: Array, actual: Array) -> None:
    """Raise ExportFailed if a tensor of a file differs from the expected one."""
    if expected.shape != actual.shape:
        raise ExportFailed(
            f"tensor '{name}' must have shape {expected.shape}, but has {actual.shape} in the file",
            EXPORT_AGAIN,
        )
    expected = np.ascontiguousarray(expected, actual.dtype)
    if view_bits(expected).tobytes() == view_bits(actual).tobytes():
        return
    expected_bits = view_bits(replace_negative_zeros(expected))
    actual_bits = view_bits(replace_negative_zeros(actual))
    num_different = int((expected_bits != actual_bits).sum())
    if num_different:
        raise ExportFailed(
            f"tensor '{name}' of the file differs from its weights in {num_different} of"
            f" {expected.size} elements",
            EXPORT_AGAIN,
        )
