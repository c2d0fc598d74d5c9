"""Shards in WebDataset layout: splits, members, and shards that are rejected."""

import contextlib
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.formats import shards
from ltp_pipeline.errors import InputError
from tests.support.photos import (
    get_open_error,
    make_jpeg,
    make_pairs,
    open_photos,
    read_everything,
    write_file,
    write_shard,
)
from tests.support.samples import only_input


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("large")
def test_read_dataset_shards_equal_class_folders(
    photos: Path, tmp_path: Path, workers: int
) -> None:
    for k in range(2):
        write_shard(tmp_path / "shards" / f"part-{k:06}.tar", make_pairs(range(k, 20, 2)))
    from_shards, other = (
        open_photos(photos, augment=True),
        open_photos(tmp_path / "shards", augment=True, num_workers=workers),
    )
    np.testing.assert_array_equal(from_shards.train.labels, other.train.labels)
    for seed in (None, 4):
        np.testing.assert_array_equal(
            read_everything(from_shards, seed), read_everything(other, seed)
        )


def test_read_dataset_split_folders_are_followed(tmp_path: Path) -> None:
    write_shard(tmp_path / "train" / "0.tar", make_pairs(range(6)))
    write_shard(tmp_path / "val" / "0.tar", make_pairs(range(4)))
    data = open_photos(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (6, 4, 4)
    assert data.val.labels.tolist() == [0, 1, 0, 1]
    before = data.fingerprint
    write_shard(tmp_path / "val" / "1.tar", make_pairs(range(4)))
    assert open_photos(tmp_path).fingerprint != before


def test_read_dataset_splits_follow_the_names_of_shards(tmp_path: Path) -> None:
    write_shard(tmp_path / "imagenet1k-train-0000.tar", make_pairs(range(6)))
    write_shard(tmp_path / "imagenet1k-train-0001.tar", make_pairs(range(6, 10)))
    write_shard(tmp_path / "imagenet1k-validation-00.tar", make_pairs(range(4)))
    data = open_photos(tmp_path)
    assert (len(data.train), len(data.val)) == (10, 4)
    assert "shards were divided by their names: 2 train, 1 val" in data.notes


def test_read_dataset_names_of_one_split_divide_nothing(tmp_path: Path) -> None:
    for i in range(2):
        write_shard(tmp_path / f"train-{i}.tar", make_pairs(range(10 * i, 10 * i + 10)))
    assert len(open_photos(tmp_path).train) == 16


@pytest.mark.parametrize("names", [("train-0.tar", "part-0.tar"), ("val-0.tar", "test-0.tar")])
def test_read_dataset_names_without_train_split_raise(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    for name in names:
        write_shard(tmp_path / name, make_pairs(range(10)))
    message = get_open_error(tmp_path).message
    assert all(name in message for name in names)


def test_read_dataset_shards_without_cls_have_no_labels(tmp_path: Path) -> None:
    assert (
        open_photos(
            write_shard(tmp_path / "0.tar", make_pairs(range(9), labels=False))
        ).train.labels
        is None
    )


def test_can_read_tar_file_next_to_folders_is_ignored(photos: Path) -> None:
    write_file(photos / "photos.tar", b"")
    assert open_photos(photos).class_names == ("a", "b")


def test_read_dataset_other_members_are_ignored(tmp_path: Path) -> None:
    members = [
        (f"n{i}.{ending}", make_jpeg(i)) for i in range(9) for ending in ("jpg", "mask.png", "txt")
    ]
    assert len(open_photos(write_shard(tmp_path / "0.tar", members)).train) == 7


def test_read_dataset_corrupt_image_is_named_with_its_shard(tmp_path: Path) -> None:
    write_shard(tmp_path / "0.tar", [*make_pairs(range(12)), ("bad.jpg", b"x"), ("bad.cls", b"0")])
    assert any("0.tar:bad.jpg " in note for note in open_photos(tmp_path).notes)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            [("a.jpg", make_jpeg(0)), ("a.cls", b"cat")],
            "b'cat'",
        ),
        ([("a.jpg", make_jpeg(0)), ("a.cls", b"9" * 5000)], "a.cls"),
        ([("a.jpg", make_jpeg(0)), ("a.cls", "³".encode())], "a.cls"),
        ([("a.jpg", make_jpeg(0)), ("a.png", make_jpeg(0))], "(jpg, png)"),
        ([("a.json", b"{}")], "(json)"),
        ([("a.jpg", make_jpeg(0)), ("a.jpg", make_jpeg(0))], "a.jpg"),
        ([("a.jpg", make_jpeg(0)), ("a.cls", b"0"), ("b.jpg", make_jpeg(0))], "b.jpg"),
        ([], "samples"),
    ],
)
def test_read_dataset_wrong_members_raise(
    tmp_path: Path, members: list[tuple[str, bytes]], text: str
) -> None:
    write_shard(tmp_path / "0.tar", members)
    assert text in get_open_error(tmp_path).message


def test_read_dataset_truncated_or_compressed_shard_raises(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "0.tar", make_pairs(range(9))).read_bytes()
    write_file(tmp_path / "0.tar", whole[:1000])
    assert "/0.tar " in get_open_error(tmp_path).message
    write_file(tmp_path / "0.tar", b"no tar file at all" * 100)
    assert "/0.tar " in get_open_error(tmp_path).message
    (tmp_path / "0.tar").rename(tmp_path / "0.tar.gz")
    assert "/0.tar.gz " in get_open_error(tmp_path).message


def test_index_shard_end_between_two_members_raises(tmp_path: Path) -> None:
    file = write_shard(tmp_path / "0.tar", make_pairs(range(9)))
    with tarfile.open(file) as tar:
        boundary = tar.getmembers()[8].offset
    for rest in (b"", b"garbage" * 200):
        write_file(file, file.read_bytes()[:boundary] + rest)
        assert f"byte {boundary}" in get_open_error(tmp_path).message


def tar_header(name: str, size: bytes, kind: bytes) -> bytes:
    block = bytearray(
        name.encode().ljust(100, b"\0") + bytes(24) + size + bytes(20) + kind + bytes(355)
    )
    return bytes(summed(block))


def summed(block: bytearray) -> bytearray:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return block


def test_index_shard_circular_headers_raise(tmp_path: Path) -> None:
    none = b"%011o\0" % 0
    negative = tar_header("b.jpg", b"\xff" * 10 + b"\xfc\x00", b"0")  # −1024 in base 256
    write_file(tmp_path / "0.tar", tar_header("a.jpg", none, b"0") * 2 + negative + bytes(1024))
    assert "/0.tar " in get_open_error(tmp_path).message
    write_file(tmp_path / "0.tar", tar_header("x", none, b"L") * 5000 + bytes(1024))
    assert "/0.tar " in get_open_error(tmp_path).message


def test_index_shard_changed_bytes_are_read_or_raise(tmp_path: Path) -> None:
    whole = write_shard(
        tmp_path / "0.tar", [(f"n{i}.{e}", b"1") for i in range(4) for e in ("jpg", "cls")]
    ).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        at = 1024 * int(rng.integers(8))
        for place in at + rng.choice([*range(160), 257, 345], 3):
            content[place] = rng.integers(256)
        content[at : at + 512] = summed(content[at : at + 512])
        file = write_file(tmp_path / "0.tar", bytes(content))
        with contextlib.suppress(InputError):
            shards.index_shard(file)


def test_read_dataset_pickles_are_not_read(tmp_path: Path) -> None:
    samples = (
        [(f"n{i}.pyd", b"cos\nsystem\n."), (f"n{i}.jpg", make_jpeg(i)), (f"n{i}.cls", b"1")]
        for i in range(9)
    )
    write_shard(tmp_path / "0.tar", [member for sample in samples for member in sample])
    assert len(open_photos(tmp_path).train) == 7
    assert [f.name for f in tmp_path.iterdir()] == ["0.tar"]


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "a link"),
        ({"type": tarfile.LNKTYPE, "linkname": "n0.jpg"}, "a link"),
        ({"type": tarfile.CHRTYPE}, "a device or a pipe"),
        ({"type": tarfile.FIFOTYPE}, "a device or a pipe"),
        (
            {"pax_headers": {"GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,0"}},
            "a sparse file",
        ),
        ({"name": "../n9.jpg"}, "outside of the archive"),
        ({"name": "/n9.jpg"}, "outside of the archive"),
        ({"name": "n\udcff9.jpg"}, "UTF-8"),
    ],
)
def test_index_shard_member_that_is_no_plain_file_raises(
    tmp_path: Path, member: dict[str, Any], text: str
) -> None:
    file = write_shard(tmp_path / "0.tar", [(f"n{i}.jpg", make_jpeg(i)) for i in range(3)])
    info = tarfile.TarInfo("n9.jpg")
    for name, value in member.items():
        setattr(info, name, value)
    with tarfile.open(file, "a") as tar:
        tar.addfile(info)
    assert text in get_open_error(tmp_path).message


def test_read_dataset_equals_the_webdataset_library(tmp_path: Path) -> None:
    import webdataset as wds

    with wds.TarWriter(str(tmp_path / "0.tar")) as writer:
        for i in range(9):
            writer.write(
                {
                    "__key__": f"deep.er/n{i:04}",
                    "jpg": make_jpeg(i),
                    "cls": i % 3,
                    "json": {"any": i},
                }
            )
    data = open_photos(tmp_path)
    theirs = list(wds.WebDataset(str(tmp_path / "0.tar"), shardshuffle=False))
    assert len(theirs) == 9
    for split in (data.train, data.val, data.test):
        for place, row in enumerate(split.rows):
            assert split.labels[place] == int(theirs[row]["cls"])
            image = Image.open(io.BytesIO(theirs[row]["jpg"])).resize(
                (8, 8), Image.Resampling.BILINEAR
            )
            expected = np.asarray(image).transpose(2, 0, 1)
            np.testing.assert_array_equal(only_input(split.read(np.array([place])))[0], expected)
