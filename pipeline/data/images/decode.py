"""Decode the bytes of one image to the pixels of one sample, with safe decoders only."""

import functools
import io
import math
import os
import platform
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from ltp_pipeline.results.schema_parts import ImageForm

# Only these decoders see a file, whatever format it claims: some others of Pillow start programs.
DECODERS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 80_000_000  # default limit; Pillow itself begins to warn above it
MAX_SIDE = 65_535  # limit of JPEG; memory for resizing grows with the length of a side
MAX_BYTES = 4 * MAX_PIXELS + 2**20  # size of a file: some decoders read all of it at once
CROP_AREA = (0.08, 1.0)  # fraction of the image that a random crop covers
CROP_RATIO = (3 / 4, 4 / 3)  # width / height of a random crop
NUM_CROP_TRIES = 10
MAX_COPIED_PIXELS = 2**21  # larger crops are resized in place instead of copied first
REMOVE_HINT = "remove it or scale it down"
REPAIR_HINT = "repair or remove it"


class ImageSource(NamedTuple):
    """Place of an encoded image: a file, or a member of an archive."""

    file: str
    offset: int = 0  # first byte in the file
    length: int = -1  # number of bytes; -1 reads to the end
    member: str = ""  # name in the archive

    @property
    def name(self) -> str:
        """Name of the image in messages."""
        return f"{self.file}:{self.member}" if self.member else self.file


class ImageProblem(NamedTuple):
    """What is wrong with an image, and what to do."""

    source: ImageSource
    message: str
    hint: str
    is_replaceable: bool = True  # the image itself is corrupt, so another may replace it


class CorruptImageError(Exception):
    """An image that cannot be used."""

    def __init__(self, message: str, hint: str, is_replaceable: bool = True) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        self.is_replaceable = is_replaceable

    def describe_problem(self, source: ImageSource) -> ImageProblem:
        """Return the problem of the image at a place."""
        return ImageProblem(source, self.message, self.hint, self.is_replaceable)


class ImageHeader(NamedTuple):
    """What the header of an image file says."""

    source: ImageSource
    size: tuple[int, int]  # height, width
    mode: str  # mode of Pillow
    has_frames: bool = False


def read_header(source: ImageSource, max_pixels: int = MAX_PIXELS) -> ImageHeader:
    """Read the header of an image without decoding its pixels.

    Raises:
        CorruptImageError: If the image cannot be used.
    """
    with _open_image(source, max_pixels) as image:
        has_frames = bool(getattr(image, "is_animated", False))
        return ImageHeader(source, (image.height, image.width), image.mode, has_frames)


def decode_image(
    source: ImageSource, form: ImageForm, max_pixels: int = MAX_PIXELS, seed: str | None = None
) -> bytes | memoryview:
    """Decode an image to bytes of height × width × channels.

    Args:
        source: Place of the image.
        form: Mode, size and crop of the result.
        max_pixels: Largest number of pixels of the stored image.
        seed: Seed for a random crop and flip; None resizes the image, or its center.

    Raises:
        CorruptImageError: If the image cannot be used.
    """
    with _open_image(source, max_pixels) as image:
        if seed is None:
            return _resize_image(image, form).tobytes()
        return _crop_at_random(image, form, seed)


def choose_random_box(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Choose a crop (left, top, right, bottom) as Inception does.

    If ten random crops do not fit into the image, the result is the largest crop at its center.
    """
    for _ in range(NUM_CROP_TRIES):
        area = width * height * rng.uniform(*CROP_AREA)
        ratio = math.exp(rng.uniform(math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])))
        w = round(math.sqrt(area * ratio))
        h = round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = int(rng.random() * (width - w + 1))
            top = int(rng.random() * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * CROP_RATIO[1])))
    h = min(height, max(1, round(width / CROP_RATIO[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _crop_at_random(image: Image.Image, form: ImageForm, seed: str) -> bytes | memoryview:
    """Return a random crop of an image, mirrored or not."""
    rng = random.Random(seed)  # noqa: S311 - no secret; unlike NumPy's, equal on every machine
    width, height = image.size
    box = choose_random_box(width, height, rng)
    left, top, right, bottom = box
    is_mirrored = rng.random() < 0.5
    # A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if the crop stays large enough.
    rows, columns = form.size
    least_width = math.ceil(width * columns / (right - left))
    least_height = math.ceil(height * rows / (bottom - top))
    image.draft(None, (least_width, least_height))
    image = _convert_mode(image, form.mode)
    is_small = (right - left) * (bottom - top) <= MAX_COPIED_PIXELS
    is_full_size = image.size == (width, height)
    if image.mode == "RGB" and is_full_size and is_small and _has_fast_resize():
        part = image.crop(box)
        if is_mirrored:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        try:
            return _resize_with_torch(part, form.size)
        except RuntimeError as error:  # torch raises it when memory runs out
            raise MemoryError from error
    crop = _resize_box(image, form, box, (width, height))
    return (crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_mirrored else crop).tobytes()


@functools.cache
def _has_fast_resize() -> bool:
    """Return whether torch resizes faster than Pillow on this processor."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        import torch  # takes a second, so only random crops import it
    except (ImportError, OSError, MemoryError):  # Pillow resizes without it
        return False
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def _resize_with_torch(image: Image.Image, size: tuple[int, int]) -> memoryview:
    """Resize as Pillow does, in a third of the time: torch computes on many bytes at once."""
    import torch

    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    planes = pixels.view(1, image.height, image.width, 3).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(planes, size, mode="bilinear", antialias=True)
    return resized.permute(0, 2, 3, 1).contiguous().view(-1).numpy().data


def _resize_image(image: Image.Image, form: ImageForm) -> Image.Image:
    """Resize an image as a whole, or the center of it if there is a crop."""
    image = _convert_mode(image, form.mode)
    rows, columns = form.size
    width, height = image.size
    if form.crop is None:
        if (width, height) == (columns, rows):
            return image
        return image.resize((columns, rows), Image.Resampling.BILINEAR)
    tall, wide = round(rows / form.crop), round(columns / form.crop)
    if tall * width >= wide * height:
        wide = tall * width // height
    else:
        tall = wide * height // width
    left, top = round((wide - columns) / 2), round((tall - rows) / 2)
    # Resizing to wide × tall and cropping then would compute pixels that are not used.
    return _resize_box(image, form, (left, top, left + columns, top + rows), (wide, tall))


def _resize_box(
    image: Image.Image, form: ImageForm, box: tuple[int, int, int, int], size: tuple[int, int]
) -> Image.Image:
    """Resize the part `box` (left, top, right, bottom) of an image that has the size `size`.

    The image itself may be smaller than `size`, width and height, if it was decoded reduced.
    """
    x, y = image.width / size[0], image.height / size[1]
    left, top, right, bottom = box[0] * x, box[1] * y, box[2] * x, box[3] * y
    right, bottom = min(right, image.width), min(bottom, image.height)  # rounding may exceed them
    rows, columns = form.size
    inside = (left, top, right, bottom)
    return image.resize((columns, rows), Image.Resampling.BILINEAR, box=inside)


def _convert_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return the image in a mode of Pillow."""
    return image if image.mode == mode else image.convert(mode)


@contextmanager
def _open_image(source: ImageSource, max_pixels: int) -> Iterator[Image.Image]:
    """Open an image whose header is usable; raise CorruptImageError for all that fails with it."""
    try:
        size = os.stat(source.file).st_size if source.length < 0 else source.length  # noqa: PTH116 - once an image
        if size > MAX_BYTES:
            raise CorruptImageError(f"has {size:,} bytes, more than {MAX_BYTES:,}", REMOVE_HINT)
        with Image.open(_open_content(source), formats=DECODERS) as image:
            _check_header(image, max_pixels)
            yield image
    except CorruptImageError:
        raise
    except Image.DecompressionBombError:
        raise CorruptImageError(f"has more than {max_pixels} pixels", REMOVE_HINT) from None
    except Exception as error:  # noqa: BLE001 - Pillow raises nearly anything for a corrupt file
        raise _make_error(error) from None


def _check_header(image: Image.Image, max_pixels: int) -> None:
    """Raise CorruptImageError if an image is too large, or has more than 8 bits per channel."""
    num_pixels = image.width * image.height
    if num_pixels > max_pixels:
        raise CorruptImageError(f"has {num_pixels} pixels, more than {max_pixels}", REMOVE_HINT)
    longest = max(image.size)
    if longest > MAX_SIDE:
        raise CorruptImageError(
            f"has a side of {longest} pixels, more than {MAX_SIDE}", REMOVE_HINT
        )
    if image.mode[0] in "IF":
        raise CorruptImageError(
            f"has more than 8 bits per channel (mode {image.mode})", "convert it to 8 bits"
        )


def _open_content(source: ImageSource) -> str | io.BytesIO:
    """Return what Pillow opens: the name of a file, or the bytes of a member of an archive."""
    if source.length < 0:
        return source.file
    with Path(source.file).open("rb") as file:
        file.seek(source.offset)
        return io.BytesIO(file.read(source.length))


def _make_error(error: Exception) -> CorruptImageError:
    """Return the error for what Pillow or the system raised."""
    if isinstance(error, MemoryError):
        return CorruptImageError(
            "does not fit in memory", "free memory, or lower num_workers in [data]", False
        )
    if isinstance(error, OSError) and error.errno is not None:
        # The disk may work again tomorrow, so the image is not replaced.
        return CorruptImageError(
            f"cannot be read: {error.strerror}",
            "check the file, its permissions and its disk",
            False,
        )
    if isinstance(error, UnidentifiedImageError):  # its message names an address in memory
        formats = ", ".join(DECODERS)
        return CorruptImageError(f"cannot be decoded: it is not an image ({formats})", REPAIR_HINT)
    detail = " ".join(str(error).split()) or type(error).__name__
    return CorruptImageError(f"cannot be decoded: {detail}", REPAIR_HINT)
