"""Mutants of NumPy archives, IDX files and tables: types, sizes and members in their headers."""

from __future__ import annotations

import gzip
import io
import random
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from tests.fuzz.file_mutants import NAMES, Mutant, choose_file, corrupt_content
from tests.support import data_sets

DTYPES = "? i1 u2 >u2 i4 u4 >i4 i8 u8 >u8 f2 >f4 f8 f16 c8 U3 S3 M8[s] V4".split(" ")  # noqa: SIM905 - in one line
SIZES = (0, 1, 2, 3, 25, 2**16, 2**31 - 1, 2**32 - 1)


def _corrupt_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind = rng.randrange(7)
    with np.errstate(all="ignore"):
        if kind == 0:
            return array.astype(rng.choice(DTYPES))
        if kind == 1:  # the largest numbers of a type
            dtype = np.dtype(rng.choice(("u4", "u8", "i8", "f4", "f8")))
            top = np.iinfo(dtype).max if dtype.kind in "iu" else np.finfo(dtype).max
            return np.full(array.shape, top, dtype) - array.astype(dtype) * rng.choice((0, 1))
        if kind == 2:
            return np.where(
                np.arange(array.size).reshape(array.shape) == 3,
                rng.choice((np.nan, np.inf, -np.inf, -1, 1e30)),
                array,
            )
    if kind == 3:
        return array[: rng.randrange(len(array))]
    if kind == 4:
        return array.reshape(-1) if rng.random() < 0.5 else array[..., None]
    if kind == 5:
        return np.zeros((len(array), *rng.choice(((0,), (1, 0, 8), (2,) * 30))))
    return np.asfortranarray(array)


def _encode_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _make_bad_header(rng: random.Random) -> bytes:
    """Return a header of an array file that NumPy would not write."""
    shape = tuple(
        rng.choice((0, 1, -1, -24, 24, 8, 2**31, 2**62, 10**30)) for _ in range(rng.randrange(6))
    )
    descr = rng.choice(
        ("|u1", "<f4", "|O", "<U2000000000", "|V2147483647", [("a", "<f4"), ("b", "|O")], "no type")
    )
    text = repr(
        {
            "descr": descr,
            "fortran_order": rng.choice((False, True, 3)),
            "shape": rng.choice((shape, 24, None, (*shape, "a"))),
        }
    )
    text = rng.choice((text, text, "(" * 3000, "{" + text, text * 50, "__import__('os').abort()"))
    version = rng.choice((b"\1\0", b"\2\0", b"\3\0", b"\7\7"))
    length = struct.pack(
        "<H" if version == b"\1\0" else "<I", min(len(text), 65535) + rng.choice((0, 0, 5))
    )
    return b"\x93NUMPY" + version + length + text.encode() + b"\0" * 64


def corrupt_npy(path: Path, rng: random.Random) -> None:
    file = choose_file(path, rng)
    file.write_bytes(
        _make_bad_header(rng)
        if rng.random() < 0.5
        else _encode_npy(_corrupt_array(np.load(file), rng))
    )


def declare_larger_npy(path: Path, rng: random.Random) -> None:
    array = np.lib.format.open_memmap(path / "x.npy", "w+", np.uint8, (2**30, 1, 8, 8))
    del array
    assert rng


NPY: tuple[Mutant, ...] = (corrupt_npy, corrupt_npy, declare_larger_npy)


def _read_members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write_archive(
    path: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED
) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)


def corrupt_member(path: Path, rng: random.Random) -> None:
    members = _read_members(path)
    name = rng.choice(sorted(members))
    members[name] = (
        _make_bad_header(rng)
        if rng.random() < 0.4
        else _encode_npy(_corrupt_array(np.load(io.BytesIO(members[name])), rng))
    )
    _write_archive(
        path,
        list(members.items()),
        rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)),
    )


def change_member_names(path: Path, rng: random.Random) -> None:
    members = list(_read_members(path).items())
    x, y = members
    name = rng.choice(NAMES).decode(errors="surrogateescape").replace("\udcff\udcfe", "ÿþ")
    added_names = rng.choice(
        (
            [x],
            [("../x.npy", x[1])],
            [("/x.npy", x[1])],
            [(f"{name}.npy", x[1])],
            [("x_train.npy", x[1])],
            [("x_offsets.npy", y[1])],
        )
    )
    _write_archive(path, [*members, *added_names])


def add_zip_bomb(path: Path, rng: random.Random) -> None:
    """Add zeros that are compressed a thousandfold."""
    size, often = rng.choice(((2**30, 1), (2**32, 1), (2**28, 20)))
    piece = 2**22
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for nth in range(often):
            name = "x.npy" if often == 1 else f"x{nth}_train.npy"
            with archive.open(name, "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "|u1", "fortran_order": False, "shape": (size // 64, 1, 8, 8)}
                )
                file.write(bytes(piece))
    content = path.read_bytes()  # the central directory promises what the header does
    real, declared_size = piece + 128, size + 128
    path.write_bytes(
        content.replace(struct.pack("<I", real), struct.pack("<I", min(declared_size, 2**32 - 1)))
    )


def change_zip_flags(path: Path, rng: random.Random) -> None:
    """Mark a member as encrypted or compressed by an unknown method."""
    content = bytearray(path.read_bytes())
    at = content.find(b"PK\x01\x02")
    content[at + rng.choice((8, 10, 20, 24, 42))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


NPZ: tuple[Mutant, ...] = (
    corrupt_member,
    corrupt_member,
    change_member_names,
    add_zip_bomb,
    change_zip_flags,
)


# IDX


def _write_idx(path: Path, rng: random.Random, content: bytes) -> None:
    file = choose_file(path, rng)
    file.write_bytes(gzip.compress(content, mtime=0) if file.suffix == ".gz" else content)


def corrupt_idx(path: Path, rng: random.Random) -> None:
    shape = tuple(rng.choice(SIZES) for _ in range(rng.randrange(6)))
    kind = rng.choice((0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E, 0x0F, 0))
    _write_idx(
        path,
        rng,
        data_sets.idx(rng.choice((np.zeros(0, np.uint8), np.zeros(64, np.uint8))), shape, kind),
    )


def make_gzip_bomb(path: Path, rng: random.Random) -> None:
    count = rng.choice((2**24, 2**26))
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, count, 8, 8)
    piece = zlib.compressobj(9, wbits=31)
    packed = piece.compress(head + bytes(2**24)) + piece.flush()
    (path / "train-images-idx3-ubyte.gz").write_bytes(
        packed + gzip.compress(bytes(2**24), mtime=0) * (count * 64 // 2**24 - 1)
    )
    (path / "train-images-idx3-ubyte").unlink(missing_ok=True)
    assert rng


IDX: tuple[Mutant, ...] = (corrupt_idx, corrupt_idx, make_gzip_bomb)


# Tables


def corrupt_table(path: Path, rng: random.Random) -> None:
    """Change columns to other types, gaps, or a billion equal values in a few bytes."""
    import pyarrow as pa
    from pyarrow import ipc
    from pyarrow import parquet as files

    columns = data_sets.table()
    x, y = columns.column("x"), columns.column("y")
    kind = rng.randrange(10) % 6
    if kind == 0:
        many = pa.array(np.zeros(2**20, np.int64))
        columns = pa.table({"x": pa.chunked_array([many] * 36)})
    elif kind == 1:
        columns = pa.table({"x": x, "y": pa.array([None, *y.to_pylist()[1:]])})
    elif kind == 2:
        types = (
            pa.string(),
            pa.float16(),
            pa.decimal128(9, 2),
            pa.date32(),
            pa.bool_(),
            pa.uint64(),
            pa.binary(),
        )
        try:
            columns = pa.table({"x": x, "y": y.cast(rng.choice(types))})
        except pa.ArrowException:
            columns = pa.table({"x": x, "y": pa.array(["a"] * len(y))})
    elif kind == 3:
        name = rng.choice(NAMES).decode(errors="replace")
        columns = pa.table({name: x, "y": y})
    elif kind == 4:
        columns = pa.table({"x": pa.array([[1] * (n % 3) for n in range(len(y))]), "y": y})
    else:
        columns = pa.table(
            {
                "x": pa.array([[[[n]]] for n in range(len(y))]).dictionary_encode()
                if rng.random() < 0.3
                else y,
                "y": y,
            }
        )
    file = choose_file(path, rng)
    if file.suffix == ".parquet":
        files.write_table(columns, file, compression=rng.choice(("snappy", "gzip", "zstd", "none")))
    else:
        options = ipc.IpcWriteOptions(compression=rng.choice((None, "zstd", "lz4")))
        with ipc.new_stream(str(file), columns.schema, options=options) as writer:
            writer.write_table(columns)


TABLES: tuple[Mutant, ...] = (corrupt_table, corrupt_content)
