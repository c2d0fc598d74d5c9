"""What is zero in a file: counted over its kernels, and over all its float weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.quantize.layers import SUFFIX
from ltp_pipeline.exporters.weights import float_weights
from ltp_pipeline.graph import Model, read
from ltp_pipeline.records import Sparsity


class Counts(NamedTuple):
    """What a file itself says: over all kernels, over all float weights, and of each kernel."""

    kernels: Sparsity
    whole: Sparsity
    each: dict[str, Sparsity]

    @property
    def nonzeros(self) -> dict[str, int]:
        """Those of each kernel."""
        return {name: counted.nonzeros for name, counted in self.each.items()}


def count_in_file(path: Path, kernels: Sequence[str]) -> Counts:
    """Sparsity as the file itself says."""
    return count(read(path), kernels)


def count(model: Model, kernels: Sequence[str]) -> Counts:
    """The same of a model; a kernel of a quantised graph has the name that it had."""
    found = list(float_weights(model))
    by_name = {name.removesuffix(SUFFIX): counted for name, counted in found} | dict(found)
    if missing := [name for name in kernels if name not in by_name]:
        raise InputError(f"the model has no tensor named '{missing[0]}'", "give the file this model was exported to")
    each = {name: by_name[name] for name in kernels}
    return Counts(Sparsity.total(each.values()), Sparsity.total(counted for _, counted in found), each)
