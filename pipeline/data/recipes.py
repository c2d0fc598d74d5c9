"""The InputRecipe of each input, decided from its stored samples, the settings and the model."""

import math
from collections.abc import Sequence

import numpy as np

from ltp_pipeline.data.dataset import Layout, LoadOptions
from ltp_pipeline.data.preprocessing import Dims, format_shape
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import DataSettings, InputSettings
from ltp_pipeline.system.text import pluralize

# Type of the arrays that models with inputs of an ONNX type are fed with; integers keep their type.
# Half-precision models are fed with float32: they are trained on float32 master weights.
FLOAT_TYPES = {
    "FLOAT": "float32",
    "FLOAT16": "float32",
    "BFLOAT16": "float32",
    "DOUBLE": "float64",
}
INTEGER_TYPES = ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
CHANNEL_COUNTS = (1, 3, 4)  # numbers of channels that a last axis of images has


def choose_load_options(settings: DataSettings, inputs: Sequence[TensorInfo]) -> LoadOptions:
    """Choose channels and size of decoded images, which go to the first input with four axes."""
    channels = None
    size = settings.resize
    for info in inputs:
        if info.shape is None or len(info.shape) != 4:
            continue
        num_channels, height, width = _put_channels_first(info.shape[1:])
        if isinstance(num_channels, int):
            channels = num_channels
        if isinstance(height, int) and isinstance(width, int):
            size = (height, width)
        size = settings.for_input(info.name).resize or size
        break
    return LoadOptions(channels, size, tuple(info.name for info in inputs), settings)


def decide_recipe(
    origin: str,
    stored: tuple[int | None, ...],
    layout: Layout,
    settings: InputSettings,
    model_input: TensorInfo,
    section: str = "[data]",
) -> InputRecipe:
    """Decide the preprocessing for stored samples of a shape.

    Args:
        origin: Name of the samples in messages.
        stored: Shape of one stored sample; None for an axis of sequences of uneven length.
        layout: Order of the axes of stored images.
        settings: Settings of the input.
        model_input: Input of the model.
        section: Section of ltp.toml with the settings of the input.

    Raises:
        InputError: If the model cannot take such samples.
    """
    num_axes = None if model_input.shape is None else len(model_input.shape) - 1
    flatten = num_axes == 1 and len(stored) != 1
    add_channel = len(stored) == 2 and (flatten or num_axes == 3)
    channels_to_front = layout == "NHWC" and len(stored) >= 3
    shape: Dims = stored
    if add_channel:
        shape = (1, *stored)
    elif channels_to_front:
        shape = (stored[-1], *stored[:-1])
    dims = (None,) * len(shape) if model_input.shape is None else model_input.shape[1:]
    if not flatten and len(shape) != len(dims):
        raise InputError(
            f"{origin}: the model's input {model_input.name} takes samples of shape"
            f" {format_shape(dims)}, but stored samples have shape {format_shape(stored)}",
            "store samples with the axes that the model takes, after one that counts the samples",
        )
    if settings.resize is not None:
        _check_images(origin, stored, shape, section)
        shape = (shape[0], *settings.resize)
    channels_to_back = len(dims) == len(shape) == 3 and _is_channels_last(dims)
    if flatten:
        _check_features(origin, shape, dims[0], section)
    else:
        expected = _put_channels_first(dims) if channels_to_back else dims
        _check_shape(origin, stored, shape, expected, layout, section)
    dtype = get_input_type(model_input)
    is_scaled = settings.scale is not None or settings.mean or settings.std
    if is_scaled and np.dtype(dtype).kind != "f":
        raise InputError(
            f"the model's input {model_input.name} takes {dtype}, which cannot be scaled",
            f"remove scale, mean and std from {section}",
        )
    num_channels = shape[0] if shape else 1
    for name, values in (("mean", settings.mean), ("std", settings.std)):
        if len(values) not in (0, 1, num_channels):
            raise InputError(
                f"{name} must have one value or one for each channel, but it has {len(values)}"
                f" values and samples have {num_channels} channels",
                f"set {name} in {section} to one value, or to one for each channel",
            )
    return InputRecipe(
        type=dtype,
        add_channel=add_channel,
        channels_to_front=channels_to_front,
        resize=settings.resize,
        scale=settings.scale,
        mean=settings.mean or None,
        std=settings.std or None,
        channels_to_back=channels_to_back,
        flatten=flatten,
    )


def get_input_type(model_input: TensorInfo) -> str:
    """Return the name of the type of arrays that an input is fed with."""
    if model_input.type in INTEGER_TYPES:
        return model_input.type.lower()
    if model_input.type not in FLOAT_TYPES:
        raise InputError(
            f"the model's input {model_input.name} takes {model_input.type}, but samples are"
            " numbers",
            "use a model that takes numbers",
        )
    return FLOAT_TYPES[model_input.type]


def _is_channels_last(dims: Dims) -> bool:
    """Return whether an input of images has its channels last, as models from TensorFlow do."""
    return dims[2] in CHANNEL_COUNTS and dims[0] not in (*CHANNEL_COUNTS, 2)


def _put_channels_first(dims: Dims) -> Dims:
    """Return the sizes of an input of images with the channels first."""
    return (dims[2], dims[0], dims[1]) if _is_channels_last(dims) else dims


def _check_images(origin: str, stored: Dims, shape: Dims, section: str) -> None:
    """Raise InputError if samples that should be resized are not images."""
    if len(shape) == 3:
        return
    hint = "remove resize"
    if section != "[data]":
        hint += f" from [data] and {section}, and set it in the section of the input of images"
    raise InputError(
        f"{origin}: resize is set, but samples of shape {format_shape(stored)} are not images", hint
    )


def _check_features(origin: str, shape: Dims, features: int | str | None, section: str) -> None:
    """Raise InputError if flattened samples do not have as many values as the model takes."""
    num_values = math.prod(size for size in shape if isinstance(size, int))
    if isinstance(features, int) and num_values != features:
        raise InputError(
            f"{origin}: the model takes {pluralize(features, 'value')}, but a sample of shape"
            f" {format_shape(shape)} has {num_values}",
            f"use samples of the size that the model was trained on, or set resize in {section}",
        )


def _check_shape(
    origin: str, stored: Dims, shape: Dims, dims: Dims, layout: Layout, section: str
) -> None:
    """Raise InputError if a fixed size of the model differs; both shapes are channels first."""
    expected = [size if isinstance(size, int) else n for n, size in zip(shape, dims, strict=True)]
    if list(shape) == expected:
        return
    message = f"{origin}: samples have shape {format_shape(stored)}"
    if len(shape) == 1:
        raise InputError(
            f"{message}, but the model takes {dims[0]} values",
            "use samples of the size that the model was trained on",
        )
    if isinstance(dims[0], int) and shape[0] != dims[0]:
        other_layout = "NCHW" if layout == "NHWC" else "NHWC"
        other_channels = stored[0] if layout == "NHWC" else stored[-1]
        hint = f"use samples with {pluralize(dims[0], 'channel')}"
        if len(stored) >= 3 and other_channels == dims[0]:
            hint = f'set layout = "{other_layout}" in {section}: samples look like {other_layout}'
        raise InputError(
            f"{message}, with channels {shape[0]} in the layout {layout}, but the model takes"
            f" {dims[0]}",
            hint,
        )
    hint = "use samples of that size"
    if len(shape) == 3:
        hint = f"set resize = {expected[1:]} in {section}"
    raise InputError(
        f"{message}, of size {format_shape(shape[1:])}, but the model takes"
        f" {format_shape(dims[1:])}",
        hint,
    )
