"""ONNX files on disk: parsing with clear errors, writing in one move, external data kept inside the model's folder."""

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
    DATA_FIELDS,
    MAX_BYTES,
    REFETCH_HINT,
    get_byte_size,
    get_dtype,
    iter_named_tensors,
    iter_tensors,
)
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.files import external_data_path, read_bytes, write_pieces

INLINE_BELOW = 1024  # bytes: onnxruntime needs the small shape tensors inside the model file
MARGIN = 1 << 24  # bytes left for the graph in a file that must stay under LARGEST
PAGE = 4096  # the alignment with which runtimes can map external data into memory


def read_model(path: Path) -> OnnxModel:
    """Read an ONNX file and the external data beside it."""
    return read_model_with_data(path)[0]


def read_model_with_data(path: Path) -> tuple[OnnxModel, list[Path]]:
    """The same, and the data files that were read."""
    path = Path(path)
    proto = _parse(path)
    weights, data = dict[str, Array](), dict[Path, None]()
    outside = [
        (name, t)
        for name, t in iter_named_tensors(proto, sparse=True)
        if t.external_data or t.data_location
    ]
    own = {name for name, _ in iter_unique_floats(proto)} if outside else set()
    for name, tensor in outside:
        if tensor.data_location == TensorProto.EXTERNAL:
            source, found = _read_external(tensor, path.parent)
            data[source] = None
            if name in own:
                weights[name] = np.frombuffer(found, get_dtype(tensor).newbyteorder("<")).reshape(
                    tuple(tensor.dims)
                )
            else:
                tensor.raw_data = found
            tensor.ClearField("data_location")
        del tensor.external_data[:]  # where the values were says nothing about where they will be
    return separate_weights(proto, weights), list(data)


def _parse(path: Path) -> ModelProto:
    content = read_bytes(path, "give the path of an ONNX model", MAX_BYTES)
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
            "give the path of an ONNX model",
        )
    return model


def _read_external(tensor: TensorProto, folder: Path) -> tuple[Path, bytes]:
    """The values of a tensor, and the file that has them."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    source = _external_file(tensor.name, entries.get("location", ""), folder)
    expected = get_byte_size(tensor)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
    except ValueError:
        raise InputError(
            f"tensor '{tensor.name}' has an external offset or length that is no number",
            REFETCH_HINT,
        ) from None
    try:
        size = source.stat().st_size
        if offset < 0 or length != expected or offset + length > size:
            raise InputError(
                f"tensor '{tensor.name}' needs {expected} bytes, but the model points at bytes {offset} to "
                f"{offset + length} of {source.name}, which has {size}",
                REFETCH_HINT,
            )
        with source.open("rb") as file:
            file.seek(offset)
            return source, file.read(length)
    except OSError as error:
        what = f"tensor '{tensor.name}' has its data in {source.name}, which cannot be read: {error.strerror}"
        raise InputError(what, "make the file readable") from None


def _external_file(name: str, location: str, folder: Path) -> Path:
    posix, windows = PurePosixPath(location), PureWindowsPath(location)
    outside = posix.is_absolute() or windows.anchor or ".." in posix.parts or ".." in windows.parts
    root = folder.resolve()
    try:
        source = (folder / location).resolve()
        is_file, is_link = source.is_file(), (folder / location).is_symlink()
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have
        what = f"tensor '{name}' has its data in '{location}', which cannot be read: {summarize_error(error)}"
        raise InputError(
            what, "put the data beside the model, under a name that files can have"
        ) from None
    if not location or outside or not source.is_relative_to(root):
        raise InputError(
            f"tensor '{name}' has its data at '{location}', outside the model's folder",
            "put the data file itself (not a link) beside the model and let the model name it relative to itself",
        )
    if not is_file:
        raise InputError(
            f"tensor '{name}' has its data in '{location}', which is missing",
            "put it beside the model",
        )
    if is_link:
        raise InputError(
            f"tensor '{name}' has its data in '{location}', which is a link",
            "put the file itself there",
        )
    return source


def write_model(model: OnnxModel, path: Path, external: bool = False) -> None:
    """Write a model so that the same model gives the same bytes and no half of it ever bears the final name.

    Everything is in the one file; of more than 2 GB, or where `external` asks for it, the large tensors go to
    `<name>.data` beside it.
    """
    path, data = Path(path), list[FilePiece]()
    if external or _too_large(model.proto):
        model, data = _with_external_data(model, external_data_path(path).name)
    if data:
        # An older model of this name must not meet the new data, should we be stopped between the two.
        path.unlink(missing_ok=True)
        _write(external_data_path(path), data)
    _write(path, serialize_model(model))


def write_models(
    models: Iterable[tuple[OnnxModel, Path]], written: list[Path], external: bool = False
) -> dict[Path, Future[None]]:
    """Write each as it comes, in the background while the next one is made.

    Paths join `written` when their files are there; the `result()` of the others tells why they are not.
    """

    def write_one(model: OnnxModel, path: Path) -> None:
        write_model(model, path, external)
        written.append(path)

    pool = ThreadPoolExecutor(max_workers=2)
    try:
        writing = {path: pool.submit(write_one, model, path) for model, path in models}
        wait(writing.values())
    finally:
        pool.shutdown(cancel_futures=True)
    return writing


def _too_large(proto: ModelProto) -> bool:
    return sum(map(get_byte_size, iter_tensors(proto))) > MAX_BYTES - MARGIN


def _with_external_data(model: OnnxModel, location: str) -> tuple[OnnxModel, list[FilePiece]]:
    """The model without the values of its large tensors, and these as one run of pieces, still where they are."""
    proto, left, inside = copy_proto(model.proto), dict(model.weights), dict[str, Array]()
    data, offset = list[FilePiece](), 0
    for name, tensor in iter_named_tensors(proto):
        del tensor.external_data[:]
        held: FilePiece | None = left.pop(name, None)
        if get_byte_size(tensor) < INLINE_BELOW:
            if isinstance(held, np.ndarray):
                inside[name] = held
            continue
        if held is None and not tensor.HasField("raw_data"):
            continue
        held = tensor.raw_data if held is None else held
        for field in DATA_FIELDS:
            tensor.ClearField(field)
        for key, value in {
            "location": location,
            "offset": offset,
            "length": get_size(held),
        }.items():
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = TensorProto.EXTERNAL
        padding = bytes(-get_size(held) % PAGE)
        data += [held, padding]
        offset += get_size(held) + len(padding)
    return replace(model, proto=proto, weights=inside), data


def _write(path: Path, parts: Sequence[FilePiece]) -> None:
    if sum(map(get_size, parts)) > MAX_BYTES and path.suffix == ".onnx":
        raise ExportFailed(
            f"{path.name} would be over 2 GB, which ONNX cannot hold", "export it as packed"
        )
    write_pieces(path, map(get_content, parts))
