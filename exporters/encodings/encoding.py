"""Encoding: how a file stores the zeros of a model's layer weights."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from onnx import NodeProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.edit import drop_initializers, set_nodes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.tensors import WEIGHT_TYPES, collect_stored_tensors
from ltp_pipeline.system import memory
from ltp_pipeline.system.arrays import Array

TOOLS = (
    "onnxruntime",
    "OpenVINO",
    "onnx: checker",
    "onnx: shape inference, version converter",
    "onnx: ReferenceEvaluator",
    "onnx: compose",
    "onnx-ir",
    "onnxscript's optimizer",
    "onnxsim, onnxslim",
)


@dataclass(frozen=True)
class DecodedTensors:
    """Encoded tensors of a file, made dense."""

    tensors: dict[str, TensorProto] = field(default_factory=dict)  # type and dims, without values
    weights: dict[str, Array] = field(default_factory=dict)
    added_names: set[str] = field(default_factory=set)  # tensors and values that encoding added


@dataclass(frozen=True)
class Encoding:
    """A way to store a model in a file.

    `encode(model, weight_names)` takes a model with its final dense weights and the names of its
    layer weights, and returns the encoded model. It comes last, because other tools need the dense
    model.
    """

    name: str  # also part of the file name
    description: str  # for HANDOFF.md
    encode: Callable[..., OnnxModel]
    # Names of the encoded tensors of a file
    find_encoded_names: Callable[[OnnxModel], list[str]] = lambda _: []
    # Decode tensors by name
    decode: Callable[[OnnxModel, Collection[str]], DecodedTensors] = lambda *_: DecodedTensors()
    # What happens in those of TOOLS that do not simply read such a file, for HANDOFF.md
    tool_remarks: Mapping[str, str] = field(default_factory=dict)
    passes_full_check: bool = True  # true if onnx.checker can infer the shapes of such a file

    @property
    def tool_support(self) -> dict[str, str]:
        """What happens in each of TOOLS."""
        return {tool: self.tool_remarks.get(tool, "yes") for tool in TOOLS}


def find_encodable(model: OnnxModel, weight_names: Collection[str]) -> dict[str, TensorProto]:
    """Return the layer weights that can be encoded, by name: not outputs, and with elements."""
    output_names = collect_names(model.graph.output)
    encodable = {}
    for name, tensor in collect_stored_tensors(model.graph).items():
        is_weight = name in weight_names and name not in output_names
        if is_weight and tensor.data_type in WEIGHT_TYPES and tensor.dims and all(tensor.dims):
            encodable[name] = tensor
    return encodable


def check_memory(size: int) -> None:
    """Raise InputError if decoded tensors of `size` bytes do not fit into free memory.

    A small file can hold a huge tensor, because zeros take no room in it.
    """
    free = memory.available_memory()
    if free is None or size <= free:
        return
    dense_gigabytes = size / memory.GIGABYTE
    free_gigabytes = free / memory.GIGABYTE
    raise InputError(
        f"the decoded tensors need {dense_gigabytes:,.1f} GB of memory,"
        f" and {free_gigabytes:,.1f} GB are free",
        "use a machine with more memory, or get the file again from where it came from",
    )


def remove_tensors(
    model: OnnxModel, names: Collection[str], first_nodes: Collection[NodeProto] = ()
) -> OnnxModel:
    """Return a copy of a model without some tensors.

    Args:
        model: The model.
        names: Names of initializers, sparse initializers, or outputs of nodes, which are removed.
        first_nodes: Nodes to insert before those of the model.
    """
    proto = copy_proto(model.proto)
    graph = proto.graph
    nodes = [node for node in graph.node if not any(name in names for name in node.output)]
    set_nodes(graph, [*first_nodes, *nodes])
    drop_initializers(graph, names)
    sparse = [tensor for tensor in graph.sparse_initializer if tensor.values.name not in names]
    if len(sparse) < len(graph.sparse_initializer):
        del graph.sparse_initializer[:]
        graph.sparse_initializer.extend(sparse)
    return replace(model, proto=proto).drop_unstored_weights()
