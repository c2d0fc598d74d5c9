"""Decoding image files with Pillow, several at a time: it lets other threads run while it decodes."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ltp_pipeline.data.samples import Array, Wanted
from ltp_pipeline.errors import InputError

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Only these decoders are let near a file, whatever it says it is: some of Pillow's others start programs.
DECODERS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
MAX_PIXELS = 80_000_000  # below the limit at which Pillow itself begins to warn
THREADS = min(4, os.cpu_count() or 1)


class Header(NamedTuple):
    """What an image file says of itself."""

    file: Path
    size: tuple[int, int]  # height, width
    mode: str


class Form(NamedTuple):
    """What every image is made into."""

    mode: str
    size: tuple[int, int]  # height, width

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return (*self.size, len(self.mode))

    @property
    def bytes(self) -> int:
        """Of one decoded image."""
        return self.size[0] * self.size[1] * len(self.mode)


class ImageSamples:
    """Images that are decoded when they are asked for."""

    def __init__(self, files: Sequence[Path], form: Form) -> None:
        self._files = files
        self._form = form
        self.shape: tuple[int, ...] = form.shape
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self._files)

    def take(self, indices: Array) -> Array:
        """Decode these images."""
        out = np.empty((len(indices), *self.shape), np.uint8)

        def fill(place: int) -> None:
            out[place] = decode(self._files[indices[place]], self._form)

        # The threads live for one batch, so that nothing is left to close and a forked process starts clean.
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(fill, range(len(indices))):
                pass
        return out


def scan(files: Sequence[Path]) -> list[Header]:
    """Read every header: what is no image, or too large a one, is found before anything is trained."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(_header, files))


def choose_form(headers: Sequence[Header], wanted: Wanted) -> Form:
    """Follow the settings and the model, and where they say nothing the images themselves."""
    if wanted.channels is not None and wanted.channels not in MODES:
        raise InputError(
            f"the model takes {wanted.channels} channels, images have 1, 3 or 4", "give the samples as a .npz file"
        )
    grey = all(h.mode in ("1", "L") for h in headers)
    mode = MODES[wanted.channels or (1 if grey else 3)]
    first = headers[0]
    if wanted.size is None:
        for h in headers:
            if h.size != first.size:
                raise InputError(
                    f"images differ in size: {first.file} is {first.size[0]}×{first.size[1]}, "
                    f"{h.file} is {h.size[0]}×{h.size[1]} (height×width), and the model takes any",
                    "set resize = [height, width] in [data]",
                )
    return Form(mode, wanted.size or first.size)


def decode(file: Path, form: Form) -> Array:
    """Read one image as (height, width, channels) bytes."""
    with _named(file), Image.open(file, formats=DECODERS) as image:
        converted = image.convert(form.mode)
        if converted.size != form.size[::-1]:
            converted = converted.resize(form.size[::-1], Image.Resampling.BILINEAR)
        return np.asarray(converted, np.uint8).reshape(form.shape)


def _header(file: Path) -> Header:
    with _named(file), Image.open(file, formats=DECODERS) as image:
        (width, height), mode = image.size, image.mode
    if width * height > MAX_PIXELS:
        raise InputError(
            f"image {file} has {width * height} pixels, more than {MAX_PIXELS}", "remove it or scale it down"
        )
    if mode[0] in "IF":
        raise InputError(f"image {file} has more than 8 bits per channel (mode {mode})", "convert it to 8 bits")
    return Header(file, (height, width), mode)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    try:
        yield
    except Image.DecompressionBombError:
        raise InputError(f"image {file} has more than {MAX_PIXELS} pixels", "remove it or scale it down") from None
    except Exception as error:  # noqa: BLE001 - on a broken file Pillow raises nearly anything
        detail = " ".join(str(error).split())
        raise InputError(f"image {file} cannot be decoded: {detail}", "repair or remove it") from None
