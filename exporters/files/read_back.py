"""Read a file back: proof that it holds the weights, and that its labels are true."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import tensors
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.schemas import make_checkable
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.system.arrays import Array

EXPORT_AGAIN = "export again; if it happens twice, report it as a bug"


def verify_weights(file: Path | OnnxModel, expected: Mapping[str, Array], encoding: str) -> None:
    """Raise ExportFailed unless a file is valid ONNX and its decoded tensors equal the expected ones bit for bit.

    Expected values count as what the file's dtype makes of them, with -0.0 as 0.0.
    """
    try:
        model = file if isinstance(file, OnnxModel) else read_model(file)
        decoded = read_tensors(model, list(expected))
    except InputError as error:
        raise ExportFailed(
            f"the exported file cannot be read back: {error.message}", EXPORT_AGAIN
        ) from None
    try:
        _check_onnx(
            model, file if isinstance(file, Path) else None, ENCODINGS[encoding].passes_full_check
        )
    except Exception as error:  # noqa: BLE001 (the checker's C++ errors share no narrower type)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ExportFailed(f"the exported file is not valid ONNX: {reason}", EXPORT_AGAIN) from None
    for name, array in expected.items():
        _compare_tensor(name, np.asarray(array), decoded[name])


def _check_onnx(model: OnnxModel, path: Path | None, full_check: bool) -> None:
    values = [
        v.type.tensor_type
        for v in (*model.graph.input, *model.graph.output)
        if v.type.HasField("tensor_type")
    ]
    if all(v.HasField("shape") for v in values) and not make_checkable(copy_proto(model.proto)):
        onnx.checker.check_model(str(path) if path else model.to_proto(), full_check=full_check)
        return
    # onnxruntime forgives an output without a shape and has operators that the standard has not, the checker does not;
    # the rest of such a file can still be checked.
    copy = model.to_proto()
    make_checkable(copy)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(copy)


def _compare_tensor(name: str, wanted: Array, found: Array) -> None:
    if wanted.shape != found.shape:
        raise ExportFailed(
            f"tensor '{name}' has shape {found.shape} in the file, {wanted.shape} before",
            EXPORT_AGAIN,
        )
    wanted = np.ascontiguousarray(wanted, found.dtype)
    if tensors.view_bits(wanted).tobytes() == tensors.view_bits(found).tobytes():
        return
    wanted, found = tensors.replace_negative_zeros(wanted), tensors.replace_negative_zeros(found)
    different = int((tensors.view_bits(wanted) != tensors.view_bits(found)).sum())
    if different:
        raise ExportFailed(
            f"tensor '{name}' differs from its weights in {different} of {wanted.size} places",
            EXPORT_AGAIN,
        )
