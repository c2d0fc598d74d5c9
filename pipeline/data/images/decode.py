"""From the bytes of one image to the pixels of one sample, and the process that does it for others.

Worker processes run this file by its path: it imports Pillow and the standard library, torch only for random crops,
and nothing of this package. They read a request per line as JSON, put the pixels into memory that both processes see,
one place after the other and from the first again, and answer with a byte for how it went, and the problem as JSON
where there is one.
"""

import contextlib
import functools
import io
import json
import math
import mmap
import os
import platform
import random
import struct
import sys
from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

# Only these decoders are let near a file, whatever it says it is: some of Pillow's others start programs.
DECODERS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MAX_PIXELS = 80_000_000  # unless a user says otherwise; below the limit at which Pillow itself begins to warn
MAX_SIDE = 65_535  # as JPEG has it: resizing takes memory by the length of a side
MAX_BYTES = 4 * MAX_PIXELS + 2**20  # of a file: some decoders read all of it at once
AREA = (0.08, 1.0)  # share of the image that a random crop covers
RATIO = (3 / 4, 4 / 3)  # its width / height
TRIES = 10
MAX_COPIED = 2**21  # pixels of a crop: Pillow resizes larger ones where they lie
GOOD, BROKEN = b"\0", b"\1"
PLACES = 2  # one image waits to be fetched while the process decodes another
LENGTH = struct.Struct("<I")  # of a problem


class ImageSource(NamedTuple):
    """Where an encoded image is: a file, or a part of one that has a name of its own."""

    file: str
    offset: int = 0
    length: int = -1  # to the end
    member: str = ""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.file}:{self.member}" if self.member else self.file


class Form(NamedTuple):
    """What every image is made into."""

    mode: str
    size: tuple[int, int]  # height, width
    crop: float | None = (
        None  # share of the shorter side that the centre keeps; None squeezes the whole image
    )
    max_pixels: int = MAX_PIXELS  # of the image as it is stored

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return (*self.size, len(self.mode))

    @property
    def bytes(self) -> int:
        """Of one decoded image."""
        return self.size[0] * self.size[1] * len(self.mode)


class Problem(NamedTuple):
    """What is wrong with an image, what to do, and whether it is the image itself and may be passed over."""

    what: str
    remedy: str
    passable: bool = True


class BrokenImageError(Exception):
    """An image that cannot be used."""

    def __init__(self, what: str, remedy: str, passable: bool = True) -> None:
        super().__init__(what, remedy)
        self.problem = Problem(what, remedy, passable)


def header(source: ImageSource, max_pixels: int = MAX_PIXELS) -> tuple[tuple[int, int], str, bool]:
    """Return ((height, width), mode, whether it has several frames) without decoding."""
    with _opened(source, max_pixels) as image:
        try:
            several = bool(getattr(image, "is_animated", False))
        except Exception as error:  # noqa: BLE001 - on a broken file Pillow raises nearly anything
            raise _broken(error) from None
        return (image.height, image.width), image.mode, several


def pixels(source: ImageSource, form: Form, seed: str | None = None) -> bytes | memoryview:
    """Return the image as height × width × channels bytes; a seed asks for a random crop and flip instead."""
    with _opened(source, form.max_pixels) as image:
        try:
            return _whole(image, form).tobytes() if seed is None else _random(image, form, seed)
        except Exception as error:  # noqa: BLE001 - on a broken file Pillow raises nearly anything
            raise _broken(error) from None


def random_box(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Choose a crop (left, top, right, bottom) as Inception does; the largest centre one where ten tries fail."""
    for _ in range(TRIES):
        area = width * height * rng.uniform(*AREA)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.random() * (width - w + 1)), int(rng.random() * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * RATIO[1])))
    h = min(height, max(1, round(width / RATIO[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _random(image: Image.Image, form: Form, seed: str) -> bytes | memoryview:
    rng = random.Random(seed)  # noqa: S311 - no secret; the same on every machine, as NumPy's need not be
    width, height = image.size
    box = left, top, right, bottom = random_box(width, height, rng)
    flip = rng.random() < 0.5
    # A JPEG is decoded at half, a quarter or an eighth of its size where the crop stays as large as what is wanted.
    rows, columns = form.size
    image.draft(
        None,
        (math.ceil(width * columns / (right - left)), math.ceil(height * rows / (bottom - top))),
    )
    image = _in_mode(image, form.mode)
    small = (right - left) * (bottom - top) <= MAX_COPIED
    if image.mode == "RGB" and image.size == (width, height) and small and _has_fast_resize():
        part = image.crop(box)
        try:
            return _fast_resize(
                part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else part, form.size
            )
        except (
            RuntimeError
        ) as error:  # so torch calls it when memory runs out, which is no fault of the image
            raise MemoryError from error
    made = _part(image, form, box, (width, height))
    return (made.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else made).tobytes()


@functools.cache
def _has_fast_resize() -> bool:
    """Whether torch has a kernel for this processor; the one it has for others is slower than Pillow's."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        import torch  # a second's work, which a process that makes no random crops is spared
    except (
        ImportError,
        OSError,
        MemoryError,
    ):  # in a process of its own; Pillow needs no such luck
        return False
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def _fast_resize(image: Image.Image, size: tuple[int, int]) -> memoryview:
    """Resize as Pillow does, in a third of the time: torch computes on many bytes at once."""
    import torch

    stored = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    planes = stored.view(1, image.height, image.width, 3).permute(0, 3, 1, 2)
    made = torch.nn.functional.interpolate(planes, size, mode="bilinear", antialias=True)
    return made.permute(0, 2, 3, 1).contiguous().view(-1).numpy().data


def _whole(image: Image.Image, form: Form) -> Image.Image:
    image = _in_mode(image, form.mode)
    (rows, columns), (width, height) = form.size, image.size
    if form.crop is None:
        if (width, height) == (columns, rows):
            return image
        return image.resize((columns, rows), Image.Resampling.BILINEAR)
    tall, wide = round(rows / form.crop), round(columns / form.crop)
    if tall * width >= wide * height:  # the height decides
        wide = tall * width // height
    else:
        tall = wide * height // width
    left, top = round((wide - columns) / 2), round((tall - rows) / 2)
    # Resizing to wide × tall and cropping then, as others do, computes pixels that nobody looks at.
    return _part(image, form, (left, top, left + columns, top + rows), (wide, tall))


def _part(
    image: Image.Image, form: Form, box: tuple[int, int, int, int], of: tuple[int, int]
) -> Image.Image:
    """Resize the box alone, which was chosen on an image of another size."""
    x, y = image.width / of[0], image.height / of[1]
    left, top, right, bottom = box[0] * x, box[1] * y, box[2] * x, box[3] * y
    inside = (left, top, min(right, image.width), min(bottom, image.height))  # rounding may go over
    return image.resize(form.size[::-1], Image.Resampling.BILINEAR, box=inside)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    return image if image.mode == mode else image.convert(mode)


def _opened(source: ImageSource, max_pixels: int) -> Image.Image:
    """Open and judge by the header alone."""
    try:
        size = os.stat(source.file).st_size if source.length < 0 else source.length  # noqa: PTH116 - once an image
        if size > MAX_BYTES:
            raise BrokenImageError(
                f"has {size:,} bytes, more than {MAX_BYTES:,}", "remove it or scale it down"
            )
        image = Image.open(_content(source), formats=DECODERS)
    except Image.DecompressionBombError:
        raise BrokenImageError(
            f"has more than {max_pixels} pixels", "remove it or scale it down"
        ) from None
    except BrokenImageError:
        raise
    except Exception as error:  # noqa: BLE001 - on a broken file Pillow raises nearly anything
        raise _broken(error) from None
    count = image.width * image.height
    longest = max(image.size)
    if count <= max_pixels and longest <= MAX_SIDE and image.mode[0] not in "IF":
        return image
    image.close()
    if count > max_pixels:
        raise BrokenImageError(
            f"has {count} pixels, more than {max_pixels}", "remove it or scale it down"
        )
    if longest > MAX_SIDE:
        raise BrokenImageError(
            f"has a side of {longest} pixels, more than {MAX_SIDE}", "remove it or scale it down"
        )
    raise BrokenImageError(
        f"has more than 8 bits per channel (mode {image.mode})", "convert it to 8 bits"
    )


def _content(source: ImageSource) -> str | io.BytesIO:
    if source.length < 0:
        return source.file
    with Path(source.file).open("rb") as file:
        file.seek(source.offset)
        return io.BytesIO(file.read(source.length))


def _broken(error: Exception) -> BrokenImageError:
    if isinstance(error, MemoryError):
        return BrokenImageError(
            "does not fit in memory", "free some memory, or lower num_workers in [data]", False
        )
    if (
        isinstance(error, OSError) and error.errno is not None
    ):  # a disk that fails today may not fail tomorrow
        return BrokenImageError(
            f"cannot be read: {error.strerror}", "check the file, its rights and its disk", False
        )
    if isinstance(error, UnidentifiedImageError):  # its own words name a place in memory
        return BrokenImageError(
            "cannot be decoded: it is of none of the formats read here", "repair or remove it"
        )
    detail = " ".join(str(error).split()) or type(error).__name__
    return BrokenImageError(f"cannot be decoded: {detail}", "repair or remove it")


def request(source: ImageSource, seed: str | None) -> bytes:
    """Write one line that asks for one image; what a shard calls it may be of any length and is not sent."""
    return json.dumps([source[:3], seed]).encode() + b"\n"


def places(memory: str, form: Form) -> mmap.mmap:
    """Map the memory of this name (of this descriptor, but on Windows)."""
    if sys.platform == "win32":
        return mmap.mmap(-1, PLACES * form.bytes, tagname=memory)
    return mmap.mmap(int(memory), PLACES * form.bytes)


def serve(memory: str, form: Form) -> None:
    """Answer requests until there are no more, which is also when the process that asks has gone."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a decoder prints must not stand among the answers
    shared, start = places(memory, form), 0
    for line in sys.stdin.buffer:
        source, seed = json.loads(line)
        try:
            shared[start : start + form.bytes] = pixels(ImageSource(*source), form, seed)
            answers.write(GOOD)
        except BrokenImageError as error:
            problem = json.dumps(error.problem).encode()
            answers.write(BROKEN + LENGTH.pack(len(problem)) + problem)
        answers.flush()
        start = (start + form.bytes) % len(shared)


if __name__ == "__main__":
    mode, size, *more = json.loads(sys.argv[2])
    with contextlib.suppress(BrokenPipeError):
        serve(sys.argv[1], Form(mode, tuple(size), *more))
    os._exit(0)  # at once: torch takes half a second to clean up
