"""Labels of exported files: metadata_props whose keys begin with "ltp."."""

from dataclasses import replace

from onnx import helper

from ltp_pipeline.graph.model import OnnxModel, copy_proto

PREFIX = "ltp."


def write_metadata(model: OnnxModel, **values: object) -> OnnxModel:
    """Return the model with labels, for example ltp.format for `write_metadata(model, format=…)`.

    Labels of the same key are replaced; other metadata stays.
    """
    proto = copy_proto(model.proto)
    properties = {entry.key: entry.value for entry in proto.metadata_props}
    for key, value in values.items():
        properties[PREFIX + key] = str(value)
    del proto.metadata_props[:]
    helper.set_model_props(proto, properties)
    return replace(model, proto=proto)


def read_metadata(model: OnnxModel) -> dict[str, str]:
    """Return the labels of a model by key, without their prefix."""
    return {
        entry.key.removeprefix(PREFIX): entry.value
        for entry in model.proto.metadata_props
        if entry.key.startswith(PREFIX)
    }
