"""A graph made ready for the tool that quantises it; it computes the same as before.

Every node gets a name, biases of Gemm become rows, kernels behind a Transpose are turned, and no value has a name that
the tool gives to what it adds.
"""

from collections.abc import Collection

from onnx import NodeProto

from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.exporters.int8.transposed import transpose_weights
from ltp_pipeline.graph.edit import UniqueNames, drop_inputs
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import is_standard, iter_nodes
from ltp_pipeline.graph.readers import get_output_axis
from ltp_pipeline.graph.tensors import make_empty_tensor
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.system.arrays import Array

# After the name of a value or a weight, for what is added to it.
TOOL_SUFFIXES = (
    *(
        QUANTIZED_SUFFIX,
        "_scale",
        "_zero_point",
        f"{QUANTIZED_SUFFIX}_scale",
        f"{QUANTIZED_SUFFIX}_zero_point",
    ),
    *("_QuantizeLinear", "_QuantizeLinear_Input", "_QuantizeLinear_Output"),
    *("_DequantizeLinear", "_DequantizeLinear_Output"),
)


def prepare_graph(
    model: OnnxModel, weight_names: Collection[str]
) -> tuple[OnnxModel, frozenset[str]]:
    """The same model for the tool, and which kernels it has turned; kernels, inputs and outputs keep their names."""
    named = name_nodes(_rename_conflicts(_flatten_biases(_fix_weights(model)), weight_names))
    return transpose_weights(named, weight_names)


def name_nodes(model: OnnxModel) -> OnnxModel:
    """The same model with a name of its own for every node of the main graph; those that have one keep it."""
    names, nodes = UniqueNames(), [node.name for node in model.graph.node]
    if len(set(nodes)) == len(nodes) and "" not in nodes:
        return model
    proto = copy_proto(model.proto)
    for node in proto.graph.node:
        node.name = names.make_unique(
            node.name or next((output for output in node.output if output), node.op_type)
        )
    return OnnxModel(proto, model.weights, model.sparse)


def _fix_weights(model: OnnxModel) -> OnnxModel:
    """Weights that cannot be given from outside."""
    proto = copy_proto(model.proto)
    drop_inputs(proto.graph, {tensor.name for tensor in proto.graph.initializer})
    return OnnxModel(proto, model.weights, model.sparse)


def _flatten_biases(model: OnnxModel) -> OnnxModel:
    """Rows of numbers for stored biases of Gemm that are matrices of one row."""
    users, outputs = GraphView(model.graph).consumers, {value.name for value in model.graph.output}
    rows: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        read = users.get(tensor.name, [])
        if tensor.name in outputs or not all(
            is_standard(use.node, "Gemm") and use.slot == 2 for use in read
        ):
            continue
        if {(1, _count_outputs(model, use.node)) for use in read} == {tuple(tensor.dims)}:
            rows[tensor.name] = model.get_array(tensor.name).reshape(-1)
    if not rows:
        return model
    proto = copy_proto(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in rows:
            tensor.CopyFrom(
                make_empty_tensor(tensor.name, tensor.data_type, rows[tensor.name].shape)
            )
    return OnnxModel(proto, {**model.weights, **rows}, model.sparse)


def _count_outputs(model: OnnxModel, gemm: NodeProto) -> int:
    """How many outputs a Gemm with a stored weight has; 0 where that is not known."""
    tensor = model.tensors.get(gemm.input[1])
    return 0 if tensor is None or len(tensor.dims) != 2 else tensor.dims[get_output_axis(gemm)]


def _rename_conflicts(model: OnnxModel, weight_names: Collection[str]) -> OnnxModel:
    """Other names for nodes, values and tensors that are called as the tool would call what it adds."""
    graph = model.graph
    names = UniqueNames.from_graph(graph)
    kept = {*weight_names, *(value.name for value in (*graph.input, *graph.output))}
    values = [
        *(t.name for t in graph.initializer),
        *(name for node in graph.node for name in node.output),
    ]
    renamed = {
        name: f"{name}/"
        for name in values
        if name not in kept and find_name_base(name, names.taken)
    }
    nodes = {node.name for node in graph.node if find_name_base(node.name, names.taken)}
    if not renamed and not nodes:
        return model
    renamed = {name: names.make_unique(new) for name, new in renamed.items()}
    proto = copy_proto(model.proto)
    for node in iter_nodes(proto.graph):
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for node in proto.graph.node:
        node.name = f"{node.name}/" if node.name in nodes else node.name
    for tensor in proto.graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    del proto.graph.value_info[:]
    return OnnxModel(
        proto,
        {renamed.get(name, name): array for name, array in model.weights.items()},
        model.sparse,
    )


def find_name_base(name: str, names: Collection[str]) -> str | None:
    """The one of these names after which the tool would call something so."""
    return next(
        (
            base
            for end in TOOL_SUFFIXES
            if name.endswith(end) and (base := name.removesuffix(end)) in names
        ),
        None,
    )
