"""Broken images met in training: another of the same class, of the same split, stands in for each."""

import numpy as np

from ltp_pipeline.data.dataset import DatasetSplits, Samples, Split
from ltp_pipeline.data.images.collection import BrokenSamples, ImageSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array


def resilient(samples: Samples, rows: Array, labels: Array | None) -> Samples:
    """Let broken images of these rows be passed over; samples that are in memory cannot break."""
    return StandIns(samples, rows, labels) if isinstance(samples, ImageSamples) else samples


def list_corrupt_images(data: DatasetSplits) -> tuple[str, ...]:
    """Return a line for each image that was found broken since the data were opened."""
    splits: tuple[Split, ...] = (data.train, data.val, data.test)
    sources = [source.samples for split in splits for source in split.inputs.values()]
    lines = [
        line
        for samples in sources
        if isinstance(samples, StandIns)
        for line in samples.images.broken.met
    ]
    return tuple(dict.fromkeys(lines))


class StandIns:
    """The images of one split; which one stands in is a function of the data alone, not of when it was found broken."""

    def __init__(self, samples: ImageSamples, rows: Array, labels: Array | None) -> None:
        self.images = samples
        self._rows = np.sort(rows)
        self._labels = None if labels is None else labels[self._rows]
        self._broken: set[int] = set()
        self.shape = samples.shape
        self.dtype = samples.dtype

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: Array) -> Array:
        """Decode these images, or those that stand in for them."""
        return self._read(indices, None)

    def augmented(self, indices: Array, seed: int) -> Array:
        """Decode a random crop of each."""
        return self._read(indices, seed)

    def _read(self, indices: Array, seed: int | None) -> Array:
        while True:
            rows = (
                np.array([self._stand_in(int(row)) for row in indices], np.int64)
                if self._broken
                else indices
            )
            try:
                return self.images.take(rows) if seed is None else self.images.augmented(rows, seed)
            except (
                BrokenSamples
            ) as error:  # each time there is one more, and no more than the limit
                self._broken.update(error.rows)

    def _stand_in(self, row: int) -> int:
        first, found = row, row
        while found in self._broken:
            found = self._next(found)
            if found == first:
                raise InputError(
                    "every image of a class is broken", "repair the images, or remove the class"
                )
        return found

    def _next(self, row: int) -> int:
        """The next of the same class, the first after the last."""
        alike = self._rows
        if self._labels is not None:
            alike = self._rows[self._labels == self._labels[np.searchsorted(self._rows, row)]]
        return int(alike[np.searchsorted(alike, row, "right") % len(alike)])
