"""The deploy graph: BatchNormalization and constants are folded, and nodes without effect removed.

Layer weights keep their names and their zeros, so that a file can be compared with others weight by
weight.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.files.nonzeros import replace_negative_zeros
from ltp_pipeline.exporters.files.run_proof import find_difference
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph, GraphContext
from ltp_pipeline.graph.constants import Constants, collect_constants, get_small_value
from ltp_pipeline.graph.edit import (
    UniqueNames,
    copy_fields,
    drop_initializers,
    drop_inputs,
    raise_ir_version,
    rename_inputs,
    rename_outputs,
    set_nodes,
)
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import (
    collect_names,
    get_attributes,
    is_standard,
    iter_graphs,
    iter_nodes,
)
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.graph.tensors import (
    collect_stored_tensors,
    get_constant_tensor,
    make_empty_tensor,
    to_array,
)
from ltp_pipeline.graph.view import iter_read_names
from ltp_pipeline.system.arrays import Array

IR_VERSION = 4  # first in which an initializer need not be a graph input, so that new ones can come
EPSILON = 1e-5  # default of BatchNormalization
# Largest difference of outputs, relative to an output's largest value, that rounding may cause.
TOLERANCE = 1e-5
HALF_TOLERANCE = 2e-2  # for graphs in which every node rounds to half precision
# Half precision is not folded, because rounding the product would exceed the tolerance.
_FOLDED_TYPES = (TensorProto.FLOAT, TensorProto.DOUBLE)
_NORM = "BatchNormalization"


def build_graph(context: GraphContext) -> BuiltGraph:
    """Build the deploy graph.

    Raises:
        ExportFailed: If it computes something else, or its layer weights have other zeros.
    """
    model, note = rewrite_model(context.model, context.weight_names)
    weights = model.get_arrays(context.weight_names)
    for name, weight in weights.items():
        if ((weight != 0) != (context.weights[name] != 0)).any():
            raise ExportFailed(
                f"the deploy graph has other zeros in '{name}' than the pruned network",
                "leave deploy out of --export",
            )
    is_half = any(weight.dtype.itemsize < 4 for weight in weights.values())
    limit = HALF_TOLERANCE if is_half else TOLERANCE
    difference = find_difference(model, context.model, context.weight_names, context.feeds, limit)
    if difference is not None:
        raise ExportFailed(
            "the deploy graph computes something else:"
            f" outputs differ by {difference:.2g} of the largest",
            "leave deploy out of --export, and please report this as a bug",
        )
    return BuiltGraph(model, weights, (note,))


def rewrite_model(model: OnnxModel, weight_names: Collection[str]) -> tuple[OnnxModel, str]:
    """Return a smaller graph that computes the same, and a note of what was done."""
    proto = copy_proto(model.proto)
    weights = dict(model.weights)
    raise_ir_version(proto, IR_VERSION)
    _lift_constants(proto.graph, weight_names)
    _remove_passthrough_nodes(proto.graph)
    num_norms = sum(is_standard(node, _NORM) for node in proto.graph.node)
    num_folded = _BatchNormFolder(proto.graph, weights).fold_all()
    _remove_unused(proto.graph, weight_names)
    result = OnnxModel(proto, weights).drop_unstored_weights()
    changes = f"{num_folded} of {num_norms} {_NORM} folded"
    try:
        result = _simplify_model(result, weight_names)
    except (simplify.SimplifyFailed, InputError) as error:
        changes += f", constants not folded: {error}"
    num_nodes = len(result.graph.node)
    return result, f"deploy graph: {len(model.graph.node)} nodes became {num_nodes}, {changes}"


def _lift_constants(graph: GraphProto, weight_names: Collection[str]) -> None:
    """Turn layer weights in Constant nodes into initializers, which keep their names."""
    nodes = []
    for node in graph.node:
        constant = get_constant_tensor(node)
        if constant is not None and node.output[0] in weight_names:
            tensor = graph.initializer.add()
            tensor.CopyFrom(constant)
            tensor.name = node.output[0]
        else:
            nodes.append(node)
    set_nodes(graph, nodes)


def _remove_passthrough_nodes(graph: GraphProto) -> None:
    """Remove Identity and Dropout, so that their input and output have one name."""
    constants = collect_constants(graph)
    read_counts = Counter(iter_read_names(graph))
    output_names = {value.name for nested in iter_graphs(graph) for value in nested.output}
    renamed: dict[str, str] = {}
    computed_names = set[str]()
    nodes: list[NodeProto] = []
    for node in graph.node:
        if _is_passthrough(node, constants, read_counts):
            source = _resolve_name(node.input[0], renamed)
            target = node.output[0]
            if target not in output_names:
                renamed[target] = source
                continue
            if source in computed_names and source not in output_names:
                renamed[source] = target
                computed_names.add(target)
                continue
        nodes.append(node)
        computed_names.update(node.output)
    set_nodes(graph, nodes)
    final_names = {name: _resolve_name(name, renamed) for name in renamed}
    rename_outputs(graph.node, final_names)
    rename_inputs(iter_nodes(graph), final_names)


def _is_passthrough(node: NodeProto, constants: Constants, read_counts: Mapping[str, int]) -> bool:
    """Return true if a node passes its input on unchanged."""
    if is_standard(node, "Identity"):
        return len(node.input) == len(node.output) == 1
    if not is_standard(node, "Dropout"):
        return False
    if any(read_counts.get(name) for name in node.output[1:] if name):
        return False
    if len(node.input) < 3 or not node.input[2]:
        return True
    training_mode = get_small_value(constants, node.input[2])
    return training_mode is not None and not training_mode.any()


def _resolve_name(name: str, renamed: Mapping[str, str]) -> str:
    """Return the last name of a value that may have been renamed several times."""
    while name in renamed:
        name = renamed[name]
    return name


class _BatchNormFolder:
    """Folds BatchNormalization into the layers of a graph, in place."""

    def __init__(self, graph: GraphProto, weights: dict[str, Array]) -> None:
        self.graph = graph
        self.weights = weights
        self.read_counts = Counter(iter_read_names(graph))
        self.names = UniqueNames.from_graph(graph)
        self.tensors = collect_stored_tensors(graph)
        for value in graph.input:  # the caller may override these
            self.tensors.pop(value.name, None)

    def fold_all(self) -> int:
        """Fold each BatchNormalization whose input only it reads; return how many were folded."""
        layers = {}
        for node in self.graph.node:
            if is_standard(node, "Conv", "ConvTranspose", "Gemm"):
                layers[node.output[0]] = node
        nodes = []
        for node in self.graph.node:
            layer = layers.get(node.input[0]) if is_standard(node, _NORM) else None
            if layer is not None and self._fold(layer, node):
                layer.output[0] = node.output[0]
            else:
                nodes.append(node)
        num_folded = len(self.graph.node) - len(nodes)
        set_nodes(self.graph, nodes)
        return num_folded

    def _fold(self, layer: NodeProto, norm: NodeProto) -> bool:
        """Scale a layer's weight and shift its bias as a norm would.

        Returns:
            False if that is not possible or not exact enough; then nothing is changed.
        """
        attributes = get_attributes(layer) | get_attributes(norm)
        if not self._can_fold(layer, norm, attributes):
            return False
        gamma, beta, mean, variance = (
            self._get_array(name).astype(np.float64) for name in norm.input[1:5]
        )
        weight = self._get_array(layer.input[1])
        bias = np.zeros(1)
        if len(layer.input) > 2 and layer.input[2]:
            bias = self._get_array(layer.input[2]).astype(np.float64)
        if bias.size not in (1, gamma.size) or (bias.ndim > 1 and bias.shape[-1] != bias.size):
            return False  # a Gemm may add a different bias to every row
        with np.errstate(all="ignore"):
            factor = gamma / np.sqrt(variance + attributes.get("epsilon", EPSILON))
            weight_factor = _broadcast_factor(factor, layer, attributes, weight.shape)
            new_weight = (weight * weight_factor).astype(weight.dtype)
            new_bias = (bias.reshape(-1) * attributes.get("beta", 1.0) - mean) * factor + beta
        if not np.isfinite(new_weight).all() or not np.isfinite(new_bias).all():
            return False
        if ((new_weight != 0) != (weight != 0)).any():
            return False
        self.weights[layer.input[1]] = replace_negative_zeros(new_weight)
        bias_name = self._prepare_bias(layer, new_bias.shape)
        self.weights[bias_name] = new_bias.astype(weight.dtype)
        return True

    def _can_fold(self, layer: NodeProto, norm: NodeProto, attributes: Mapping[str, Any]) -> bool:
        """Return true if all tensors are known and a norm in inference mode is the only reader."""
        names = [layer.input[1], *layer.input[2:3], *norm.input[1:5]]
        if any(name and name not in self.tensors for name in names):
            return False
        types = {self.tensors[name].data_type for name in names if name}
        if len(types) > 1 or types.pop() not in _FOLDED_TYPES:
            return False
        if self.read_counts[layer.output[0]] > 1 or self.read_counts[layer.input[1]] > 1:
            return False
        if layer.input[0] == layer.input[1]:
            return False
        is_training = attributes.get("training_mode") or any(norm.output[1:])
        return not is_training and bool(attributes.get("spatial", 1))

    def _get_array(self, name: str) -> Array:
        """Return the values of a stored tensor."""
        if name in self.weights:
            return self.weights[name]
        return to_array(self.tensors[name], name)

    def _prepare_bias(self, layer: NodeProto, shape: tuple[int, ...]) -> str:
        """Return the name of a layer's bias, or add one if it has none of this shape of its own."""
        name = layer.input[2] if len(layer.input) > 2 else ""
        if not name or self.read_counts[name] > 1 or tuple(self.tensors[name].dims) != shape:
            weight_name = layer.input[1]
            name = self.names.make_unique(f"{weight_name}.folded_bias")
            tensor = make_empty_tensor(name, self.tensors[weight_name].data_type, shape)
            self.tensors[name] = tensor
            self.graph.initializer.append(tensor)
            layer.input[2:] = [name]
        if layer.op_type == "Gemm":
            # The new bias includes the factor beta.
            attributes = [a for a in layer.attribute if a.name != "beta"]
            del layer.attribute[:]
            layer.attribute.extend(attributes)
        return name


def _broadcast_factor(
    factor: Array, layer: NodeProto, attributes: Mapping[str, Any], shape: tuple[int, ...]
) -> Array:
    """Return a factor per output channel in a shape that multiplies the weight of a layer."""
    if layer.op_type == "Gemm":
        return factor[:, None] if attributes.get("transB") else factor
    if layer.op_type == "Conv":
        return factor.reshape(-1, *[1] * (len(shape) - 1))
    groups = attributes.get("group", 1)
    spread = np.repeat(factor.reshape(groups, -1), shape[0] // groups, axis=0)
    return spread.reshape(*shape[:2], *[1] * (len(shape) - 2))


def _remove_unused(graph: GraphProto, weight_names: Collection[str]) -> None:
    """Remove initializers and Constant nodes that nothing reads, except layer weights."""
    read_names = {*iter_read_names(graph), *weight_names}
    unused = [tensor.name for tensor in graph.initializer if tensor.name not in read_names]
    drop_inputs(graph, unused)
    drop_initializers(graph, set(unused))
    nodes = [n for n in graph.node if get_constant_tensor(n) is None or n.output[0] in read_names]
    set_nodes(graph, nodes)
    del graph.value_info[:]  # shapes of values, some of which are gone


def find_changed_weight(
    model: OnnxModel, reference: OnnxModel, weight_names: Collection[str]
) -> str | None:
    """Return the name of a layer weight that a model lacks or holds with other bits, or None."""
    for name in weight_names:
        if name not in model.tensors:
            return name
        if model.get_array(name).tobytes() != reference.get_array(name).tobytes():
            return name
    return None


def _simplify_model(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Let onnxsim fold constants, and keep everything else of the model as it is.

    Raises:
        SimplifyFailed: If onnxsim changed layer weights, inputs or outputs.
    """
    simplified = simplify.simplify_model(model)
    changed_name = find_changed_weight(simplified, model, weight_names)
    if changed_name is not None:
        raise simplify.SimplifyFailed(f"onnxsim changed the layer weight '{changed_name}'")
    for kind in ("input", "output"):
        names = [value.name for value in getattr(model.graph, kind)]
        if [value.name for value in getattr(simplified.graph, kind)] != names:
            raise simplify.SimplifyFailed(f"onnxsim changed the {kind}s of the graph")
    taken_fields = {"graph", "functions", "opset_import", "ir_version"}
    result = ModelProto()
    all_fields = collect_names(result.DESCRIPTOR.fields)
    copy_fields(model.proto, result, skip=taken_fields)
    copy_fields(simplified.proto, result, skip=all_fields - taken_fields)
    for field_name in ("input", "output", "value_info"):
        result.graph.ClearField(field_name)
    result.graph.name = model.graph.name
    result.graph.doc_string = model.graph.doc_string
    result.graph.input.extend(model.graph.input)
    result.graph.output.extend(model.graph.output)
    return replace(simplified, proto=result)


GRAPH = ExportGraph(
    name="deploy",
    description="norms folded into the layers before: outputs equal to 1e-5",
    build=build_graph,
)
