"""Images in files or shards: looked at before training, decoded when asked for, by threads or by processes."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import (
    X_COLUMN,
    Y_COLUMN,
    ArraySamples,
    DataColumn,
    LoadOptions,
    Part,
    Samples,
)
from ltp_pipeline.data.images.decode import (
    BrokenImageError,
    Form,
    ImageSource,
    Problem,
    header,
    pixels,
)
from ltp_pipeline.data.workers import Workers
from ltp_pipeline.errors import InputError
from ltp_pipeline.system import threads
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import make_printable, pluralize

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
DECODED_MODES = {"L": "grey, the luma of Rec. 601", "RGB": "RGB", "RGBA": "RGBA"}
THREADS = min(4, threads.count_usable_cores())
MAX_DECODED_BYTES = (
    256 * 2**20
)  # images that decode to less are decoded once, and so checked to the last pixel
HASHED_BYTES = (
    256 * 2**20
)  # of files whose every byte is hashed: a fresh checkout in CI has other times of change
LOOK_AT = (
    20_000  # headers; of more images every n-th is looked at, the others when they are decoded
)
MOST_BROKEN = 10  # never more than one image in so many


class ImageHeader(NamedTuple):
    """What an image file says of itself."""

    source: ImageSource
    size: tuple[int, int]  # height, width
    mode: str
    several: bool = False  # frames


class ImageList(NamedTuple):
    """The images of one split, with the class number of each where there are classes."""

    sources: list[ImageSource]
    labels: list[int] | None
    origin: str
    labels_origin: str


class BrokenSamples(InputError):
    """Samples that cannot be read, but may be passed over; `rows` says which."""

    def __init__(self, rows: Sequence[int], what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.rows = tuple(rows)


class Broken:
    """The images of a data set that cannot be used, up to a limit."""

    def __init__(self, count: int, limit: int) -> None:
        self._count = count
        self._limit = min(limit, count // MOST_BROKEN)
        self.found: dict[ImageSource, Problem] = {}
        self.met: list[str] = []  # those met while reading, in words

    def add(
        self, more: Iterable[tuple[ImageSource, Problem]], then: str = "it is left out"
    ) -> list[str]:
        """Remember these, and return a line for each that is new; too many are an error."""
        new = {source: problem for source, problem in more if source not in self.found}
        for source, problem in new.items():
            if not problem.passable:
                raise InputError(f"image {source.name} {problem.what}", problem.remedy)
        self.found |= new
        if len(self.found) > self._limit:
            first, (what, remedy, _) = next(iter(self.found.items()))
            most = self._count // MOST_BROKEN
            if not self._limit and len(self.found) == 1:
                raise InputError(f"image {first.name} {what}", remedy)
            raise InputError(
                f"{len(self.found)} of {self._count} images cannot be used, {self._limit} may be passed over; "
                f"the first: image {first.name} {what}",
                "repair or remove them"
                + ", or raise max_corrupt_images in [data]" * (len(self.found) <= most),
            )
        return [
            f"image {make_printable(source.name)} {what}; {then}"
            for source, (what, *_) in new.items()
        ]


class ImageSamples:
    """Images that are decoded when they are asked for."""

    def __init__(
        self,
        sources: Sequence[ImageSource],
        form: Form,
        broken: Broken,
        workers: Workers | None = None,
    ) -> None:
        self._sources = sources
        self.form = form
        self.broken = broken
        self._workers = workers
        self.shape: tuple[int, ...] = form.shape
        self.dtype: np.dtype[Any] = np.dtype(np.uint8)

    @property
    def steps(self) -> tuple[str, ...]:
        """How a file becomes a sample, in words."""
        (rows, columns), crop = self.form.size, self.form.crop
        decoded = f"decode the file to {DECODED_MODES[self.form.mode]}, 0 to 255"
        if crop is None:
            return (
                decoded,
                f"resize to {rows} × {columns} pixels, height × width, bilinear, whatever its shape",
            )
        covered = f"{round(rows / crop)} × {round(columns / crop)} pixels, height × width, bilinear"
        return (
            decoded,
            f"resize, as it is shaped, until it just covers {covered}",
            f"cut {rows} × {columns} out of the middle",
        )

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, indices: Array) -> Array:
        """Decode these images."""
        return self._read(indices, [None] * len(indices))

    def augmented(self, indices: Array, seed: int) -> Array:
        """Decode a random crop of each of these, flipped or not: a function of the seed and the image's number."""
        return self._read(indices, [f"{seed}/{row}" for row in indices])

    def decode(
        self, indices: Array, seeds: Sequence[str | None]
    ) -> tuple[Array, dict[int, Problem]]:
        """Decode what can be decoded; the rest by its place in `indices`."""
        out = np.empty((len(indices), *self.shape), np.uint8)
        sources = [self._sources[row] for row in indices]
        if self._workers is not None:
            return out, self._workers.decode(sources, seeds, out)
        problems = {}

        def fill(place: int) -> None:
            try:
                found = pixels(sources[place], self.form, seeds[place])
                out[place] = np.frombuffer(found, np.uint8).reshape(self.shape)
            except BrokenImageError as error:
                problems[place] = error.problem

        # The threads live for one batch, so that nothing is left to close and a forked process starts clean.
        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(fill, range(len(indices))):
                pass
        return out, problems

    def _read(self, indices: Array, seeds: Sequence[str | None]) -> Array:
        out, problems = self.decode(indices, seeds)
        if problems:
            places = sorted(problems)
            sources = [self._sources[indices[place]] for place in places]
            met = zip(sources, (problems[p] for p in places), strict=True)
            for line in self.broken.add(met, "another stands in for it"):
                self.broken.met.append(line)
                warnings.warn(line, stacklevel=2)
            what, remedy, _ = problems[places[0]]
            raise BrokenSamples(
                [int(indices[p]) for p in places], f"image {sources[0].name} {what}", remedy
            )
        return out


class KeptImages(ImageSamples):
    """Images that were decoded once; only random crops are decoded again."""

    def __init__(
        self,
        sources: Sequence[ImageSource],
        form: Form,
        broken: Broken,
        kept: Array,
        workers: Workers | None,
    ) -> None:
        super().__init__(sources, form, broken, workers)
        self._kept = kept

    def take(self, indices: Array) -> Array:
        """Copy these images."""
        return np.take(self._kept, indices, axis=0)


def open_images(
    listed: Mapping[str, ImageList], wanted: LoadOptions
) -> tuple[dict[str, Part], tuple[str, ...]]:
    """Look at headers, leave out what is broken, and decode now or later depending on how much there is."""
    everything = [source for part in listed.values() for source in part.sources]
    broken = Broken(len(everything), wanted.max_corrupt_images)
    headers, problems = read_headers(everything, wanted)
    notes = broken.add(problems)
    if not headers:
        raise InputError("none of the images can be used", "repair them, or give others")
    form = choose_image_form(headers, wanted)
    if form.crop is not None:
        said = f"{form.size[0]}×{form.size[1]} (height×width), the centre {form.crop:g} of the shorter side"
        notes.append(f"images are resized and cropped to {said}")
    elif any(h.size != form.size for h in headers):
        notes.append(f"images are resized to {form.size[0]}×{form.size[1]} (height×width)")
    animated = [h.source for h in headers if h.several]
    if animated:
        said = f"{pluralize(len(animated), 'image')} with several frames"
        notes.append(
            f"of {said} the first frame is read: {make_printable(animated[0].name)}"
            + ", …" * (len(animated) > 1)
        )
    workers = Workers(wanted.workers, form) if wanted.workers else None
    keep = len(everything) * form.bytes <= MAX_DECODED_BYTES
    parts: dict[str, Part] = {}
    for name, part in listed.items():
        good = [i for i, source in enumerate(part.sources) if source not in broken.found]
        samples: Samples = ImageSamples([part.sources[i] for i in good], form, broken, workers)
        if keep:
            samples, good, more = _kept(part, good, form, broken, workers)
            notes.extend(more)
        if not good:
            raise InputError(
                f"none of the {part.origin} can be used", "repair them, or give others"
            )
        parts[name] = {X_COLUMN: DataColumn(samples, part.origin)}
        if part.labels is not None:
            numbers = np.array([part.labels[i] for i in good], np.int64)
            parts[name] = {
                **parts[name],
                Y_COLUMN: DataColumn(ArraySamples(numbers), part.labels_origin),
            }
    return parts, tuple(notes)


def _kept(
    part: ImageList, good: list[int], form: Form, broken: Broken, workers: Workers | None
) -> tuple[KeptImages, list[int], list[str]]:
    """Decode once, and once only."""
    sources = [part.sources[i] for i in good]
    pictures, problems = ImageSamples(sources, form, broken, workers).decode(
        np.arange(len(good)), [None] * len(good)
    )
    notes = broken.add((sources[place], problems[place]) for place in sorted(problems))
    fine = [place for place in range(len(good)) if place not in problems]
    if problems:
        pictures = pictures[fine]
    samples = KeptImages([sources[place] for place in fine], form, broken, pictures, workers)
    return samples, [good[place] for place in fine], notes


def hash_files(files: Sequence[tuple[str, str]]) -> str:
    """Hash the names given and what the files hold; of much data, sizes and times of change instead."""
    statuses = [os.stat(file) for _, file in files]  # noqa: PTH116 - a million Path objects take a minute
    few = sum(status.st_size for status in statuses) <= HASHED_BYTES
    digest = hashlib.sha256()
    for (name, file), status in zip(files, statuses, strict=True):
        held = _hash(file) if few else f"{status.st_size}\0{status.st_mtime_ns}"
        digest.update(f"{name}\0{held}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _hash(file: str) -> str:
    try:
        with open(file, "rb") as content:  # noqa: PTH123 - as above
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}", "check the file, its rights and its disk"
        ) from None


def read_headers(
    sources: Sequence[ImageSource], wanted: LoadOptions
) -> tuple[list[ImageHeader], list[tuple[ImageSource, Problem]]]:
    """Read headers, so that what is no image, or too large a one, is found before anything is trained."""
    step = 1 if wanted.size is None else -(-len(sources) // LOOK_AT)
    problems: dict[ImageSource, Problem] = {}

    def look(source: ImageSource) -> ImageHeader | None:
        try:
            return ImageHeader(source, *header(source, wanted.max_pixels))
        except BrokenImageError as error:
            problems[source] = error.problem
            return None

    looked = sources[:: step or 1]
    headers: list[ImageHeader] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(looked), LOOK_AT):
            headers += [h for h in pool.map(look, looked[start : start + LOOK_AT]) if h is not None]
    return headers, [
        (source, problems[source]) for source in looked if source in problems
    ] if problems else []


def choose_image_form(headers: Sequence[ImageHeader], wanted: LoadOptions) -> Form:
    """Follow the settings and the model, and where they say nothing the images themselves."""
    if wanted.channels is not None and wanted.channels not in MODES:
        raise InputError(
            f"the model takes {wanted.channels} channels, images have 1, 3 or 4",
            "give the samples as a .npz file",
        )
    grey = all(h.mode in ("1", "L") for h in headers)
    mode = MODES[wanted.channels or (1 if grey else 3)]
    first = headers[0]
    if wanted.size is None:
        for h in headers:
            if h.size != first.size:
                raise InputError(
                    f"images differ in size: {first.source.name} is {first.size[0]}×{first.size[1]}, "
                    f"{h.source.name} is {h.size[0]}×{h.size[1]} (height×width), and the model takes any",
                    "set resize = [height, width] in [data]",
                )
    return Form(mode, wanted.size or first.size, wanted.crop, wanted.max_pixels)
