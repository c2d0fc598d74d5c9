"""npz files: what is read, how it is divided, and what each bad file is told."""

import io
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
from tests.support.archives import GREY, images, labels, opened, refusal
from tests.support.samples import only


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
    assert (len(data.train), len(data.val), len(data.test), data.num_classes, data.notes) == (
        6,
        3,
        3,
        5,
        (),
    )
    np.testing.assert_array_equal(
        only(data.test.read(np.array([2, 0]))), x[[11, 9], None].astype(np.float32)
    )
    assert data.val.labels.dtype == np.int64
    np.testing.assert_array_equal(data.val.labels, [2, 1, 0])


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff\xe0 a jpeg", b"PK\x03\x04 cut short"])
def test_a_file_that_is_no_archive_is_refused(archive: Path, content: bytes) -> None:
    archive.write_bytes(content)
    assert "not a readable npz file" in refusal(archive).message


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_flipped_bit_in_an_array_is_noticed(archive: Path, save: Any) -> None:
    save(archive, x_train=images(10, 4, 4), y_train=labels(10))
    content = bytearray(archive.read_bytes())
    content[200] ^= 0x10
    archive.write_bytes(content)
    assert "x_train" in refusal(archive).message or "npz" in refusal(archive).message


def test_a_truncated_archive_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), y_train=labels(10))
    archive.write_bytes(archive.read_bytes()[:-40])
    assert "not a readable npz file" in refusal(archive).message


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
    assert "promises" in refusal(archive).message


def test_a_header_that_is_no_literal_is_refused(archive: Path) -> None:
    write_members(
        archive, x_train=npy(images(10, 4, 4)).replace(b"(10,", b"((((", 1), y_train=npy(labels(10))
    )
    assert "not a readable npz file" in refusal(archive).message


def test_pickled_objects_are_never_loaded(archive: Path) -> None:
    write_members(archive, x_train=npy(np.array([{}, []], dtype=object)), y_train=npy(labels(2)))
    assert "Python objects" in refusal(archive).message


def test_missing_keys_are_told_with_those_present(archive: Path) -> None:
    np.savez(archive, images=images(10, 4, 4), targets=labels(10))
    error = refusal(archive)
    assert "'images', 'targets'" in error.message
    assert "image_train" in error.hint


def test_a_split_without_labels_beside_others_with_them_is_refused(archive: Path) -> None:
    np.savez(archive, x_train=images(10, 4, 4), x_test=images(10, 4, 4), y_test=labels(10))
    assert "has x_train but no y_train" in refusal(archive).message


def test_val_without_train_is_refused(archive: Path) -> None:
    np.savez(archive, x_val=images(10, 4, 4), y_val=labels(10))
    assert "no x_train" in refusal(archive).message


def test_each_input_has_its_own_arrays(archive: Path) -> None:
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


def test_an_input_has_settings_of_its_own(archive: Path) -> None:
    np.savez(archive, a=images(10, 2, dtype=np.float32), b=images(10, 2, dtype=np.float32))
    inputs = [TensorInfo(name, "FLOAT", ("N", 2)) for name in ("a", "b")]
    settings = DataSettings(path=archive, scale=0.5, inputs={"b": InputSettings(scale=2.0)})
    batch = open_data(settings, inputs, 0).test.read_first(1)
    np.testing.assert_array_equal(batch.inputs["a"] * 4, batch.inputs["b"])


def refused(archive: Path, inputs: list[TensorInfo], **task: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        open_data(DataSettings(path=archive), inputs, 0, TaskSettings(**task))
    return caught.value


def test_an_input_without_data_is_named(archive: Path) -> None:
    np.savez(archive, a=images(10, 2), y=labels(10))
    error = refused(
        archive, [TensorInfo("a", "FLOAT", ("N", 2)), TensorInfo("b", "FLOAT", ("N", 2))]
    )
    assert "input 'b' has no data" in error.message


def test_data_that_no_input_takes_are_named(archive: Path) -> None:
    np.savez(archive, x=images(10, 4, 4), extra=images(10, 2), y=labels(10))
    error = refused(archive, [GREY])
    assert "'extra', which no input of the model takes" in error.message
    assert 'target = "extra"' in error.hint


def test_the_target_may_have_any_name(archive: Path) -> None:
    np.savez(archive, x=images(10, 4, 4), species=labels(10))
    assert (
        open_data(DataSettings(path=archive), [GREY], 0, TaskSettings(target="species")).num_classes
        == 5
    )


SEQUENCES = [[1], [2, 3, 4], [5, 6], [7, 8, 9, 10], [11], [12, 13]]


def ragged(name: str = "ids") -> dict[str, np.ndarray]:
    lengths = [len(s) for s in SEQUENCES]
    return {name: np.concatenate(SEQUENCES), f"{name}_offsets": np.cumsum([0, *lengths])}


TOKENS = [TensorInfo("ids", "INT64", ("N", "T")), TensorInfo("attention_mask", "INT64", ("N", "T"))]


def test_sequences_are_padded_to_the_longest_of_their_batch_and_masked(archive: Path) -> None:
    np.savez(archive, **ragged())
    split = open_data(DataSettings(path=archive, padding_value=99), TOKENS, 0).train
    rows = split.rows.tolist()
    batch = split.read(np.arange(2))
    wanted = [SEQUENCES[row] for row in rows[:2]]
    longest = max(map(len, wanted))
    assert batch.inputs["ids"].tolist() == [s + [99] * (longest - len(s)) for s in wanted]
    assert batch.inputs["attention_mask"].tolist() == [
        [1] * len(s) + [0] * (longest - len(s)) for s in wanted
    ]
    assert batch.inputs["attention_mask"].dtype == np.int64


def test_sequences_are_padded_to_the_length_that_the_model_fixes(archive: Path) -> None:
    np.savez(archive, **ragged())
    inputs = [TensorInfo("ids", "INT64", ("N", 6)), TensorInfo("mask", "FLOAT", ("N", 6))]
    batch = open_data(DataSettings(path=archive), inputs, 0).test.read_first(1)
    assert (batch.inputs["ids"].shape, batch.inputs["mask"].dtype) == ((1, 6), np.float32)
    shorter = [TensorInfo("ids", "INT64", ("N", 3)), TensorInfo("mask", "FLOAT", ("N", 3))]
    assert "sample 3 of ids of data.npz has length 4" in refused(archive, shorter).message


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([0, 1, 13, 12, 13], "falls after offset 2"),
        ([1, 13], "begins with 1"),
        ([0, 12], "ends with 12"),
        ([0.0, 13], "float64"),
    ],
)
def test_offsets_that_do_not_add_up_are_refused(
    archive: Path, offsets: list[int], said: str
) -> None:
    np.savez(archive, **{**ragged(), "ids_offsets": np.array(offsets)})
    assert said in refused(archive, TOKENS).message


@given(st.lists(st.lists(st.integers(0, 99), max_size=5), min_size=1, max_size=8), st.data())
def test_padding_loses_nothing_and_adds_only_what_pads(
    sequences: list[list[int]], data: st.DataObject
) -> None:
    values = np.array([v for s in sequences for v in s], np.int64)
    samples = RaggedSamples(values, np.cumsum([0, *map(len, sequences)]), pad=-1)
    rows = np.array(data.draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=6)))
    padded, inside = samples.take(rows), MaskSamples(samples).take(rows)
    assert [row[kept].tolist() for row, kept in zip(padded, inside, strict=True)] == [
        sequences[row] for row in rows
    ]
    assert (padded[~inside] == -1).all()


def test_an_archive_that_unpacks_to_far_more_than_its_size_is_refused_unread(
    archive: Path, monkeypatch
) -> None:
    np.savez_compressed(archive, x=np.zeros((2**17, 4, 4), np.uint8), y=np.zeros(2**17))
    opened(archive)
    monkeypatch.setattr("ltp_pipeline.data.limits.FREE_BYTES", 2**20)
    monkeypatch.setattr("ltp_pipeline.data.formats.npz._load", lambda *_: pytest.fail("was read"))
    error = refusal(archive)
    assert "says that it holds 3,145,984; at most 1,048,576 are read" in error.message
    assert "max_bytes" in error.hint


def test_a_limit_of_ones_own_holds_in_both_directions(archive: Path) -> None:
    np.savez(archive, x=images(10, 4, 4), y=labels(10))
    size = archive.stat().st_size
    assert "at most 100 are read" in refusal(archive, max_bytes=100).message
    opened(archive, max_bytes=size)


def test_a_size_in_the_directory_that_is_too_small_reads_no_more(archive: Path) -> None:
    write_members(archive, x=npy(images(10, 4, 4)), y=npy(labels(10)))
    content = bytearray(archive.read_bytes())
    at = content.index(b"PK\x01\x02") + 24
    content[at : at + 4] = (200).to_bytes(4, "little")
    archive.write_bytes(content)
    assert "not a readable npz file: Bad CRC-32" in refusal(archive).message


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("x", "y", "x"):
            file.writestr(f"{name}.npy", npy(labels(10)))
    assert "member x.npy" in refusal(archive).message
    assert "is there twice" in refusal(archive).message


def test_a_link_to_an_archive_is_followed_and_noted(archive: Path) -> None:
    np.savez(archive, x=images(30, 4, 4), y=labels(30))
    archive.with_name("link.npz").symlink_to(archive)
    assert (
        opened(archive.with_name("link.npz")).notes[0]
        == "1 file of the data is a link and was followed"
    )
