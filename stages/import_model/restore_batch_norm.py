"""Put BatchNormalization back where an exporter folded it into a Conv: trained as such, folded again on the way out.

Any mean m and variance v give the same function with γ = √(v + ε) and β = b + m; those that the training samples give
make it the BatchNormalization of a network that was never folded. The file keeps its graph: only the network has norms.
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
from ltp_pipeline.data.prefetch import iter_batches
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
from ltp_pipeline.stages.import_model.parity import relative_difference
from ltp_pipeline.stages.import_model.roles import TensorRole
from ltp_pipeline.system.arrays import StateDict

EPSILON, MOMENTUM = 1e-5, 0.9
SAMPLES = 2048  # of the training split, for means and variances
TOLERANCE = 1e-4  # by which outputs may differ, relative to the largest
# What reads a Conv that never had a norm, or has another kind: patches of a transformer, ConvNeXt, decomposed norms.
_FOREIGN_READERS = (
    "BatchNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "InstanceNormalization",
    "Reshape",
    "Flatten",
    "Transpose",
)

Inputs = Mapping[str, Tensor]


def run(
    network: Network, state: StateDict, train: Split, batch_size: int, device: torch.device
) -> tuple[Network, StateDict]:
    """The same network with a norm after each Conv that seems to have lost one; as it was where there is none."""
    walked, _ = flatten_model(network.file.model)
    convs = _candidates(walked.graph, network.forward.roles)
    if not convs:
        return network, state
    if network.forward.batch_size is not None:
        return _noted(
            network, "BatchNormalization not restored: the graph only runs on batches of one size"
        ), state
    first = next(iter_calibration_batches(train, batch_size, device))
    convs = _with_maps(walked, convs, state, first)
    if not convs:
        return network, state
    model, norms, normalised = _insert(walked, convs, state)
    forward, filled = compile_graph(model)
    shares = {
        name: update_fraction(MOMENTUM) for norm in norms for name in (norm.mean, norm.variance)
    }
    forward = replace(
        forward, update_fractions={**forward.update_fractions, **shares}
    )  # the node has single precision
    restored = replace(
        network,
        forward=forward,
        restored_norms=norms,
        norm_observer=compile_observer(model, normalised),
    )
    filled = calibrate_norms(
        restored, {n: state.get(n, t) for n, t in filled.items()}, train, batch_size, device
    )
    with torch.no_grad():
        pairs = zip(forward(first, filled), network.forward(first, state), strict=True)
        worst = max(
            relative_difference(new, old.cpu().numpy())
            for new, old in pairs
            if isinstance(old, Tensor)
        )
    if not worst <= TOLERANCE:
        return _noted(
            network, f"BatchNormalization not restored: outputs would differ by {worst:.1g}"
        ), state
    note = (
        f"{len(norms)} folded BatchNormalization restored for training, folded again in the files"
    )
    return _noted(restored, note), filled


def iter_calibration_batches(
    train: Split, batch_size: int, device: torch.device
) -> Iterator[Inputs]:
    """Samples by which means and variances are measured."""
    rows = np.linspace(0, len(train) - 1, min(SAMPLES, len(train))).astype(np.int64)
    for batch in iter_batches(train, min(batch_size, len(rows)), rows, drop_last=True):
        yield {name: torch.from_numpy(x).to(device) for name, x in batch.inputs.items()}


@torch.no_grad()
def calibrate_norms(
    network: Network, state: StateDict, train: Split, batch_size: int, device: torch.device
) -> StateDict:
    """Give the restored norms the statistics of the Convs' kernels and biases as a file has them; same function."""
    if network.norm_observer is None:
        return state
    found = dict(state)
    for norm in network.restored_norms:
        like = found[norm.bias]
        found[norm.mean] = torch.zeros_like(like)
        found[norm.variance] = torch.ones_like(like)
        found[norm.scale] = torch.full_like(like, math.sqrt(1 + EPSILON))
    read = iter_calibration_batches(train, batch_size, device)
    for norm, (mean, variance) in zip(
        network.restored_norms,
        _moments(network.norm_observer, found, read, len(network.restored_norms)),
        strict=True,
    ):
        like = found[norm.bias]
        found[norm.mean], found[norm.variance] = mean.to(like), variance.to(like)
        found[norm.scale] = (found[norm.variance] + EPSILON).sqrt()
        found[norm.bias] = like + found[norm.mean]
    return found


def fold_norms(norms: Sequence[RestoredNorm], state: Mapping[str, Tensor]) -> StateDict:
    """Tensors as the file has them: W' = W·γ/√(v + ε) and b' = β - m·γ/√(v + ε); a zero stays a zero."""
    result = dict(state)
    for norm in norms:
        scale, mean, variance = (result.pop(name).detach() for name in norm.added_names)
        factor = scale / (variance + EPSILON).sqrt()
        kernel = result[norm.layer_weight].detach()
        columns = factor.reshape(-1, *[1] * (kernel.dim() - 1))
        result[norm.layer_weight] = (
            kernel * columns + 0.0
        )  # a sum, because zero times a negative factor is -0.0
        result[norm.bias] = result[norm.bias].detach() - mean * factor
    return result


def _candidates(graph: GraphProto, roles: Mapping[str, TensorRole]) -> list[NodeProto]:
    """Convs whose kernel and bias are their own, and whose output goes where that of a norm would go."""
    uses, behind = Counter(iter_read_names(graph)), find_identity_sources(graph)
    readers = (n for n in iter_nodes(graph) if is_standard(n, *_FOREIGN_READERS))
    seen = [*(n.input[0] for n in readers), *(o.name for o in graph.output)]
    taken = {behind.get(name, name) for name in seen}
    return [
        node
        for node in graph.node
        if is_standard(node, "Conv")
        and len(node.input) == 3
        and all(roles.get(name) is TensorRole.WEIGHT and uses[name] == 1 for name in node.input[1:])
        and node.output[0] not in taken
    ]


def _with_maps(
    model: OnnxModel, convs: list[NodeProto], state: StateDict, inputs: Inputs
) -> list[NodeProto]:
    """Leave out Convs on 1×1 maps, as in squeeze-and-excitation: these have a bias and never had a norm."""
    watching = compile_observer(model, [c.output[0] for c in convs])
    with torch.no_grad():
        outputs = watching({name: x[:2] for name, x in inputs.items()}, state)[-len(convs) :]
    return [c for c, y in zip(convs, outputs, strict=True) if math.prod(y.shape[2:]) > 1]


def _insert(
    model: OnnxModel, convs: Sequence[NodeProto], tensors: Mapping[str, Tensor]
) -> tuple[OnnxModel, tuple[RestoredNorm, ...], list[str]]:
    """A copy with a norm after each Conv, whose bias it takes over; also the values that the norms read."""
    copy, weights = copy_proto(model.proto), dict(model.weights)
    chosen = {c.output[0] for c in convs}
    names = UniqueNames.from_graph(copy.graph)
    nodes, norms, normalised = [], [], []
    for node in copy.graph.node:
        nodes.append(node)
        if not chosen.intersection(node.output):
            continue
        output = node.output[0]
        prefix = names.make_unique(f"{output}.restored")
        added = [names.make_unique(f"{prefix}.{what}") for what in ("scale", "mean", "variance")]
        norm = RestoredNorm(node.input[1], node.input[2], *added)
        ones = tensors[norm.layer_weight].new_ones(tensors[norm.bias].shape).cpu().detach().numpy()
        data_type = helper.np_dtype_to_tensor_dtype(ones.dtype)
        copy.graph.initializer.extend(
            make_empty_tensor(name, data_type, ones.shape) for name in norm.added_names
        )
        weights.update(dict.fromkeys(norm.added_names, ones))
        node.output[0] = prefix
        del node.input[2]
        inputs = [prefix, norm.scale, norm.bias, norm.mean, norm.variance]
        nodes.append(
            helper.make_node(
                "BatchNormalization", inputs, [output], prefix, epsilon=EPSILON, momentum=MOMENTUM
            )
        )
        norms.append(norm)
        normalised.append(prefix)
    set_nodes(copy.graph, nodes)
    return OnnxModel(copy, weights), tuple(norms), normalised


def _moments(
    watching: CompiledGraph, state: StateDict, read: Iterable[Inputs], count: int
) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance per channel of what each norm reads, over all batches."""
    sums: list[tuple[Tensor, Tensor]] = []
    passes = 0
    for inputs in read:
        values = watching(inputs, state)[-count:]
        # On the CPU, because not every device has double precision.
        found = [
            [m.cpu().double() for m in torch.var_mean(y, [0, *range(2, y.dim())], correction=0)]
            for y in values
        ]
        squares = [(mean, variance + mean.square()) for variance, mean in found]
        sums = (
            [(a + c, b + d) for (a, b), (c, d) in zip(sums, squares, strict=True)]
            if sums
            else squares
        )
        passes += 1
    means = [(a / passes, b / passes) for a, b in sums]
    return [(mean, (square - mean.square()).clamp_min(0)) for mean, square in means]


def _noted(network: Network, note: str) -> Network:
    return replace(network, notes=(*network.notes, note))
