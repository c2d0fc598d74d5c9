"""What is zero in a file: counted over its kernels, and over all its float weights."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.files.decode import decode_all
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.graph.weights import iter_stored_float_weights


class FileSparsity(NamedTuple):
    """What a file itself says: over all kernels, over all float weights, and of each kernel."""

    layers: Sparsity
    model: Sparsity
    by_name: dict[str, Sparsity]

    @property
    def nonzeros(self) -> dict[str, int]:
        """Those of each kernel."""
        return {name: counted.nonzeros for name, counted in self.by_name.items()}


def iter_float_weights(model: OnnxModel) -> Iterator[tuple[str, Sparsity]]:
    """Yield name and count of every float weight of a model, whatever encoding it is stored in."""
    decoded = decode_all(model)
    yield from iter_stored_float_weights(model, decoded.added_names, decoded.weights)


def count_file_sparsity(path: Path, weight_names: Sequence[str]) -> FileSparsity:
    """Sparsity as the file itself says."""
    return count_sparsity(read_model(path), weight_names)


def count_sparsity(model: OnnxModel, weight_names: Sequence[str]) -> FileSparsity:
    """The same of a model; a kernel of a quantised graph has the name that it had."""
    found = list(iter_float_weights(model))
    by_name = {name.removesuffix(QUANTIZED_SUFFIX): counted for name, counted in found} | dict(
        found
    )
    if missing := [name for name in weight_names if name not in by_name]:
        raise InputError(
            f"the model has no tensor named '{missing[0]}'",
            "give the file this model was exported to",
        )
    each = {name: by_name[name] for name in weight_names}
    return FileSparsity(
        Sparsity.combine(each.values()), Sparsity.combine(counted for _, counted in found), each
    )
