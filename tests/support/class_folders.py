"""Small images in class folders, opened as a user's data would be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings

RGB = TensorInfo("image", "FLOAT", ("N", 3, 6, 8))
ANY = TensorInfo("image", "FLOAT", ("N", 3, "H", "W"))


def make_picture(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape or (6, 8, 3), dtype=np.uint8)


def save_picture(file: Path, pixels: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)


def open_folder(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> DatasetSplits:
    return open_data(DataSettings(path=path, **settings), [model_input], 0)


def get_folder_error(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        open_folder(path, model_input, **{"max_corrupt_images": 0, **settings})
    return caught.value
