"""Count the nonzeros of layer weights and of all float weights in a file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ltp_pipeline.exporters.files.decode import check_names, decode_all
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.graph.storage import read_model
from ltp_pipeline.graph.weights import iter_stored_float_weights


class FileSparsity(NamedTuple):
    """Sparsity of a file: over all layer weights, over all float weights, and by layer weight."""

    layers: Sparsity
    model: Sparsity
    by_name: dict[str, Sparsity]

    @property
    def nonzeros(self) -> dict[str, int]:
        """Number of nonzeros of each layer weight."""
        return {name: sparsity.nonzeros for name, sparsity in self.by_name.items()}


def iter_float_weights(model: OnnxModel) -> Iterator[tuple[str, Sparsity]]:
    """Yield name and sparsity of every float weight of a model, in any encoding."""
    decoded = decode_all(model)
    yield from iter_stored_float_weights(model, decoded.added_names, decoded.weights)


def count_file_sparsity(path: Path, weight_names: Sequence[str]) -> FileSparsity:
    """Count the nonzeros of a file, see `count_sparsity`."""
    return count_sparsity(read_model(path), weight_names)


def count_sparsity(model: OnnxModel, weight_names: Sequence[str]) -> FileSparsity:
    """Count the nonzeros of a model.

    Args:
        model: A model in any encoding. The weight "W" of a quantized graph is "W_quantized".
        weight_names: Names of the layer weights in the original model.

    Raises:
        InputError: If the model lacks one of these weights.
    """
    stored = list(iter_float_weights(model))
    by_name = {name.removesuffix(QUANTIZED_SUFFIX): sparsity for name, sparsity in stored}
    by_name.update(stored)
    check_names(weight_names, by_name)
    layers = {name: by_name[name] for name in weight_names}
    total = Sparsity.combine(sparsity for _, sparsity in stored)
    return FileSparsity(Sparsity.combine(layers.values()), total, layers)
