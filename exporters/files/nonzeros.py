"""Find the nonzeros of layer weights, once for all encodings that store them.

-0.0 counts as zero and NaN does not. Files store 0.0 for every -0.0 of a layer weight.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import FLOAT_TYPES
from ltp_pipeline.system.arrays import Array


@dataclass(frozen=True)
class TensorNonzeros:
    """The nonzeros of a tensor, in the order of its flattened elements."""

    positions: Array  # flat and ascending
    values: Array
    has_negative_zeros: bool  # true if the tensor has a -0.0


class NonzeroIndex(Collection[str]):
    """Names of layer weights that remembers their nonzeros.

    `encode` of an encoding takes it in place of plain names, so that several encodings search
    each weight only once. Values of the model must not change while the index is in use.
    """

    def __init__(self, model: OnnxModel, weight_names: Collection[str]) -> None:
        self.model = model
        self._names = dict.fromkeys(weight_names)
        self._nonzeros: dict[str, TensorNonzeros] = {}

    @classmethod
    def from_names(cls, model: OnnxModel, weight_names: Collection[str]) -> "NonzeroIndex":
        """Return `weight_names` if they are an index of this model, or else a new index."""
        if isinstance(weight_names, cls) and weight_names.model is model:
            return weight_names
        return cls(model, weight_names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def get_nonzeros(self, name: str) -> TensorNonzeros:
        """Return the nonzeros of a layer weight."""
        if name not in self._nonzeros:
            self._nonzeros[name] = find_nonzeros(self.model.get_array(name))
        return self._nonzeros[name]

    def replace_negative_zeros(self, model: OnnxModel) -> OnnxModel:
        """Return a model that has tensors of the index, with 0.0 for every -0.0 in them."""
        weights = dict(model.weights)
        for name in self._names:
            tensor = model.tensors.get(name)
            if tensor is None or tensor.data_type not in FLOAT_TYPES:
                continue
            nonzeros = self._nonzeros.get(name)
            if nonzeros is None or nonzeros.has_negative_zeros:
                array = self.model.get_array(name)
                cleaned = replace_negative_zeros(array)
                if cleaned is not array:
                    weights[name] = cleaned
        return replace(model, weights=weights)


def find_nonzeros(array: Array) -> TensorNonzeros:
    """Find the nonzeros of an array."""
    positions = find_nonzero_positions(array)
    # Mode "clip" does not check each position a second time, unlike the default mode.
    values = array.reshape(-1).take(positions, mode="clip")
    return TensorNonzeros(positions, values, has_negative_zeros(array))


def find_nonzero_positions(array: Array) -> Array:
    """Return the ascending flat positions of nonzeros."""
    flat = array.reshape(-1)
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        # numpy compares bits faster than these types, and cannot compare bfloat16. The shift
        # drops the sign bit of floats.
        flat = view_bits(flat) << (array.dtype.kind != "i")
    return np.flatnonzero(flat != 0)


def view_bits(array: Array) -> Array:
    """Return the bit patterns of an array as unsigned integers of the same width."""
    unsigned = np.dtype(f"u{array.dtype.itemsize}")
    return np.ascontiguousarray(array).view(unsigned).reshape(array.shape)


def has_negative_zeros(array: Array) -> bool:
    """Return true if an array has a -0.0; integers have none."""
    if array.dtype.kind in "iu":
        return False
    # The bits of -0.0, read as a signed integer, are the smallest integer.
    integers = view_bits(array).view(np.dtype(f"i{array.dtype.itemsize}"))
    return bool(integers.size and integers.min() == np.iinfo(integers.dtype).min)


def replace_negative_zeros(array: Array) -> Array:
    """Return an array with 0.0 for every -0.0; the array itself if it has none."""
    if not has_negative_zeros(array):
        return array
    cleaned = array.copy()
    cleaned[cleaned == 0] = 0
    return cleaned
