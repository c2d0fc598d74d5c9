"""Describe what a model is made of and what `run` would do with it.

This needs no data and no torch, and changes nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
from ltp_pipeline.graph.weight_uses import infer_uses
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.import_model.unsupported import find_operator_problem, find_problems
from ltp_pipeline.stages.import_model.validity import SMALL_TENSOR_BYTES
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.templates import render_template
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from ltp_pipeline.graph.model import OnnxModel


@dataclass(frozen=True)
class InspectedLayer:
    """A layer weight of a model.

    Attributes:
        name: Name of the tensor.
        op: Operator that uses it.
        shape: Its shape in the file.
        elements: Number of elements.
        fraction: Its elements / the elements of all layer weights.
        nonzeros: Number of elements that are not zero.
        prunable: Whether it would be pruned.
        reason: Why it would not be pruned.
        block_axis: Axis of its output channels; None if it cannot be pruned in blocks.
        uses: How often each element is multiplied in one sample; None if sizes leave this open.
    """

    name: str
    op: str
    shape: tuple[int, ...]
    elements: int
    fraction: float
    nonzeros: int
    prunable: bool
    reason: str | None
    block_axis: int | None = None
    uses: int | None = None


@dataclass(frozen=True)
class InspectedOperator:
    """An operator of a model, and how often it occurs."""

    name: str
    domain: str
    count: int
    supported: bool


@dataclass(frozen=True)
class InspectionResult:
    """What a model is made of, and in `plan` what `run` would do with it.

    Attributes:
        path: The file.
        sha256: Hash of the file and of its external data.
        bytes: Size of the file and of its external data.
        format: Name of the file format, if this program wrote the file.
        opset: Version of the standard operators.
        ir_version: Version of the file format of ONNX.
        producer: Program that wrote the file.
        inputs: Inputs of the graph.
        outputs: Outputs of the graph.
        operators: Operators of the graph.
        unsupported: Reasons why the model cannot be trained.
        batch_norms: Number of BatchNormalization nodes.
        folded_batch_norms: Number of those that were probably folded into convolutions.
        layers: The layer weights.
        others: The other float weights, grouped by their role.
        layer_elements: Elements of all layer weights.
        float_elements: Elements of all float weights.
        prunable_elements: Elements of the layer weights that would be pruned.
        sparsity: Fraction of zeros in the layer weights; None without layer weights.
        unpruned: A sentence about other weights, if they are many.
        notes: What was changed in the graph on import.
        plan: What `run` would do, in sentences.
        macs: Multiply-adds of all layers in one sample; None if sizes leave them open.
    """

    path: str
    sha256: str
    bytes: int
    format: str | None
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
    float_elements: int
    prunable_elements: int
    sparsity: float | None
    unpruned: str | None
    notes: tuple[str, ...]
    plan: tuple[str, ...] = ()
    macs: int | None = None


def inspect(model: AnyPath, kernels: PruneSettings | None = None) -> InspectionResult:
    """Describe an ONNX file; `kernels` has patterns of the layer weights to prune, None for all."""
    file = read_model_file(model)
    metadata = read_metadata(file.model)
    try:
        file, prepared, notes = import_model.prepare_graph(file)
        problems = find_problems(prepared.proto)
    except UnsupportedModel as error:
        prepared = file.model
        notes = []
        problems = list(error.reasons) or [error.message]
    readers = find_readers(prepared.graph)
    patterns = kernels or PruneSettings()
    weights = find_layer_weights(prepared, patterns.include, patterns.exclude, readers)
    others = find_other_weights(prepared, weights, readers)
    proto = prepared.to_proto(max_bytes=SMALL_TENSOR_BYTES)
    layers = _inspect_layers(prepared, weights, infer_uses(proto, weights, readers))
    elements = nonzeros = prunable_elements = 0
    for layer in layers:
        elements += layer.elements
        nonzeros += layer.nonzeros
        if layer.prunable:
            prunable_elements += layer.elements
    sparsity = None
    if elements:
        sparsity = (elements - nonzeros) / elements
    proto = file.model.proto
    result = InspectionResult(
        path=os.fspath(model),
        sha256=file.sha256,
        bytes=file.num_bytes,
        format="-".join(metadata[key] for key in ("graph", "format") if key in metadata) or None,
        opset=file.opset,
        ir_version=proto.ir_version,
        producer=f"{proto.producer_name} {proto.producer_version}".strip() or None,
        inputs=file.inputs,
        outputs=file.outputs,
        operators=_inspect_operators(prepared.proto),
        unsupported=tuple(problems),
        batch_norms=sum(is_standard(n, "BatchNormalization") for n in prepared.graph.node),
        folded_batch_norms=_count_folded_norms(prepared.graph),
        layers=layers,
        others=tuple(others),
        layer_elements=elements,
        float_elements=elements + sum(group.elements for group in others),
        prunable_elements=prunable_elements,
        sparsity=sparsity,
        unpruned=describe_other_weights(weights, others),
        notes=tuple(notes),
        macs=_sum_multiply_adds(layers),
    )
    return replace(result, plan=_describe_plan(result))


def _sum_multiply_adds(layers: Sequence[InspectedLayer]) -> int | None:
    """Return the multiply-adds of one sample; None if those of a layer are not known."""
    total = 0
    for layer in layers:
        if layer.uses is None:
            return None
        total += layer.uses * layer.elements
    return total or None


def _inspect_layers(
    model: OnnxModel, weights: Sequence[LayerWeight], uses: Mapping[str, int]
) -> tuple[InspectedLayer, ...]:
    """Return the layer weights with their nonzeros and uses."""
    total = sum(weight.elements for weight in weights)
    layers = []
    for weight in weights:
        layer = InspectedLayer(
            name=weight.name,
            op=weight.op,
            shape=weight.shape,
            elements=weight.elements,
            fraction=weight.elements / total,
            nonzeros=int(np.count_nonzero(model.get_array(weight.name))),
            prunable=weight.is_prunable,
            reason=weight.reason,
            block_axis=weight.block_axis,
            uses=uses.get(weight.name),
        )
        layers.append(layer)
    return tuple(layers)


def _inspect_operators(model: ModelProto) -> tuple[InspectedOperator, ...]:
    """Return the operators of a model, by name and domain."""
    counts = Counter((n.op_type, normalize_domain(n.domain)) for n in iter_nodes(model.graph))
    versions = get_opsets(model)
    operators = []
    for (name, domain), count in sorted(counts.items()):
        problem = find_operator_problem(name, versions.get(domain, 1), domain)
        operators.append(InspectedOperator(name, domain or "ai.onnx", count, problem is None))
    return tuple(operators)


def _count_folded_norms(graph: GraphProto) -> int:
    """Return the number of convolutions with a bias and no BatchNormalization after them.

    Most exporters leave these of a convolution with a normalization layer.
    """
    consumers = GraphView(graph).consumers
    count = 0
    for node in graph.node:
        if is_standard(node, "Conv") and len(node.input) > 2 and node.input[2]:
            uses = consumers.get(node.output[0], ())
            followers = [use.node for use in uses if use.slot == 0]
            count += not any(is_standard(follower, "BatchNormalization") for follower in followers)
    return count


def _describe_plan(result: InspectionResult) -> tuple[str, ...]:
    """Return what `run` would do, a sentence in each line of the template."""
    has_open_sizes = False
    for info in result.inputs:
        for size in (info.shape or ())[1:]:
            if not isinstance(size, int):
                has_open_sizes = True
    values = {"result": result, "has_open_sizes": has_open_sizes}
    filters = {"pluralize": pluralize}
    page = render_template(Path(__file__).parent, "plan.txt.j2", values, filters)
    return tuple(filter(None, page.splitlines()))
