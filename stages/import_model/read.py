"""Read a model from a path or from memory, and check it; needs no torch."""

import hashlib
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.files.decode import to_dense
from ltp_pipeline.graph.edit import sort_topologically
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.model_file import ModelFile, TensorInfo
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.storage import read_model_with_data
from ltp_pipeline.graph.tensors import get_type_name
from ltp_pipeline.stages.import_model.validity import check_validity
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import sha256_files


def read_model_file(source: AnyPath | ModelProto) -> ModelFile:
    """Read and validate a model, without looking at its operators yet.

    Encoded weights are decoded. Nodes are sorted topologically.

    Args:
        source: Path of an ONNX file, or a model in memory, which is not changed.

    Raises:
        InputError: If the file cannot be read or is not a valid ONNX model.
    """
    path = None
    data_files: tuple[str, ...] = ()
    if isinstance(source, ModelProto):
        digest, num_bytes = _hash_proto(source)
        model = OnnxModel.from_proto(source)
    else:
        path = Path(source)
        model, data_paths = read_model_with_data(path)
        # The weights are in the data files, so that these count for hash and size.
        paths = [path, *data_paths]
        digest = sha256_files(paths)
        num_bytes = sum(part.stat().st_size for part in paths)
        folder = path.parent.resolve()
        data_files = tuple(part.relative_to(folder).as_posix() for part in data_paths)
    sort_topologically(model.graph)
    check_validity(model, path)
    dense = to_dense(model)
    if dense is not model:
        model = dense
        check_validity(model, path)
    stored = collect_names(model.graph.initializer)
    return ModelFile(
        model=model,
        inputs=tuple(_describe_value(i) for i in model.graph.input if i.name not in stored),
        outputs=tuple(_describe_value(output) for output in model.graph.output),
        opset=get_standard_opset(model.proto),
        sha256=digest,
        path=path,
        num_bytes=num_bytes,
        data_files=data_files,
    )


def _hash_proto(model: ModelProto) -> tuple[str, int]:
    """Return the hash and the size in bytes of a model in memory."""
    if not model.opset_import or not model.HasField("graph"):
        raise InputError("the model has no graph or no opset", "pass a complete ModelProto")
    try:
        content = model.SerializeToString(deterministic=True)
    except Exception:  # noqa: BLE001 - protobuf has several errors for a message over 2 GB
        raise InputError(
            "a model in memory may not be larger than 2 GB", "save it with external data first"
        ) from None
    return hashlib.sha256(content).hexdigest(), len(content)


def _describe_value(value: ValueInfoProto) -> TensorInfo:
    """Return name, type and shape of an input or output."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "unknown"
        return TensorInfo(value.name, kind.removesuffix("_type").replace("_", " "), None)
    tensor = value.type.tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if tensor.HasField("shape"):
        dims: list[int | str | None] = []
        for dim in tensor.shape.dim:
            if dim.HasField("dim_value"):
                dims.append(dim.dim_value)
            else:
                dims.append(dim.dim_param or None)
        shape = tuple(dims)
    return TensorInfo(value.name, get_type_name(tensor.elem_type), shape)
