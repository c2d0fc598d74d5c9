"""Mutants of image folders and shards: sizes, frames, folders, members and tar headers."""

from __future__ import annotations

import io
import os
import random
import shutil
import struct
import tarfile
import zlib
from pathlib import Path

from PIL import Image

from tests.fuzz.file_mutants import Mutant, choose_file
from tests.fuzz.model_mutants import corrupt_bytes
from tests.support import data_sets


def _make_png(width: int, height: int, mode: int = 0, bits: int = 8, rows: int = 1) -> bytes:
    """Return a PNG of zeros with this header, of which only `rows` rows are there."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    pixels = zlib.compress(bytes((width + 1) * rows), 9)
    head = struct.pack(">IIBBBBB", width, height, bits, mode, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def declare_larger_image(path: Path, rng: random.Random) -> None:
    width, height = rng.choice(
        (
            (80_000_000, 1),
            (1, 80_000_000),
            (40_000, 40_000),
            (2**31 - 1, 1),
            (70_000, 1),
            (8_000, 9_999),
        )
    )
    (choose_file(path, rng)).write_bytes(_make_png(width, height))


def corrupt_image(path: Path, rng: random.Random) -> None:
    """Replace an image by one of another size, mode, depth, format, or of several frames."""
    size = rng.choice(((1, 1), (3, 200), (64, 64)))
    frames = [Image.new("RGB", size, (n * 40, 9, 9)) for n in range(3)]
    file = io.BytesIO()
    kind = rng.choice(("GIF", "PNG", "WEBP", "TIFF", "BMP", "JPEG", "PPM", "ICO", "PCX"))
    mode = rng.choice(("RGB", "L", "P", "1", "RGBA", "CMYK", "I;16", "F"))
    try:
        if kind in ("GIF", "PNG", "WEBP", "TIFF") and rng.random() < 0.6:
            frames[0].save(file, kind, save_all=True, append_images=frames[1:])
        else:
            frames[0].convert(mode).save(file, kind)
    except (OSError, ValueError, KeyError):  # which Pillow does not write
        frames[0].save(file, "GIF")
    content = file.getvalue()
    target = choose_file(path, rng)
    target.write_bytes(corrupt_bytes(content, rng) if rng.random() < 0.5 else content)


def corrupt_folder(path: Path, rng: random.Random) -> None:
    """Add a folder that is empty, full of links, or a link."""
    name = rng.choice(
        (b"class9", b"train", b"test", b"\xff\xfe", b"new\nline", b".hidden", b"x" * 200)
    )
    folder = Path(os.fsdecode(os.fsencode(path) + b"/" + name))
    kind = rng.randrange(5)
    if kind == 0:
        folder.mkdir()
    elif kind == 1:
        folder.symlink_to(path)
    elif kind == 2:
        folder.symlink_to("/usr")
    elif kind == 3:
        shutil.copytree(next(f for f in path.iterdir() if f.is_dir()), folder, symlinks=True)
    else:
        folder.mkdir()
        (folder / "deep").symlink_to(path)


IMAGES: tuple[Mutant, ...] = (declare_larger_image, corrupt_image, corrupt_image)
CLASS_FOLDERS: tuple[Mutant, ...] = (*IMAGES, corrupt_folder)


# Shards


def corrupt_shard_member(path: Path, rng: random.Random) -> None:
    """Change a member to a link, device, sparse file, incorrect size or unknown class."""
    info = tarfile.TarInfo(
        rng.choice(
            (
                "n98.png",
                "../n98.png",
                "/n98.png",
                "n98." + "x" * 3000,
                "n\udcff98.png",
                "n98.cls",
                "n98",
            )
        )
    )
    content = rng.choice(
        (
            data_sets.png(data_sets.arrays()["x"][0]),
            b"1",
            b"-1",
            b"9" * 40,
            b"\xb2",
            b"",
            _make_png(80_000_000, 1),
        )
    )
    info.type = rng.choice(
        (tarfile.REGTYPE,) * 4
        + (
            tarfile.SYMTYPE,
            tarfile.LNKTYPE,
            tarfile.CHRTYPE,
            tarfile.FIFOTYPE,
            tarfile.DIRTYPE,
            tarfile.GNUTYPE_SPARSE,
            tarfile.CONTTYPE,
        )
    )
    info.linkname = "/etc/passwd" if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    sparse = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "n99.png",
        "GNU.sparse.realsize": str(2**40),
    }
    info.pax_headers = rng.choice(
        (
            {},
            {},
            {"size": str(rng.choice((-1, 0, 2**40, 2**70)))},
            sparse,
            {"path": "../../n99.png"},
        )
    )
    info.size = len(content)
    with tarfile.open(choose_file(path, rng), "a") as tar:
        tar.addfile(info, io.BytesIO(content))


def corrupt_tar_header(path: Path, rng: random.Random) -> None:
    """Change a field of a header and correct its checksum."""
    file = choose_file(path, rng)
    content = bytearray(file.read_bytes())
    at = 512 * rng.randrange(len(content) // 512 - 3)
    head = content[at : at + 512]
    head[rng.choice((0, 100, 124, 125, 135, 156, 157, 257, 345))] = rng.randrange(256)
    if rng.random() < 0.3:
        head[124:136] = b"\x80" + rng.choice((0, 2**40, 2**62, 2**87)).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    content[at : at + 512] = head
    file.write_bytes(content)


SHARDS: tuple[Mutant, ...] = (corrupt_shard_member, corrupt_shard_member, corrupt_tar_header)
