"""Lengths that belong together, sample by sample: of inputs that share a dimension, and of labels, one a position."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ltp_pipeline.data.dataset import Samples
from ltp_pipeline.data.opening import InputSource, OpenPart
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.text import pluralize


class Sized(NamedTuple):
    """How long each sample of an input is along one of its axes."""

    name: str
    origin: str
    sizes: Array
    uneven: bool

    def agrees(self, labels: Array) -> Array:
        """In which samples there can be so many labels; of an array it is not known where padding begins."""
        agrees: Array = labels == self.sizes if self.uneven else labels <= self.sizes
        return agrees


def check_inputs(part: OpenPart, inputs: Sequence[TensorInfo]) -> None:
    """Refuse a sample in which inputs that share a dimension of the model differ along it."""
    known: dict[str, Sized] = {}
    for info in inputs:
        for symbol, found in _named(part.sources[info.name], info):
            first = known.setdefault(symbol, found)
            wrong = np.flatnonzero(first.sizes != found.sizes)
            if len(wrong):
                row = wrong[0]
                raise InputError(
                    f"sample {row} has {pluralize(first.sizes[row], 'value')} in {first.origin} and {found.sizes[row]} "
                    f"in {found.origin}; the model's inputs {first.name!r} and {found.name!r} share the dimension "
                    f"{symbol!r}",
                    "give both the same length in every sample",
                )


def check_labels(
    part: OpenPart, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]
) -> None:
    """Refuse a sample with more or fewer labels than the input has positions that the output is for.

    That input shares a dimension with an output; where names tell nothing, it is one with as many values as there are
    labels in most samples.
    """
    target = part.target
    if target is None or not isinstance(target.samples, RaggedSamples):
        return
    labels, symbols = _lengths(target.samples), {d for o in outputs for d in (o.shape or ())[1:]}
    sized = {info.name: dict(_named(part.sources[info.name], info)) for info in inputs}
    possible = [
        found for named in sized.values() for symbol, found in named.items() if symbol in symbols
    ]
    if not possible:
        rows = [_uneven(name, source) for name, source in part.sources.items()]
        possible = [
            found for found in rows if found is not None and found.agrees(labels).mean() > 1 / 2
        ]
    if not possible:
        return
    best = max(possible, key=lambda found: int(found.agrees(labels).sum()))
    wrong = np.flatnonzero(~best.agrees(labels))
    if len(wrong):
        row = wrong[0]
        raise InputError(
            f"sample {row} has {pluralize(labels[row], 'label')} in {target.origin} and "
            f"{pluralize(best.sizes[row], 'value')} in {best.origin}",
            "give one label for each value; ignore_index under [task] marks those that do not count",
        )


def _named(source: InputSource, info: TensorInfo) -> list[tuple[str, Sized]]:
    """The sizes of the dimensions that the model has a name for, but for that of the batch."""
    samples, dims = source.column.samples, info.shape or ()
    shape = source.prepare.shape_of(samples.shape)
    return [
        (symbol, _sized(info.name, source, size))
        for symbol, size in zip(dims[1:], shape, strict=False)
        if isinstance(symbol, str) and symbol != dims[0]
    ]


def _uneven(name: str, source: InputSource) -> Sized | None:
    return _sized(name, source, None) if isinstance(source.column.samples, RaggedSamples) else None


def _sized(name: str, source: InputSource, size: int | None) -> Sized:
    samples = source.column.samples
    sizes = _lengths(samples) if size is None else np.full(len(samples), size)
    return Sized(name, source.column.origin, sizes, size is None)


def _lengths(samples: Samples) -> Array:
    of = samples.sequences if isinstance(samples, MaskSamples) else samples
    assert isinstance(of, RaggedSamples)  # noqa: S101 - no others have an axis of no fixed size
    return np.diff(of.offsets)
