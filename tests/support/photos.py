"""Folders of small photographs, opened as a user's data would be."""

import io
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.loader import iter_batches
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.samples import only_input

RGB = TensorInfo("image", "FLOAT", ("N", 3, 8, 8))


def make_jpeg(seed: int, height: int = 30, width: int = 40) -> bytes:
    coarse = Image.fromarray(
        np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    )
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=95)
    return file.getvalue()


def write_file(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def truncate_file(file: Path) -> None:
    """Truncate an image file behind its header."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - 200])


def open_photos(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> DatasetSplits:
    return open_data(DataSettings(path=path, **settings), [model_input], 0)


def get_open_error(path: Path, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        open_photos(path, **settings)
    return caught.value


def read_everything(data: DatasetSplits, seed: int | None = None) -> np.ndarray:
    return np.concatenate(
        [only_input(batch) for batch in iter_batches(data.train, 5, augment_seed=seed)]
    )


def write_shard(file: Path, members: list[tuple[str, bytes]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def make_pairs(numbers: range, labels: bool = True) -> list[tuple[str, bytes]]:
    members = []
    for i in numbers:
        members.append((f"n{i:04}.jpg", make_jpeg(i)))
        if labels:
            members.append((f"n{i:04}.cls", str(i % 2).encode()))
    return members


def png_header(width: int, height: int) -> bytes:
    """Return the header of a gray PNG of this size, without pixels."""
    chunks = b""
    for chunk in (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0), b"IDAT"):
        chunks += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return b"\x89PNG\r\n\x1a\n" + chunks
