"""From an ONNX file to a trainable module over its graph, checked against onnxruntime."""

import hashlib
from dataclasses import replace
from pathlib import Path

from onnx import ModelProto, ValueInfoProto, checker

from ltp_pipeline import exporters
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.files import sha256_of
from ltp_pipeline.records import ImportedModel, Kernel, ModelFile, TensorInfo
from ltp_pipeline.stages.import_model import ops  # noqa: F401 - fills the registry
from ltp_pipeline.stages.import_model.graph_module import GraphModule, standard_opset
from ltp_pipeline.stages.import_model.kernels import find_kernels
from ltp_pipeline.stages.import_model.normalise import normalise
from ltp_pipeline.stages.import_model.parity import check_parity
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.roles import Role
from ltp_pipeline.stages.import_model.tensors import type_name
from ltp_pipeline.stages.import_model.unsupported import unsupported_nodes

OLDEST_OPSET = 7


def import_model(source: Path | str | ModelProto, kernels: KernelSettings | None = None) -> ImportedModel:
    """Make a file, or a model in memory, trainable; the public entry."""
    return run(read(source), kernels or KernelSettings())


def read(source: Path | str | ModelProto) -> ModelFile:
    """Read and check a model without looking at its operators yet."""
    if isinstance(source, ModelProto):
        proto = ModelProto()
        proto.CopyFrom(source)
        content = source.SerializeToString()
        path, digest, size = None, hashlib.sha256(content).hexdigest(), len(content)
    else:
        path = Path(source)
        proto = exporters.load(path)
        digest, size = sha256_of(path), path.stat().st_size
    opset = standard_opset(proto)
    if not proto.graph.node:
        raise InputError(f"{path or 'the model'} has no nodes", "give a trained ONNX model")
    proto = exporters.to_dense(proto)
    _check(proto, path)
    initial = {t.name for t in proto.graph.initializer}
    inputs = tuple(_info(i) for i in proto.graph.input if i.name not in initial)
    outputs = tuple(_info(o) for o in proto.graph.output)
    return ModelFile(proto, inputs, outputs, opset, digest, path, size)


def run(file: ModelFile, settings: KernelSettings, sample_shape: tuple[int, ...] | None = None) -> ImportedModel:
    """Build the module and refuse a model that it would not compute as onnxruntime does."""
    imported = build(file, settings)
    parity, problem = check_parity(file.proto, imported.module, file.inputs, sample_shape)
    notes = imported.notes if problem is None else (*imported.notes, f"not compared with onnxruntime: {problem}")
    return replace(imported, parity=parity, notes=notes)


def build(file: ModelFile, settings: KernelSettings) -> ImportedModel:
    """Build the module, without running it."""
    if file.opset < OLDEST_OPSET:
        raise UnsupportedModel(
            f"the model uses opset {file.opset}; opsets from {OLDEST_OPSET} on are supported",
            "convert it with onnx.version_converter",
        )
    notes = normalise(file.proto)
    reasons = unsupported_nodes(file.proto)
    if reasons:
        raise UnsupportedModel(
            f"{len(reasons)} nodes of the model are not supported",
            "replace or remove them; docs/operators.md lists what is supported",
            reasons,
        )
    try:
        module = GraphModule(file.proto)
    except NodeError as error:
        raise UnsupportedModel(f"the graph cannot be built: {error}", "check how the model was exported") from None
    shapes = {n: tuple(t.shape) for n, t in module.tensors().items() if module.roles[n] is Role.WEIGHT}
    kernels = find_kernels(file.proto.graph, shapes, settings)
    return ImportedModel(file, module, tuple(kernels), None, tuple(notes))


def require_prunable(imported: ImportedModel) -> tuple[Kernel, ...]:
    """The kernels to prune; an error when there are none."""
    if not imported.kernels:
        raise UnsupportedModel(
            "the model has no kernels: no Conv, ConvTranspose, Gemm or MatMul has a float weight of its own",
            "give a model with weights; `ltp-pipeline inspect` shows what was found",
        )
    if not imported.prunable:
        raise InputError("no kernel is left to prune", "loosen --include and --exclude")
    return imported.prunable


def _check(proto: ModelProto, path: Path | None) -> None:
    try:
        checker.check_model(proto)
    except checker.ValidationError as error:
        line = str(error).strip().splitlines()[0][:300]
        raise InputError(f"{path or 'the model'} is not valid ONNX: {line}", "export the model again") from None
    except ValueError:  # over 2 GB: the checker wants a path
        if path is not None:
            checker.check_model(str(path))


def _info(value: ValueInfoProto) -> TensorInfo:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        return TensorInfo(value.name, value.type.WhichOneof("value") or "unknown", None)
    if not tensor.HasField("shape"):
        return TensorInfo(value.name, type_name(tensor.elem_type), None)
    dims = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim)
    return TensorInfo(value.name, type_name(tensor.elem_type), dims)
