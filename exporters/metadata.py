"""The labels that tell what a file is, in its metadata_props."""

from onnx import ModelProto, helper

PREFIX = "ltp."


def stamp(model: ModelProto, **values: object) -> None:
    """Label a model in place: `stamp(model, format="packed")` sets ltp.format; keys already there are replaced."""
    labels = {entry.key: entry.value for entry in model.metadata_props}
    labels.update((f"{PREFIX}{key}", str(value)) for key, value in values.items())
    del model.metadata_props[:]
    helper.set_model_props(model, labels)


def labels(model: ModelProto) -> dict[str, str]:
    """The labels `stamp` wrote, without their prefix."""
    return {e.key.removeprefix(PREFIX): e.value for e in model.metadata_props if e.key.startswith(PREFIX)}
