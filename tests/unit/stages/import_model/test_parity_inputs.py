"""Shapes and values of the inputs on which torch and onnxruntime are compared."""

from collections.abc import Mapping
from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.stages.import_model.parity_inputs import iter_likely_inputs


def first_shapes(
    *inputs: TensorInfo, samples: Mapping[str, np.ndarray] | None = None
) -> dict[str, tuple[int, ...]]:
    feeds = next(
        f
        for f in iter_likely_inputs(inputs, samples)
        if f is not None and f.description != "samples"
    )
    return {name: array.shape for name, array in feeds.arrays.items()}


def info(name: str, *shape: int | str | None, of: str = "INT64") -> TensorInfo:
    return TensorInfo(name, of, shape)


def test_inputs_with_the_same_symbols_have_the_same_sizes() -> None:
    assert first_shapes(info("ids", "batch", "steps"), info("mask", "batch", "steps")) == {
        "ids": (2, 64),
        "mask": (2, 64),
    }


def test_symbol_has_one_size_in_every_position() -> None:
    shapes = first_shapes(info("x", "steps", "batch", 5, of="FLOAT"), info("lengths", "batch"))
    assert shapes["lengths"][0] == shapes["x"][1]


def test_samples_of_one_input_set_sizes_of_another() -> None:
    samples = {"ids": np.zeros((3, 17), np.int64)}
    shapes = first_shapes(
        info("mask", "batch", "steps"), info("ids", "batch", "steps"), samples=samples
    )
    assert shapes == {"mask": (2, 17), "ids": (2, 17)}


def test_fixed_sizes_are_kept() -> None:
    assert first_shapes(info("ids", 4, 12), info("more", None, 3)) == {
        "ids": (4, 12),
        "more": (2, 3),
    }


def test_random_tokens_are_zero_or_one() -> None:
    feeds = next(iter(iter_likely_inputs([info("ids", "batch", "steps")], None)))
    assert feeds is not None
    assert set(np.unique(feeds.arrays["ids"])) == {0, 1}


_DIM = st.sampled_from(["a", "b", "c", 1, 3, 7])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(_DIM, min_size=1, max_size=4), min_size=1, max_size=4))
def test_shapes_agree_with_declared_dimensions(shapes: list[list[int | str]]) -> None:
    inputs = [info(f"x{i}", *shape) for i, shape in enumerate(shapes)]
    for feeds in islice(filter(None, iter_likely_inputs(inputs, None)), 3):
        sizes: dict[str, int] = {}
        for given_input in inputs:
            for dim, size in zip(
                given_input.shape or (), feeds.arrays[given_input.name].shape, strict=True
            ):
                assert size == (dim if isinstance(dim, int) else sizes.setdefault(str(dim), size))


def test_input_without_axes_has_one_value() -> None:
    for of in ("FLOAT", "INT64"):
        feeds = next(f for f in iter_likely_inputs([info("scale", of=of)], None) if f is not None)
        assert isinstance(feeds.arrays["scale"], np.ndarray)
        assert feeds.arrays["scale"].shape == ()
