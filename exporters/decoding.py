"""Back to plain tensors, whatever encoding a file keeps them in."""

from collections.abc import Collection

from onnx import ModelProto, TensorProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import tensors
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.encodings.encoding import Decoded
from ltp_pipeline.exporters.tensors import Array


def decode_all(model: ModelProto) -> Decoded:
    """Every encoded tensor, dense, and the names of what the encodings added to the graph."""
    decoded: dict[str, TensorProto] = {}
    added: set[str] = set()
    for encoding in ENCODINGS.values():
        found, more = encoding.decode(model, encoding.encoded_names(model))
        decoded.update(found)
        added.update(more)
    return decoded, added


def to_dense(model: ModelProto) -> ModelProto:
    """Copy a model with every encoded tensor as a plain initializer; the model itself when nothing is encoded."""
    decoded, added = decode_all(model)
    if not decoded:
        return model
    copy = tensors.copy_model(model, drop={*decoded, *added})
    for tensor in decoded.values():
        copy.graph.initializer.add().CopyFrom(tensor)
    return copy


def read_tensors(model: ModelProto, names: Collection[str]) -> dict[str, Array]:
    """The dense values of these tensors, decoded where they are encoded, in nested graphs too."""
    wanted = set(names)
    found = {n: t for graph in tensors.graphs(model.graph) for n, t in tensors.stored(graph).items() if n in wanted}
    for encoding in ENCODINGS.values():
        found.update(encoding.decode(model, wanted - set(found))[0])
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"the model has no tensor named '{missing[0]}'", "give the file this model was exported to")
    return {name: tensors.to_array(found[name], name) for name in names}
