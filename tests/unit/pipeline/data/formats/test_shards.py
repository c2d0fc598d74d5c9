"""Shards in WebDataset layout: what is read, how splits are told, and what bad ones are told."""

import contextlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.formats import shards
from ltp_pipeline.errors import InputError
from tests.support.photos import everything, jpeg, opened, pairs, put, refusal, shard
from tests.support.samples import only


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("large")
def test_shards_hold_what_class_folders_hold(photos: Path, tmp_path: Path, workers: int) -> None:
    for k in range(2):
        shard(tmp_path / "shards" / f"part-{k:06}.tar", pairs(range(k, 20, 2)))
    one, other = (
        opened(photos, augment=True),
        opened(tmp_path / "shards", augment=True, num_workers=workers),
    )
    np.testing.assert_array_equal(one.train.labels, other.train.labels)
    for seed in (None, 4):
        np.testing.assert_array_equal(everything(one, seed), everything(other, seed))


def test_split_folders_of_shards_are_followed(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "0.tar", pairs(range(6)))
    shard(tmp_path / "val" / "0.tar", pairs(range(4)))
    data = opened(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (6, 4, 4)
    assert data.val.labels.tolist() == [0, 1, 0, 1]
    before = data.fingerprint
    shard(tmp_path / "val" / "1.tar", pairs(range(4)))
    assert opened(tmp_path).fingerprint != before


def test_shards_of_one_folder_are_divided_by_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "imagenet1k-train-0000.tar", pairs(range(6)))
    shard(tmp_path / "imagenet1k-train-0001.tar", pairs(range(6, 10)))
    shard(tmp_path / "imagenet1k-validation-00.tar", pairs(range(4)))
    data = opened(tmp_path)
    assert (len(data.train), len(data.val)) == (10, 4)
    assert "shards were divided by their names: 2 train, 1 val" in data.notes


def test_names_that_all_mean_one_split_divide_nothing(tmp_path: Path) -> None:
    for i in range(2):
        shard(tmp_path / f"train-{i}.tar", pairs(range(10 * i, 10 * i + 10)))
    assert len(opened(tmp_path).train) == 16


@pytest.mark.parametrize("names", [("train-0.tar", "part-0.tar"), ("val-0.tar", "test-0.tar")])
def test_names_that_leave_splits_in_doubt_are_told(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        shard(tmp_path / name, pairs(range(10)))
    assert "do not seem to be of one split" in refusal(tmp_path).message


def test_shards_without_cls_have_no_labels(tmp_path: Path) -> None:
    assert opened(shard(tmp_path / "0.tar", pairs(range(9), labels=False))).train.labels is None


def test_a_tar_file_beside_class_folders_is_what_they_came_in(photos: Path) -> None:
    put(photos / "photos.tar", b"")
    assert opened(photos).class_names == ("a", "b")


def test_other_members_of_a_sample_are_passed_over(tmp_path: Path) -> None:
    members = [
        (f"n{i}.{ending}", jpeg(i)) for i in range(9) for ending in ("jpg", "mask.png", "txt")
    ]
    assert len(opened(shard(tmp_path / "0.tar", members)).train) == 7


def test_a_broken_image_in_a_shard_is_named_with_its_shard(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", [*pairs(range(12)), ("bad.jpg", b"x"), ("bad.cls", b"0")])
    assert any("0.tar:bad.jpg cannot be decoded" in note for note in opened(tmp_path).notes)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a.jpg", jpeg(0)), ("a.cls", b"cat")], "a.cls holds b'cat', which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.cls", b"9" * 5000)], "which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.cls", "³".encode())], "which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.png", jpeg(0))], "sample a of"),
        ([("a.json", b"{}")], "has 0 images"),
        ([("a.jpg", jpeg(0)), ("a.jpg", jpeg(0))], "a.jpg is there twice"),
        ([("a.jpg", jpeg(0)), ("a.cls", b"0"), ("b.jpg", jpeg(0))], "b.jpg has no .cls beside it"),
        ([], "hold no samples"),
    ],
)
def test_a_bad_shard_is_told(tmp_path: Path, members: list[tuple[str, bytes]], said: str) -> None:
    shard(tmp_path / "0.tar", members)
    assert said in refusal(tmp_path).message


def test_a_shard_cut_short_or_compressed_or_none_is_told(tmp_path: Path) -> None:
    whole = shard(tmp_path / "0.tar", pairs(range(9))).read_bytes()
    put(tmp_path / "0.tar", whole[:1000])
    assert "0.tar is not a readable tar file" in refusal(tmp_path).message
    put(tmp_path / "0.tar", b"no tar file at all" * 100)
    assert "0.tar is not a readable tar file" in refusal(tmp_path).message
    (tmp_path / "0.tar").rename(tmp_path / "0.tar.gz")
    assert "is compressed" in refusal(tmp_path).message


def test_a_shard_that_ends_between_two_members_is_told(tmp_path: Path) -> None:
    file = shard(tmp_path / "0.tar", pairs(range(9)))
    with tarfile.open(file) as tar:
        boundary = tar.getmembers()[8].offset
    for rest in (b"", b"garbage" * 200):
        put(file, file.read_bytes()[:boundary] + rest)
        assert f"no member and no end stands at byte {boundary}" in refusal(tmp_path).message


def tar_header(name: str, size: bytes, kind: bytes) -> bytes:
    block = bytearray(
        name.encode().ljust(100, b"\0") + bytes(24) + size + bytes(20) + kind + bytes(355)
    )
    return bytes(summed(block))


def summed(block: bytearray) -> bytearray:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return block


def test_headers_that_lead_back_or_nest_without_end_are_told(tmp_path: Path) -> None:
    none = b"%011o\0" % 0
    negative = tar_header("b.jpg", b"\xff" * 10 + b"\xfc\x00", b"0")  # −1024 in base 256
    put(tmp_path / "0.tar", tar_header("a.jpg", none, b"0") * 2 + negative + bytes(1024))
    assert "is not a readable tar file" in refusal(tmp_path).message
    put(tmp_path / "0.tar", tar_header("x", none, b"L") * 5000 + bytes(1024))
    assert "is not a readable tar file" in refusal(tmp_path).message


def test_a_shard_with_changed_bytes_is_read_or_told(tmp_path: Path) -> None:
    whole = shard(
        tmp_path / "0.tar", [(f"n{i}.{e}", b"1") for i in range(4) for e in ("jpg", "cls")]
    ).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        at = 1024 * int(rng.integers(8))
        for place in at + rng.choice([*range(160), 257, 345], 3):
            content[place] = rng.integers(256)
        content[at : at + 512] = summed(content[at : at + 512])
        file = put(tmp_path / "0.tar", bytes(content))
        with contextlib.suppress(InputError):
            shards.index(file)


def test_pickles_in_a_shard_are_not_read(tmp_path: Path) -> None:
    samples = (
        [(f"n{i}.pyd", b"cos\nsystem\n."), (f"n{i}.jpg", jpeg(i)), (f"n{i}.cls", b"1")]
        for i in range(9)
    )
    shard(tmp_path / "0.tar", [member for sample in samples for member in sample])
    assert len(opened(tmp_path).train) == 7
    assert [f.name for f in tmp_path.iterdir()] == ["0.tar"]


@pytest.mark.parametrize(
    ("member", "said"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link"),
        ({"type": tarfile.LNKTYPE, "linkname": "n0.jpg"}, "is a link"),
        ({"type": tarfile.CHRTYPE}, "is no file"),
        ({"type": tarfile.FIFOTYPE}, "is no file"),
        ({"pax_headers": {"GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,0"}}, "is sparse"),
        ({"name": "../n9.jpg"}, "leads out of it"),
        ({"name": "/n9.jpg"}, "leads out of it"),
        ({"name": "n\udcff9.jpg"}, "a name that is no UTF-8"),
    ],
)
def test_a_member_that_is_no_plain_file_inside_is_refused(
    tmp_path: Path, member: dict, said: str
) -> None:
    file = shard(tmp_path / "0.tar", [(f"n{i}.jpg", jpeg(i)) for i in range(3)])
    info = tarfile.TarInfo("n9.jpg")
    for name, value in member.items():
        setattr(info, name, value)
    with tarfile.open(file, "a") as tar:
        tar.addfile(info)
    assert said in refusal(tmp_path).message


def test_the_webdataset_library_reads_and_writes_the_same(tmp_path: Path) -> None:
    import webdataset as wds

    with wds.TarWriter(str(tmp_path / "0.tar")) as writer:
        for i in range(9):
            writer.write(
                {"__key__": f"deep.er/n{i:04}", "jpg": jpeg(i), "cls": i % 3, "json": {"any": i}}
            )
    data = opened(tmp_path)
    theirs = list(wds.WebDataset(str(tmp_path / "0.tar"), shardshuffle=False))
    assert len(theirs) == 9
    for split in (data.train, data.val, data.test):
        for place, row in enumerate(split.rows):
            assert split.labels[place] == int(theirs[row]["cls"])
            image = Image.open(io.BytesIO(theirs[row]["jpg"])).resize(
                (8, 8), Image.Resampling.BILINEAR
            )
            expected = np.asarray(image).transpose(2, 0, 1)
            np.testing.assert_array_equal(only(split.read(np.array([place])))[0], expected)
