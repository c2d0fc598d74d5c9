"""Back to plain tensors, whatever form a file keeps them in."""

from collections.abc import Collection

from onnx import ModelProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import packed_reader, sparse, tensors
from ltp_pipeline.exporters.tensors import Array


def to_dense(model: ModelProto) -> ModelProto:
    """Copy a model with every encoded tensor as a plain initializer; the model itself when nothing is encoded."""
    decoded, added = packed_reader.decode(model, packed_reader.encoded_names(model))
    decoded.update(sparse.decode(model, sparse.encoded_names(model)))
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
    found.update(sparse.decode(model, wanted - set(found)))
    found.update(packed_reader.decode(model, wanted - set(found))[0])
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"the model has no tensor named '{missing[0]}'", "give the file this model was exported to")
    return {name: tensors.to_array(found[name], name) for name in names}
