"""ONNX files on disk: parsing with clear errors, writing in one move, external data kept inside the model's folder."""

from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.tensors import LARGEST, every_tensor
from ltp_pipeline.files import write_bytes

INLINE_BELOW = 1024  # bytes: onnxruntime needs the small shape tensors inside the model file
PAGE = 4096  # the alignment with which runtimes can map external data into memory
AGAIN = "get the file again from where it came from"


def load(path: Path) -> ModelProto:
    """Read an ONNX file and the external data beside it.

    A tensor that was external keeps its `external_data` entries although its values are now inside: `save` sees by
    them that the model is one that keeps its weights in a second file.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", "give the path of an ONNX model") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", "give the path of an ONNX model") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "give a readable ONNX model") from None
    model = _parse(path, content)
    for tensor in every_tensor(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            _load_external(tensor, path.parent)
    return model


def _parse(path: Path, content: bytes) -> ModelProto:
    if not content:
        raise InputError(f"{path} is empty", AGAIN)
    try:
        model: ModelProto = ModelProto.FromString(content)
    except (DecodeError, ValueError):
        raise InputError(f"{path} is not an ONNX model, or only part of one", AGAIN) from None
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise InputError(f"{path} is not an ONNX model: it has no graph or no opset", "give the path of an ONNX model")
    return model


def _load_external(tensor: TensorProto, folder: Path) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    source = _external_file(tensor.name, entries.get("location", ""), folder)
    expected = _bytes_of(tensor)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
    except ValueError:
        raise InputError(f"tensor '{tensor.name}' has an external offset or length that is no number", AGAIN) from None
    size = source.stat().st_size
    if offset < 0 or length != expected or offset + length > size:
        raise InputError(
            f"tensor '{tensor.name}' needs {expected} bytes, but the model points at bytes {offset} to "
            f"{offset + length} of {source.name}, which has {size}",
            AGAIN,
        )
    with source.open("rb") as file:
        file.seek(offset)
        tensor.raw_data = file.read(length)
    tensor.ClearField("data_location")


def _external_file(name: str, location: str, folder: Path) -> Path:
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    outside = posix.is_absolute() or windows.anchor or ".." in posix.parts or ".." in windows.parts
    root = folder.resolve()
    try:
        source = (folder / location).resolve()
    except (OSError, ValueError, RuntimeError):
        source = root
    if not location or outside or not source.is_relative_to(root):
        raise InputError(
            f"tensor '{name}' has its data at '{location}', outside the model's folder",
            "put the data file itself (not a link) beside the model and let the model name it relative to itself",
        )
    if not source.is_file():
        raise InputError(f"tensor '{name}' has its data in '{location}', which is missing", "put it beside the model")
    return source


def _bytes_of(tensor: TensorProto) -> int:
    elements = 1
    for n in tensor.dims:
        elements *= n
    four_bit = tensor.data_type in (TensorProto.UINT4, TensorProto.INT4)
    try:
        width = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    except KeyError:
        raise InputError(f"tensor '{tensor.name}' has an unknown type {tensor.data_type}", AGAIN) from None
    size = (elements + 1) // 2 if four_bit else elements * width
    if min(tensor.dims, default=1) < 0 or size > LARGEST:
        raise InputError(f"tensor '{tensor.name}' has impossible dims {list(tensor.dims)}", AGAIN)
    return size


def save(model: ModelProto, path: Path) -> None:
    """Write a model so that the same model gives the same bytes and no half of it ever bears the final name.

    More than 2 GB, or a model that had external data when it was loaded: the weights go to `<name>.data` beside it.
    """
    path = Path(path)
    if any(t.external_data for t in every_tensor(model)) or model.ByteSize() > LARGEST:
        model, data = _with_external_data(model, f"{path.name}.data")
        content = _serialized(model)
        # An older model of this name must not meet the new data, should we be stopped between the two.
        path.unlink(missing_ok=True)
        write_bytes(path.with_name(f"{path.name}.data"), data)
        write_bytes(path, content)
    else:
        write_bytes(path, _serialized(model))


def _serialized(model: ModelProto) -> bytes:
    try:
        content: bytes = model.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise ExportFailed(f"the model cannot be written: {error}", "export it as packed, which is smaller") from None
    return content


def _with_external_data(model: ModelProto, location: str) -> tuple[ModelProto, bytes]:
    """Move the large tensors of a copy out into one run of bytes."""
    copy = ModelProto()
    copy.CopyFrom(model)
    data = bytearray()
    for tensor in every_tensor(copy, sparse=False):
        del tensor.external_data[:]
        if len(tensor.raw_data) < INLINE_BELOW:
            continue
        data.extend(bytes(-len(data) % PAGE))
        entries = {"location": location, "offset": len(data), "length": len(tensor.raw_data)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        data.extend(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    return copy, bytes(data)
