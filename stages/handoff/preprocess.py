"""Prepare stored samples for the models in this folder, exactly as when the models were measured.

    python preprocess.py IMAGE... INPUT.npy       one input that is made of image files
    python preprocess.py SAMPLES.npy INPUT.npy    one input that is made of arrays
    python preprocess.py SAMPLES.npz INPUT.npy    one input that is made of sequences
    python preprocess.py SAMPLES.npz INPUTS.npz   several inputs

preprocess.json, which lies next to this file, has the inputs and their steps; HANDOFF.md explains
them. From Python, call `prepare`. SAMPLES.npz has the stored samples of each input under its name.
Sequences of uneven length are one array of all values, and NAME_offsets has where each sequence
begins and where the last one ends (NAME_offsets_ if an input has the name NAME_offsets).

The script needs numpy, and Pillow to decode or resize images.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS = "preprocess.json"
# Other decoders of Pillow start programs or read whole documents.
DECODERS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

Steps = dict[str, Any]  # preprocessing of one input, as in preprocess.json


def prepare(samples: Any) -> Any:
    """Return what the model takes for stored samples.

    Args:
        samples: Stored samples of the input: an array whose first axis counts the samples, a list
            of images from `load_image`, or a list of sequences. For a model with several inputs, a
            dictionary of these by the name of the input. Masks are computed and need no samples.

    Returns:
        The input as an array, or a dictionary of arrays for a model with several inputs.
    """
    inputs = read_inputs()
    if len(inputs) == 1:
        (steps,) = inputs.values()
        return prepare_input(steps, samples)
    arrays = {}
    for name, steps in inputs.items():
        arrays[name] = prepare_input(steps, samples[steps["mask_of"] or name])
    return arrays


def prepare_input(steps: Steps, samples: Any) -> Any:
    """Return one input of the model for its stored samples."""
    stored = steps["stored"]
    if steps["mask_of"] is not None:
        x = mark_values(samples, stored["shape"][0])
        if steps["marks_padding"]:
            x = ~x
    elif stored["lengths"] is not None:
        x = pad_sequences(samples, stored, steps["pad"] or 0)
    else:
        x = stack_samples(samples, stored)
    if steps["add_channel"]:
        x = x[:, None]
    if steps["channels_to_front"]:
        x = np.moveaxis(x, -1, 1)
    dtype = np.dtype(steps["type"])
    if steps["resize"] is not None:
        x = resize_planes(x, steps["resize"])
        if dtype.kind != "f":
            x = np.rint(x)
    x = x.astype(dtype)
    if steps["scale"] is not None:
        x *= dtype.type(steps["scale"])
    per_channel = (-1, *[1] * (x.ndim - 2))
    if steps["mean"] is not None:
        x -= np.array(steps["mean"], dtype).reshape(per_channel)
    if steps["std"] is not None:
        x /= np.array(steps["std"], dtype).reshape(per_channel)
    if steps["channels_to_back"]:
        x = np.moveaxis(x, 1, -1)
    if steps["flatten"]:
        x = x.reshape(len(x), -1)
    return np.ascontiguousarray(x, steps["input_type"])


def load_image(file: Any, name: str | None = None) -> Any:
    """Decode an image file to a stored sample.

    Args:
        file: Path or open file.
        name: Name of the input. It can be left out if only one input is made of images.

    Returns:
        Values from 0 to 255, of shape (height, width, channels).
    """
    from PIL import Image

    inputs = read_inputs()
    if name is None:
        name = next(key for key in inputs if inputs[key]["image"])
    form = inputs[name]["image"]
    height, width = form["size"]
    with Image.open(file, formats=DECODERS) as image:
        if image.mode[0] in "IF":
            raise ValueError(f"{file} has more than 8 bits per channel")
        box = None if form["crop"] is None else center_box(image.size, form)
        pixels = image.convert(form["mode"]).resize(
            (width, height), Image.Resampling.BILINEAR, box=box
        )
    return np.asarray(pixels).reshape(height, width, len(form["mode"]))


def center_box(size: tuple[int, int], form: Steps) -> tuple[float, float, float, float]:
    """Return the part of an image (left, top, right, bottom) that the center crop keeps.

    The image would be resized so that it just covers the size divided by the crop, and the center
    of that would be cut out. The box is this center in the pixels of the original image.
    """
    width, height = size
    rows, columns = form["size"]
    tall, wide = round(rows / form["crop"]), round(columns / form["crop"])
    if tall * width >= wide * height:
        wide = tall * width // height
    else:
        tall = wide * height // width
    left, top = round((wide - columns) / 2), round((tall - rows) / 2)
    x, y = width / wide, height / tall
    return left * x, top * y, min((left + columns) * x, width), min((top + rows) * y, height)


def resize_planes(x: Any, size: tuple[int, int]) -> Any:
    """Resize the last two of four axes (bilinear); 8-bit values stay 8-bit values."""
    from PIL import Image

    if x.shape[2:] == tuple(size):
        return x
    dtype = np.uint8 if x.dtype == np.uint8 else np.float32
    height, width = size
    planes = []
    for plane in np.ascontiguousarray(x, dtype).reshape(-1, *x.shape[2:]):
        image = Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR)
        planes.append(np.asarray(image))
    return np.array(planes, dtype).reshape(*x.shape[:2], height, width)


def stack_samples(samples: Any, stored: Steps) -> Any:
    """Return one or several stored samples as an array whose first axis counts them."""
    x = np.asarray(samples)
    shape = tuple(stored["shape"])
    if x.shape == shape:
        x = x[None]
    if x.shape[1:] != shape or x.dtype.newbyteorder("=") != stored["type"]:
        raise ValueError(
            f"samples are {x.dtype} of shape {x.shape[1:]}, "
            f"but stored samples were {stored['type']} of shape {shape}"
        )
    return x


def pad_sequences(sequences: Any, stored: Steps, pad: float) -> Any:
    """Return sequences of any length as one array, padded at their ends."""
    dtype = np.dtype(stored["type"])
    width, *shape = stored["shape"]
    rows = []
    for sequence in sequences:
        row = np.asarray(sequence, None if hasattr(sequence, "dtype") else dtype)
        if not row.ndim or list(row.shape[1:]) != shape or row.dtype.newbyteorder("=") != dtype:
            raise ValueError(
                f"a sequence is {row.dtype} of shape {row.shape}, "
                f"but stored sequences were {dtype}, each value of shape {tuple(shape)}"
            )
        rows.append(row)
    x = np.full((*mark_values(rows, width).shape, *shape), pad, dtype)
    for i, row in enumerate(rows):
        x[i, : len(row)] = row
    return x


def mark_values(sequences: Any, width: int | None) -> Any:
    """Return an array that is True at the values of padded sequences.

    Args:
        sequences: Sequences of any length.
        width: Length to which they are padded; None for that of the longest one.
    """
    lengths = np.array([len(row) for row in sequences], np.int64)
    longest = max(1, int(lengths.max(initial=0)))
    if width is None:
        width = longest
    if longest > width:
        raise ValueError(f"a sequence has length {longest}, but the model takes {width}")
    return np.arange(width) < lengths[:, None]


def read_inputs() -> dict[str, Steps]:
    """Return the preprocessing of each input by its name."""
    path = Path(__file__).resolve().with_name(SETTINGS)
    inputs: dict[str, Steps] = json.loads(path.read_text(encoding="utf-8"))
    return inputs


def read_samples(files: list[str], inputs: dict[str, Steps]) -> Any:
    """Return the stored samples in files, as `prepare` takes them."""
    if takes_images(inputs):
        return [load_image(file) for file in files]
    arrays = np.load(files[0])
    if isinstance(arrays, np.ndarray):
        return arrays
    samples = {}
    for name, steps in inputs.items():
        if steps["stored"]["lengths"] is not None:
            offsets = name + "_offsets"
            while offsets in inputs:
                offsets += "_"
            samples[name] = np.split(arrays[name], arrays[offsets][1:-1])
        elif steps["mask_of"] is None:
            samples[name] = arrays[name]
    return samples if len(inputs) > 1 else samples[name]


def takes_images(inputs: dict[str, Steps]) -> bool:
    """Return True if the model has one input and this is made of image files."""
    return len(inputs) == 1 and all(steps["image"] for steps in inputs.values())


def main() -> None:
    """Prepare the samples in the files on the command line, and write the input of the model."""
    *files, target = sys.argv[1:] or [""]
    inputs = read_inputs()
    if not files or (len(files) > 1 and not takes_images(inputs)):
        sys.exit(__doc__)
    arrays = prepare(read_samples(files, inputs))
    if len(inputs) == 1:
        np.save(target, arrays)
        return
    with zipfile.ZipFile(target, "w") as archive:  # np.savez cannot write an array named "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, array)


if __name__ == "__main__":
    main()
