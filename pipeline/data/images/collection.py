"""Images in files or shards: headers are read before training, pixels when they are needed."""

import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import (
    NUM_THREADS,
    X_COLUMN,
    Y_COLUMN,
    ArraySamples,
    DataColumn,
    DatasetSplits,
    FetchedValues,
    LoadOptions,
    Part,
)
from ltp_pipeline.data.images.broken import CorruptImageLog, ImageReplacements
from ltp_pipeline.data.images.decode import (
    CorruptImageError,
    ImageHeader,
    ImageProblem,
    ImageSource,
    decode_image,
    read_header,
)
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.schema_parts import ImageForm
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.text import make_printable, pluralize

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Modes of Pillow by the number of channels.
MODES: dict[int, Literal["L", "RGB", "RGBA"]] = {1: "L", 3: "RGB", 4: "RGBA"}
GREY_MODES = ("1", "L")
MAX_DECODED_BYTES = 256 * 2**20  # smaller sets are decoded once, and so checked to the last pixel
# Smaller sets are hashed by content: a checkout has other file times.
MAX_HASHED_BYTES = 256 * 2**20
MAX_INSPECTED_HEADERS = 20_000  # of more images with a known size, every n-th header is read


class ImageList(NamedTuple):
    """The images of one split."""

    sources: Sequence[ImageSource]
    labels: Sequence[int] | None  # class numbers
    origin: str  # name of the images in messages
    labels_origin: str  # name of the labels in messages


class ImageSources(Sequence[ImageSource]):
    """Places of many images in a few arrays.

    Worker processes share the memory of arrays with the main process. They would copy the memory
    of a list, because reading a Python object changes its reference count.
    """

    def __init__(self, sources: Iterable[ImageSource]) -> None:
        sources = list(sources)
        self._files = np.array([os.fsencode(source.file) for source in sources])
        self._members = np.array(
            [source.member.encode(errors="surrogateescape") for source in sources]
        )
        self._ranges = np.array([(source.offset, source.length) for source in sources], np.int64)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: Any) -> Any:
        offset, length = self._ranges[index].tolist()
        file = os.fsdecode(self._files[index])
        member = bytes(self._members[index]).decode(errors="surrogateescape")
        return ImageSource(file, offset, length, member)


@dataclass(eq=False)
class ImageSamples:
    """Images of one part of the data, decoded when they are read or once and for all.

    Attributes:
        sources: Places of the images.
        form: Form into which images are decoded.
        max_pixels: Largest number of pixels of a stored image.
        log: Corrupt images of the data set.
        pixels: All images, if they are decoded already; random crops are decoded anyway.
        replacements: Images that replace corrupt ones; None replaces none.
    """

    sources: Sequence[ImageSource]
    form: ImageForm
    max_pixels: int
    log: CorruptImageLog
    pixels: Array | None = None
    replacements: ImageReplacements | None = None
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Height, width and channels."""
        return self.form.shape

    def __len__(self) -> int:
        return len(self.sources)

    def select_split(self, rows: Array, labels: Array | None) -> "ImageSamples":
        """Return these images for a split, whose other images of a class replace corrupt ones."""
        return replace(self, replacements=ImageReplacements(rows, labels))

    def needs_decoding(self, is_augmented: bool) -> bool:
        """Return whether reading images decodes files."""
        return is_augmented or self.pixels is None

    def take(self, indices: Array) -> Array:
        """Decode these images, without augmentation."""
        values, problems = self.fetch(indices, None, NUM_THREADS)
        self.report_problems(problems)
        return values

    def fetch(self, rows: Array, augment_seed: int | None, num_threads: int) -> FetchedValues:
        """Decode images, or those that replace them; also return the problems of corrupt ones.

        Args:
            rows: Rows of the images.
            augment_seed: Seed for a random crop and flip of each image; None for none.
            num_threads: Number of threads.
        """
        if self.pixels is not None and augment_seed is None:
            return FetchedValues(np.take(self.pixels, rows, axis=0))
        values = np.empty((len(rows), *self.form.shape), np.uint8)

        def decode_place(place: int) -> list[ImageProblem]:
            pixels, problems = self._decode_row(int(rows[place]), augment_seed)
            values[place] = np.frombuffer(pixels, np.uint8).reshape(self.form.shape)
            return problems

        # The threads end with the batch, so that the process can be forked between batches.
        with ThreadPoolExecutor(num_threads) as pool:
            run = map if num_threads == 1 else pool.map
            problems = list(chain.from_iterable(run(decode_place, range(len(rows)))))
        return FetchedValues(values, problems)

    def _decode_row(
        self, row: int, augment_seed: int | None
    ) -> tuple[bytes | memoryview, list[ImageProblem]]:
        """Decode an image, or the one that replaces it; also return problems of those before it."""
        problems: list[ImageProblem] = []
        candidates = [row] if self.replacements is None else self.replacements.iter_candidates(row)
        for candidate in candidates:
            source = self.sources[candidate]
            seed = None
            if augment_seed is not None:
                seed = f"{augment_seed}/{candidate}"
            try:
                return decode_image(source, self.form, self.max_pixels, seed), problems
            except CorruptImageError as error:
                problems.append(error.describe_problem(source))
                if not error.is_replaceable:
                    return bytes(self.form.num_bytes), problems
        if self.replacements is not None:
            problem = ImageProblem(
                self.sources[row],
                "cannot be replaced: every image of its class is corrupt",
                "repair the images, or remove the class",
                is_replaceable=False,
            )
            problems.append(problem)
        return bytes(self.form.num_bytes), problems

    def report_problems(self, problems: Sequence[ImageProblem]) -> None:
        """Warn of images that are replaced; raise InputError if there are too many."""
        for message in self.log.add(problems, "another image replaces it"):
            self.log.replaced.append(message)
            warnings.warn(message, stacklevel=2)


def open_images(
    lists: Mapping[str, ImageList], options: LoadOptions
) -> tuple[dict[str, Part], tuple[str, ...]]:
    """Return the columns of each part, and notes; leave out corrupt images, and decode small sets.

    Args:
        lists: Images by the names of the parts.
        options: Size and channels of decoded images, and limits.
    """
    all_sources: list[ImageSource] = []
    for images in lists.values():
        all_sources += images.sources
    log = CorruptImageLog(len(all_sources), options.settings.max_corrupt_images)
    headers, header_problems = read_headers(all_sources, options)
    notes = log.add(header_problems, "it is skipped")
    if not headers:
        raise InputError("none of the images can be used", "repair them, or use others")
    form = choose_image_form(headers, options)
    notes += _describe_changes(headers, form)
    is_small = len(all_sources) * form.num_bytes <= MAX_DECODED_BYTES
    parts: dict[str, Part] = {}
    for name, images in lists.items():
        pixels = None
        if is_small:
            readable = [source for source in images.sources if source not in log.images]
            samples = ImageSamples(readable, form, options.settings.max_pixels, log)
            pixels, problems = samples.fetch(np.arange(len(readable)), None, NUM_THREADS)
            notes += log.add(problems, "it is skipped")
            if problems:
                pixels = pixels[[source not in log.images for source in readable]]
        rows = [i for i, source in enumerate(images.sources) if source not in log.images]
        if not rows:
            raise InputError(
                f"none of the {images.origin} can be used", "repair them, or use others"
            )
        sources = ImageSources(images.sources[row] for row in rows)
        samples = ImageSamples(sources, form, options.settings.max_pixels, log, pixels)
        columns = {X_COLUMN: DataColumn(samples, images.origin)}
        if images.labels is not None:
            labels = np.array([images.labels[row] for row in rows], np.int64)
            columns[Y_COLUMN] = DataColumn(ArraySamples(labels), images.labels_origin)
        parts[name] = columns
    return parts, tuple(notes)


def _describe_changes(headers: Sequence[ImageHeader], form: ImageForm) -> list[str]:
    """Return notes about images whose size changes, and about animated images."""
    notes = []
    height, width = form.size
    size = f"{height}×{width} (height×width)"
    if form.crop is not None:
        notes.append(
            f"images are resized and cropped to {size}, "
            f"the center {form.crop:g} of the shorter side"
        )
    elif any(header.size != form.size for header in headers):
        notes.append(f"images are resized to {size}")
    animated = [header.source for header in headers if header.has_frames]
    if animated:
        ellipsis = ", …" if len(animated) > 1 else ""
        count = pluralize(len(animated), "image")
        notes.append(
            f"{count} with several frames: the first frame is read:"
            f" {make_printable(animated[0].name)}{ellipsis}"
        )
    return notes


def read_headers(
    sources: Sequence[ImageSource], options: LoadOptions
) -> tuple[list[ImageHeader], list[ImageProblem]]:
    """Return headers, and problems of images that cannot be used.

    If the size of decoded images is set, only some headers of a large set are read.
    """
    step = 1
    if options.size is not None:
        step = max(1, math.ceil(len(sources) / MAX_INSPECTED_HEADERS))

    def read_one(source: ImageSource) -> ImageHeader | ImageProblem:
        try:
            return read_header(source, options.settings.max_pixels)
        except CorruptImageError as error:
            return error.describe_problem(source)

    inspected = sources[::step]
    results: list[ImageHeader | ImageProblem] = []
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        # In parts: a pool keeps an object for each call of a map.
        for start in range(0, len(inspected), MAX_INSPECTED_HEADERS):
            results += pool.map(read_one, inspected[start : start + MAX_INSPECTED_HEADERS])
    headers = [result for result in results if isinstance(result, ImageHeader)]
    problems = [result for result in results if isinstance(result, ImageProblem)]
    return headers, problems


def choose_image_form(headers: Sequence[ImageHeader], options: LoadOptions) -> ImageForm:
    """Choose mode and size of decoded images by settings and model, else by the images."""
    if options.channels is not None and options.channels not in MODES:
        raise InputError(
            f"the model takes {options.channels} channels, but images have 1, 3 or 4",
            "pass the samples as a .npz file",
        )
    channels = options.channels
    if channels is None:
        channels = 3
        if all(header.mode in GREY_MODES for header in headers):
            channels = 1
    first = headers[0]
    other = next((header for header in headers if header.size != first.size), None)
    if options.size is None and other is not None:
        sizes = [f"{h.source.name} is {h.size[0]}×{h.size[1]}" for h in (first, other)]
        raise InputError(
            f"images differ in size (height×width), and the model takes any: {', '.join(sizes)}",
            "set resize = [height, width] in [data]",
        )
    return ImageForm(
        mode=MODES[channels], size=options.size or first.size, crop=options.settings.crop
    )


def hash_files(files: Sequence[tuple[str, str]]) -> str:
    """Return a hash of pairs of a name and a path, and of the contents of the files.

    Of large sets, sizes and file times are hashed instead of contents.
    """
    statuses = [os.stat(path) for _, path in files]  # noqa: PTH116 - a million Path objects take a minute
    total_bytes = sum(status.st_size for status in statuses)
    digest = hashlib.sha256()
    for (name, path), status in zip(files, statuses, strict=True):
        content = f"{status.st_size}\0{status.st_mtime_ns}"
        if total_bytes <= MAX_HASHED_BYTES:
            content = sha256_file(Path(path))
        digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def list_corrupt_images(data: DatasetSplits) -> tuple[str, ...]:
    """Return a message for each image that was found to be corrupt since the data were opened."""
    messages: list[str] = []
    for name in data.train.inputs:
        for samples in data.list_samples(name):
            if isinstance(samples, ImageSamples):
                messages += samples.log.replaced
    return tuple(dict.fromkeys(messages))
