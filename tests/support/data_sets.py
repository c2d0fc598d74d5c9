"""A small data set in every format that is read: 1×8×8 grey images of three classes."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

COUNT, CLASSES = 24, 3


def arrays(dtype: object = np.uint8) -> dict[str, np.ndarray]:
    """Return arrays `x` and `y`; the class is the brightness."""
    y = np.arange(COUNT) % CLASSES
    noise = np.random.default_rng(0).integers(0, 40, (COUNT, 1, 8, 8))
    return {"x": (80 * y[:, None, None, None] + noise).astype(dtype), "y": y.astype(np.int64)}


def png(x: np.ndarray) -> bytes:
    """Return an image as the bytes of a PNG file."""
    file = io.BytesIO()
    Image.fromarray(x[0]).save(file, "PNG")
    return file.getvalue()


def idx(array: np.ndarray, shape: tuple[int, ...] | None = None, kind: int = 8) -> bytes:
    """Return the bytes of an IDX file; its header may have another shape or type."""
    sizes = array.shape if shape is None else shape
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, kind, len(sizes), *sizes) + array.tobytes()


def npz(folder: Path) -> Path:
    """Write one npz archive."""
    np.savez_compressed(folder / "data.npz", **arrays())
    return folder / "data.npz"


def npy(folder: Path) -> Path:
    """Write a npy file for each array."""
    for name, array in arrays().items():
        np.save(folder / f"{name}.npy", array)
    return folder


def idx_files(folder: Path) -> Path:
    """Write IDX files, named as those of MNIST after unpacking."""
    for name, content in _idx_contents().items():
        (folder / name).write_bytes(content)
    return folder


def idx_gz(folder: Path) -> Path:
    """Write gzipped IDX files, named as those of MNIST."""
    for name, content in _idx_contents().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    return folder


def _idx_contents() -> dict[str, bytes]:
    x, y = arrays()["x"][:, 0], arrays()["y"].astype(np.uint8)
    return {"train-images-idx3-ubyte": idx(x), "train-labels-idx1-ubyte": idx(y)}


def class_folders(folder: Path) -> Path:
    """Write images into a folder for each class."""
    for i, (x, y) in enumerate(zip(*arrays().values(), strict=True)):
        file = folder / f"class{y}" / f"{i:02}.png"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(png(x))
    return folder


def images(folder: Path) -> Path:
    """Write images into one folder, without labels."""
    for i, x in enumerate(arrays()["x"]):
        (folder / f"{i:02}.png").write_bytes(png(x))
    return folder


def shards(folder: Path) -> Path:
    """Write two shards (tar files)."""
    x, y = arrays().values()
    for nth in range(2):
        with tarfile.open(folder / f"{nth}.tar", "w") as tar:
            for i in range(nth, COUNT, 2):
                for ending, content in (("png", png(x[i])), ("cls", b"%d" % y[i])):
                    info = tarfile.TarInfo(f"n{i:02}.{ending}")
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    return folder


def table() -> object:
    """Return a pyarrow table with columns x and y."""
    import pyarrow as pa

    x, y = arrays().values()
    flat = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 8)
    return pa.table(
        {
            "x": pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(flat, 8), 1),
            "y": y,
        }
    )


def parquet(folder: Path) -> Path:
    """Write one Parquet file."""
    from pyarrow import parquet as files

    files.write_table(table(), folder / "data.parquet")
    return folder / "data.parquet"


def arrow(folder: Path) -> Path:
    """Write an Arrow file as the `datasets` library does."""
    from pyarrow import ipc

    columns = table()
    with ipc.new_stream(str(folder / "data-00000.arrow"), columns.schema) as writer:
        writer.write_table(columns)
    return folder


FORMATS: dict[str, Callable[[Path], Path]] = {
    "npz": npz,
    "npy": npy,
    "idx": idx_files,
    "idx-gz": idx_gz,
    "class-folders": class_folders,
    "images": images,
    "shards": shards,
    "parquet": parquet,
    "arrow": arrow,
}
