"""ONNX files on disk: parsing with clear errors, writing in one move, external data kept inside the model's folder."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path, PurePosixPath, PureWindowsPath

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.draft import Draft
from ltp_pipeline.exporters.tensors import AGAIN, LARGEST, byte_size, copy_model, every_tensor
from ltp_pipeline.exporters.wire import Piece, content, pieces, size
from ltp_pipeline.files import data_beside, write_pieces

INLINE_BELOW = 1024  # bytes: onnxruntime needs the small shape tensors inside the model file
MARGIN = 1 << 24  # bytes left for the graph in a file that must stay under LARGEST
PAGE = 4096  # the alignment with which runtimes can map external data into memory


def load(path: Path) -> ModelProto:
    """Read an ONNX file and the external data beside it; every tensor has its values inside then."""
    return load_with_data(path)[0]


def load_with_data(path: Path) -> tuple[ModelProto, list[Path]]:
    """The same, and the data files that were read."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no such file: {path}", "give the path of an ONNX model") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", "give the path of an ONNX model") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", "give a readable ONNX model") from None
    model, read = _parse(path, content), dict[Path, None]()
    for tensor in every_tensor(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            read[_load_external(tensor, path.parent)] = None
        del tensor.external_data[:]  # where the values were says nothing about where they will be
    return model, list(read)


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


def _load_external(tensor: TensorProto, folder: Path) -> Path:
    """Read a tensor's values, and say from which file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    source = _external_file(tensor.name, entries.get("location", ""), folder)
    expected = byte_size(tensor)
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
    return source


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
    if (folder / location).is_symlink():
        raise InputError(f"tensor '{name}' has its data in '{location}', which is a link", "put the file itself there")
    return source


def save(model: ModelProto | Draft, path: Path, external: bool = False) -> None:
    """Write a model so that the same model gives the same bytes and no half of it ever bears the final name.

    Everything is in the one file; of more than 2 GB, or where `external` asks for it, the large tensors go to
    `<name>.data` beside it.
    """
    path = Path(path)
    draft, data = model if isinstance(model, Draft) else Draft(model), list[Piece]()
    if external or _too_large(draft.model):
        draft, data = _with_external_data(draft, data_beside(path).name)
    if data:
        # An older model of this name must not meet the new data, should we be stopped between the two.
        path.unlink(missing_ok=True)
        _write(data_beside(path), data)
    _write(path, pieces(draft))


def save_all(
    drafts: Iterable[tuple[Draft, Path]], written: list[Path], external: bool = False
) -> dict[Path, Future[None]]:
    """Save each as it comes, in the background while the next one is made.

    Paths join `written` when their files are there; the `result()` of the others tells why they are not.
    """

    def save_one(draft: Draft, path: Path) -> None:
        save(draft, path, external)
        written.append(path)

    pool = ThreadPoolExecutor(max_workers=2)
    try:
        saving = {path: pool.submit(save_one, draft, path) for draft, path in drafts}
        wait(saving.values())
    finally:
        pool.shutdown(cancel_futures=True)
    return saving


def _too_large(model: ModelProto) -> bool:
    return sum(map(byte_size, every_tensor(model))) > LARGEST - MARGIN


def _with_external_data(draft: Draft, location: str) -> tuple[Draft, list[Piece]]:
    """Copy a model without the values of its large tensors, which come as one run of pieces, still where they are."""
    large: dict[str, Piece] = {
        tensor.name: draft.content.get(tensor.name, tensor)
        for tensor in draft.model.graph.initializer
        if tensor.name in draft.content or (tensor.HasField("raw_data") and byte_size(tensor) >= INLINE_BELOW)
    }
    copy = copy_model(draft.model, empty=large)
    data, offset = list[Piece](), 0
    for nth, tensor in enumerate(every_tensor(copy, sparse=False)):
        del tensor.external_data[:]
        held = large.get(tensor.name) if nth < len(copy.graph.initializer) else None  # those come first
        if held is None:
            if byte_size(tensor) < INLINE_BELOW or not tensor.HasField("raw_data"):
                continue
            held = tensor.raw_data
            tensor.ClearField("raw_data")
        for key, value in {"location": location, "offset": offset, "length": size(held)}.items():
            tensor.external_data.add(key=key, value=str(value))
        tensor.data_location = TensorProto.EXTERNAL
        padding = bytes(-size(held) % PAGE)
        data += [held, padding]
        offset += size(held) + len(padding)
    inside = {name: values for name, values in draft.content.items() if name not in large}
    return Draft(copy, inside, draft.indices), data


def _write(path: Path, parts: Sequence[Piece]) -> None:
    if sum(map(size, parts)) > LARGEST and path.suffix == ".onnx":
        raise ExportFailed(f"{path.name} would be over 2 GB, which ONNX cannot hold", "export it as packed")
    write_pieces(path, map(content, parts))
