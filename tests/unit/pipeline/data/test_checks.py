"""Samples and labels that cannot be right are named before training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data import check_labels
from ltp_pipeline.errors import InputError
from tests.support.archives import images, labels, opened, refusal


def test_integral_floats_and_a_column_serve_as_labels(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10).astype(np.float32)[:, None])
    assert opened(archive).classes == 5


def test_lengths_that_differ_are_named(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(9))
    error = refusal(archive)
    assert "10 samples" in error.what
    assert "9 labels" in error.what


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.array([0.0, 1.5, 2.0]), "1.5"),
        (np.array([0.0, np.nan, 2.0]), "nan"),
        (np.array([0, -1, 2]), "negative label -1"),
        (np.array(["cat", "dog", "cat"]), "not class numbers"),
        (np.array([0, 1, 2**63], np.uint64), "no class number"),
        (np.eye(3), "one class number per sample"),
    ],
    ids=["fraction", "nan", "negative", "strings", "huge", "one-hot"],
)
def test_labels_that_are_no_class_numbers_are_refused(archive: Path, wrong: np.ndarray, said: str) -> None:
    np.savez(archive, x_train=images(3, 4, 4), y_train=wrong)
    assert said in refusal(archive).what


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_value_that_is_not_finite_is_named_with_its_sample(archive: Path, value: float, split: str) -> None:
    arrays = {f"x_{name}": images(6, 4, 4, dtype=np.float32) for name in ("train", "val", "test")}
    arrays[f"x_{split}"][4, 1, 2] = value
    np.savez(archive, **arrays, **{f"y_{name}": labels(6) for name in ("train", "val", "test")})
    error = refusal(archive)
    assert f"x_{split}" in error.what
    assert "sample 4" in error.what


def test_a_value_beyond_the_model_type_is_named(archive: Path) -> None:
    x = images(6, 4, 4, dtype=np.float64)
    x[2, 0, 0] = 1e300
    np.savez(archive, x_train=x, y_train=labels(6))
    assert "sample 2" in refusal(archive).what


def test_finiteness_is_checked_beyond_the_first_chunk(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ltp_pipeline.data.checks.CHUNK_BYTES", 128)
    x = images(20, 4, 4, dtype=np.float32)
    x[17, 3, 3] = np.nan
    np.savez(archive, x_train=x, y_train=labels(20))
    assert "sample 17" in refusal(archive).what


def test_samples_that_are_no_numbers_are_refused(archive: Path) -> None:
    np.savez(archive, x_train=np.full((3, 4, 4), 1j), y_train=labels(3))
    assert "complex128" in refusal(archive).what


def test_an_empty_split_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(6, 4, 4), y_train=labels(6), x_test=images(0, 4, 4), y_test=labels(0))
    assert "x_test of data.npz is empty" in refusal(archive).what


def test_labels_from_one_get_the_hint_to_subtract(archive: Path) -> None:
    np.savez(archive, x_train=images(20, 4, 4), y_train=labels(20) + 1)
    data = opened(archive)
    with pytest.raises(InputError, match=r"1\.\.5, the model has 5 classes") as caught:
        check_labels(data, 5)
    assert "subtract 1" in caught.value.remedy


def test_labels_beyond_the_classes_are_refused_and_fewer_accepted(archive: Path) -> None:
    np.savez(archive, x_train=images(20, 4, 4), y_train=labels(20))
    data = opened(archive)
    check_labels(data, 5)
    check_labels(data, 1000)
    with pytest.raises(InputError, match=r"0\.\.4, the model has 3 classes"):
        check_labels(data, 3)


@pytest.mark.parametrize(
    "y",
    [
        np.zeros((3, 4, 4), np.uint8),
        np.array([[0.5, 2.5], [1.0, 3.0], [2.0, 0.1]]),
        np.array([[1, 0, 1], [0, 1, 1], [1, 0, 0]]),
        np.array([0.5, 1.25, 7.0]),
        np.array([[0.5], [1.25], [7.0]]),
    ],
    ids=["masks", "vectors", "multi-hot", "floats", "column of floats"],
)
def test_labels_that_are_no_classes_are_told_the_way_without_labels(archive: Path, y: np.ndarray) -> None:
    np.savez(archive, x=images(3, 4, 4), y=y)
    told = refusal(archive).remedy
    assert "without labels" in told
    assert "argmax" not in told
    np.savez(archive, x=images(3, 4, 4))
    assert opened(archive).classes is None


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.bool_])
def test_one_hot_rows_are_told_to_become_class_numbers(archive: Path, dtype: Any) -> None:
    np.savez(archive, x=images(3, 4, 4), y=np.eye(3, dtype=dtype))
    told = refusal(archive).remedy
    assert "argmax(axis=1)" in told
    assert "without labels" not in told
