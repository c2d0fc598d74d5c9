"""From a stored sample to the model's input: layout, size, x * scale, (x - mean) / std."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ltp_pipeline.data.dataset import Layout, LoadOptions
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, InputSettings
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import pluralize

Dims = tuple[int | str | None, ...]  # a number, a name, or None where samples differ

# Half-precision models are fed float32: they are trained on float32 master weights.
_DTYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys(("FLOAT", "FLOAT16", "BFLOAT16"), np.float32),
    "DOUBLE": np.float64,
    **{t.__name__.upper(): t for t in (np.int8, np.int16, np.int32, np.int64)},
    **{t.__name__.upper(): t for t in (np.uint8, np.uint16, np.uint32, np.uint64)},
    "BOOL": np.bool_,
}


CACHED_BYTES = 2**20


@dataclass(frozen=True)
class Preparation:
    """The steps for one data set, decided once and applied to every batch."""

    dtype: np.dtype[Any]
    add_channel: bool = False
    channels_to_front: bool = False
    resize: tuple[int, int] | None = None
    scale: float | None = None
    mean: Array | None = None
    std: Array | None = None
    channels_to_back: bool = False
    flatten: bool = False

    def __call__(self, x: Array) -> Array:
        """Prepare a batch that nobody else holds; it may be changed in place."""
        if self.add_channel:
            x = x[:, None]
        if self.channels_to_front:
            x = np.moveaxis(x, -1, 1)
        if self.resize is not None:
            x = resize_planes(x, self.resize)
            if self.dtype.kind != "f":
                x = np.rint(x)
        out = x if x.dtype == self.dtype and x.flags.c_contiguous else np.empty(x.shape, self.dtype)
        rows = max(1, CACHED_BYTES * len(x) // max(1, out.nbytes))
        for i in range(
            0, len(x), rows
        ):  # all steps for a few samples while these are in the processor's cache
            part = out[i : i + rows]
            if out is not x:
                part[...] = x[i : i + rows]
            if self.scale is not None:
                part *= self.dtype.type(self.scale)
            if self.mean is not None:
                part -= self.mean
            if self.std is not None:
                part /= self.std
        x = out
        if self.channels_to_back:
            x = np.moveaxis(x, 1, -1)
        if self.flatten:
            x = x.reshape(len(x), -1)
        return np.ascontiguousarray(x)

    def shape_of(self, stored: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape that samples of this shape get; None for an axis that is longer where sequences are."""
        short, long = (
            self(np.zeros((1, *(length if n is None else n for n in stored)), np.uint8)).shape[1:]
            for length in (1, 2)
        )
        return tuple(n if n == m else None for n, m in zip(short, long, strict=True))

    @property
    def steps(self) -> tuple[str, ...]:
        """What is done to the axes and the size of a stored sample, in words; scale, mean and std follow."""
        height, width = self.resize or (0, 0)
        said = {
            "add a channel axis in front": self.add_channel,
            "bring the channels from the last axis to the front": self.channels_to_front,
            f"resize to {height} × {width} pixels, height × width, bilinear": self.resize
            is not None,
            "bring the channels to the last axis": self.channels_to_back,
            "flatten, row by row": self.flatten,
        }
        return tuple(step for step, done in said.items() if done)


def choose_load_options(settings: DataSettings, inputs: Sequence[TensorInfo]) -> LoadOptions:
    """Say how many channels and which size decoded images should have; they go to the first input that takes images."""
    names = tuple(info.name for info in inputs)
    more = (
        settings.crop,
        settings.num_workers,
        settings.max_corrupt_images,
        names,
        settings.max_bytes,
        settings.max_pixels,
    )
    found = next((info for info in inputs if len(info.shape or ()) == 4), None)
    dims = None if found is None else _sample_dims(found)
    if found is None or dims is None:
        return LoadOptions(None, settings.resize, *more)
    resize = settings.for_input(found.name).resize
    channels, height, width = (dims[2], dims[0], dims[1]) if _channels_last(dims) else dims
    fixed = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    return LoadOptions(channels if isinstance(channels, int) else None, resize or fixed, *more)


def decide_preparation(
    origin: str,
    stored: Dims,
    layout: Layout,
    settings: InputSettings,
    model_input: TensorInfo,
    where: str = "[data]",
) -> Preparation:
    """Decide the steps for samples of this shape, or say why the model cannot take them.

    `where` is the section in which the settings of this input stand.
    """
    dims = _sample_dims(model_input)
    flatten = dims is not None and len(dims) == 1 and len(stored) != 1
    add_channel = len(stored) == 2 and (flatten or (dims is not None and len(dims) == 3))
    to_front = layout == "NHWC" and len(stored) >= 3
    shape = (1, *stored) if add_channel else (stored[-1], *stored[:-1]) if to_front else stored
    if dims is not None and not flatten and len(shape) != len(dims):
        raise InputError(
            f"{origin}: a sample has shape {format_shape(stored)}, the model's input {model_input.name} takes {format_shape(dims)}",
            "store samples with the axes the model takes, the first axis counting the samples",
        )
    resize = settings.resize
    if resize is not None and len(shape) != 3:
        elsewhere = (
            f" from [data] and {where}, and set it in the section of the input of images"
            * (where != "[data]")
        )
        raise InputError(
            f"{origin}: resize is set, but samples of shape {format_shape(stored)} are no images",
            f"remove resize{elsewhere}",
        )
    if resize is not None:
        shape = (shape[0], *resize)
    to_back = dims is not None and len(dims) == len(shape) == 3 and _channels_last(dims)
    if dims is not None and flatten:
        _check_features(origin, shape, dims[0], where)
    elif dims is not None:
        _check_shape(
            origin, stored, shape, (dims[2], dims[0], dims[1]) if to_back else dims, layout, where
        )
    dtype = get_input_dtype(model_input)
    if dtype.kind != "f" and (settings.scale is not None or settings.mean or settings.std):
        raise InputError(
            f"the model's input {model_input.name} takes {dtype}: scale, mean and std would not survive",
            f"remove scale, mean and std from {where}",
        )
    return Preparation(
        dtype,
        add_channel=add_channel,
        channels_to_front=to_front,
        resize=resize,
        scale=settings.scale,
        mean=_per_channel("mean", settings.mean, shape, dtype, where),
        std=_per_channel("std", settings.std, shape, dtype, where),
        channels_to_back=to_back,
        flatten=flatten,
    )


def resize_planes(x: Array, size: tuple[int, int]) -> Array:
    """Bilinear, as Pillow does it for images: (N, C, H, W) to (N, C, *size); bytes stay bytes."""
    from PIL import Image

    if x.shape[2:] == size:
        return x
    dtype = np.uint8 if x.dtype == np.uint8 else np.float32
    planes = np.ascontiguousarray(x, dtype).reshape(-1, *x.shape[2:])
    out = np.empty((len(planes), *size), dtype)
    for i, plane in enumerate(planes):
        out[i] = np.asarray(Image.fromarray(plane).resize(size[::-1], Image.Resampling.BILINEAR))
    return out.reshape(*x.shape[:2], *size)


def _sample_dims(model_input: TensorInfo) -> Dims | None:
    return None if model_input.shape is None else model_input.shape[1:]


def get_input_dtype(model_input: TensorInfo) -> np.dtype[Any]:
    """What numpy calls the type of an input."""
    if model_input.type not in _DTYPES:
        raise InputError(
            f"the model's input {model_input.name} takes {model_input.type}, which no data format here provides",
            "use a model that takes numbers",
        )
    return np.dtype(_DTYPES[model_input.type])


def _channels_last(dims: Dims) -> bool:
    """Tell by the fixed sizes whether the model itself takes NHWC, as exports from TensorFlow do."""
    return dims[2] in (1, 3, 4) and dims[0] not in (1, 2, 3, 4)


def _per_channel(
    name: str, values: Sequence[float], shape: Dims, dtype: np.dtype[Any], where: str
) -> Array | None:
    if not values:
        return None
    channels = shape[0] if shape else 1
    if len(values) not in (1, channels):
        raise InputError(
            f"{name} has {len(values)} values, a sample has {channels} channel{'s' * (channels != 1)}",
            f"give {name} one value, or one per channel, in {where}",
        )
    return np.asarray(values, dtype).reshape(-1, *[1] * (len(shape) - 1))


def _check_features(origin: str, shape: Dims, features: int | str | None, where: str) -> None:
    values = math.prod(n for n in shape if isinstance(n, int))
    if isinstance(features, int) and values != features:
        raise InputError(
            f"{origin}: a sample of shape {format_shape(shape)} has {pluralize(values, 'value')}, the model takes {features}",
            f"give samples of the size the model was trained on, or set resize in {where}",
        )


def _check_shape(
    origin: str, stored: Dims, shape: Dims, dims: Dims, layout: Layout, where: str
) -> None:
    """Compare fixed dimensions; `shape` and `dims` are both channels first."""
    if all(not isinstance(d, int) or n == d for n, d in zip(shape, dims, strict=True)):
        return
    what = f"{origin}: a sample has shape {format_shape(stored)}"
    if len(shape) == 1:
        raise InputError(
            f"{what}, the model takes {dims[0]} values", "give samples as the model was trained on"
        )
    if isinstance(dims[0], int) and shape[0] != dims[0]:
        other: Layout = "NCHW" if layout == "NHWC" else "NHWC"
        turned = len(stored) >= 3 and (stored[0] if layout == "NHWC" else stored[-1]) == dims[0]
        raise InputError(
            f"{what}, {shape[0]} channel{'s' * (shape[0] != 1)} as {layout}; the model takes {dims[0]}",
            f'the samples look like {other}: set layout = "{other}" in {where}'
            if turned
            else f"give samples with {dims[0]} channel{'s' * (dims[0] != 1)}",
        )
    sizes = [d if isinstance(d, int) else n for n, d in zip(shape, dims, strict=True)][1:]
    raise InputError(
        f"{what}, size {format_shape(shape[1:])}; the model takes {format_shape(dims[1:])}",
        f"set resize = {sizes} in {where}" if len(sizes) == 2 else "give samples of that size",
    )


def format_shape(dims: Dims) -> str:
    """A shape as messages have it."""
    return "×".join("?" if d is None else str(d) for d in dims) or "()"
