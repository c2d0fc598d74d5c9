"""Recipes that are decided for stored samples, and errors for samples that a model cannot take."""

import pytest

from ltp_pipeline.data.recipes import choose_load_options, decide_recipe, get_input_type
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import DataSettings, InputSettings

Dims = tuple[int | str | None, ...]


def model_input(*dims: int | str | None, of: str = "FLOAT") -> TensorInfo:
    return TensorInfo("image", of, ("N", *dims))


def decide(stored: tuple[int, ...], info: TensorInfo, **settings: object) -> InputRecipe:
    input_settings = InputSettings.model_validate(settings)
    return decide_recipe("samples", stored, input_settings.layout, input_settings, info)


def decide_error(stored: tuple[int, ...], info: TensorInfo, **settings: object) -> InputError:
    with pytest.raises(InputError) as caught:
        decide(stored, info, **settings)
    return caught.value


@pytest.mark.parametrize(
    ("stored", "dims", "settings", "steps"),
    [
        ((3, 4, 5), (3, 4, 5), {}, {}),
        ((4, 5, 3), (3, 4, 5), {"layout": "NHWC"}, {"channels_to_front": True}),
        ((3, 8, 8), (8, 8, 3), {}, {"channels_to_back": True}),
        ((4, 5), (1, 4, 5), {}, {"add_channel": True}),
        ((4, 5), (1, 4, 5), {"layout": "NHWC"}, {"add_channel": True}),
        ((4, 5), (20,), {}, {"add_channel": True, "flatten": True}),
        ((8, 8, 3), (3, 5, 6), {"layout": "NHWC", "resize": (5, 6)}, {"channels_to_front": True, "resize": (5, 6)}),
        ((7,), (7,), {"mean": 1}, {"mean": (1.0,)}),
        ((), (1,), {}, {"flatten": True}),
    ],
    ids=str,
)  # fmt: skip
def test_decide_recipe_steps_follow_shapes_and_settings(
    stored: tuple[int, ...], dims: Dims, settings: dict[str, object], steps: dict[str, object]
) -> None:
    assert decide(stored, model_input(*dims), **settings) == InputRecipe(**steps)


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        ("FLOAT", "float32"),
        ("FLOAT16", "float32"),
        ("BFLOAT16", "float32"),
        ("DOUBLE", "float64"),
        ("INT64", "int64"),
        ("UINT8", "uint8"),
        ("UINT64", "uint64"),
        ("BOOL", "bool"),
    ],
)
def test_get_input_type_half_precision_is_fed_in_single(of: str, dtype: str) -> None:
    assert get_input_type(model_input(1, of=of)) == dtype
    assert decide((1, 4, 4), model_input(1, 4, 4, of=of)).type == dtype


def test_get_input_type_text_raises() -> None:
    with pytest.raises(InputError) as caught:
        get_input_type(model_input(7, of="STRING"))
    assert "STRING" in caught.value.message


@pytest.mark.parametrize("dims", [("C", "H", "W"), (None, None, None), (3, None, "W")])
def test_decide_recipe_open_dimensions_accept_any_size(dims: Dims) -> None:
    assert decide((3, 4, 5), model_input(*dims)) == InputRecipe()


def test_decide_recipe_unknown_shape_accepts_any_shape() -> None:
    assert decide((3, 4, 5), TensorInfo("image", "FLOAT", None)) == InputRecipe()


@pytest.mark.parametrize(
    ("stored", "dims", "settings", "in_message", "in_hint"),
    [
        ((3, 8, 8), (1, 8, 8), {}, "channels 3 in the layout NCHW", "1 channel"),
        ((8, 8, 3), (3, 8, 8), {}, "channels 8 in the layout NCHW", 'layout = "NHWC"'),
        ((3, 8, 8), (3, 8, 8), {"layout": "NHWC"}, "channels 8", 'layout = "NCHW"'),
        ((8, 8), (3, 8, 8), {}, "takes 3", "3 channels"),
        ((1, 8, 8), (1, 28, "W"), {}, "28×W", "resize = [28, 8]"),
        ((1, 8, 8), (1, 8, 8), {"resize": (16, 16)}, "16×16", "resize = [8, 8]"),
        ((7,), (1, 8, 8), {}, "1×8×8", "axes"),
        ((7,), (8,), {}, "8 values", "size"),
        ((4, 5), (21,), {}, "21 values", "resize"),
        ((7,), (7,), {"resize": (2, 2)}, "resize", "remove resize"),
        ((3, 8, 8), (3, 8, 8), {"mean": (0.5, 0.5)}, "mean", "mean"),
        ((3, 8, 8), (3, 8, 8), {"std": (0.5, 0.5)}, "std", "std"),
    ],
    ids=str,
)
def test_decide_recipe_samples_that_do_not_fit_raise(
    stored: tuple[int, ...],
    dims: Dims,
    settings: dict[str, object],
    in_message: str,
    in_hint: str,
) -> None:
    error = decide_error(stored, model_input(*dims), **settings)
    assert in_message in error.message
    assert in_hint in error.hint


def test_decide_recipe_wrong_channels_of_both_layouts_do_not_hint_at_layout() -> None:
    assert "layout" not in decide_error((3, 8, 8), model_input(1, 8, 8)).hint


@pytest.mark.parametrize("key", ["scale", "mean", "std"])
def test_decide_recipe_scaled_integers_raise(key: str) -> None:
    error = decide_error((7,), model_input(7, of="INT64"), **{key: 0.5})
    assert "int64" in error.message
    assert "scale, mean and std" in error.hint


def test_choose_load_options_images_have_the_size_of_the_first_input_of_images() -> None:
    inputs = [TensorInfo("ids", "INT64", ("N", 7)), model_input(3, 6, 8)]
    options = choose_load_options(DataSettings(), inputs)
    assert (options.channels, options.size, options.inputs) == (3, (6, 8), ("ids", "image"))
    channels_last = choose_load_options(DataSettings(), [model_input(6, 8, 1)])
    assert (channels_last.channels, channels_last.size) == (1, (6, 8))


def test_choose_load_options_resize_precedes_the_size_of_the_model() -> None:
    settings = DataSettings.model_validate({"inputs": {"image": {"resize": (5, 5)}}})
    assert choose_load_options(settings, [model_input(3, 6, 8)]).size == (5, 5)
    assert choose_load_options(DataSettings(resize=(4, 4)), [model_input(3, "H", 8)]).size == (4, 4)
    assert choose_load_options(DataSettings(), [model_input("C", "H", 8)]).size is None
