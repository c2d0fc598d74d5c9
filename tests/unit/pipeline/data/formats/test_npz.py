"""NumPy archives: splits, inputs and sequences, and archives that are rejected."""

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings, InputSettings, TaskSettings
from tests.support.archives import GREY, get_open_error, make_images, make_labels, open_archive
from tests.support.samples import only_input


def test_read_dataset_splits_are_those_of_the_archive(archive: Path) -> None:
    x = make_images(12, 4, 4)
    np.savez(
        archive,
        x_train=x[:6],
        y_train=[0, 1, 2, 0, 1, 2],
        x_val=x[6:9],
        y_val=[2, 1, 0],
        x_test=x[9:],
        y_test=[4, 4, 4],
    )
    data = open_archive(archive)
    assert (data.train.name, data.val.name, data.test.name) == ("train", "val", "test")
    assert (len(data.train), len(data.val), len(data.test), data.num_classes, data.notes) == (
        6,
        3,
        3,
        5,
        (),
    )
    np.testing.assert_array_equal(
        only_input(data.test.read(np.array([2, 0]))), x[[11, 9], None].astype(np.float32)
    )
    assert data.val.labels.dtype == np.int64
    np.testing.assert_array_equal(data.val.labels, [2, 1, 0])


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 a jpeg", b"PK\x03\x04 cut short"])
def test_read_dataset_file_that_is_no_archive_raises(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert str(archive) in get_open_error(archive).message


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_read_dataset_flipped_bit_raises(archive: Path, save: Any) -> None:
    save(archive, x_train=make_images(10, 4, 4), y_train=make_labels(10))
    content = bytearray(archive.read_bytes())
    content[200] ^= 0x10
    archive.write_bytes(content)
    assert "x_train" in get_open_error(archive).message or "npz" in get_open_error(archive).message


def test_read_dataset_truncated_archive_raises(archive: Path) -> None:
    np.savez(archive, x_train=make_images(10, 4, 4), y_train=make_labels(10))
    archive.write_bytes(archive.read_bytes()[:-40])
    assert str(archive) in get_open_error(archive).message


def write_members(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_read_dataset_header_with_too_many_samples_raises(archive: Path) -> None:
    header = b"(10, 4, 4), }      "
    lying = npy(make_images(10, 4, 4)).replace(header, b"(9999999999,4,4), }".ljust(len(header)))
    write_members(archive, x_train=lying, y_train=npy(make_labels(10)))
    assert f"{9_999_999_999 * 16} bytes" in get_open_error(archive).message


def test_read_dataset_header_that_is_no_literal_raises(archive: Path) -> None:
    write_members(
        archive,
        x_train=npy(make_images(10, 4, 4)).replace(b"(10,", b"((((", 1),
        y_train=npy(make_labels(10)),
    )
    assert str(archive) in get_open_error(archive).message


def test_read_dataset_pickled_objects_raise(archive: Path) -> None:
    write_members(
        archive, x_train=npy(np.array([{}, []], dtype=object)), y_train=npy(make_labels(2))
    )
    assert "x_train" in get_open_error(archive).message


def test_read_dataset_missing_arrays_name_the_present_ones(archive: Path) -> None:
    np.savez(archive, images=make_images(10, 4, 4), targets=make_labels(10))
    error = get_open_error(archive)
    assert "'image'" in error.message
    assert "'images'" in error.message
    assert "'targets'" in error.message
    assert "image_train" in error.hint


def test_read_dataset_split_without_labels_raises(archive: Path) -> None:
    np.savez(
        archive, x_train=make_images(10, 4, 4), x_test=make_images(10, 4, 4), y_test=make_labels(10)
    )
    assert "y_train" in get_open_error(archive).message


def test_read_dataset_val_without_train_raises(archive: Path) -> None:
    np.savez(archive, x_val=make_images(10, 4, 4), y_val=make_labels(10))
    assert "x_train" in get_open_error(archive).message


def test_read_dataset_each_input_has_its_arrays(archive: Path) -> None:
    ids, ages = np.arange(24).reshape(6, 4), np.arange(6, dtype=np.float32)[:, None]
    np.savez(
        archive,
        **{
            f"{n}_{s}": a
            for s in ("train", "val", "test")
            for n, a in (("ids", ids), ("age", ages))
        },
    )
    inputs = [TensorInfo("age", "FLOAT", ("N", 1)), TensorInfo("ids", "INT64", ("N", 4))]
    data = open_data(DataSettings(path=archive, scale=0.5), inputs, 0)
    batch = data.test.read(np.array([5, 2]))
    np.testing.assert_array_equal(
        batch.inputs["ids"], ids[[5, 2]]
    )  # untouched by the scale, which is for fractions
    np.testing.assert_array_equal(batch.inputs["age"], ages[[5, 2]] * 0.5)


def test_read_dataset_each_input_has_its_settings(archive: Path) -> None:
    np.savez(
        archive, a=make_images(10, 2, dtype=np.float32), b=make_images(10, 2, dtype=np.float32)
    )
    inputs = [TensorInfo(name, "FLOAT", ("N", 2)) for name in ("a", "b")]
    settings = DataSettings(path=archive, scale=0.5, inputs={"b": InputSettings(scale=2.0)})
    batch = open_data(settings, inputs, 0).test.read_first(1)
    np.testing.assert_array_equal(batch.inputs["a"] * 4, batch.inputs["b"])


def refused(archive: Path, inputs: list[TensorInfo], **task: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        open_data(DataSettings(path=archive), inputs, 0, TaskSettings(**task))
    return caught.value


def test_read_dataset_input_without_array_raises(archive: Path) -> None:
    np.savez(archive, a=make_images(10, 2), y=make_labels(10))
    error = refused(
        archive, [TensorInfo("a", "FLOAT", ("N", 2)), TensorInfo("b", "FLOAT", ("N", 2))]
    )
    assert "'b'" in error.message


def test_read_dataset_unused_array_raises(archive: Path) -> None:
    np.savez(archive, x=make_images(10, 4, 4), extra=make_images(10, 2), y=make_labels(10))
    error = refused(archive, [GREY])
    assert "'extra'" in error.message
    assert 'target = "extra"' in error.hint


def test_read_dataset_target_may_have_any_name(archive: Path) -> None:
    np.savez(archive, x=make_images(10, 4, 4), species=make_labels(10))
    assert (
        open_data(DataSettings(path=archive), [GREY], 0, TaskSettings(target="species")).num_classes
        == 5
    )


SEQUENCES = [[1], [2, 3, 4], [5, 6], [7, 8, 9, 10], [11], [12, 13]]


def ragged(name: str = "ids") -> dict[str, np.ndarray]:
    lengths = [len(s) for s in SEQUENCES]
    return {name: np.concatenate(SEQUENCES), f"{name}_offsets": np.cumsum([0, *lengths])}


TOKENS = [TensorInfo("ids", "INT64", ("N", "T")), TensorInfo("attention_mask", "INT64", ("N", "T"))]


def test_read_dataset_sequences_are_padded_to_the_longest_of_a_batch(archive: Path) -> None:
    np.savez(archive, **ragged())
    split = open_data(DataSettings(path=archive, padding_value=99), TOKENS, 0).train
    rows = split.rows.tolist()
    batch = split.read(np.arange(2))
    expected = [SEQUENCES[row] for row in rows[:2]]
    longest = max(map(len, expected))
    assert batch.inputs["ids"].tolist() == [s + [99] * (longest - len(s)) for s in expected]
    assert batch.inputs["attention_mask"].tolist() == [
        [1] * len(s) + [0] * (longest - len(s)) for s in expected
    ]
    assert batch.inputs["attention_mask"].dtype == np.int64


def test_read_dataset_sequences_are_padded_to_a_fixed_length(archive: Path) -> None:
    np.savez(archive, **ragged())
    inputs = [TensorInfo("ids", "INT64", ("N", 6)), TensorInfo("mask", "FLOAT", ("N", 6))]
    batch = open_data(DataSettings(path=archive), inputs, 0).test.read_first(1)
    assert (batch.inputs["ids"].shape, batch.inputs["mask"].dtype) == ((1, 6), np.float32)
    shorter = [TensorInfo("ids", "INT64", ("N", 3)), TensorInfo("mask", "FLOAT", ("N", 3))]
    parts = r"\b3 values.*\bsample 3 of ids of data\.npz\b.*\b4\b"
    assert re.search(parts, refused(archive, shorter).message)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ([0, 1, 13, 12, 13], "offset 2"),
        ([1, 13], " 1"),
        ([0, 12], "12"),
        ([0.0, 13], "float64"),
    ],
)
def test_read_dataset_wrong_offsets_raise(archive: Path, offsets: list[int], text: str) -> None:
    np.savez(archive, **{**ragged(), "ids_offsets": np.array(offsets)})
    assert text in refused(archive, TOKENS).message


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.data())
def test_take_padded_sequences_hold_their_values_and_padding_only(
    sequences: list[list[int]], data: st.DataObject
) -> None:
    values = np.array([v for s in sequences for v in s], np.int64)
    samples = RaggedSamples(values, np.cumsum([0, *map(len, sequences)]), pad=-1)
    rows = np.array(data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=6)))
    padded, inside = samples.take(rows), MaskSamples(samples).take(rows)
    assert [row[mask].tolist() for row, mask in zip(padded, inside, strict=True)] == [
        sequences[row] for row in rows
    ]
    assert (padded[~inside] == -1).all()


def test_read_dataset_archive_that_unpacks_to_far_more_raises_unread(
    archive: Path, monkeypatch
) -> None:
    np.savez_compressed(archive, x=np.zeros((2**17, 4, 4), np.uint8), y=np.zeros(2**17))
    open_archive(archive)
    monkeypatch.setattr("ltp_pipeline.data.limits.FREE_BYTES", 2**20)
    monkeypatch.setattr(
        "ltp_pipeline.data.formats.npz._load_array", lambda *_: pytest.fail("was read")
    )
    error = get_open_error(archive)
    assert "3,145,984" in error.message
    assert "1,048,576" in error.message
    assert "max_bytes" in error.hint


def test_read_dataset_max_bytes_raises_and_lowers_the_limit(archive: Path) -> None:
    np.savez(archive, x=make_images(10, 4, 4), y=make_labels(10))
    size = archive.stat().st_size
    assert "100 bytes" in get_open_error(archive, max_bytes=100).message
    open_archive(archive, max_bytes=size)


def test_read_dataset_too_small_size_in_the_directory_raises(archive: Path) -> None:
    write_members(archive, x=npy(make_images(10, 4, 4)), y=npy(make_labels(10)))
    content = bytearray(archive.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (200).to_bytes(4, "little")
    archive.write_bytes(content)
    assert "CRC" in get_open_error(archive).message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_read_dataset_duplicate_member_raises(archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("x", "y", "x"):
            file.writestr(f"{name}.npy", npy(make_labels(10)))
    assert "x.npy" in get_open_error(archive).message


def test_read_dataset_link_to_an_archive_is_followed_and_noted(archive: Path) -> None:
    np.savez(archive, x=make_images(30, 4, 4), y=make_labels(30))
    archive.with_name("link.npz").symlink_to(archive)
    assert "link" in open_archive(archive.with_name("link.npz")).notes[0]
