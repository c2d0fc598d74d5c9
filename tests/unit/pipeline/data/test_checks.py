"""Samples, labels and tokens that a model cannot take are named before training."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data import checks
from ltp_pipeline.data.dataset import ArraySamples, ClassNumbers, DataColumn
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, TaskSettings
from tests.support.archives import (
    get_open_error,
    make_images,
    make_labels,
    make_sequences,
    open_archive,
)
from tests.support.models import masked_tokens

LENGTHS = [3, 1, 2, 4, 2, 3]
IDS = TensorInfo("ids", "INT64", ("N", "S"))
TAGS = TensorInfo("tags", "FLOAT", ("N", "S", 7))


def column(values: Any) -> DataColumn:
    return DataColumn(ArraySamples(np.asarray(values)), "y_train")


@pytest.mark.parametrize(
    "values", [np.arange(5), np.arange(5.0)[:, None], np.array([True, False]), np.uint64([0, 9])]
)
def test_convert_target_integers_from_zero_are_class_numbers(values: np.ndarray) -> None:
    target = checks.convert_target(column(values))
    assert isinstance(target, ClassNumbers)
    assert target.array.tolist() == values.reshape(-1).tolist()


@pytest.mark.parametrize(
    "values", [np.array([0.0, 1.5]), np.array([0, -1]), np.array([0, 2**63], np.uint64)]
)
def test_convert_target_other_numbers_are_no_class_numbers(values: np.ndarray) -> None:
    assert type(checks.convert_target(column(values))) is ArraySamples


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_convert_target_not_finite_names_the_sample(value: float) -> None:
    with pytest.raises(InputError) as caught:
        checks.convert_target(column([[0.0, 1], [2, 3], [value, 4]]))
    assert re.search(rf"\by_train\b.*\b{value}\b.*\bsample 2\b", caught.value.message)


def test_convert_target_text_raises() -> None:
    with pytest.raises(InputError) as caught:
        checks.convert_target(column(["cat", "dog"]))
    assert "y_train" in caught.value.message


def test_check_sizes_different_counts_raise(archive: Path) -> None:
    np.savez(archive, x_train=make_images(10, 4, 4), y_train=make_labels(9))
    error = get_open_error(archive)
    assert re.search(r"\b10 samples\b.*\by_train of data\.npz .*\b9\b", error.message)


def test_check_sizes_empty_split_raises(archive: Path) -> None:
    train = {"x_train": make_images(6, 4, 4), "y_train": make_labels(6)}
    np.savez(archive, **train, x_test=make_images(0, 4, 4), y_test=make_labels(0))
    assert "x_test of data.npz" in get_open_error(archive).message


@pytest.mark.parametrize("shape", [(10, 0), (10, 1, 0, 4)])
def test_check_sizes_samples_without_values_raise(archive: Path, shape: tuple[int, ...]) -> None:
    np.savez(archive, x=np.zeros(shape), y=make_labels(10))
    info = TensorInfo("x", "FLOAT", ("N", *"ABC"[: len(shape) - 1]))
    assert "x of data.npz" in get_open_error(archive, info).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_check_values_not_finite_names_split_and_sample(
    archive: Path, value: float, split: str
) -> None:
    arrays = {
        f"x_{name}": make_images(6, 4, 4, dtype=np.float32) for name in ("train", "val", "test")
    }
    arrays[f"x_{split}"][4, 1, 2] = value
    np.savez(
        archive, **arrays, **{f"y_{name}": make_labels(6) for name in ("train", "val", "test")}
    )
    error = get_open_error(archive)
    assert f"x_{split}" in error.message
    assert "sample 4" in error.message


def test_check_values_beyond_the_type_of_the_model_raise(archive: Path) -> None:
    x = make_images(6, 4, 4, dtype=np.float64)
    x[2, 0, 0] = 1e300
    np.savez(archive, x_train=x, y_train=make_labels(6))
    assert "sample 2" in get_open_error(archive).message


def test_check_values_fraction_for_integer_input_raises() -> None:
    checks.check_values(column([[1.0], [2.0]]), np.dtype("int64"))
    with pytest.raises(InputError) as caught:
        checks.check_values(column([[1.0], [2.5]]), np.dtype("int64"))
    assert re.search(r"\b2\.5\b.*\bsample 1\b", caught.value.message)


def test_check_values_beyond_the_first_chunk_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHUNK_BYTES", 128)
    x = make_images(20, 4, 4, dtype=np.float32)
    x[17, 3, 3] = np.nan
    with pytest.raises(InputError) as caught:
        checks.check_values(column(x), np.dtype("float32"))
    assert "sample 17" in caught.value.message


def test_check_values_complex_numbers_raise() -> None:
    with pytest.raises(InputError) as caught:
        checks.check_values(column(np.full(3, 1j)), np.dtype("float32"))
    assert "complex128" in caught.value.message


@pytest.mark.parametrize("value", [2**53 + 1, 2**64 - 1])
def test_check_values_integers_that_floats_cannot_distinguish_raise(value: int) -> None:
    x = make_images(10, 4, 4, dtype=np.uint64)
    x[7, 0, 0] = 2**53
    checks.check_values(column(x), np.dtype("float32"))
    x[7, 0, 0] = value
    with pytest.raises(InputError) as caught:
        checks.check_values(column(x), np.dtype("float32"))
    assert re.search(rf"\b{value}\b.*\bsample 7\b", caught.value.message)


def test_check_values_negative_long_integers_are_accepted() -> None:
    x = make_images(10, 4, 4, dtype=np.int64) - 100
    checks.check_values(column(x), np.dtype("float32"))


def test_check_values_integers_beyond_those_of_torch_raise() -> None:
    ids = np.full((10, 3), 2**63 - 1, np.uint64)
    checks.check_values(column(ids), np.dtype("uint64"))
    ids[4, 2] += np.uint64(1)
    with pytest.raises(InputError) as caught:
        checks.check_values(column(ids), np.dtype("uint64"))
    assert re.search(rf"\b{2**63}\b.*\bsample 4\b", caught.value.message)


def test_check_values_of_sequences_name_the_sequence(tmp_path: Path) -> None:
    values = np.ones(8)
    values[6] = np.nan
    np.savez(tmp_path / "data.npz", v=values, v_offsets=[0, 3, 3, 5, 8])
    error = get_open_error(tmp_path / "data.npz", TensorInfo("v", "FLOAT", ("N", "S")))
    assert re.search(r"\bnan\b.*\bsample 3\b", error.message)


def test_check_crop_of_arrays_raises(archive: Path) -> None:
    np.savez(archive, x=make_images(9, 4, 4), y=make_labels(9))
    assert "crop" in get_open_error(archive, crop=0.5).hint


def test_check_augmentation_rows_of_numbers_raise(archive: Path) -> None:
    np.savez(archive, x=np.ones((9, 4), np.float32), y=make_labels(9))
    assert (
        "augment"
        in get_open_error(archive, TensorInfo("row", "FLOAT", ("N", 4)), augment=True).hint
    )


def test_check_augmentation_target_of_pixels_raises(archive: Path) -> None:
    np.savez(archive, x=make_images(9, 4, 4), y=make_images(9, 4, 4))
    assert "augment" in get_open_error(archive, augment=True).hint


def ragged(name: str, lengths: list[int], kind: str = "int64") -> dict[str, np.ndarray]:
    return {name: np.ones(sum(lengths), kind), f"{name}_offsets": np.cumsum([0, *lengths])}


def open_arrays(
    folder: Path,
    inputs: list[TensorInfo],
    outputs: Any = (),
    task: Any = None,
    **arrays: np.ndarray,
) -> Any:
    np.savez(folder / "data.npz", **arrays)
    settings = DataSettings(path=folder / "data.npz")
    return open_data(settings, inputs, 0, task or TaskSettings(), outputs)


def open_error(*arguments: Any, **arrays: Any) -> str:
    with pytest.raises(InputError) as caught:
        open_arrays(*arguments, **arrays)
    return caught.value.message


def with_length(place: int, length: int) -> list[int]:
    return [*LENGTHS[:place], length, *LENGTHS[place + 1 :]]


def test_check_input_lengths_shared_dimension_needs_equal_lengths(tmp_path: Path) -> None:
    inputs = [IDS, TensorInfo("kinds", "INT64", ("N", "S"))]
    open_arrays(tmp_path, inputs, **ragged("ids", LENGTHS), **ragged("kinds", LENGTHS))
    kinds = ragged("kinds", with_length(3, 5))
    message = open_error(tmp_path, inputs, **ragged("ids", LENGTHS), **kinds)
    for part in ("sample 3", "4 values in ids", "5 in kinds", "'S'"):
        assert part in message


@pytest.mark.parametrize(
    "inputs",
    [
        [IDS, TensorInfo("kinds", "INT64", ("N", "T"))],
        [TensorInfo(name, "INT64", ("any", "any")) for name in ("ids", "kinds")],
    ],
    ids=["other dimension", "name of the batch"],
)
def test_check_input_lengths_other_dimensions_may_differ(
    tmp_path: Path, inputs: list[TensorInfo]
) -> None:
    kinds = ragged("kinds", with_length(3, 5))
    assert open_arrays(tmp_path, inputs, **ragged("ids", LENGTHS), **kinds)


def test_check_input_lengths_of_arrays_are_compared(tmp_path: Path) -> None:
    inputs = [
        TensorInfo("a", "FLOAT", ("N", 3, "H", "W")),
        TensorInfo("b", "FLOAT", ("N", "H", "W")),
    ]
    a = np.zeros((6, 3, 4, 5), np.float32)
    open_arrays(tmp_path, inputs, a=a, b=a[:, 0])
    message = open_error(tmp_path, inputs, a=a, b=a[:, 0, :, :4])
    for part in ("sample 0", "5 values in a", "4 in b", "'W'"):
        assert part in message


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize(
    ("ids", "tags"),
    [
        (IDS, TAGS),
        (TensorInfo("ids", "INT64", ("N", None)), TensorInfo("tags", "FLOAT", None)),
        (TensorInfo("ids", "INT64", ("N", 8)), TensorInfo("tags", "FLOAT", ("N", 8, 7))),
    ],
    ids=["named", "by most samples", "fixed"],
)
def test_check_label_lengths_need_one_label_for_each_value(
    tmp_path: Path, ids: TensorInfo, tags: TensorInfo, length: int
) -> None:
    arrays = ragged("ids", LENGTHS)
    open_arrays(tmp_path, [ids], [tags], **arrays, **ragged("y", LENGTHS))
    message = open_error(tmp_path, [ids], [tags], **arrays, **ragged("y", with_length(4, length)))
    for part in ("sample 4", f"{length} label", "2 values in ids"):
        assert part in message


def test_check_label_lengths_shorter_outputs_are_accepted(tmp_path: Path) -> None:
    halves = [(n + 1) // 2 for n in LENGTHS]
    shorter = TensorInfo("tags", "FLOAT", ("N", "S_out", 7))
    assert open_arrays(tmp_path, [IDS], [shorter], **ragged("ids", LENGTHS), **ragged("y", halves))


def test_check_label_lengths_follow_the_output_of_the_task(tmp_path: Path) -> None:
    inputs = [IDS, TensorInfo("answer", "INT64", ("N", "T"))]
    outputs = [
        TensorInfo("encoded", "FLOAT", ("N", "S", 9)),
        TensorInfo("tags", "FLOAT", ("N", "T", 7)),
    ]
    reverse = LENGTHS[::-1]
    arrays = {**ragged("ids", LENGTHS), **ragged("answer", reverse), **ragged("y", reverse)}
    assert open_arrays(tmp_path, inputs, outputs, **arrays)
    message = open_error(tmp_path, inputs, outputs, TaskSettings(output="encoded"), **arrays)
    for part in ("sample 1", "2 labels", "1 value in ids"):
        assert part in message


def test_check_label_lengths_arrays_may_have_fewer_but_not_more(tmp_path: Path) -> None:
    ids = np.ones((6, 4), np.int64)
    assert open_arrays(tmp_path, [IDS], [TAGS], ids=ids, **ragged("y", LENGTHS))
    message = open_error(tmp_path, [IDS], [TAGS], ids=ids, **ragged("y", with_length(2, 5)))
    for part in ("sample 2", "5 labels", "4 values in ids"):
        assert part in message


@pytest.mark.parametrize("kind", ["uint8", "bool", "int16", "int64"])
def test_labels_of_any_type_are_padded_with_the_ignored_index(tmp_path: Path, kind: str) -> None:
    arrays = {**ragged("ids", LENGTHS), **ragged("y", LENGTHS, kind)}
    data = open_arrays(tmp_path, [IDS], [TAGS], **arrays)
    target = data.train.read_first(4).targets["target"]
    assert (target.dtype, sorted(set(target.ravel()))) == (np.int64, [-100, 1])


@pytest.mark.parametrize(("pad", "fits"), [(11, True), (12, False)])
def test_check_tokens_padding_must_be_a_token(tmp_path: Path, pad: int, fits: bool) -> None:
    np.savez(tmp_path / "data.npz", **make_sequences("ids"))
    inputs = [TensorInfo(name, "INT64", ("N", "T")) for name in ("ids", "ids_mask")]
    table_sizes = checks.find_table_sizes(masked_tokens(vocabulary=12).graph)
    data = open_data(DataSettings(path=tmp_path / "data.npz", padding_value=pad), inputs, 0)
    if fits:
        checks.check_tokens(table_sizes, data)
        return
    with pytest.raises(InputError) as caught:
        checks.check_tokens(table_sizes, data)
    assert "12" in caught.value.message
    assert '[data.inputs."ids"]' in caught.value.hint


@pytest.mark.parametrize("token", [7, -8])
def test_check_tokens_outside_of_the_table_names_the_sample(archive: Path, token: int) -> None:
    ids = np.zeros((10, 3), np.int64)
    ids[4] = (6, -7, token)
    np.savez(archive, ids_train=ids, ids_val=ids[:2], ids_test=ids[:2])
    data = open_archive(archive, TensorInfo("ids", "INT64", ("N", 3)))
    with pytest.raises(InputError) as caught:
        checks.check_tokens({"ids": 7}, data)
    assert re.search(rf"\bsample 4\b.*'ids'.* {token}\b", caught.value.message)


def test_make_sample_error_names_arrays_and_cause() -> None:
    error = checks.make_sample_error({"x": np.zeros((2, 3))}, "it fails", ValueError("bad"))
    assert "'x' float64 2×3: bad" in error.message
