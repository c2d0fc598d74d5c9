"""The float weights of a model: which tensors they are, and how many of their elements are not zero.

Every floating-point tensor that the file stores counts, in whatever form and graph, biases and norms too. Only a mask
does not: nothing of it was learned.
"""

from collections.abc import Iterator

import numpy as np

from ltp_pipeline.exporters.decoding import decode_all
from ltp_pipeline.graph import FLOAT_TYPES, Array, Model, every_graph, is_mask, stored, to_array
from ltp_pipeline.records import Sparsity


def float_weights(model: Model) -> list[tuple[str, Sparsity]]:
    """Name and count of each, in the order of the file."""
    return [(name, Sparsity(a.size, int(np.count_nonzero(a)))) for name, a in _arrays(model) if not is_mask(a)]


def _arrays(model: Model) -> Iterator[tuple[str, Array]]:
    decoded = decode_all(model)
    for name, tensor in (item for graph in every_graph(model.graph) for item in stored(graph).items()):
        if tensor.data_type in FLOAT_TYPES and name not in decoded.added:
            yield name, model.weights[name] if name in model.weights else to_array(tensor, name)
    yield from decoded.weights.items()
