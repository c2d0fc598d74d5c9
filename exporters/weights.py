"""The weights of a model: which tensors they are, and how many of their elements are not zero.

Every floating-point tensor that the file stores counts, in whatever form and graph, biases and norms too; of a
quantised model, the integers that stand for one. Masks do not count, of which nothing was learned, nor do the scales
and zero points of integers.
"""

from collections.abc import Iterator

import numpy as np
from onnx import GraphProto

from ltp_pipeline.exporters.decoding import decode_all
from ltp_pipeline.graph import (
    FLOAT_TYPES,
    Array,
    Model,
    every_graph,
    every_node,
    is_mask,
    is_standard,
    reads,
    stored_one_by_one,
    to_array,
)
from ltp_pipeline.records import Sparsity

_PRODUCTS = ("MatMulInteger", "ConvInteger")
_QUANTISING = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear", *_PRODUCTS})


def float_weights(model: Model) -> Iterator[tuple[str, Sparsity]]:
    """Name and count of each, in the order of the file."""
    for name, array in _arrays(model):
        if array.dtype.kind == "i" or not is_mask(array):
            yield name, Sparsity(array.size, int(np.count_nonzero(array)))


def integer_weights(graph: GraphProto) -> tuple[set[str], set[str]]:
    """The names of values that stand for weights in a quantised graph, and of their scales and zero points."""
    weights, scales, ranges = set[str](), set[str](), set[str]()
    if not any(node.op_type in _QUANTISING for node in every_node(graph)):
        return weights, scales
    for node, slot, name in reads(graph, through=("Identity", "Transpose")):
        if is_standard(node, "DequantizeLinear", "QuantizeLinear"):
            (scales if slot else weights).add(name)
        elif is_standard(node, *_PRODUCTS):
            (scales if slot > 1 else weights).add(name)
        elif is_standard(node, "DynamicQuantizeLinear"):
            ranges.update(node.output[1:])
        elif is_standard(node, "Mul") and ranges.intersection(node.input):
            scales.add(name)
    return weights, scales


def _arrays(model: Model) -> Iterator[tuple[str, Array]]:
    decoded = decode_all(model)
    weights, scales = integer_weights(model.graph)
    for name, tensor in (item for graph in every_graph(model.graph) for item in stored_one_by_one(graph)):
        counts = tensor.data_type in FLOAT_TYPES or name in weights
        if counts and name not in scales and name not in decoded.added:
            yield name, model.weights[name] if name in model.weights else to_array(tensor, name)
    yield from decoded.weights.items()
