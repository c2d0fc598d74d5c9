"""Arrays of an npz file, opened as a user's data would be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings

GREY = TensorInfo("image", "FLOAT", ("N", 1, 4, 4))
RGB = TensorInfo("image", "FLOAT", ("N", 3, 4, 4))


def make_images(count: int, *shape: int, dtype: Any = np.uint8) -> np.ndarray:
    return np.arange(count * int(np.prod(shape))).reshape(count, *shape).astype(dtype)


def make_labels(count: int, classes: int = 5) -> np.ndarray:
    return np.arange(count) % classes


def open_archive(
    path: Path, model_input: TensorInfo = GREY, seed: int = 0, **settings: Any
) -> DatasetSplits:
    return open_data(DataSettings(path=path, **settings), [model_input], seed)


def get_open_error(
    path: Path | None, model_input: TensorInfo = GREY, **settings: Any
) -> InputError:
    with pytest.raises(InputError) as caught:
        open_data(DataSettings(path=path, **settings), [model_input], 0)
    assert "\n" not in caught.value.message + caught.value.hint
    return caught.value


def make_sequences(name: str, count: int = 10) -> dict[str, np.ndarray]:
    """Return arrays of sequences of 2 to 6 tokens from 3 to 9 for each split, as an archive stores them."""
    lengths = 2 + np.arange(count) % 5
    values = (3 + np.arange(lengths.sum()) % 7).astype(np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    named = {f"{name}_{split}": values for split in ("train", "val", "test")}
    return named | {f"{key}_offsets": offsets for key in named}
