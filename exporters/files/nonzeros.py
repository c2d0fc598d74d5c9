"""Kernels looked through once: what is not zero, where, and whether there is a -0.0 to clean."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ltp_pipeline.exporters.files import tensors
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import FLOAT_TYPES
from ltp_pipeline.system.arrays import Array


@dataclass(frozen=True)
class TensorNonzeros:
    """What a tensor holds apart from zeros, flat and in order."""

    positions: Array
    values: Array
    has_negative_zeros: bool


class NonzeroIndex(Collection[str]):
    """Names of kernels that several encodings are to be made of, in place of the plain names.

    Each kernel is looked through when an encoding first asks for it, so its values must not change in between.
    """

    def __init__(self, model: OnnxModel, names: Collection[str]) -> None:
        self.model = model
        self._names = dict.fromkeys(names)
        self._found: dict[str, TensorNonzeros] = {}

    @classmethod
    def from_names(cls, model: OnnxModel, weight_names: Collection[str]) -> "NonzeroIndex":
        """The scan that is given, or a new one where plain names or those of another model are."""
        return (
            weight_names
            if isinstance(weight_names, cls) and weight_names.model is model
            else cls(model, weight_names)
        )

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def get_nonzeros(self, name: str) -> TensorNonzeros:
        """What a kernel holds."""
        if name not in self._found:
            self._found[name] = find_nonzeros(self.model.get_array(name))
        return self._found[name]

    def replace_negative_zeros(self, model: OnnxModel) -> OnnxModel:
        """The same model, or a part of it, with 0.0 for every -0.0 in kernels."""
        cleaned = dict(model.weights)
        for name in self._names:
            tensor = model.tensors.get(name)
            if (
                tensor is not None
                and tensor.data_type in FLOAT_TYPES
                and self._has_negative_zeros(name)
            ):
                cleaned[name] = tensors.replace_negative_zeros(self.model.get_array(name))
        return replace(model, weights=cleaned)

    def _has_negative_zeros(self, name: str) -> bool:
        if name in self._found:
            return self._found[name].has_negative_zeros
        return tensors.has_negative_zeros(self.model.get_array(name))


def find_nonzeros(array: Array) -> TensorNonzeros:
    """Look through one array; NaN is not zero, -0.0 is."""
    where = tensors.find_nonzero_positions(array)
    values = array.reshape(-1).take(
        where, mode="clip"
    )  # unlike "raise", it does not look at each position twice
    return TensorNonzeros(where, values, tensors.has_negative_zeros(array))
