"""The weights of a model: which tensors they are, and how many of their elements are nonzero.

Every float tensor that a file stores counts, in whatever graph, biases and normalization layers
included. In a quantized model the integers that stand for a weight count instead. Attention masks
do not count, because nothing in them was learned, nor do scales and zero points of integers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from onnx import GraphProto

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import is_standard, iter_graphs, iter_nodes
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.tensors import FLOAT_TYPES, is_attention_mask, iter_stored_tensors
from ltp_pipeline.graph.view import iter_uses
from ltp_pipeline.system.arrays import Array

_INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger")
_QUANTIZATION_OPERATORS = frozenset(
    {"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", *_INTEGER_PRODUCTS}
)


def iter_stored_float_weights(
    model: OnnxModel, skipped: Collection[str] = (), decoded: Mapping[str, Array] | None = None
) -> Iterator[tuple[str, Sparsity]]:
    """Yield name and count of every float weight that a model stores, in the order of the file.

    Args:
        model: The model; encoded tensors are not decoded here.
        skipped: Names of tensors that only serve an encoding.
        decoded: Values of encoded tensors, which are counted last.
    """
    for name, array in _iter_weight_arrays(model, skipped, decoded or {}):
        if array.dtype.kind == "i" or not is_attention_mask(array):
            yield name, Sparsity(array.size, int(np.count_nonzero(array)))


def find_integer_weights(graph: GraphProto) -> tuple[set[str], set[str]]:
    """Return the names of the values that stand for weights in a quantized graph.

    Returns:
        The names of the weights, and the names of their scales and zero points.
    """
    weights: set[str] = set()
    scales: set[str] = set()
    dynamic_ranges: set[str] = set()
    if not any(node.op_type in _QUANTIZATION_OPERATORS for node in iter_nodes(graph)):
        return weights, scales
    for node, slot, name in iter_uses(graph, through=("Identity", "Transpose")):
        if is_standard(node, "DequantizeLinear", "QuantizeLinear"):
            if slot:
                scales.add(name)
            else:
                weights.add(name)
        elif is_standard(node, *_INTEGER_PRODUCTS):
            if slot > 1:
                scales.add(name)
            else:
                weights.add(name)
        elif is_standard(node, "DynamicQuantizeLinear"):
            dynamic_ranges.update(node.output[1:])
        elif is_standard(node, "Mul") and dynamic_ranges.intersection(node.input):
            scales.add(name)
    return weights, scales


def _iter_weight_arrays(
    model: OnnxModel, skipped: Collection[str], decoded: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yield name and values of every weight."""
    integer_weights, scales = find_integer_weights(model.graph)
    for graph in iter_graphs(model.graph):
        for name, tensor in iter_stored_tensors(graph):
            is_weight = tensor.data_type in FLOAT_TYPES or name in integer_weights
            if is_weight and name not in scales and name not in skipped:
                yield name, model.get_array(name, tensor)
    yield from decoded.items()
