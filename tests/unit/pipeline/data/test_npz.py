"""npz files: what is read, how it is divided, and what each bad file is told."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import Data, check_labels, open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from tests.support.samples import only

GREY = TensorInfo("image", "FLOAT", ("N", 1, 4, 4))
RGB = TensorInfo("image", "FLOAT", ("N", 3, 4, 4))


def images(count: int, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.arange(count * int(np.prod(shape))).reshape(count, *shape).astype(dtype)


def labels(count: int, classes: int = 5) -> np.ndarray:
    return np.arange(count) % classes


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "data.npz"


def opened(path: Path, model_input: TensorInfo = GREY, seed: int = 0, **settings: Any) -> Data:
    return open_data(DataSettings(path=path, **settings), model_input, seed)


def refusal(path: Path | None, model_input: TensorInfo = GREY, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        open_data(DataSettings(path=path, **settings), model_input, 0)
    assert "\n" not in caught.value.what + caught.value.remedy
    return caught.value


def test_three_splits_are_read_as_they_are(archive: Path) -> None:
    x = images(12, 4, 4)
    np.savez(
        archive,
        x_train=x[:6],
        y_train=[0, 1, 2, 0, 1, 2],
        x_val=x[6:9],
        y_val=[2, 1, 0],
        x_test=x[9:],
        y_test=[4, 4, 4],
    )
    data = opened(archive)
    assert (data.train.name, data.val.name, data.test.name) == ("train", "val", "test")
    assert (len(data.train), len(data.val), len(data.test), data.classes, data.notes) == (6, 3, 3, 5, ())
    np.testing.assert_array_equal(only(data.test.read(np.array([2, 0]))), x[[11, 9], None].astype(np.float32))
    assert data.val.labels.dtype == np.int64
    np.testing.assert_array_equal(data.val.labels, [2, 1, 0])


def test_samples_are_contiguous_float32_that_may_be_changed(archive: Path) -> None:
    stored = images(10, 4, 4, 3, dtype=np.float64)
    np.savez(archive, x_train=stored, y_train=labels(10))
    train = opened(archive, RGB, layout="NHWC").train
    batch = only(train.read(np.arange(3)))
    assert batch.dtype == np.float32
    assert batch.flags.c_contiguous
    before = batch.copy()
    batch += 1
    np.testing.assert_array_equal(only(train.read(np.arange(3))), before)


def test_a_missing_val_is_split_off_train(archive: Path) -> None:
    np.savez(archive, x_train=images(50, 4, 4), y_train=labels(50), x_test=images(5, 4, 4), y_test=labels(5))
    data = opened(archive, validation_share=0.2)
    assert (len(data.train), len(data.val), len(data.test)) == (40, 10, 5)
    assert data.notes == ("no val split: 10 of 50 samples were split off by seed 0",)


def test_a_missing_test_lets_val_serve_under_its_own_name(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10), x_val=images(5, 4, 4), y_val=labels(5))
    data = opened(archive)
    assert data.test is data.val
    assert data.test.name == "val"
    assert data.notes == ("no test split: the validation split serves; accuracies are of val",)


def test_x_and_y_alone_are_divided_in_three(archive: Path) -> None:
    np.savez(archive, x=images(100, 4, 4, dtype=np.float32), y=labels(100))
    data = opened(archive)
    assert (len(data.train), len(data.val), len(data.test)) == (81, 9, 10)
    assert [note.split(":")[0] for note in data.notes] == ["no test split", "no val split"]
    everything = np.concatenate([only(s.read(np.arange(len(s)))) for s in (data.train, data.val, data.test)])
    assert len(np.unique(everything.reshape(100, -1), axis=0)) == 100


def test_the_fingerprint_follows_content_seed_and_share(archive: Path) -> None:
    np.savez(archive, x_train=images(20, 4, 4), y_train=labels(20))
    first = opened(archive).fingerprint
    assert opened(archive).fingerprint == first
    assert opened(archive, seed=1).fingerprint != first
    assert opened(archive, validation_share=0.3).fingerprint != first
    assert opened(archive, scale=0.5).fingerprint == first
    np.savez(archive, x_train=images(20, 4, 4) + 1, y_train=labels(20))
    assert opened(archive).fingerprint != first


def test_integral_floats_and_a_column_serve_as_labels(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10).astype(np.float32)[:, None])
    assert opened(archive).classes == 5


def test_no_path_names_the_ways_to_give_data() -> None:
    error = refusal(None)
    assert error.what == "no data given"
    for way in ("--data", "ltp.toml", "--config", "ltp-pipeline demo"):
        assert way in error.remedy


def test_a_missing_path_is_named(archive: Path) -> None:
    assert str(archive) in refusal(archive).what


def test_an_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2,3")
    assert ".npz" in refusal(tmp_path / "data.csv").remedy
    (tmp_path / "empty").mkdir()
    assert "class folders" in refusal(tmp_path / "empty").remedy


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 a jpeg", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_archive_is_refused(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert "not a readable npz file" in refusal(archive).what


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_in_an_array_is_noticed(archive: Path, save: Any) -> None:
    save(archive, x_train=images(10, 4, 4), y_train=labels(10))
    content = bytearray(archive.read_bytes())
    content[200] ^= 0x10
    archive.write_bytes(content)
    assert "x_train" in refusal(archive).what or "npz" in refusal(archive).what


def test_a_truncated_archive_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10))
    archive.write_bytes(archive.read_bytes()[:-40])
    assert "not a readable npz file" in refusal(archive).what


def write_members(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_a_header_that_promises_too_much_allocates_nothing(archive: Path) -> None:
    lying = npy(images(10, 4, 4)).replace(b"(10, 4, 4), }      ", b"(9999999999, 4, 4),}"[:19])
    write_members(archive, x_train=lying, y_train=npy(labels(10)))
    assert "promises" in refusal(archive).what


def test_a_header_that_is_no_literal_is_refused(archive: Path) -> None:
    write_members(archive, x_train=npy(images(10, 4, 4)).replace(b"(10,", b"((((", 1), y_train=npy(labels(10)))
    assert "not a readable npz file" in refusal(archive).what


def test_pickled_objects_are_never_loaded(archive: Path) -> None:
    write_members(archive, x_train=npy(np.array([{}, []], dtype=object)), y_train=npy(labels(2)))
    assert "Python objects" in refusal(archive).what


def test_missing_keys_are_told_with_those_present(archive: Path) -> None:
    np.savez(archive, images=images(10, 4, 4), targets=labels(10))
    error = refusal(archive)
    assert "images, targets" in error.what
    assert "x_train" in error.remedy


def test_a_split_without_labels_beside_others_with_them_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), x_test=images(10, 4, 4), y_test=labels(10))
    assert "has x_train but no y_train" in refusal(archive).what


def test_val_without_train_is_refused(archive: Path) -> None:
    np.savez(archive, x_val=images(10, 4, 4), y_val=labels(10))
    assert "no x_train" in refusal(archive).what


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


def test_one_sample_cannot_be_divided(archive: Path) -> None:
    np.savez(archive, x_train=images(1, 4, 4), y_train=labels(1))
    assert "1 training samples cannot be divided" in refusal(archive).what


def test_splits_of_different_shapes_are_refused(archive: Path) -> None:
    any_size = TensorInfo("image", "FLOAT", ("N", 1, "H", "W"))
    np.savez(archive, x_train=images(6, 4, 4), y_train=labels(6), x_val=images(6, 5, 5), y_val=labels(6))
    assert "(5, 5)" in refusal(archive, any_size).what


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
