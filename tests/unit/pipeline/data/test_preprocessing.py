"""Stored samples become the model's input, step by step."""

from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.preprocessing import (
    compute_input_shape,
    describe_steps,
    format_shape,
    prepare_samples,
    resize_planes,
)
from ltp_pipeline.results.schema_parts import ImageForm, InputRecipe, StoredSamples


def stored(*shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (10, *shape)).astype(dtype)


def test_prepare_samples_scales_before_mean_and_std() -> None:
    x = stored(3, 4, 5)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    recipe = InputRecipe(scale=1 / 255, mean=mean, std=std)
    centered = x.astype(np.float32) * np.float32(1 / 255) - np.float32(mean).reshape(3, 1, 1)
    expected = centered / np.float32(std).reshape(3, 1, 1)
    np.testing.assert_array_equal(prepare_samples(recipe, x), expected)


def test_prepare_samples_channels_to_front_precedes_the_mean() -> None:
    x = stored(4, 5, 3)
    prepared = prepare_samples(InputRecipe(channels_to_front=True, mean=(1, 2, 3)), x)
    expected = x.transpose(0, 3, 1, 2) - np.float32([1, 2, 3]).reshape(3, 1, 1)
    np.testing.assert_array_equal(prepared, expected)
    assert prepared.flags.c_contiguous


def test_prepare_samples_channels_to_back_follow_the_mean() -> None:
    x = stored(3, 8, 8)
    prepared = prepare_samples(InputRecipe(channels_to_back=True, mean=(1, 2, 3)), x)
    np.testing.assert_array_equal(prepared, x.transpose(0, 2, 3, 1) - np.float32([1, 2, 3]))
    assert prepared.flags.c_contiguous


def test_prepare_samples_adds_a_channel_and_flattens() -> None:
    x = stored(4, 5)
    np.testing.assert_array_equal(prepare_samples(InputRecipe(add_channel=True), x), x[:, None])
    recipe = InputRecipe(add_channel=True, flatten=True)
    np.testing.assert_array_equal(prepare_samples(recipe, x), x.reshape(10, 20))


def test_prepare_samples_rows_take_a_mean_per_feature() -> None:
    x = stored(3)
    prepared = prepare_samples(InputRecipe(mean=(1, 2, 3)), x)
    np.testing.assert_array_equal(prepared, x - np.float32([1, 2, 3]))


def test_prepare_samples_large_batches_are_prepared_in_parts() -> None:
    x = stored(3, 200, 200)
    prepared = prepare_samples(InputRecipe(scale=0.5, std=(2, 4, 8)), x.copy())
    expected = x.astype(np.float32) * np.float32(0.5) / np.float32([2, 4, 8]).reshape(3, 1, 1)
    np.testing.assert_array_equal(prepared, expected)


def test_prepare_samples_integer_inputs_round_after_a_resize() -> None:
    x = np.float32([[[[0.4, 0.4], [0.8, 0.8]]]])
    assert prepare_samples(InputRecipe(type="int64", resize=(1, 1)), x).tolist() == [[[[1]]]]


def test_resize_planes_equals_the_resize_of_pillow() -> None:
    x = stored(3, 8, 8)
    expected = np.asarray(Image.fromarray(x[0, 1]).resize((6, 5), Image.Resampling.BILINEAR))
    resized = resize_planes(x, (5, 6))
    assert resized.dtype == np.uint8
    np.testing.assert_array_equal(resized[0, 1], expected)


def test_resize_planes_of_floats_does_not_round() -> None:
    x = np.array([[[[0.25, 0.5], [0.5, 0.75]]]])
    np.testing.assert_allclose(resize_planes(x, (1, 1)), [[[[0.5]]]])


@pytest.mark.parametrize(
    ("stored_shape", "steps", "shape"),
    [
        ((4, 5, 3), {"channels_to_front": True}, (3, 4, 5)),
        ((None,), {}, (None,)),
        ((None, 8), {}, (None, 8)),
        ((None, 8), {"add_channel": True}, (1, None, 8)),
        ((4, 5), {"add_channel": True, "flatten": True}, (20,)),
        ((), {}, ()),
    ],
)
def test_compute_input_shape_sequences_have_no_size(
    stored_shape: tuple[int | None, ...], steps: dict[str, bool], shape: tuple[int | None, ...]
) -> None:
    assert compute_input_shape(InputRecipe(**steps), stored_shape) == shape


def test_describe_steps_lists_each_step_in_order() -> None:
    recipe = InputRecipe(channels_to_front=True, resize=(2, 2), flatten=True)
    channels, resize, flatten = describe_steps(recipe)
    assert "channels" in channels
    assert "2 × 2" in resize
    assert "flatten" in flatten
    assert describe_steps(InputRecipe(scale=0.5, mean=(1.0,))) == ()


def test_describe_steps_of_image_files_begin_with_decoding() -> None:
    decode, resize = describe_steps(InputRecipe(image=ImageForm(mode="L", size=(4, 5))))
    assert "grey" in decode
    assert "4 × 5" in resize
    form = ImageForm(mode="RGB", size=(6, 8), crop=0.5)
    _, resize, crop = describe_steps(InputRecipe(image=form))
    assert "12 × 16" in resize
    assert "6 × 8" in crop


@pytest.mark.parametrize(("width", "text"), [(None, "longest of their batch"), (8, "length of 8")])
def test_describe_steps_of_sequences_name_padding_and_length(width: int | None, text: str) -> None:
    recipe = InputRecipe(stored=StoredSamples(shape=(width,)), pad=1.0)
    (step,) = describe_steps(recipe)
    assert "with 1 at" in step
    assert text in step


def test_format_shape_unknown_sizes_are_question_marks() -> None:
    assert (format_shape((3, "H", None)), format_shape(())) == ("3×H×?", "()")
