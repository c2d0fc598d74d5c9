"""How samples are stored and what turns them into the model's input, in a form that a report can keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ltp_pipeline.data.checks import chunks
from ltp_pipeline.data.decoding import Form
from ltp_pipeline.data.images import MODES, ImageSamples
from ltp_pipeline.data.preparation import Preparation
from ltp_pipeline.data.samples import Array, Data, Samples
from ltp_pipeline.data.stand_ins import StandIns
from ltp_pipeline.errors import InputError

FLAGS = ("add_channel", "channels_to_front", "channels_to_back", "flatten")
BYTES = (0, 255)
NUMBERS = "biuf"  # the kinds of numpy types that samples have


@dataclass(frozen=True)
class Recipe:
    """All that is needed to prepare other samples alike; the values found in these lie between `low` and `high`."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    low: float
    high: float
    form: Form | None  # of image files: what they are decoded to
    prepare: Preparation

    def generate(self, count: int, seed: int) -> Array:
        """Samples as they could have been stored: random values of the type and range of the true ones."""
        rng, shape = np.random.default_rng(seed), (count, *self.shape)
        if self.dtype.kind == "f":
            return rng.uniform(self.low, self.high, shape).astype(self.dtype)
        wide = np.uint64 if self.dtype.kind == "u" else np.int64
        return rng.integers(int(self.low), int(self.high), shape, wide, endpoint=True).astype(self.dtype)

    def plain(self) -> dict[str, Any]:
        """As a report keeps it."""
        steps, form = self.prepare, self.form
        return {
            "stored": {"type": self.dtype.name, "shape": list(self.shape), "range": [self.low, self.high]},
            "image": None if form is None else {"mode": form.mode, "size": list(form.size), "crop": form.crop},
            "type": steps.dtype.name,
            **{name: getattr(steps, name) for name in FLAGS},
            "resize": None if steps.resize is None else list(steps.resize),
            "scale": steps.scale,
            "mean": None if steps.mean is None else numbers(steps.mean),
            "std": None if steps.std is None else numbers(steps.std),
        }


def numbers(values: Array) -> list[float]:
    """The fewest digits that give these values again in their own type."""
    return [float(str(value)) for value in values.ravel()]


def of_data(data: Data) -> Recipe:
    """Look through the samples for their range; decoded images have that of bytes."""
    held = {id(split.input.samples): split.input.samples for split in (data.train, data.val, data.test)}
    first = next(iter(held.values()))
    images = first.images if isinstance(first, StandIns) else first
    form = images.form if isinstance(images, ImageSamples) else None
    low, high = BYTES if form is not None else _range(list(held.values()))
    return Recipe(np.dtype(first.dtype.name), first.shape, low, high, form, cast(Preparation, data.test.input.prepare))


def of_report(data: Mapping[str, Any]) -> Recipe:
    """What `plain` made of it; a report that does not hold one, or one that cannot be, is refused."""
    try:
        kept, stored = data["recipe"], data["recipe"]["stored"]
        image, dtype, shape = kept["image"], np.dtype(kept["type"]), tuple(stored["shape"])
        axes = len(shape) + kept["add_channel"]
        prepare = Preparation(
            dtype,
            resize=_pair(kept["resize"]),
            scale=kept["scale"],
            mean=_per_channel(kept["mean"], dtype, axes),
            std=_per_channel(kept["std"], dtype, axes),
            **{name: bool(kept[name]) for name in FLAGS},
        )
        form = None if image is None else Form(image["mode"], _pair(image["size"]) or (0, 0), image["crop"])
        low, high = stored["range"]
        recipe = Recipe(np.dtype(stored["type"]), shape, low, high, form, prepare)
        if {recipe.dtype.kind, dtype.kind} - set(NUMBERS) or (form and form.mode not in MODES.values()):
            raise ValueError("it names no type of numbers")
        recipe.generate(1, seed=0)  # fails for what is no range
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(
            "the report does not say how samples are stored", "start the same run again: it writes a new report"
        ) from None
    return recipe


def _pair(values: Sequence[int] | None) -> tuple[int, int] | None:
    if values is None:
        return None
    first, second = values
    return first, second


def _per_channel(values: Sequence[float] | None, dtype: np.dtype[Any], axes: int) -> Array | None:
    return None if values is None else np.asarray(values, dtype).reshape(-1, *[1] * (axes - 1))


def _range(samples: list[Samples]) -> tuple[float, float]:
    parts = [(chunk.min().item(), chunk.max().item()) for part in samples for _, chunk in chunks(part) if chunk.size]
    low, high = min((low for low, _ in parts), default=0), max((high for _, high in parts), default=0)
    return (int(low), int(high)) if isinstance(low, bool) else (low, high)
