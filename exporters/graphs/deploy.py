"""The deploy graph: norms folded into the layers before them, nodes that do nothing taken out, constants folded.

Kernels keep their names and their zeros, so that the file can still be held against the others, weight by weight.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.files.nonzeros import replace_negative_zeros
from ltp_pipeline.exporters.files.run_proof import run_dense_model
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph
from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.graph.constants import collect_constants, get_small_value
from ltp_pipeline.graph.edit import (
    UniqueNames,
    copy_fields,
    drop_inputs,
    raise_ir_version,
    set_initializers,
    set_nodes,
)
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_graphs, iter_nodes
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.graph.tensors import (
    Weights,
    collect_stored_tensors,
    get_constant_tensor,
    has_constant_tensor,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.graph.view import iter_read_names
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.arrays import Array

IR_VERSION = 4  # from here on an initializer need not be a graph input, so new ones can be added
EPSILON = 1e-5  # BatchNormalization's own default
TOLERANCE = 1e-5  # of an output's largest value: what folding norms may change by rounding
HALF_TOLERANCE = 2e-2  # the same where every node rounds to half precision
# Half precision would round the product, and outputs would differ by more than is promised.
_FOLDED_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE)


def build_graph(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    feeds: Weights,
    calibration: Calibration | None = None,
    settings: ExportSettings | None = None,
) -> BuiltGraph:
    """The deploy graph, proven to compute the same and to have kept its kernels and their zeros."""
    del calibration, settings
    new, note = rewrite_model(model, weight_names)
    kept = {name: new.get_array(name) for name in weight_names}
    if any(((kept[name] != 0) != (weights[name] != 0)).any() for name in weight_names):
        raise ExportFailed(
            "the deploy graph has other zeros than the pruned network",
            "leave deploy out of --export",
        )
    limit = (
        HALF_TOLERANCE if any(array.dtype.itemsize < 4 for array in kept.values()) else TOLERANCE
    )
    outputs = (run_dense_model(m, weight_names, feeds) for m in (new, model))
    for ours, theirs in zip(*outputs, strict=True):
        gap = tolerance.max_difference(ours, theirs)
        if tolerance.check_tolerance(gap, limit, lambda: 0.0) is tolerance.Agreement.DIFFERENT:
            raise ExportFailed(
                f"the deploy graph computes something else: outputs differ by {gap.relative:.2g} of the largest",
                "leave deploy out of --export, and please report this as a bug",
            )
    return BuiltGraph(new, kept, (note,))


def rewrite_model(model: OnnxModel, weight_names: Collection[str]) -> tuple[OnnxModel, str]:
    """A smaller graph that computes the same, and what was done."""
    proto, weights = copy_proto(model.proto), dict(model.weights)
    raise_ir_version(proto, IR_VERSION)
    _lift_constants(proto.graph, weight_names)
    _remove_passthrough_nodes(proto.graph)
    norms = sum(is_standard(n, "BatchNormalization") for n in proto.graph.node)
    folded = _fold_batch_norms(proto.graph, weights)
    _remove_unused(proto.graph, weight_names)
    new, done = OnnxModel(proto, weights), f"{folded} of {norms} BatchNormalization folded"
    new = replace(
        new, weights={name: array for name, array in weights.items() if name in new.tensors}
    )
    try:
        new = _simplify_model(new, weight_names)
    except (simplify.SimplifyFailed, InputError) as error:
        done += f", constants not folded: {error}"
    return new, f"deploy graph: {len(model.graph.node)} nodes became {len(new.graph.node)}, {done}"


def _lift_constants(graph: GraphProto, weight_names: Collection[str]) -> None:
    """Turn kernels in Constant nodes into initializers, which keep their names whatever is done to the nodes."""
    kept = []
    for node in graph.node:
        if has_constant_tensor(node) and node.output[0] in weight_names:
            slot = graph.initializer.add()
            slot.CopyFrom(get_constant_tensor(node))
            slot.name = node.output[0]
        else:
            kept.append(node)
    _keep_nodes(graph, kept)


def _remove_passthrough_nodes(graph: GraphProto) -> None:
    """Take out Identity and Dropout; what they pass on goes by one name."""
    known, reads = collect_constants(graph), Counter(iter_read_names(graph))
    fixed = {o.name for g in iter_graphs(graph) for o in g.output}
    renamed: dict[str, str] = {}
    made, kept = set[str](), list[NodeProto]()
    for node in graph.node:
        if _is_passthrough(node, known, reads):
            source, target = _resolve_name(node.input[0], renamed), node.output[0]
            if target not in fixed:
                renamed[target] = source
                continue
            if source in made and source not in fixed:
                renamed[source] = target
                made.add(target)
                continue
        kept.append(node)
        made.update(node.output)
    _keep_nodes(graph, kept)
    for node in graph.node:
        node.output[:] = [_resolve_name(name, renamed) for name in node.output]
    for node in iter_nodes(graph):
        node.input[:] = [_resolve_name(name, renamed) for name in node.input]


def _is_passthrough(node: NodeProto, known: Mapping[str, object], reads: Mapping[str, int]) -> bool:
    if is_standard(node, "Identity"):
        return len(node.input) == len(node.output) == 1
    if not is_standard(node, "Dropout") or any(reads.get(name) for name in node.output[1:] if name):
        return False
    if len(node.input) < 3 or not node.input[2]:
        return True
    training = get_small_value(known, node.input[2])  # type: ignore[arg-type]
    return training is not None and not training.any()


def _resolve_name(name: str, renamed: Mapping[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def _fold_batch_norms(graph: GraphProto, weights: dict[str, Array]) -> int:
    """Fold each BatchNormalization into the layer before it where nothing else sees that layer; count them."""
    given = {v.name for v in graph.input}
    known = {name: t for name, t in collect_stored_tensors(graph).items() if name not in given}
    reads, taken = Counter(iter_read_names(graph)), UniqueNames.from_graph(graph)
    layers = {n.output[0]: n for n in graph.node if is_standard(n, "Conv", "ConvTranspose", "Gemm")}
    gone = set[str]()
    for norm in graph.node:
        layer = layers.get(norm.input[0]) if is_standard(norm, "BatchNormalization") else None
        if layer is None or reads[layer.output[0]] > 1:
            continue
        if not _fold_into_layer(layer, norm, graph, known, weights, reads, taken):
            continue
        layer.output[0] = norm.output[0]
        gone.add(norm.output[0])
    _keep_nodes(
        graph,
        [
            n
            for n in graph.node
            if not (is_standard(n, "BatchNormalization") and n.output[0] in gone)
        ],
    )
    return len(gone)


def _fold_into_layer(
    layer: NodeProto,
    norm: NodeProto,
    graph: GraphProto,
    known: dict[str, TensorProto],
    weights: dict[str, Array],
    reads: Mapping[str, int],
    taken: UniqueNames,
) -> bool:
    """Scale a layer's weight and move its bias as the norm would; False where that cannot be done exactly enough."""

    def array(name: str) -> Array:
        return weights[name] if name in weights else to_array(known[name], name)

    names = [layer.input[1], *layer.input[2:3], *norm.input[1:5]]
    types = [known[n].data_type for n in names if n in known]
    attributes = {
        a.name: helper.get_attribute_value(a) for a in (*layer.attribute, *norm.attribute)
    }
    own_bias = len(layer.input) > 2 and layer.input[2]
    if any(n and n not in known for n in names) or len(set(types)) > 1:
        return False
    if (
        types[0] not in _FOLDED_TYPES
        or reads[layer.input[1]] > 1
        or layer.input[0] == layer.input[1]
    ):
        return False
    if attributes.get("training_mode") or any(norm.output[1:]) or not attributes.get("spatial", 1):
        return False
    gamma, beta, mean, variance = (array(n).astype(np.float64) for n in norm.input[1:5])
    weight = array(layer.input[1])
    bias = array(layer.input[2]).astype(np.float64) if own_bias else np.zeros(1)
    if bias.size not in (1, gamma.size) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
        return False  # a Gemm may add a different bias to every row
    with np.errstate(all="ignore"):
        factor = gamma / np.sqrt(variance + attributes.get("epsilon", EPSILON))
        scaled = (weight * _broadcast_factor(factor, layer, attributes, weight.shape)).astype(
            weight.dtype
        )
        moved = (bias.reshape(-1) * attributes.get("beta", 1.0) - mean) * factor + beta
    if (
        not np.isfinite(scaled).all()
        or not np.isfinite(moved).all()
        or ((scaled != 0) != (weight != 0)).any()
    ):
        return False
    weights[layer.input[1]] = replace_negative_zeros(scaled)
    weights[_prepare_bias(layer, graph, known, reads, taken, moved.shape)] = moved.astype(
        weight.dtype
    )
    return True


def _broadcast_factor(
    factor: Array, layer: NodeProto, attributes: Mapping[str, int], shape: tuple[int, ...]
) -> Array:
    """A factor per output channel, shaped to multiply the weight of a layer."""
    if layer.op_type == "Gemm":
        return factor[:, None] if attributes.get("transB") else factor
    if layer.op_type == "Conv":
        return factor.reshape(-1, *[1] * (len(shape) - 1))
    groups = attributes.get("group", 1)
    spread = np.repeat(factor.reshape(groups, -1), shape[0] // groups, axis=0)
    return spread.reshape(*shape[:2], *[1] * (len(shape) - 2))


def _prepare_bias(
    layer: NodeProto,
    graph: GraphProto,
    known: dict[str, TensorProto],
    reads: Mapping[str, int],
    taken: UniqueNames,
    shape: tuple[int, ...],
) -> str:
    """The name of a layer's bias of this shape: its own, or a new one where that is shared or shaped differently."""
    name = layer.input[2] if len(layer.input) > 2 else ""
    if not name or reads[name] > 1 or tuple(known[name].dims) != shape:
        name = taken.make_unique(f"{layer.input[1]}.folded_bias")
        known[name] = make_empty_tensor(name, known[layer.input[1]].data_type, shape)
        graph.initializer.append(known[name])
        layer.input[2:] = [name]
    if layer.op_type == "Gemm":
        kept = [a for a in layer.attribute if a.name != "beta"]  # it is in the bias now
        del layer.attribute[:]
        layer.attribute.extend(kept)
    return name


def _remove_unused(graph: GraphProto, weight_names: Collection[str]) -> None:
    read = {*iter_read_names(graph), *weight_names}
    unused = [t.name for t in graph.initializer if t.name not in read]
    drop_inputs(graph, unused)
    set_initializers(graph, [t for t in graph.initializer if t.name in read])
    _keep_nodes(graph, [n for n in graph.node if not has_constant_tensor(n) or n.output[0] in read])
    del graph.value_info[:]  # shapes of values, some of which are gone


def _simplify_model(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Let onnxsim fold constants, as long as it leaves the kernels and what is around the graph alone."""
    simple = simplify.simplify_model(model)
    if any(
        n not in simple.tensors or model.get_array(n).tobytes() != simple.get_array(n).tobytes()
        for n in weight_names
    ):
        raise simplify.SimplifyFailed("onnxsim changed kernels")
    for kind in ("input", "output"):
        if [v.name for v in getattr(simple.graph, kind)] != [
            v.name for v in getattr(model.graph, kind)
        ]:
            raise simplify.SimplifyFailed(f"onnxsim changed the {kind}s of the graph")
    result, around = ModelProto(), {"graph", "functions", "opset_import", "ir_version"}
    copy_fields(model.proto, result, skip=around)
    copy_fields(simple.proto, result, skip={f.name for f in result.DESCRIPTOR.fields} - around)
    for field in ("input", "output", "value_info"):
        result.graph.ClearField(field)
    result.graph.name, result.graph.doc_string = model.graph.name, model.graph.doc_string
    result.graph.input.extend(model.graph.input)
    result.graph.output.extend(model.graph.output)
    return replace(simple, proto=result)


def _keep_nodes(graph: GraphProto, nodes: Collection[NodeProto]) -> None:
    if len(nodes) < len(graph.node):
        set_nodes(graph, nodes)


GRAPH = ExportGraph(
    name="deploy",
    description="norms folded into the layers before: outputs equal to 1e-5",
    build=build_graph,
)
