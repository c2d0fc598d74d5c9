"""Replace nodes of a graph, and those that follow them, by sparse operators."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.exporters.sparse_ops import functions
from ltp_pipeline.graph.constants import collect_constants, get_small_value
from ltp_pipeline.graph.edit import drop_initializers, drop_inputs, raise_ir_version, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names, get_attribute, get_attributes, is_standard
from ltp_pipeline.graph.schemas import get_opsets, get_standard_opset
from ltp_pipeline.graph.view import GraphView, iter_read_names

Shapes = Mapping[str, tuple[object, ...]]


@dataclass
class ConvertedChain:
    """Nodes that follow one another, and the sparse operator that replaces them."""

    weight_name: str
    nodes: list[NodeProto]
    operator: str
    inputs: list[str]
    attributes: dict[str, Any]

    @property
    def sparse_node(self) -> NodeProto:
        """A new node that calls the sparse operator."""
        return helper.make_node(
            self.operator,
            self.inputs,
            [self.nodes[-1].output[0]],
            self.nodes[0].name,
            domain=functions.DOMAIN,
            **self.attributes,
        )


def convert_to_sparse_ops(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, list[ConvertedChain]]:
    """Replace every eligible node by a sparse operator.

    Returns:
        The model, and the nodes that were replaced.
    """
    proto = copy_proto(model.proto)
    # Nodes are compared by identity. protobuf keeps the identity of an object only while there is
    # a reference to it, so this list must live until the end.
    nodes = list(proto.graph.node)
    chains = _ChainFinder(model, proto, nodes, weight_names).find_chains()
    replacements: dict[int, list[NodeProto]] = {}
    for chain in chains:
        replacements.update((id(node), []) for node in chain.nodes)
        replacements[id(chain.nodes[-1])] = [chain.sparse_node]
    new_nodes = []
    for node in nodes:
        new_nodes += replacements.get(id(node), [node])
    set_nodes(proto.graph, new_nodes)
    _remove_unused_limits(proto.graph, chains)
    raise_ir_version(proto, functions.IR_VERSION)
    if functions.DOMAIN not in get_opsets(proto):
        proto.opset_import.append(helper.make_opsetid(functions.DOMAIN, functions.VERSION))
    existing = {f.name for f in proto.functions if f.domain == functions.DOMAIN}
    used = {chain.operator for chain in chains}
    for name in sorted(used - existing):
        proto.functions.append(functions.make_function(name, get_standard_opset(proto)))
    return replace(model, proto=proto).drop_unstored_weights(), chains


def _remove_unused_limits(graph: GraphProto, chains: Collection[ConvertedChain]) -> None:
    """Remove limits of Clip that nothing reads any more."""
    limits = set[str]()
    for chain in chains:
        for node in chain.nodes:
            if is_standard(node, "Clip"):
                limits.update(node.input[1:])
    unused = limits - set(iter_read_names(graph))
    drop_inputs(graph, unused)
    drop_initializers(graph, unused)


class _ChainFinder:
    """Finds nodes that sparse operators can replace."""

    def __init__(
        self,
        model: OnnxModel,
        proto: ModelProto,
        nodes: list[NodeProto],
        weight_names: Collection[str],
    ) -> None:
        self.model = model
        self.nodes = nodes
        self.weight_names = weight_names
        self.opset = get_standard_opset(proto)
        self.view = GraphView(proto.graph)
        self.constants = collect_constants(proto.graph)
        self.shapes = infer_shapes(proto)
        self.free_nodes = set(map(id, nodes))  # those of the main graph that are in no chain

    def find_chains(self) -> list[ConvertedChain]:
        """Return all chains, in the order of their first nodes."""
        chains = []
        for node in self.nodes:
            chain = self._start_chain(node) if id(node) in self.free_nodes else None
            if chain is not None:
                self._append_sum(chain)
                self._append_activation(chain)
                self.free_nodes.difference_update(map(id, chain.nodes))
                chains.append(chain)
        return chains

    def _start_chain(self, node: NodeProto) -> ConvertedChain | None:
        """Return the chain of a Conv, Gemm or MatMul alone, or None if nothing replaces it."""
        attributes = get_attributes(node)
        inputs = [name for name in node.input if name]  # an omitted bias may be an empty name
        suffix = "Bias" if len(inputs) > 2 else ""
        if is_standard(node, "Conv") and self._is_layer_weight(inputs[1], 4):
            kernel_shape = self.constants[inputs[1]].dims[2:]
            if _has_known_padding(attributes, kernel_shape):
                operator = f"SparseConv{suffix}"
                return ConvertedChain(inputs[1], [node], operator, inputs, attributes)
        if is_standard(node, "Gemm") and self._is_layer_weight(inputs[1], 2):
            is_transposed = attributes.pop("transA", 0)
            if not is_transposed and self._has_row_bias(inputs, attributes):
                operator = f"SparseGemm{suffix}"
                return ConvertedChain(inputs[1], [node], operator, inputs, attributes)
        if is_standard(node, "MatMul"):
            left, right = inputs
            if self._is_layer_weight(right, 2) and self.shapes.get(left):
                return ConvertedChain(right, [node], "SparseMatMul", inputs, attributes)
            if self._is_layer_weight(left, 2) and self.shapes.get(right):
                return ConvertedChain(left, [node], "SparseLeftMatMul", inputs, attributes)
        return None

    def _is_layer_weight(self, name: str, num_axes: int) -> bool:
        """Return true if a value is a float layer weight with this number of axes."""
        tensor = self.constants.get(name)
        if name not in self.weight_names or not isinstance(tensor, TensorProto):
            return False
        return tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == num_axes

    def _has_row_bias(self, inputs: Sequence[str], attributes: Mapping[str, Any]) -> bool:
        """Return true if a Gemm adds the same bias to every row, or none."""
        if len(inputs) < 3:
            return True
        dims = self.shapes.get(inputs[2])
        if dims is None:
            return False
        columns = self.constants[inputs[1]].dims[0 if attributes.get("transB") else 1]
        return set(dims) <= {1} or (dims[-1] == columns and set(dims[:-1]) <= {1})

    def _append_sum(self, chain: ConvertedChain) -> None:
        """Extend a chain by an Add if it adds a bias, or a value of the same shape."""
        node = chain.nodes[-1]
        add = self._get_next_node(node)
        if add is None or not is_standard(add, "Add"):
            return
        other = add.input[1] if add.input[0] == node.output[0] else add.input[0]
        shape = self.shapes.get(node.output[0], (None,))
        if chain.operator == "SparseMatMul" and self._is_bias(other, node):
            chain.operator += "Bias"
        elif node.op_type == "Conv" and shape == self.shapes.get(other) and None not in shape:
            chain.operator += "Add"
        else:
            return
        chain.inputs.append(other)
        chain.nodes.append(add)

    def _append_activation(self, chain: ConvertedChain) -> None:
        """Extend a chain by a Relu or Clip."""
        activation = self._get_next_node(chain.nodes[-1])
        if activation is None:
            return
        if is_standard(activation, "Relu"):
            chain.operator += "Relu"
            chain.nodes.append(activation)
        elif is_standard(activation, "Clip") and functions.supports_clip(self.opset):
            limits = self._read_limits(activation)
            if limits is not None:
                chain.operator += "Clip"
                chain.attributes |= limits
                chain.nodes.append(activation)

    def _get_next_node(self, node: NodeProto) -> NodeProto | None:
        """Return the only node that reads a result, or None if it is taken or there are others."""
        output = node.output[0]
        uses = self.view.consumers.get(output, [])
        if len(uses) != 1 or self.view.read_counts[output] != 1:
            return None
        next_node = uses[0].node
        return next_node if id(next_node) in self.free_nodes else None

    def _is_bias(self, name: str, node: NodeProto) -> bool:
        """Return true if a value has one number for each column of a product's weight."""
        columns = self.constants[node.input[1]].dims[1]
        return self.shapes.get(name) == (columns,)

    def _read_limits(self, clip: NodeProto) -> dict[str, float] | None:
        """Return the limits of a Clip by name, or None if they may change or are not known."""
        input_names = collect_names(self.model.graph.input)
        float_range = np.finfo(np.float32)
        limits = {"min": float(float_range.min), "max": float(float_range.max)}
        for slot, limit in enumerate(limits, start=1):
            if self.opset < functions.CLIP_INPUT_OPSET:
                limits[limit] = float(get_attribute(clip, limit, limits[limit]))
            elif len(clip.input) > slot and clip.input[slot]:
                name = clip.input[slot]
                value = self.model.weights.get(name)
                if value is None:
                    value = get_small_value(self.constants, name)
                if value is None or value.size != 1 or name in input_names:
                    return None
                limits[limit] = float(value.reshape(()))
        return None if np.isnan(list(limits.values())).any() else limits


def _has_known_padding(attributes: Mapping[str, Any], kernel_shape: Sequence[int]) -> bool:
    """Return true if attributes of a Conv tell which pixels it reads.

    SAME padding does not if a stride is larger than the reach of the kernel.
    """
    if not attributes.get("auto_pad", b"").startswith(b"SAME"):
        return True
    strides = attributes.get("strides", (1, 1))
    dilations = attributes.get("dilations", (1, 1))
    for stride, dilation, size in zip(strides, dilations, kernel_shape, strict=True):
        if stride > dilation * (size - 1) + 1:
            return False
    return True


def infer_shapes(proto: ModelProto) -> dict[str, tuple[object, ...]]:
    """Return the shapes of values by name, as far as ONNX infers them.

    Sizes are numbers, names, or None if they are not known.
    """
    inferred: GraphProto = onnx.shape_inference.infer_shapes(
        copy_proto(proto), data_prop=True
    ).graph
    shapes: dict[str, tuple[object, ...]] = {t.name: tuple(t.dims) for t in inferred.initializer}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        if not value.type.tensor_type.HasField("shape"):
            continue
        sizes: list[object] = []
        for dim in value.type.tensor_type.shape.dim:
            is_number = dim.HasField("dim_value")
            sizes.append(dim.dim_value if is_number else dim.dim_param or None)
        shapes[value.name] = tuple(sizes)
    return shapes
