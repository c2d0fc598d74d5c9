"""How settings of all inputs and of one go together, and what is refused of sequences."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo
from tests.support.archives import sequences

IDS = TensorInfo("ids", "INT64", ("N", "T"))
AGE = TensorInfo("age", "FLOAT", ("N", 1))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    ages = {f"age_{split}": np.full((10, 1), 8, np.float32) for split in ("train", "val", "test")}
    np.savez(tmp_path / "data.npz", **sequences("ids"), **ages)
    return tmp_path / "data.npz"


def test_integers_with_a_setting_of_their_own_are_not_scaled_by_that_of_all(archive: Path):
    settings = DataSettings.model_validate({"path": archive, "scale": 0.5, "inputs": {"ids": {"pad": 1}}})
    batch = open_data(settings, [IDS, AGE], 0).test.first(10)
    assert batch.inputs["age"][0, 0] == 4
    assert batch.inputs["ids"].min() == 1
    assert batch.inputs["ids"].max() == 9


def test_how_sequences_are_filled_up_is_a_step_in_words(archive: Path):
    settings = DataSettings.model_validate({"path": archive, "inputs": {"ids": {"pad": 1}}})
    steps = open_data(settings, [IDS, AGE], 0).steps
    assert steps["ids"] == ("fill sequences up with 1 at their ends, to the longest of their batch",)
    fixed = TensorInfo("ids", "INT64", ("N", 8))
    assert open_data(settings, [fixed, AGE], 0).steps["ids"][0].endswith("to a length of 8")


def test_a_value_to_pad_with_that_stored_values_cannot_have_is_refused(archive: Path):
    settings = DataSettings.model_validate({"path": archive, "inputs": {"ids": {"pad": -1}}})
    with pytest.raises(InputError, match="uint8, which cannot be filled up with -1"):
        open_data(settings, [IDS, AGE], 0)
