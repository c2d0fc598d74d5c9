"""Decode the tensors of a model, whatever encoding its file uses."""

from collections.abc import Collection
from dataclasses import replace

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.encodings.encoding import DecodedTensors, remove_tensors
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system.arrays import Array


def decode_all(model: OnnxModel) -> DecodedTensors:
    """Decode every encoded tensor of a model."""
    decoded = DecodedTensors()
    for encoding in ENCODINGS.values():
        names = encoding.find_encoded_names(model)
        if names:
            part = encoding.decode(model, set(names))
            decoded.tensors.update(part.tensors)
            decoded.weights.update(part.weights)
            decoded.added_names.update(part.added_names)
    return decoded


def to_dense(model: OnnxModel) -> OnnxModel:
    """Return the model with every encoded tensor as a plain initializer.

    Returns the model itself if it has no encoded tensors.
    """
    decoded = decode_all(model)
    if not decoded.tensors:
        return model
    dense = remove_tensors(model, {*decoded.tensors, *decoded.added_names})
    dense.graph.initializer.extend(decoded.tensors.values())
    return replace(dense, weights={**dense.weights, **decoded.weights})


def read_tensors(model: OnnxModel, names: Collection[str]) -> dict[str, Array]:
    """Return the dense values of tensors by name, those of nested graphs too.

    Raises:
        InputError: If the model lacks one of these tensors.
    """
    arrays = {name: model.get_array(name) for name in names if name in model.tensors}
    for encoding in ENCODINGS.values():
        arrays.update(encoding.decode(model, set(names) - set(arrays)).weights)
    check_names(names, arrays)
    return {name: arrays[name] for name in names}


def check_names(names: Collection[str], tensors: Collection[str]) -> None:
    """Raise InputError if a model lacks one of the tensors that it should have."""
    for name in names:
        if name not in tensors:
            raise InputError(
                f"the model has no tensor named '{name}'",
                "pass the file that this model was exported to",
            )
