"""Restore the BatchNormalization that an exporter folded into a Conv, for training only.

Exporters often fold the normalization layers into the weights before them, and such a network
trains worse. Here a BatchNormalization is inserted after each Conv that seems to have lost one.
Any mean m and variance v give the same function with γ = √(v + ε) and β = b + m; the statistics
of training samples make it the layer of a network that was never folded. The file keeps its
graph: when weights are written, `fold_norms` folds the layers again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from onnx import GraphProto, NodeProto, helper
from torch import Tensor

from ltp_pipeline.data.dataset import Split
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.graph.edit import UniqueNames, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_nodes
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.tensors import make_empty_tensor
from ltp_pipeline.graph.view import find_identity_sources, iter_read_names
from ltp_pipeline.stages.import_model.network import (
    CompiledGraph,
    Network,
    RestoredNorm,
    compile_graph,
    compile_observer,
)
from ltp_pipeline.stages.import_model.ops.normalization import update_fraction
from ltp_pipeline.stages.import_model.parity import compare_outputs
from ltp_pipeline.stages.import_model.roles import TensorRole
from ltp_pipeline.system.arrays import StateDict

EPSILON = 1e-5
MOMENTUM = 0.9
NUM_SAMPLES = 2048  # samples of the training split that means and variances are measured on
TOLERANCE = 1e-4  # largest relative difference that restoring may make to an output
# Readers of a Conv that never had a normalization layer, or has one of another kind: patches of a
# transformer, ConvNeXt, decomposed normalization layers.
_EXCLUDING_READERS = (
    "BatchNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "Reshape",
    "Flatten",
    "Transpose",
)

InputTensors = Mapping[str, Tensor]


def run(
    network: Network, state: StateDict, train: Split, batch_size: int, device: torch.device
) -> tuple[Network, StateDict]:
    """Restore the folded BatchNormalizations of a network, with statistics of the training split.

    Returns:
        The network with restored layers and its tensors; both unchanged, perhaps with a note, if
        there is nothing to restore or it would change the outputs.
    """
    flat, _ = flatten_model(network.file.model)
    convs = _find_candidates(flat.graph, network.forward.roles)
    if not convs:
        return network, state
    if network.forward.batch_size is not None:
        note = "BatchNormalization not restored: the graph only runs on batches of one size"
        return network.with_note(note), state
    first_batch = next(iter_calibration_batches(train, batch_size, device))
    convs = _select_convs_with_maps(flat, convs, state, first_batch)
    if not convs:
        return network, state
    model, norms_by_input = _insert_norms(flat, convs, state)
    norms = tuple(norms_by_input.values())
    forward, new_state = compile_graph(model)
    # Computed here, because the node stores the momentum in single precision.
    statistics: list[str] = []
    for norm in norms:
        statistics += (norm.mean, norm.variance)
    fractions = dict.fromkeys(statistics, update_fraction(MOMENTUM))
    forward = replace(forward, update_fractions={**forward.update_fractions, **fractions})
    restored = replace(
        network,
        forward=forward,
        restored_norms=norms,
        norm_observer=compile_observer(model, list(norms_by_input)),
    )
    new_state = {name: state.get(name, tensor) for name, tensor in new_state.items()}
    new_state = calibrate_norms(restored, new_state, train, batch_size, device)
    with torch.no_grad():
        outputs = forward(first_batch, new_state)
        original_outputs = network.forward(first_batch, state)
    difference = 0.0
    for output, original in zip(outputs, original_outputs, strict=True):
        if isinstance(original, Tensor):
            expected = original.cpu().numpy()
            difference = max(difference, compare_outputs(output, expected).relative)
    if not difference <= TOLERANCE:
        note = f"BatchNormalization not restored: outputs would differ by {difference:.1g}"
        return network.with_note(note), state
    note = (
        f"{len(norms)} folded BatchNormalization restored for training, folded again in the files"
    )
    return restored.with_note(note), new_state


def iter_calibration_batches(
    train: Split, batch_size: int, device: torch.device
) -> Iterator[InputTensors]:
    """Yield the inputs of samples that are spread evenly over the training split."""
    rows = np.linspace(0, len(train) - 1, min(NUM_SAMPLES, len(train))).astype(np.int64)
    for batch in iter_batches(train, min(batch_size, len(rows)), rows, drop_last=True):
        yield {name: torch.from_numpy(x).to(device) for name, x in batch.inputs.items()}


@torch.no_grad()
def calibrate_norms(
    network: Network, state: StateDict, train: Split, batch_size: int, device: torch.device
) -> StateDict:
    """Return tensors in which restored layers have the statistics of the training split.

    With these tensors, the network computes the same function as the file, from which `state` has
    the weights and biases of the Convs.
    """
    if network.norm_observer is None:
        return state
    calibrated = dict(state)
    for norm in network.restored_norms:
        bias = calibrated[norm.bias]
        calibrated[norm.mean] = torch.zeros_like(bias)
        calibrated[norm.variance] = torch.ones_like(bias)
        calibrated[norm.scale] = torch.full_like(bias, math.sqrt(1 + EPSILON))
    batches = iter_calibration_batches(train, batch_size, device)
    count = len(network.restored_norms)
    moments = _measure_moments(network.norm_observer, calibrated, batches, count)
    for norm, (mean, variance) in zip(network.restored_norms, moments, strict=True):
        bias = calibrated[norm.bias]
        calibrated[norm.mean] = mean.to(bias)
        calibrated[norm.variance] = variance.to(bias)
        calibrated[norm.scale] = (calibrated[norm.variance] + EPSILON).sqrt()
        calibrated[norm.bias] = bias + calibrated[norm.mean]
    return calibrated


def fold_norms(norms: Sequence[RestoredNorm], state: Mapping[str, Tensor]) -> StateDict:
    """Return tensors as the file has them: W' = W·γ/√(v + ε) and b' = β - m·γ/√(v + ε).

    The tensors of the restored layers are left out. A zero weight stays a zero.
    """
    folded = dict(state)
    for norm in norms:
        scale, mean, variance = (folded.pop(name).detach() for name in norm.added_names)
        factor = scale / (variance + EPSILON).sqrt()
        weight = folded[norm.layer_weight].detach()
        columns = factor.reshape(-1, *[1] * (weight.dim() - 1))
        # The sum turns -0.0, which zero times a negative factor gives, into 0.0.
        folded[norm.layer_weight] = weight * columns + 0.0
        folded[norm.bias] = folded[norm.bias].detach() - mean * factor
    return folded


def _find_candidates(graph: GraphProto, roles: Mapping[str, TensorRole]) -> list[NodeProto]:
    """Return Convs with a weight and a bias of their own whose readers could be behind a norm."""
    read_counts = Counter(iter_read_names(graph))
    sources = find_identity_sources(graph)
    excluded = {sources.get(output.name, output.name) for output in graph.output}
    for node in iter_nodes(graph):
        if is_standard(node, *_EXCLUDING_READERS):
            excluded.add(sources.get(node.input[0], node.input[0]))
    candidates: list[NodeProto] = []
    for node in graph.node:
        if not is_standard(node, "Conv") or len(node.input) != 3 or node.output[0] in excluded:
            continue
        weights = node.input[1:]
        if all(roles.get(n) is TensorRole.WEIGHT and read_counts[n] == 1 for n in weights):
            candidates.append(node)
    return candidates


def _select_convs_with_maps(
    model: OnnxModel, convs: list[NodeProto], state: StateDict, inputs: InputTensors
) -> list[NodeProto]:
    """Return the Convs whose outputs are larger than 1×1.

    Convs on 1×1 maps, as in squeeze-and-excitation, have a bias and never had a norm.
    """
    observer = compile_observer(model, [conv.output[0] for conv in convs])
    with torch.no_grad():
        outputs = observer({name: x[:2] for name, x in inputs.items()}, state)[-len(convs) :]
    pairs = zip(convs, outputs, strict=True)
    return [conv for conv, output in pairs if math.prod(output.shape[2:]) > 1]


def _insert_norms(
    model: OnnxModel, convs: Sequence[NodeProto], tensors: Mapping[str, Tensor]
) -> tuple[OnnxModel, dict[str, RestoredNorm]]:
    """Insert a BatchNormalization after each Conv, whose bias it takes over.

    Returns:
        The new model, and the inserted layers by the names of the values that they read.
    """
    proto = copy_proto(model.proto)
    weights = dict(model.weights)
    selected = {conv.output[0] for conv in convs}
    names = UniqueNames.from_graph(proto.graph)
    nodes: list[NodeProto] = []
    norms: dict[str, RestoredNorm] = {}
    for node in proto.graph.node:
        nodes.append(node)
        if not selected.intersection(node.output):
            continue
        output = node.output[0]
        prefix = names.make_unique(f"{output}.restored")
        scale, mean, variance = (
            names.make_unique(f"{prefix}.{role}") for role in ("scale", "mean", "variance")
        )
        norm = RestoredNorm(node.input[1], node.input[2], scale, mean, variance)
        ones = tensors[norm.layer_weight].new_ones(tensors[norm.bias].shape)
        array = ones.cpu().numpy()
        data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        for name in norm.added_names:
            proto.graph.initializer.append(make_empty_tensor(name, data_type, array.shape))
            weights[name] = array
        node.output[0] = prefix
        del node.input[2]
        nodes.append(
            helper.make_node(
                "BatchNormalization",
                [prefix, norm.scale, norm.bias, norm.mean, norm.variance],
                [output],
                prefix,
                epsilon=EPSILON,
                momentum=MOMENTUM,
            )
        )
        norms[prefix] = norm
    set_nodes(proto.graph, nodes)
    return OnnxModel(proto, weights), norms


def _measure_moments(
    observer: CompiledGraph, state: StateDict, batches: Iterable[InputTensors], count: int
) -> list[tuple[Tensor, Tensor]]:
    """Return mean and variance per channel of the last `count` outputs, averaged over batches."""
    means = [torch.zeros(())] * count
    mean_squares = [torch.zeros(())] * count
    num_batches = 0
    for inputs in batches:
        num_batches += 1
        for i, values in enumerate(observer(inputs, state)[-count:]):
            axes = [0, *range(2, values.dim())]
            variance, mean = torch.var_mean(values, axes, correction=0)
            # On the CPU, because not every device has double precision.
            mean = mean.cpu().double()
            means[i] = means[i] + mean
            mean_squares[i] = mean_squares[i] + (variance.cpu().double() + mean.square())
    moments: list[tuple[Tensor, Tensor]] = []
    for i in range(count):
        mean = means[i] / num_batches
        moments.append((mean, (mean_squares[i] / num_batches - mean.square()).clamp_min(0)))
    return moments
