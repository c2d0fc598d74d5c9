"""Back to plain tensors, whatever encoding a file keeps them in."""

from collections.abc import Collection
from dataclasses import replace

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.encodings.encoding import DecodedTensors
from ltp_pipeline.exporters.files import tensors
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.system.arrays import Array


def decode_all(model: OnnxModel) -> DecodedTensors:
    """Every encoded tensor, dense, and the names of what the encodings added to the graph."""
    every = DecodedTensors()
    for encoding in ENCODINGS.values():
        if names := encoding.find_encoded_names(model):
            every.update(encoding.decode(model, set(names)))
    return every


def to_dense(model: OnnxModel) -> OnnxModel:
    """The model with every encoded tensor as a plain initializer; the model itself when nothing is encoded."""
    decoded = decode_all(model)
    if not decoded.tensors:
        return model
    plain = tensors.remove_tensors(model, {*decoded.tensors, *decoded.added_names})
    plain.graph.initializer.extend(decoded.tensors.values())
    return replace(plain, weights={**plain.weights, **decoded.weights})


def read_tensors(model: OnnxModel, names: Collection[str]) -> dict[str, Array]:
    """The dense values of these tensors, decoded where they are encoded, in nested graphs too."""
    found = {name: model.get_array(name) for name in names if name in model.tensors}
    for encoding in ENCODINGS.values():
        found.update(encoding.decode(model, set(names) - set(found)).weights)
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"the model has no tensor named '{missing[0]}'",
            "give the file this model was exported to",
        )
    return {name: found[name] for name in names}
