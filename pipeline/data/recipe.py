"""How samples are stored and what turns them into the model's input, in a form that a report can keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ltp_pipeline.data.checks import NUMBER_KINDS, iter_chunks
from ltp_pipeline.data.dataset import ArraySamples, DatasetSplits, Samples, Split
from ltp_pipeline.data.images.broken import StandIns
from ltp_pipeline.data.images.collection import MODES, ImageSamples
from ltp_pipeline.data.images.decode import Form
from ltp_pipeline.data.preprocessing import Preparation
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, can_hold
from ltp_pipeline.errors import InputError
from ltp_pipeline.system.arrays import Array

FLAGS = ("add_channel", "channels_to_front", "channels_to_back", "flatten")
BYTES = (0, 255)


@dataclass(frozen=True)
class Recipe:
    """All that is needed to prepare other samples alike; the values found in these lie between `low` and `high`."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    low: float
    high: float
    form: Form | None  # of image files: what they are decoded to
    prepare: Preparation
    lengths: tuple[int, int] | None = None  # shortest and longest, of sequences of uneven length
    pad: float | None = None  # what those are filled up with
    mask_of: str | None = None  # the input whose values it marks
    marks_padding: bool = False  # of a mask: it marks where there is no value

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of one sample as the model takes it; None for an axis that is longer where sequences are."""
        return self.prepare.shape_of(self.shape)

    def generate(self, count: int, seed: int, place: int = 0) -> ArraySamples | RaggedSamples:
        """Samples as they could have been stored: random values of the type, range and lengths of the true ones.

        Inputs at different places get different values. Those whose lengths have the same limits get the same lengths:
        they may belong together.
        """
        rng = np.random.default_rng(seed + place)
        if self.lengths is None:
            return ArraySamples(self._values(rng, (count, *map(_fixed, self.shape))))
        lengths = np.random.default_rng(seed).integers(*self.lengths, count, endpoint=True)
        values = self._values(rng, (int(lengths.sum()), *map(_fixed, self.shape[1:])))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return RaggedSamples(values, offsets, self.pad or 0, self.shape[0])

    def _values(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        if self.dtype.kind == "f":
            return rng.uniform(self.low, self.high, shape).astype(self.dtype)
        wide = np.uint64 if self.dtype.kind == "u" else np.int64
        return rng.integers(int(self.low), int(self.high), shape, wide, endpoint=True).astype(
            self.dtype
        )

    def plain(self) -> dict[str, Any]:
        """As a report keeps it."""
        steps, form = self.prepare, self.form
        return {
            "stored": {
                "type": self.dtype.name,
                "shape": list(self.shape),
                "range": [self.low, self.high],
                "lengths": None if self.lengths is None else list(self.lengths),
            },
            "image": None
            if form is None
            else {"mode": form.mode, "size": list(form.size), "crop": form.crop},
            "type": steps.dtype.name,
            **{name: getattr(steps, name) for name in FLAGS},
            "resize": None if steps.resize is None else list(steps.resize),
            "scale": steps.scale,
            "mean": None if steps.mean is None else numbers(steps.mean),
            "std": None if steps.std is None else numbers(steps.std),
            "pad": self.pad,
            "mask_of": self.mask_of,
            "marks_padding": self.marks_padding,
        }


def generate_samples(recipes: Mapping[str, Recipe], count: int, seed: int) -> dict[str, Samples]:
    """Samples of all inputs as they could have been stored, each mask that of its sequences."""
    found: dict[str, Samples] = {
        name: recipe.generate(count, seed, place)
        for place, (name, recipe) in enumerate(recipes.items())
        if recipe.mask_of is None
    }
    for name, recipe in recipes.items():
        if recipe.mask_of is not None:
            of = found.get(recipe.mask_of)
            if not isinstance(of, RaggedSamples):
                raise ValueError("a mask is of no sequences")
            found[name] = MaskSamples(of, recipe.marks_padding)
    return found


def numbers(values: Array) -> list[float]:
    """The fewest digits that give these values again in their own type."""
    return [float(str(value)) for value in values.ravel()]


def describe_inputs(data: DatasetSplits) -> dict[str, Recipe]:
    """Of each input; looks through the samples for their range, decoded images have that of bytes."""
    return {name: _of_input(data, name) for name in data.test.inputs}


def describe_masks(split: Split) -> Iterator[str]:
    """A line for each input that is a mask which is not stored: what it marks."""
    for name, (samples, _, _) in split.inputs.items():
        if isinstance(samples, MaskSamples):
            yield f"the mask {name!r} is made: 1 where there are {'no ' if samples.marks_padding else ''}values"


def _of_input(data: DatasetSplits, name: str) -> Recipe:
    held = {id(split.inputs[name].samples): split.inputs[name].samples for split in data.splits}
    first, prepare = next(iter(held.values())), cast(Preparation, data.test.inputs[name].prepare)
    images = first.images if isinstance(first, StandIns) else first
    form = images.form if isinstance(images, ImageSamples) else None
    if isinstance(first, MaskSamples):
        of = next(n for n, source in data.train.inputs.items() if source.samples is first.sequences)
        return Recipe(
            np.dtype(first.dtype.name),
            first.shape,
            0,
            1,
            None,
            prepare,
            mask_of=of,
            marks_padding=first.marks_padding,
        )
    looked_at = [part.first() if hasattr(part, "first") else part for part in held.values()]
    low, high = BYTES if form is not None else _range(looked_at)
    lengths, pad = None, None
    if isinstance(first, RaggedSamples):
        each = np.concatenate(
            [np.diff(part.offsets) for part in held.values() if isinstance(part, RaggedSamples)]
        )
        lengths, pad = (int(each.min()), int(each.max())), first.pad
    return Recipe(np.dtype(first.dtype.name), first.shape, low, high, form, prepare, lengths, pad)


def load_recipes(data: Mapping[str, Any], inputs: Iterable[str]) -> dict[str, Recipe]:
    """What `plain` made of them; a report that does not hold that of an input, or one that cannot be, is refused."""
    try:
        found = {name: _of_plain(data["inputs"][name]["preprocessing"]) for name in inputs}
        generate_samples(found, 1, seed=0)  # fails for what is no range
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        found = {}
    if not found:
        raise InputError(
            "the report does not say how samples are stored",
            "start the same run again: it writes a new report",
        )
    return found


def _of_plain(kept: Mapping[str, Any]) -> Recipe:
    stored, image, dtype = kept["stored"], kept["image"], np.dtype(kept["type"])
    shape = tuple(stored["shape"])
    axes = len(shape) + kept["add_channel"]
    prepare = Preparation(
        dtype,
        resize=_pair(kept["resize"]),
        scale=kept["scale"],
        mean=_per_channel(kept["mean"], dtype, axes),
        std=_per_channel(kept["std"], dtype, axes),
        **{name: bool(kept[name]) for name in FLAGS},
    )
    form = (
        None
        if image is None
        else Form(image["mode"], _pair(image["size"]) or (0, 0), image["crop"])
    )
    low, high = stored["range"]
    more = (
        _pair(stored.get("lengths")),
        kept.get("pad"),
        kept.get("mask_of"),
        bool(kept.get("marks_padding")),
    )
    recipe = Recipe(np.dtype(stored["type"]), shape, low, high, form, prepare, *more)
    if {recipe.dtype.kind, dtype.kind} - set(NUMBER_KINDS) or (
        form and form.mode not in MODES.values()
    ):
        raise ValueError("it names no type of numbers")
    if recipe.lengths is not None:
        _check_lengths(recipe)
    return recipe


def _check_lengths(recipe: Recipe) -> None:
    """Refuse lengths that none can have or the model cannot take, and a value to pad with that the type cannot hold."""
    shortest, longest = recipe.lengths or (0, 0)
    if not 0 <= shortest <= longest <= (longest if recipe.shape[0] is None else recipe.shape[0]):
        raise ValueError("it has no possible lengths")
    if not can_hold(recipe.dtype, recipe.pad or 0):
        raise ValueError("it is padded with what its type cannot hold")


def _fixed(size: int | None) -> int:
    if size is None or size < 0:
        raise ValueError("its samples have no size")
    return size


def _pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    if values is None:
        return None
    first, second = values
    return first, second


def _per_channel(values: Sequence[float] | None, dtype: np.dtype[Any], axes: int) -> Array | None:
    return None if values is None else np.asarray(values, dtype).reshape(-1, *[1] * (axes - 1))


def _range(samples: list[Samples]) -> tuple[float, float]:
    parts = [
        (chunk.min().item(), chunk.max().item())
        for part in samples
        for _, chunk in iter_chunks(part)
        if chunk.size
    ]
    low, high = (
        min((low for low, _ in parts), default=0),
        max((high for _, high in parts), default=0),
    )
    return (int(low), int(high)) if isinstance(low, bool) else (low, high)
