"""From stored samples to the model's input, and what samples of the wrong shape are told."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.samples import only


def model(*dims: int | str | None, of: str = "FLOAT") -> TensorInfo:
    return TensorInfo("image", of, ("N", *dims))


def stored(path: Path, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    x = np.random.default_rng(0).integers(0, 256, (10, *shape)).astype(dtype)
    np.savez(
        path / "data.npz", x_train=x, y_train=np.arange(10) % 2, x_val=x, y_val=np.arange(10) % 2
    )
    return x


def prepared(path: Path, model_input: TensorInfo, **settings: Any) -> np.ndarray:
    return only(
        open_data(DataSettings(path=path / "data.npz", **settings), [model_input], 0).train.read(
            np.arange(10)
        )
    )


def refusal(path: Path, model_input: TensorInfo, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        prepared(path, model_input, **settings)
    return caught.value


def test_scale_then_mean_and_std_per_channel(tmp_path: Path) -> None:
    x = stored(tmp_path, 3, 4, 5).astype(np.float32)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (x * np.float32(1 / 255) - np.float32(mean).reshape(3, 1, 1)) / np.float32(
        std
    ).reshape(3, 1, 1)
    np.testing.assert_array_equal(
        prepared(tmp_path, model(3, 4, 5), scale=1 / 255, mean=mean, std=std), expected
    )


def test_nhwc_becomes_nchw(tmp_path: Path) -> None:
    x = stored(tmp_path, 4, 5, 3)
    batch = prepared(tmp_path, model(3, 4, 5), layout="NHWC", mean=(1, 2, 3))
    np.testing.assert_array_equal(
        batch, x.transpose(0, 3, 1, 2) - np.float32([1, 2, 3]).reshape(3, 1, 1)
    )
    assert batch.flags.c_contiguous


def test_a_model_that_takes_nhwc_gets_it(tmp_path: Path) -> None:
    x = stored(tmp_path, 3, 8, 8)
    batch = prepared(tmp_path, model(8, 8, 3), mean=(1, 2, 3))
    np.testing.assert_array_equal(batch, x.transpose(0, 2, 3, 1) - np.float32([1, 2, 3]))
    assert batch.flags.c_contiguous


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_grey_arrays_get_a_channel_axis(tmp_path: Path, layout: str) -> None:
    x = stored(tmp_path, 4, 5)
    np.testing.assert_array_equal(prepared(tmp_path, model(1, 4, 5), layout=layout), x[:, None])


def test_images_are_flattened_for_a_model_that_takes_rows(tmp_path: Path) -> None:
    x = stored(tmp_path, 4, 5)
    np.testing.assert_array_equal(prepared(tmp_path, model(20)), x.reshape(10, 20))
    assert "20 values, the model takes 21" in refusal(tmp_path, model(21)).message


def test_the_steps_are_told(tmp_path: Path) -> None:
    stored(tmp_path, 4, 4, 3)
    settings = DataSettings(path=tmp_path / "data.npz", layout="NHWC", resize=(2, 2))
    assert open_data(settings, [model(12)], 0).steps["image"] == (
        "bring the channels from the last axis to the front",
        "resize to 2 × 2 pixels, height × width, bilinear",
        "flatten, row by row",
    )


def test_rows_take_a_mean_per_feature(tmp_path: Path) -> None:
    x = stored(tmp_path, 3)
    np.testing.assert_array_equal(
        prepared(tmp_path, model(3), mean=(1, 2, 3)), x - np.float32([1, 2, 3])
    )


def test_arrays_are_resized_as_pillow_resizes_images(tmp_path: Path) -> None:
    x = stored(tmp_path, 8, 8, 3)
    batch = prepared(tmp_path, model(3, 5, 6), layout="NHWC", resize=(5, 6))
    expected = np.asarray(Image.fromarray(x[0]).resize((6, 5), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(batch[0], expected.transpose(2, 0, 1))


def test_float_arrays_are_resized_without_rounding(tmp_path: Path) -> None:
    x = np.tile(np.array([[0.25, 0.5], [0.5, 0.75]]), (10, 1, 1))
    np.savez(
        tmp_path / "data.npz",
        x_train=x,
        y_train=np.arange(10) % 2,
        x_val=x,
        y_val=np.arange(10) % 2,
    )
    np.testing.assert_allclose(
        prepared(tmp_path, model(1, 1, 1), resize=(1, 1)), np.full((10, 1, 1, 1), 0.5)
    )


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        ("FLOAT", "f4"),
        ("FLOAT16", "f4"),
        ("BFLOAT16", "f4"),
        ("DOUBLE", "f8"),
        ("INT64", "i8"),
        ("UINT8", "u1"),
    ],
)
def test_the_model_type_decides_the_dtype(tmp_path: Path, of: str, dtype: str) -> None:
    stored(tmp_path, 1, 4, 4)
    assert prepared(tmp_path, model(1, 4, 4, of=of)).dtype == np.dtype(dtype)


@pytest.mark.parametrize("dims", [("C", "H", "W"), (None, None, None), (3, None, "W")])
def test_open_dimensions_accept_anything(
    tmp_path: Path, dims: tuple[int | str | None, ...]
) -> None:
    stored(tmp_path, 3, 4, 5)
    assert prepared(tmp_path, model(*dims)).shape == (10, 3, 4, 5)


def test_a_model_that_says_no_shape_accepts_anything(tmp_path: Path) -> None:
    stored(tmp_path, 3, 4, 5)
    assert prepared(tmp_path, TensorInfo("image", "FLOAT", None)).shape == (10, 3, 4, 5)


def test_a_wrong_channel_count_is_named(tmp_path: Path) -> None:
    stored(tmp_path, 3, 8, 8)
    error = refusal(tmp_path, model(1, 8, 8))
    assert "3 channels as NCHW; the model takes 1" in error.message
    assert "layout" not in error.hint


def test_nhwc_samples_get_the_hint_to_set_layout(tmp_path: Path) -> None:
    stored(tmp_path, 8, 8, 3)
    assert 'layout = "NHWC"' in refusal(tmp_path, model(3, 8, 8)).hint


def test_nchw_samples_declared_nhwc_get_the_opposite_hint(tmp_path: Path) -> None:
    stored(tmp_path, 3, 8, 8)
    assert 'layout = "NCHW"' in refusal(tmp_path, model(3, 8, 8), layout="NHWC").hint


def test_grey_samples_for_a_colour_model_are_refused(tmp_path: Path) -> None:
    stored(tmp_path, 8, 8)
    assert "1 channel as NCHW; the model takes 3" in refusal(tmp_path, model(3, 8, 8)).message


def test_a_wrong_size_gets_the_resize_to_set(tmp_path: Path) -> None:
    stored(tmp_path, 1, 8, 8)
    error = refusal(tmp_path, model(1, 28, "W"))
    assert "8×8; the model takes 28×W" in error.message
    assert "resize = [28, 8]" in error.hint


def test_a_resize_the_model_cannot_take_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, 1, 8, 8)
    assert (
        "16×16; the model takes 8×8" in refusal(tmp_path, model(1, 8, 8), resize=(16, 16)).message
    )


def test_a_wrong_rank_shows_both_shapes(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    error = refusal(tmp_path, model(1, 8, 8))
    assert "shape 7" in error.message
    assert "1×8×8" in error.message


def test_a_wrong_number_of_features_is_named(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    assert "shape 7, the model takes 8 values" in refusal(tmp_path, model(8)).message


def test_resize_of_rows_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    assert "no images" in refusal(tmp_path, model(7), resize=(2, 2)).message


@pytest.mark.parametrize("key", ["mean", "std"])
def test_mean_and_std_have_one_value_or_one_per_channel(tmp_path: Path, key: str) -> None:
    stored(tmp_path, 3, 8, 8)
    assert prepared(tmp_path, model(3, 8, 8), **{key: (0.5,)}).shape == (10, 3, 8, 8)
    assert (
        f"{key} has 2 values, a sample has 3 channels"
        in refusal(tmp_path, model(3, 8, 8), **{key: (0.5, 0.5)}).message
    )


def test_an_integer_input_takes_no_scale(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    assert "takes int64" in refusal(tmp_path, model(7, of="INT64"), scale=0.5).message


def test_an_integer_input_takes_only_values_it_can_hold(tmp_path: Path) -> None:
    stored(tmp_path, 7, dtype=np.float32)
    assert prepared(tmp_path, model(7, of="INT64")).dtype == np.int64
    np.savez(tmp_path / "data.npz", x_train=np.array([[1.0], [2.5]]), y_train=[0, 1])
    assert "2.5 in sample 1" in refusal(tmp_path, model(1, of="INT64")).message


def test_an_input_of_text_is_refused(tmp_path: Path) -> None:
    stored(tmp_path, 7)
    assert "STRING" in refusal(tmp_path, model(7, of="STRING")).message
