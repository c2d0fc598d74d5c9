"""The labels that tell what a file is, in its metadata_props."""

from dataclasses import replace

from onnx import helper

from ltp_pipeline.graph.model import OnnxModel, copy_proto

PREFIX = "ltp."


def write_metadata(model: OnnxModel, **values: object) -> OnnxModel:
    """Label a model: `stamp(model, format="packed")` sets ltp.format; keys already there are replaced."""
    proto = copy_proto(model.proto)
    labels = {entry.key: entry.value for entry in proto.metadata_props}
    labels.update((f"{PREFIX}{key}", str(value)) for key, value in values.items())
    del proto.metadata_props[:]
    helper.set_model_props(proto, labels)
    return replace(model, proto=proto)


def read_metadata(model: OnnxModel) -> dict[str, str]:
    """The labels `stamp` wrote, without their prefix."""
    return {
        e.key.removeprefix(PREFIX): e.value
        for e in model.proto.metadata_props
        if e.key.startswith(PREFIX)
    }
