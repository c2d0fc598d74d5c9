"""What a model is made of and what `run` would do with it; needs no data, no torch, and changes nothing."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.exporters.files.labels import read_metadata
from ltp_pipeline.graph.layer_weights import (
    LayerWeight,
    OtherWeights,
    describe_other_weights,
    find_layer_weights,
    find_other_weights,
)
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.graph.nodes import is_standard, iter_nodes, normalize_domain
from ltp_pipeline.graph.readers import find_readers
from ltp_pipeline.graph.schemas import get_opsets
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.import_model.unsupported import find_operator_problem, find_problems
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from ltp_pipeline.graph.model import OnnxModel


@dataclass(frozen=True)
class InspectedLayer:
    """A kernel of a model as it is in the file; `share` is of the weights in all kernels."""

    name: str
    op: str
    shape: tuple[int, ...]
    elements: int
    fraction: float
    nonzeros: int
    prunable: bool
    reason: str | None  # why it would not be pruned
    block_axis: int | None = (
        None  # of its output channels, where method.block can prune it in blocks
    )


@dataclass(frozen=True)
class InspectedOperator:
    """An operator that a model uses, and how often."""

    name: str
    domain: str
    count: int
    supported: bool


@dataclass(frozen=True)
class InspectionResult:
    """What a model is made of and, in the sentences of `plan`, what `run` would do with it."""

    path: str
    sha256: str
    bytes: int
    format: str | None  # of a file that this program wrote
    opset: int
    ir_version: int
    producer: str | None
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[InspectedOperator, ...]
    unsupported: tuple[str, ...]
    batch_norms: int
    folded_batch_norms: int
    layers: tuple[InspectedLayer, ...]
    others: tuple[OtherWeights, ...]
    layer_elements: int
    float_elements: int  # of the whole model
    prunable_elements: int
    sparsity: float | None
    unpruned: str | None  # float weights outside kernels
    notes: tuple[str, ...]
    plan: tuple[str, ...] = ()


def inspect(model: AnyPath, kernels: PruneSettings | None = None) -> InspectionResult:
    """Describe a model."""
    file = read_model_file(model)
    metadata = read_metadata(file.model)
    try:
        file, walked, notes = import_model.prepare_graph(file)
        reasons = find_problems(walked.proto)
    except UnsupportedModel as error:
        walked, notes, reasons = file.model, [], list(error.reasons) or [error.message]
    uses = find_readers(walked.graph)
    patterns = kernels or PruneSettings()
    found = find_layer_weights(walked, patterns.include, patterns.exclude, uses)
    listed, rest = _kernels(walked, found), find_other_weights(walked, found, uses)
    proto = file.model.proto
    elements, prunable = (
        sum(k.elements for k in listed),
        sum(k.elements for k in listed if k.prunable),
    )
    zeros = elements - sum(k.nonzeros for k in listed)
    described = InspectionResult(
        path=os.fspath(model),
        sha256=file.sha256,
        bytes=file.num_bytes,
        format="-".join(metadata[key] for key in ("graph", "format") if key in metadata) or None,
        opset=file.opset,
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip() or None,
        inputs=file.inputs,
        outputs=file.outputs,
        operators=_operators(walked.proto),
        unsupported=tuple(reasons),
        batch_norms=sum(is_standard(n, "BatchNormalization") for n in walked.graph.node),
        folded_batch_norms=_folded(walked.graph),
        layers=listed,
        others=tuple(rest),
        layer_elements=elements,
        float_elements=elements + sum(group.elements for group in rest),
        prunable_elements=prunable,
        sparsity=zeros / elements if elements else None,
        unpruned=describe_other_weights(found, rest),
        notes=tuple(notes),
    )
    return replace(described, plan=tuple(_plan(described)))


def _kernels(model: OnnxModel, found: list[LayerWeight]) -> tuple[InspectedLayer, ...]:
    total = sum(k.elements for k in found)
    return tuple(
        InspectedLayer(
            name=k.name,
            op=k.op,
            shape=k.shape,
            elements=k.elements,
            fraction=k.elements / total,
            nonzeros=int(np.count_nonzero(model.get_array(k.name))),
            prunable=k.is_prunable,
            reason=k.reason,
            block_axis=k.block_axis,
        )
        for k in found
    )


def _operators(model: ModelProto) -> tuple[InspectedOperator, ...]:
    counts = Counter((normalize_domain(n.domain), n.op_type) for n in iter_nodes(model.graph))
    versions = get_opsets(model)
    return tuple(
        InspectedOperator(
            name,
            domain or "ai.onnx",
            count,
            supported=find_operator_problem(name, versions.get(domain, 1), domain) is None,
        )
        for (domain, name), count in sorted(
            counts.items(), key=lambda item: (item[0][1], item[0][0])
        )
    )


def _folded(graph: GraphProto) -> int:
    """Convolutions with a bias and no BatchNormalization after them: most exporters leave these of a Conv-BN pair."""
    convs = [n for n in graph.node if is_standard(n, "Conv") and len(n.input) > 2 and n.input[2]]
    users = GraphView(graph).consumers if convs else {}
    return sum(
        not any(
            is_standard(use.node, "BatchNormalization") and use.slot == 0
            for use in users.get(conv.output[0], ())
        )
        for conv in convs
    )


def _plan(found: InspectionResult) -> list[str]:
    """What `run` would do, in sentences."""
    if found.unsupported:
        count = pluralize(len(found.unsupported), "problem")
        return [
            f"`run` would simplify the graph with onnxsim if that helps, else stop with exit 4: {count}."
        ]
    if not found.layers:
        return ["`run` would stop with exit 4: the model has no kernels to prune."]
    if not found.prunable_elements:
        return ["`run` would stop with exit 3: no kernel is left to prune."]
    prunable = [k for k in found.layers if k.prunable]
    share = found.prunable_elements / found.layer_elements
    plan = [
        f"`run` would prune {pluralize(len(prunable), 'kernel')} with {share:.1%} of the weights in kernels."
    ]
    blocks = sum(k.block_axis is not None for k in prunable)
    plan.append(
        f'With method.block = "4x1" it would prune {blocks} of them in blocks, the others by single weights.'
    )
    if found.unpruned:
        plan.append(f"{found.unpruned[0].upper()}{found.unpruned[1:]}.")
    left = len(found.layers) - len(prunable)
    if left:
        stay = "stays" if left == 1 else "stay"
        plan.append(
            f"{pluralize(left, 'kernel')} {stay} dense, so sparsity cannot exceed {share:.1%}."
        )
    if found.sparsity and found.sparsity >= 0.001:
        plan.append(f"{found.sparsity:.1%} of these weights are zero already and would stay so.")
    if len(found.inputs) > 1:
        names = ", ".join(repr(i.name) for i in found.inputs)
        plan.append(
            f"It has {len(found.inputs)} inputs, and data are wanted for each by its name: {names}."
        )
    if any(not isinstance(d, int) for i in found.inputs for d in (i.shape or (None,))[1:]):
        plan.append("The sizes that inputs leave open are taken from the data.")
    if found.folded_batch_norms:
        convolutions = pluralize(found.folded_batch_norms, "convolution")
        plan.append(
            f"BatchNormalization was probably folded into {convolutions} (a bias, and no norm after it) and would be "
            "restored for training."
        )
    return [*plan, *(f"Done on the way in: {note}." for note in found.notes)]
