"""Read and write ONNX files, with external data in files next to them.

Reading checks what the file says before it is followed: sizes, offsets, and that data files lie
in the model's folder. Writing is deterministic, so that the same model gives the same bytes, and
a file appears under its final name only when it is complete.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from ltp_pipeline.errors import ExportFailed, InputError, summarize_error
from ltp_pipeline.graph.model import OnnxModel, copy_proto, iter_unique_floats, separate_weights
from ltp_pipeline.graph.serialize import FilePiece, get_content, get_size, serialize_model
from ltp_pipeline.graph.tensors import (
    MAX_BYTES,
    REFETCH_HINT,
    clear_values,
    get_byte_size,
    get_dtype,
    iter_named_tensors,
    iter_tensors,
)
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.files import external_data_path, read_bytes, write_pieces

# Smaller tensors stay in the model file, because onnxruntime needs shapes there.
INLINE_BYTES = 1024
MARGIN = 1 << 24  # bytes left for the graph in a file that must stay below MAX_BYTES
PAGE_BYTES = 4096  # alignment with which runtimes can map external data into memory


def read_model(path: Path) -> OnnxModel:
    """Read an ONNX file and the external data next to it, as `read_model_with_data` does."""
    return read_model_with_data(path)[0]


def read_model_with_data(path: Path) -> tuple[OnnxModel, list[Path]]:
    """Read an ONNX file; return the model and the data files next to it that it was read from.

    Raises:
        InputError: If the file or its data cannot be read or contradict themselves.
    """
    path = Path(path)
    proto = _parse_file(path)
    weights: dict[str, Array] = {}
    data_files: dict[Path, None] = {}
    external: list[tuple[str, TensorProto]] = []
    for name, tensor in iter_named_tensors(proto, sparse=True):
        if tensor.external_data or tensor.data_location:
            external.append((name, tensor))
    unique: set[str] = set()
    if external:
        unique = {name for name, _ in iter_unique_floats(proto)}
    for name, tensor in external:
        if tensor.data_location == TensorProto.EXTERNAL:
            source, content = _read_external(tensor, path.parent)
            data_files[source] = None
            if name in unique:
                dtype = get_dtype(tensor).newbyteorder("<")
                weights[name] = np.frombuffer(content, dtype).reshape(tuple(tensor.dims))
            else:
                tensor.raw_data = content
            tensor.ClearField("data_location")
        del tensor.external_data[:]  # the places say nothing about where values will be written
    return separate_weights(proto, weights), list(data_files)


def _parse_file(path: Path) -> ModelProto:
    """Read the message of an ONNX file."""
    content = read_bytes(path, "pass the path of an ONNX model", MAX_BYTES)
    if not content:
        raise InputError(f"{path} is empty", REFETCH_HINT)
    try:
        model: ModelProto = ModelProto.FromString(content)
    except (DecodeError, ValueError):
        raise InputError(
            f"{path} is not an ONNX model, or only part of one", REFETCH_HINT
        ) from None
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise InputError(
            f"{path} is not an ONNX model: it has no graph or no opset",
            "pass the path of an ONNX model",
        )
    return model


def _read_external(tensor: TensorProto, folder: Path) -> tuple[Path, bytes]:
    """Return the file that holds the values of a tensor, and their bytes."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    source = _resolve_external(tensor.name, entries.get("location", ""), folder)
    expected = get_byte_size(tensor)
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries.get("length", expected))
    except ValueError:
        message = f"tensor '{tensor.name}' has an external offset or length that is not a number"
        raise InputError(message, REFETCH_HINT) from None
    try:
        size = source.stat().st_size
        if offset < 0 or length != expected or offset + length > size:
            raise InputError(
                f"tensor '{tensor.name}' needs {expected} bytes, but the model points at bytes "
                f"{offset} to {offset + length} of {source.name}, which has {size}",
                REFETCH_HINT,
            )
        with source.open("rb") as file:
            file.seek(offset)
            return source, file.read(length)
    except OSError as error:
        raise InputError(
            f"tensor '{tensor.name}' has its data in {source.name}, which cannot be read: "
            f"{error.strerror}",
            "make the file readable",
        ) from None


def _resolve_external(name: str, location: str, folder: Path) -> Path:
    """Return the data file that a tensor names; it must be a file in the model's folder."""
    posix = PurePosixPath(location)
    windows = PureWindowsPath(location)
    leaves = posix.is_absolute() or windows.anchor or ".." in (*posix.parts, *windows.parts)
    described = f"tensor '{name}' has its data in '{location}'"
    try:
        source = (folder / location).resolve()
        is_file = source.is_file()
        is_link = (folder / location).is_symlink()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have
        raise InputError(
            f"{described}, which cannot be read: {summarize_error(error)}",
            "put the data next to the model, under a name that files can have",
        ) from None
    if not location or leaves or not source.is_relative_to(folder.resolve()):
        raise InputError(
            f"{described}, outside the model's folder",
            "put the data file itself (not a link) next to the model and let the model name it "
            "relative to itself",
        )
    if not is_file:
        raise InputError(f"{described}, which is missing", "put the file next to the model")
    if is_link:
        raise InputError(f"{described}, which is a link", "put the file itself there")
    return source


def write_model(model: OnnxModel, path: Path, external: bool = False) -> None:
    """Write a model to a file, the same bytes for the same model.

    Args:
        model: The model.
        path: Target. It is replaced only when everything is written.
        external: If True, large tensors go to `<name>.data` next to the file. Tensors of models
            over 2 GB always do.

    Raises:
        ExportFailed: If the file would be larger than ONNX files can be.
    """
    path = Path(path)
    data: list[FilePiece] = []
    size = sum(map(get_byte_size, iter_tensors(model.proto)))
    if external or size > MAX_BYTES - MARGIN:
        model, data = _move_to_data_file(model, external_data_path(path).name)
    if data:
        # If writing stops between the two, an older model must not meet the new data.
        path.unlink(missing_ok=True)
        _write_file(external_data_path(path), data)
    _write_file(path, serialize_model(model))


def write_models(
    models: Iterable[tuple[OnnxModel, Path]], written: list[Path], external: bool = False
) -> dict[Path, Future[None]]:
    """Write several models, each to its path, in the background while the next one is computed.

    Args:
        models: Models and their targets.
        written: List to which a path is added when its file is complete.
        external: See `write_model`.

    Returns:
        A finished future for each path; its `result()` raises the error of a failed file.
    """

    def write_one(model: OnnxModel, path: Path) -> None:
        write_model(model, path, external)
        written.append(path)

    pool = ThreadPoolExecutor(max_workers=2)
    try:
        futures = {path: pool.submit(write_one, model, path) for model, path in models}
        wait(futures.values())
    finally:
        pool.shutdown(cancel_futures=True)
    return futures


def _move_to_data_file(model: OnnxModel, location: str) -> tuple[OnnxModel, list[FilePiece]]:
    """Return a model without the values of large tensors, and the pieces of a file of these."""
    proto = copy_proto(model.proto)
    weights = dict(model.weights)
    inline: dict[str, Array] = {}
    pieces: list[FilePiece] = []
    offset = 0
    for name, tensor in iter_named_tensors(proto):
        del tensor.external_data[:]
        array = weights.pop(name, None)
        if get_byte_size(tensor) < INLINE_BYTES:
            if array is not None:
                inline[name] = array
            continue
        if array is None and not tensor.HasField("raw_data"):
            continue
        piece = tensor.raw_data if array is None else array
        clear_values(tensor)
        length = get_size(piece)
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = TensorProto.EXTERNAL
        padding = bytes(-length % PAGE_BYTES)
        pieces += [piece, padding]
        offset += length + len(padding)
    return replace(model, proto=proto, weights=inline), pieces


def _write_file(path: Path, pieces: Sequence[FilePiece]) -> None:
    if sum(map(get_size, pieces)) > MAX_BYTES and path.suffix == ".onnx":
        raise ExportFailed(
            f"{path.name} would be over 2 GB, which ONNX files cannot hold", "export it as packed"
        )
    write_pieces(path, map(get_content, pieces))
