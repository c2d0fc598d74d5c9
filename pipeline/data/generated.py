"""Descriptions of stored samples, and random samples that could have been stored."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ltp_pipeline.data.checks import iter_chunks
from ltp_pipeline.data.dataset import ArraySamples, DatasetSplits, Samples
from ltp_pipeline.data.images.collection import ImageSamples
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, can_hold
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.schema_parts import DataInfo, InputRecipe, StoredSamples
from ltp_pipeline.system.arrays import Array

BYTE_RANGE = (0, 255)


def describe_inputs(data: DatasetSplits) -> dict[str, InputRecipe]:
    """Return the recipe of each input, with a description of its stored samples.

    Reads all samples for their range of values; that of images is the range of a byte.
    """
    recipes = {}
    for name, source in data.test.inputs.items():
        stored = _describe_samples(data.list_samples(name))
        recipes[name] = source.recipe.model_copy(update={"stored": stored})
    return recipes


def _describe_samples(samples: Sequence[Samples]) -> StoredSamples:
    """Describe the stored samples of an input."""
    first = samples[0]
    lengths = None
    if isinstance(first, ImageSamples):
        value_range: tuple[float, float] = BYTE_RANGE
    elif isinstance(first, MaskSamples):
        value_range = (0, 1)
    else:
        value_range = _find_range(samples)
    ragged = [part for part in samples if isinstance(part, RaggedSamples)]
    if ragged:
        all_lengths = np.concatenate([np.diff(part.offsets) for part in ragged])
        lengths = (int(all_lengths.min()), int(all_lengths.max()))
    return StoredSamples(
        type=first.dtype.name, shape=first.shape, lengths=lengths, range=value_range
    )


def _find_range(samples: Iterable[Samples]) -> tuple[float, float]:
    """Return the smallest and the largest stored value; 0 and 0 without values."""
    lowest: list[float] = []
    highest: list[float] = []
    for part in samples:
        inspected = part.read_some() if hasattr(part, "read_some") else part
        for _, chunk in iter_chunks(inspected):
            if chunk.size:
                lowest.append(chunk.min().item())
                highest.append(chunk.max().item())
    low, high = min(lowest, default=0), max(highest, default=0)
    if isinstance(low, bool):
        return int(low), int(high)
    return low, high


def describe_masks(data: DatasetSplits) -> list[str]:
    """Return a sentence for each input that is a computed mask."""
    sentences = []
    for name, source in data.val.inputs.items():
        if isinstance(source.samples, MaskSamples):
            marked = "padding" if source.samples.marks_padding else "values"
            sentences.append(f"the mask {name!r} is computed: it is 1 at {marked}")
    return sentences


def load_recipes(data: DataInfo, names: Iterable[str]) -> dict[str, InputRecipe]:
    """Return the recipes of inputs from a report.

    Raises:
        InputError: If the report does not describe an input, or describes samples that cannot be.
    """
    recipes = {}
    try:
        for name in names:
            recipe = data.inputs[name].preprocessing
            if recipe is None:
                raise ValueError("an input has no recipe")
            recipes[name] = recipe
        generate_samples(recipes, 1, seed=0)
    except (KeyError, TypeError, ValueError, OverflowError, MemoryError):
        raise InputError(
            "the report does not describe how samples are stored",
            "start the same run again; it writes a new report",
        ) from None
    return recipes


def generate_samples(
    recipes: Mapping[str, InputRecipe], count: int, seed: int
) -> dict[str, Samples]:
    """Generate random samples of all inputs, with the type, range and lengths of stored ones.

    Raises:
        ValueError: If a recipe does not describe samples that can be.
    """
    generated: dict[str, Samples] = {}
    for place, (name, recipe) in enumerate(recipes.items()):
        if recipe.mask_of is None:
            generated[name] = _generate_input(recipe, count, seed, place)
    for name, recipe in recipes.items():
        if recipe.mask_of is not None:
            sequences = generated.get(recipe.mask_of)
            if not isinstance(sequences, RaggedSamples):
                raise ValueError(f"the mask {name!r} is not one of sequences")
            generated[name] = MaskSamples(sequences, recipe.marks_padding)
    return generated


def _generate_input(
    recipe: InputRecipe, count: int, seed: int, place: int
) -> ArraySamples | RaggedSamples:
    """Generate samples of one input.

    Inputs at different places have different values. Sequences whose lengths have the same limits
    have the same lengths, because they may belong together.
    """
    stored = recipe.stored
    if stored is None or stored.shape is None or stored.range is None:
        raise ValueError("the recipe does not describe stored samples")
    rng = np.random.default_rng(seed + place)
    if stored.lengths is None:
        return ArraySamples(_draw_values(rng, stored, (count, *stored.shape)))
    width, *inner_shape = stored.shape
    pad = recipe.pad or 0
    if width is not None and stored.lengths[1] > width:
        raise ValueError("sequences cannot have these lengths")
    if not can_hold(np.dtype(stored.type), pad):
        raise ValueError("the stored type cannot hold the padding value")
    lengths = np.random.default_rng(seed).integers(*stored.lengths, count, endpoint=True)
    values = _draw_values(rng, stored, (int(lengths.sum()), *inner_shape))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return RaggedSamples(values, offsets, pad, width)


def _draw_values(
    rng: np.random.Generator, stored: StoredSamples, shape: Sequence[int | None]
) -> Array:
    """Draw random values of the stored type and range; raise ValueError for an unknown size."""
    sizes = [size for size in shape if size is not None]
    if len(sizes) < len(shape):
        raise ValueError("an axis of the samples has no size")
    dtype = np.dtype(stored.type)
    low, high = stored.range or (0, 0)
    if dtype.kind == "f":
        return rng.uniform(low, high, sizes).astype(dtype)
    wide = np.uint64 if dtype.kind == "u" else np.int64
    return rng.integers(int(low), int(high), sizes, wide, endpoint=True).astype(dtype)
