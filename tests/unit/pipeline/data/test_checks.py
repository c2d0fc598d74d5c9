"""Samples and labels that cannot be right are named before training."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.graph.model_file import TensorInfo
from tests.support.archives import images, labels, opened, refusal


def test_integral_floats_and_a_column_serve_as_labels(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10).astype(np.float32)[:, None])
    assert opened(archive).num_classes == 5


def test_lengths_that_differ_are_named(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(9))
    error = refusal(archive)
    assert "10 samples" in error.message
    assert "y_train of data.npz has 9" in error.message


def test_labels_that_are_no_numbers_are_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(3, 4, 4), y_train=np.array(["cat", "dog", "cat"]))
    assert "not numbers" in refusal(archive).message


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_target_that_is_not_finite_is_named_with_its_sample(archive: Path, value: float) -> None:
    np.savez(archive, x_train=images(3, 4, 4), y_train=np.array([[0.0, 1], [2, 3], [value, 4]]))
    assert "y_train of data.npz is not finite in sample 2" in refusal(archive).message


@pytest.mark.parametrize(
    "wrong", [np.array([0.0, 1.5, 2.0]), np.array([0, -1, 2]), np.array([0, 1, 2**63], np.uint64)]
)
def test_numbers_that_cannot_count_classes_are_no_class_numbers(
    archive: Path, wrong: np.ndarray
) -> None:
    np.savez(archive, x_train=images(3, 4, 4), y_train=wrong)
    data = opened(archive)
    assert data.has_labels
    assert (data.num_classes, data.train.labels) == (None, None)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_value_that_is_not_finite_is_named_with_its_sample(
    archive: Path, value: float, split: str
) -> None:
    arrays = {f"x_{name}": images(6, 4, 4, dtype=np.float32) for name in ("train", "val", "test")}
    arrays[f"x_{split}"][4, 1, 2] = value
    np.savez(archive, **arrays, **{f"y_{name}": labels(6) for name in ("train", "val", "test")})
    error = refusal(archive)
    assert f"x_{split}" in error.message
    assert "sample 4" in error.message


def test_a_value_beyond_the_model_type_is_named(archive: Path) -> None:
    x = images(6, 4, 4, dtype=np.float64)
    x[2, 0, 0] = 1e300
    np.savez(archive, x_train=x, y_train=labels(6))
    assert "sample 2" in refusal(archive).message


def test_finiteness_is_checked_beyond_the_first_chunk(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ltp_pipeline.data.checks.CHUNK_BYTES", 128)
    x = images(20, 4, 4, dtype=np.float32)
    x[17, 3, 3] = np.nan
    np.savez(archive, x_train=x, y_train=labels(20))
    assert "sample 17" in refusal(archive).message


def test_samples_that_are_no_numbers_are_refused(archive: Path) -> None:
    np.savez(archive, x_train=np.full((3, 4, 4), 1j), y_train=labels(3))
    assert "complex128" in refusal(archive).message


def test_an_empty_split_is_refused(archive: Path) -> None:
    np.savez(
        archive,
        x_train=images(6, 4, 4),
        y_train=labels(6),
        x_test=images(0, 4, 4),
        y_test=labels(0),
    )
    assert "x_test of data.npz is empty" in refusal(archive).message


@pytest.mark.parametrize("value", [2**53 + 1, 2**64 - 1])
def test_whole_numbers_that_no_float_tells_apart_are_refused(archive: Path, value: int) -> None:
    x = images(10, 4, 4, dtype=np.uint64)
    x[7, 0, 0] = value
    np.savez(archive, x=x, y=labels(10))
    assert f"holds {value} in sample 7" in refusal(archive).message
    x[7, 0, 0] = 2**53
    np.savez(archive, x=x, y=labels(10))
    opened(archive)


def test_negative_long_integers_are_samples(archive: Path) -> None:
    np.savez(archive, x=images(10, 4, 4, dtype=np.int64) - 100, y=labels(10))
    opened(archive)


def test_whole_numbers_beyond_those_that_torch_computes_with_are_refused(archive: Path) -> None:
    tokens = TensorInfo("ids", "UINT64", ("N", 3))
    ids = np.full((10, 3), 2**63 - 1, np.uint64)
    np.savez(archive, x=ids, y=labels(10))
    opened(archive, tokens)
    ids[4, 2] += np.uint64(1)
    np.savez(archive, x=ids, y=labels(10))
    assert "holds 9223372036854775808 in sample 4" in refusal(archive, tokens).message


@pytest.mark.parametrize("shape", [(10, 0), (10, 1, 0, 4)])
def test_samples_that_hold_nothing_are_refused(archive: Path, shape: tuple[int, ...]) -> None:
    np.savez(archive, x=np.zeros(shape), y=labels(10))
    assert (
        "are empty: their shape is"
        in refusal(archive, TensorInfo("x", "FLOAT", ("N", *"ABC"[: len(shape) - 1]))).message
    )
