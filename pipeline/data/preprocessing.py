"""Preprocessing of samples: from stored values to the model's input, as an InputRecipe says."""

import numpy as np

from ltp_pipeline.results.schema_parts import ImageForm, InputRecipe
from ltp_pipeline.system.arrays import Array

Dims = tuple[int | str | None, ...]  # sizes; names or None for axes of any size

CACHED_BYTES = 2**20  # bytes that are prepared at once, to stay in the processor's cache
DECODED_MODES = {"L": "grey, the luma of Rec. 601", "RGB": "RGB", "RGBA": "RGBA"}


def prepare_samples(recipe: InputRecipe, samples: Array) -> Array:
    """Return stored samples as the model takes them.

    Args:
        recipe: Steps of the preprocessing.
        samples: Stored samples; the first axis counts them. The array may be changed in place.

    Returns:
        A contiguous array: layout and size changed, then x * scale, then (x - mean) / std.
    """
    x = samples
    if recipe.add_channel:
        x = x[:, None]
    if recipe.channels_to_front:
        x = np.moveaxis(x, -1, 1)
    dtype = np.dtype(recipe.type)
    if recipe.resize is not None:
        x = resize_planes(x, recipe.resize)
        if dtype.kind != "f":
            x = np.rint(x)
    x = _scale_values(recipe, x, dtype)
    if recipe.channels_to_back:
        x = np.moveaxis(x, 1, -1)
    if recipe.flatten:
        x = x.reshape(len(x), -1)
    return np.ascontiguousarray(x)


def _scale_values(recipe: InputRecipe, x: Array, dtype: np.dtype) -> Array:
    """Convert values to the type of the input and normalize them, a few samples at a time."""
    steps: list[tuple[np.ufunc, Array]] = []
    if recipe.scale is not None:
        steps.append((np.multiply, np.asarray(recipe.scale, dtype)))
    if recipe.mean is not None:
        steps.append((np.subtract, _align_channels(recipe.mean, x, dtype)))
    if recipe.std is not None:
        steps.append((np.divide, _align_channels(recipe.std, x, dtype)))
    is_in_place = x.dtype == dtype and x.flags.c_contiguous
    out = x if is_in_place else np.empty(x.shape, dtype)
    num_rows = max(1, CACHED_BYTES * len(x) // max(1, out.nbytes))
    for start in range(0, len(x), num_rows):
        part = out[start : start + num_rows]
        if not is_in_place:
            part[...] = x[start : start + num_rows]
        for operation, operand in steps:
            operation(part, operand, out=part)
    return out


def _align_channels(values: tuple[float, ...], x: Array, dtype: np.dtype) -> Array:
    """Return values of channels, or one value, that broadcast over samples."""
    return np.asarray(values, dtype).reshape(-1, *[1] * (x.ndim - 2))


def resize_planes(x: Array, size: tuple[int, int]) -> Array:
    """Resize the last two of four axes, bilinear, as Pillow resizes images; bytes stay bytes."""
    from PIL import Image

    if x.shape[2:] == size:
        return x
    dtype = np.uint8 if x.dtype == np.uint8 else np.float32
    planes = np.ascontiguousarray(x, dtype).reshape(-1, *x.shape[2:])
    out = np.empty((len(planes), *size), dtype)
    for i, plane in enumerate(planes):
        out[i] = np.asarray(Image.fromarray(plane).resize(size[::-1], Image.Resampling.BILINEAR))
    return out.reshape(*x.shape[:2], *size)


def compute_input_shape(
    recipe: InputRecipe, stored_shape: tuple[int | None, ...]
) -> tuple[int | None, ...]:
    """Return the shape of one prepared sample; None for an axis that grows with a sequence."""
    shapes = []
    for length in (1, 2):
        sample = np.zeros([length if n is None else n for n in stored_shape], np.uint8)
        shapes.append(prepare_samples(recipe, sample[None]).shape[1:])
    return tuple(n if n == longer else None for n, longer in zip(*shapes, strict=True))


def describe_steps(recipe: InputRecipe) -> tuple[str, ...]:
    """Describe the steps of the preprocessing, without scale, mean and std."""
    steps = []
    if recipe.image is not None:
        steps += _describe_decoding(recipe.image)
    if recipe.pad is not None and recipe.stored is not None and recipe.stored.shape:
        width = recipe.stored.shape[0]
        length = "the longest of their batch"
        if width is not None:
            length = f"a length of {width}"
        pad = int(recipe.pad) if recipe.pad.is_integer() else recipe.pad
        steps.append(f"fill sequences up with {pad} at their ends, to {length}")
    if recipe.add_channel:
        steps.append("add a channel axis in front")
    if recipe.channels_to_front:
        steps.append("bring the channels from the last axis to the front")
    if recipe.resize is not None:
        height, width = recipe.resize
        steps.append(f"resize to {height} × {width} pixels, height × width, bilinear")
    if recipe.channels_to_back:
        steps.append("bring the channels to the last axis")
    if recipe.flatten:
        steps.append("flatten, row by row")
    return tuple(steps)


def _describe_decoding(form: ImageForm) -> list[str]:
    """Describe how an image file becomes a stored sample."""
    height, width = form.size
    decoded = f"decode the file to {DECODED_MODES[form.mode]}, 0 to 255"
    if form.crop is None:
        size = f"{height} × {width} pixels, height × width, bilinear"
        return [decoded, f"resize to {size}, whatever its shape"]
    covered = f"{round(height / form.crop)} × {round(width / form.crop)}"
    return [
        decoded,
        f"resize, as it is shaped, until it just covers {covered} pixels, height × width, bilinear",
        f"cut {height} × {width} out of the middle",
    ]


def format_shape(dims: Dims) -> str:
    """Return a shape like 3×224×224; axes of any size are question marks."""
    return "×".join("?" if size is None else str(size) for size in dims) or "()"
