"""Put BatchNormalization back where an exporter folded it into a Conv: trained as such, folded again on the way out.

Any mean m and variance v give the same function with γ = √(v + ε) and β = b + m; those that the training samples give
make it the BatchNormalization of a network that was never folded. The file keeps its graph: only the module has norms.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from onnx import GraphProto, ModelProto, NodeProto, helper, numpy_helper
from torch import Tensor

from ltp_pipeline.data import Split, batches
from ltp_pipeline.graph import every_node, identities, is_standard, outer_reads
from ltp_pipeline.graph.rewrites.flatten import flatten
from ltp_pipeline.records import ImportedModel, RestoredNorm, RestoredNorms
from ltp_pipeline.stages.import_model.graph_module import GraphModule, observer
from ltp_pipeline.stages.import_model.parity import difference
from ltp_pipeline.stages.import_model.roles import Role

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

Read = Callable[[], Iterator[Tensor]]


def run(imported: ImportedModel, train: Split, batch_size: int, device: torch.device) -> ImportedModel:
    """The same model with a norm after each Conv that seems to have lost one; as it was where there is none."""

    def read() -> Iterator[Tensor]:
        rows = np.linspace(0, len(train) - 1, min(SAMPLES, len(train))).astype(np.int64)
        for x, _ in batches(train, min(batch_size, len(rows)), rows, drop_last=True):
            yield torch.from_numpy(x).to(device)

    walked, _ = flatten(imported.proto)
    before = imported.module.to(device).eval()
    convs = _candidates(walked.graph, before.roles)
    if convs:
        first = next(read())
        convs = _with_maps(walked, convs, before, first)
    if not convs:
        return imported
    model, norms, normalised = _insert(walked, convs, before.tensors())
    module = GraphModule(model).to(device).eval()
    watching = observer(model, normalised)
    restored = replace(
        imported, module=module, restored=RestoredNorms(norms, lambda: _moments(watching, module, read, len(norms)))
    )
    calibrate(restored)
    with torch.no_grad():
        pairs = zip(module(first), before(first), strict=True)
        worst = max(difference(new, old.cpu().numpy()) for new, old in pairs if isinstance(old, Tensor))
    if not worst <= TOLERANCE:
        return _noted(imported, f"BatchNormalization not restored: outputs would differ by {worst:.1g}")
    return _noted(restored, f"{len(norms)} folded BatchNormalization restored for training, folded again in the files")


@torch.no_grad()
def calibrate(imported: ImportedModel) -> None:
    """Give the norms the statistics of their Convs' kernels and biases, just loaded from a file; same function."""
    tensors = imported.module.tensors()
    for norm in imported.restored.norms:
        tensors[norm.mean].zero_()
        tensors[norm.variance].fill_(1.0)
        tensors[norm.scale].fill_(math.sqrt(1 + EPSILON))
    for norm, (mean, variance) in zip(imported.restored.norms, imported.restored.measure(), strict=True):
        tensors[norm.mean].copy_(mean)
        tensors[norm.variance].copy_(variance)
        tensors[norm.scale].copy_((tensors[norm.variance] + EPSILON).sqrt())
        tensors[norm.bias].add_(tensors[norm.mean])


def fold(norms: Sequence[RestoredNorm], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as the file has them: W' = W·γ/√(v + ε) and b' = β - m·γ/√(v + ε); a zero stays a zero."""
    result = dict(tensors)
    for norm in norms:
        scale, mean, variance = (result.pop(name).detach() for name in norm.added)
        factor = scale / (variance + EPSILON).sqrt()
        kernel = result[norm.kernel].detach()
        columns = factor.reshape(-1, *[1] * (kernel.dim() - 1))
        result[norm.kernel] = kernel * columns + 0.0  # a sum, because zero times a negative factor is -0.0
        result[norm.bias] = result[norm.bias].detach() - mean * factor
    return result


def _candidates(graph: GraphProto, roles: Mapping[str, Role]) -> list[NodeProto]:
    """Convs whose kernel and bias are their own, and whose output goes where that of a norm would go."""
    uses, behind = Counter(outer_reads(graph)), identities(graph)
    readers = (n for n in every_node(graph) if is_standard(n, *_FOREIGN_READERS))
    seen = [*(n.input[0] for n in readers), *(o.name for o in graph.output)]
    taken = {behind.get(name, name) for name in seen}
    return [
        node
        for node in graph.node
        if is_standard(node, "Conv")
        and len(node.input) == 3
        and all(roles.get(name) is Role.WEIGHT and uses[name] == 1 for name in node.input[1:])
        and node.output[0] not in taken
    ]


def _with_maps(model: ModelProto, convs: list[NodeProto], module: GraphModule, x: Tensor) -> list[NodeProto]:
    """Leave out Convs on 1×1 maps, as in squeeze-and-excitation: these have a bias and never had a norm."""
    watching = observer(model, [c.output[0] for c in convs])
    with torch.no_grad():
        outputs = watching(x[:2], weights=module.tensors())[-len(convs) :]
    return [c for c, y in zip(convs, outputs, strict=True) if math.prod(y.shape[2:]) > 1]


def _insert(
    model: ModelProto, convs: Sequence[NodeProto], tensors: Mapping[str, Tensor]
) -> tuple[ModelProto, tuple[RestoredNorm, ...], list[str]]:
    """A copy with a norm after each Conv, whose bias it takes over; also the values that the norms read."""
    copy = ModelProto()
    copy.CopyFrom(model)
    chosen = {c.output[0] for c in convs}
    taken = {*outer_reads(copy.graph), *(t.name for t in copy.graph.initializer)}
    nodes, norms, normalised = [], [], []
    for node in copy.graph.node:
        nodes.append(node)
        if not chosen.intersection(node.output):
            continue
        output = node.output[0]
        prefix = f"{output}.restored"
        while any(name.startswith(prefix) for name in taken):
            prefix += "_"
        norm = RestoredNorm(node.input[1], node.input[2], f"{prefix}.scale", f"{prefix}.mean", f"{prefix}.variance")
        ones = tensors[norm.kernel].new_ones(tensors[norm.bias].shape).cpu().detach().numpy()
        copy.graph.initializer.extend(numpy_helper.from_array(ones, name) for name in norm.added)
        node.output[0] = prefix
        del node.input[2]
        inputs = [prefix, norm.scale, norm.bias, norm.mean, norm.variance]
        nodes.append(
            helper.make_node("BatchNormalization", inputs, [output], prefix, epsilon=EPSILON, momentum=MOMENTUM)
        )
        norms.append(norm)
        normalised.append(prefix)
    held = [NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(held)
    return copy, tuple(norms), normalised


@torch.no_grad()
def _moments(watching: GraphModule, module: GraphModule, read: Read, count: int) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance per channel of what each norm reads, over all batches."""
    sums: list[tuple[Tensor, Tensor]] = []
    passes = 0
    for x in read():
        values = watching(x, weights=module.tensors())[-count:]
        # On the CPU, because not every device has double precision.
        found = [[m.cpu().double() for m in torch.var_mean(y, [0, *range(2, y.dim())], correction=0)] for y in values]
        squares = [(mean, variance + mean.square()) for variance, mean in found]
        sums = [(a + c, b + d) for (a, b), (c, d) in zip(sums, squares, strict=True)] if sums else squares
        passes += 1
    means = [(a / passes, b / passes) for a, b in sums]
    return [(mean, (square - mean.square()).clamp_min(0)) for mean, square in means]


def _noted(imported: ImportedModel, note: str) -> ImportedModel:
    return replace(imported, notes=(*imported.notes, note))
