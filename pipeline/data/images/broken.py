"""Corrupt images: how many may be left out or replaced, and which images replace them."""

from collections.abc import Iterable, Iterator

import numpy as np

from ltp_pipeline.data.images.decode import ImageProblem, ImageSource
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import make_printable

IMAGES_PER_CORRUPT = 10  # at most one image in this number may be corrupt


class CorruptImageLog:
    """The images of a data set that cannot be used, up to a limit."""

    def __init__(self, num_images: int, max_corrupt_images: int) -> None:
        self._num_images = num_images
        self._max_allowed = num_images // IMAGES_PER_CORRUPT
        self._limit = min(max_corrupt_images, self._max_allowed)
        self.images: dict[ImageSource, ImageProblem] = {}
        self.replaced: list[str] = []  # one line for each image that is replaced while reading

    def add(self, problems: Iterable[ImageProblem], consequence: str) -> list[str]:
        """Record corrupt images, and return a message for each image that is not recorded yet.

        Args:
            problems: Problems of the images.
            consequence: What happens to the images, for the messages.

        Raises:
            InputError: If there are too many, or an image cannot be read for another reason.
        """
        messages = []
        for problem in problems:
            if not problem.is_replaceable:
                self._check_limit()
                raise _make_error(problem)
            if problem.source not in self.images:
                self.images[problem.source] = problem
                name = make_printable(problem.source.name)
                messages.append(f"image {name} {problem.message}; {consequence}")
        self._check_limit()
        return messages

    def _check_limit(self) -> None:
        """Raise InputError if more images are corrupt than allowed."""
        if len(self.images) <= self._limit:
            return
        first = next(iter(self.images.values()))
        if self._limit == 0 and len(self.images) == 1:
            raise _make_error(first)
        hint = "repair or remove them"
        if len(self.images) <= self._max_allowed:
            hint += ", or raise max_corrupt_images in [data]"
        raise InputError(
            f"{len(self.images)} of {self._num_images} images cannot be used, but at most"
            f" {self._limit} may be corrupt; the first: image {first.source.name} {first.message}",
            hint,
        )


def _make_error(problem: ImageProblem) -> InputError:
    """Return the error for an image that must not be left out or replaced."""
    return InputError(f"image {problem.source.name} {problem.message}", problem.hint)


class ImageReplacements:
    """Order in which images replace a corrupt one: the next ones of its class in its split.

    It is a function of the data, so every process finds the same image.
    """

    def __init__(self, rows: Array, labels: Array | None) -> None:
        self._rows = np.sort(rows)
        self._labels = None if labels is None else labels[self._rows]

    def iter_candidates(self, row: int) -> Iterator[int]:
        """Iterate over a row and all others that may replace it; the first follows the last."""
        yield row
        candidates = self._rows
        if self._labels is not None:
            label = self._labels[np.searchsorted(self._rows, row)]
            candidates = self._rows[self._labels == label]
        start = np.searchsorted(candidates, row)
        yield from np.roll(candidates, -start)[1:].tolist()
