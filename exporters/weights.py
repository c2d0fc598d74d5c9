"""The float weights of a model: which tensors they are, and how many of their elements are not zero.

Every floating-point tensor that the file stores counts, in whatever form and graph, biases and norms too. Only a tensor
that holds infinities or NaN does not: it is a mask, nothing that was learned.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from onnx import ModelProto

from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.decoding import decode_all
from ltp_pipeline.exporters.tensors import Array
from ltp_pipeline.records import Sparsity


def float_weights(model: ModelProto, instead: Mapping[str, Array] | None = None) -> list[tuple[str, Sparsity]]:
    """Name and count of each, in the order of the file; where `instead` has a tensor, that is counted."""
    return [(name, Sparsity(a.size, int(np.count_nonzero(a)))) for name, a in _arrays(model, instead or {})]


def _arrays(model: ModelProto, instead: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    decoded, added = decode_all(model)
    plain = (item for graph in tensors.graphs(model.graph) for item in tensors.stored(graph).items())
    for name, tensor in (*(item for item in plain if item[0] not in added), *decoded.items()):
        if tensor.data_type in tensors.FLOATS:
            array = instead[name] if name in instead else tensors.to_array(tensor, name)
            if _is_finite(array):
                yield name, array


def _is_finite(array: Array) -> bool:
    # A sum is not finite when an element is not; only then is the long way worth taking.
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()) or np.isfinite(array.astype(np.float64)).all())
