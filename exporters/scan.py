"""Kernels looked through once: what is not zero, where, and whether there is a -0.0 to clean."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from onnx import ModelProto, TensorProto

from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.tensors import Array


@dataclass(frozen=True)
class Nonzeros:
    """What a tensor holds apart from zeros, flat and in order."""

    where: Array
    values: Array
    negative_zeros: bool


class Scan(Collection[str]):
    """Names of kernels that several encodings are to be made of, in place of the plain names.

    Each kernel is looked through when an encoding first asks for it, so the model must not change in between. `arrays`
    that the model was filled with save reading them out again.
    """

    def __init__(
        self, model: ModelProto, names: Collection[str], arrays: Mapping[str, Array] = MappingProxyType({})
    ) -> None:
        self.model = model
        self._names = dict.fromkeys(names)
        self._arrays = arrays
        self._found: dict[str, Nonzeros] = {}

    @classmethod
    def of(cls, model: ModelProto, kernels: Collection[str]) -> "Scan":
        """The scan that is given, or a new one where plain names or those of another model are."""
        return kernels if isinstance(kernels, cls) and kernels.model is model else cls(model, kernels)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def array(self, name: str, tensor: TensorProto) -> Array:
        """The dense values of the tensor of this name in the model's own graph."""
        given = self._arrays.get(name)
        if given is not None and (given.dtype, given.shape) == (tensors.dtype_of(tensor), tuple(tensor.dims)):
            return given
        return tensors.to_array(tensor, name)

    def nonzeros(self, name: str, tensor: TensorProto) -> Nonzeros:
        """What the tensor of this name in the model's own graph holds."""
        if name not in self._found:
            self._found[name] = find_nonzeros(self.array(name, tensor))
        return self._found[name]

    def negative_zeros(self, tensor: TensorProto) -> bool:
        """Whether an initializer is a kernel with a -0.0."""
        if tensor.name in self._found:
            return self._found[tensor.name].negative_zeros
        floats = tensor.name in self._names and tensor.data_type in tensors.FLOATS
        return floats and tensors.has_negative_zero(self.array(tensor.name, tensor))

    def content(self, tensor: TensorProto) -> Array | TensorProto:
        """What to write for an initializer: the array it was filled with, where that is at hand."""
        return self.array(tensor.name, tensor) if tensor.name in self._arrays else tensor

    def clean(self) -> set[str]:
        """The kernels that were looked through and have no -0.0."""
        return {name for name, found in self._found.items() if not found.negative_zeros}


def find_nonzeros(array: Array) -> Nonzeros:
    """Look through one array; NaN is not zero, -0.0 is."""
    where = tensors.nonzero(array)
    values = array.reshape(-1).take(where, mode="clip")  # unlike "raise", it does not look at each position twice
    return Nonzeros(where, values, tensors.has_negative_zero(array))
