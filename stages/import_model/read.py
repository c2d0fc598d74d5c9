"""From a path, or a model in memory, to a checked file; nothing here needs torch."""

import hashlib
from pathlib import Path

from onnx import ModelProto, ValueInfoProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.files.decode import to_dense
from ltp_pipeline.graph.edit import sort_topologically
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.model_file import ModelFile, TensorInfo
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.storage import read_model_with_data
from ltp_pipeline.graph.tensors import get_type_name
from ltp_pipeline.stages.import_model.validity import check_validity
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.hashing import sha256_files


def read_model_file(source: AnyPath | ModelProto) -> ModelFile:
    """Read and check a model without looking at its operators yet; the caller's own proto is never changed."""
    if isinstance(source, ModelProto):
        path, data = None, tuple[str, ...]()
        digest, size = _hash_of(source)
        model = OnnxModel.from_proto(source)
    else:
        path = Path(source)
        model, beside = read_model_with_data(
            path
        )  # which is part of hash and size: the weights are in it
        digest, size = (
            sha256_files([path, *beside]),
            sum(part.stat().st_size for part in (path, *beside)),
        )
        data = tuple(part.relative_to(path.parent.resolve()).as_posix() for part in beside)
    sort_topologically(model.graph)
    check_validity(model, path)
    dense = to_dense(model)
    if dense is not model:
        model = dense
        check_validity(model, path)
    initial = {t.name for t in model.graph.initializer}
    inputs = tuple(_info(i) for i in model.graph.input if i.name not in initial)
    outputs = tuple(_info(o) for o in model.graph.output)
    return ModelFile(
        model, inputs, outputs, get_standard_opset(model.proto), digest, path, size, data
    )


def _hash_of(model: ModelProto) -> tuple[str, int]:
    if not model.opset_import or not model.HasField("graph"):
        raise InputError("the model has no graph or no opset", "give a complete ModelProto")
    try:
        content = model.SerializeToString(deterministic=True)
    except Exception:  # noqa: BLE001 - protobuf has several errors for a message over 2 GB
        raise InputError(
            "a model in memory may not be larger than 2 GB", "save it with external data first"
        ) from None
    return hashlib.sha256(content).hexdigest(), len(content)


def _info(value: ValueInfoProto) -> TensorInfo:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "unknown"
        return TensorInfo(value.name, kind.removesuffix("_type").replace("_", " "), None)
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(
            d.dim_value if d.HasField("dim_value") else (d.dim_param or None)
            for d in tensor.shape.dim
        )
    return TensorInfo(value.name, get_type_name(tensor.elem_type), dims)
