"""How settings of all inputs and of one go together, and what is refused of sequences."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from tests.support.archives import sequences

IDS = TensorInfo("ids", "INT64", ("N", "T"))
AGE = TensorInfo("age", "FLOAT", ("N", 1))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    ages = {f"age_{split}": np.full((10, 1), 8, np.float32) for split in ("train", "val", "test")}
    np.savez(tmp_path / "data.npz", **sequences("ids"), **ages)
    return tmp_path / "data.npz"


def test_integers_with_a_setting_of_their_own_are_not_scaled_by_that_of_all(archive: Path):
    settings = DataSettings.model_validate(
        {"path": archive, "scale": 0.5, "inputs": {"ids": {"padding_value": 1}}}
    )
    batch = open_data(settings, [IDS, AGE], 0).test.read_first(10)
    assert batch.inputs["age"][0, 0] == 4
    assert batch.inputs["ids"].min() == 1
    assert batch.inputs["ids"].max() == 9


def test_how_sequences_are_filled_up_is_a_step_in_words(archive: Path):
    settings = DataSettings.model_validate(
        {"path": archive, "inputs": {"ids": {"padding_value": 1}}}
    )
    steps = open_data(settings, [IDS, AGE], 0).steps
    assert steps["ids"] == (
        "fill sequences up with 1 at their ends, to the longest of their batch",
    )
    fixed = TensorInfo("ids", "INT64", ("N", 8))
    assert open_data(settings, [fixed, AGE], 0).steps["ids"][0].endswith("to a length of 8")


def test_a_value_to_pad_with_that_stored_values_cannot_have_is_refused(archive: Path):
    settings = DataSettings.model_validate(
        {"path": archive, "inputs": {"ids": {"padding_value": -1}}}
    )
    with pytest.raises(InputError, match="uint8, which cannot be filled up with -1"):
        open_data(settings, [IDS, AGE], 0)


def test_a_mask_that_is_made_is_not_scaled(tmp_path: Path):
    np.savez(tmp_path / "data.npz", v=np.full(8, 4, np.float32), v_offsets=[0, 3, 5, 8])
    inputs = [TensorInfo(name, "FLOAT", ("N", "S")) for name in ("mask", "v")]
    settings = {"path": tmp_path / "data.npz", "scale": 0.5, "mean": 1, "std": 2}
    data = open_data(DataSettings.model_validate(settings), inputs, 0)
    batch = data.train.read_first(1)
    assert set(batch.inputs["mask"].ravel()) == {1.0}
    assert set(batch.inputs["v"].ravel()) == {0.5}
    with pytest.raises(InputError, match="scale is set for the mask 'mask', which is made"):
        open_data(
            DataSettings.model_validate({**settings, "inputs": {"mask": {"scale": 1}}}), inputs, 0
        )


def test_a_sample_of_a_sequence_that_is_wrong_is_named(tmp_path: Path):
    values = np.ones(8)
    values[6] = np.nan
    inputs = [TensorInfo("v", "FLOAT", ("N", "S"))]
    np.savez(tmp_path / "data.npz", v=values, v_offsets=[0, 3, 3, 5, 8])
    with pytest.raises(InputError, match=r"v of data.npz holds nan in sample 3"):
        open_data(DataSettings(path=tmp_path / "data.npz"), inputs, 0)


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_one_number_a_sample_is_a_row_of_one(tmp_path: Path, kind: str):
    np.savez(tmp_path / "data.npz", x=np.arange(8).astype(kind), y=np.arange(8) % 2)
    data = open_data(DataSettings(path=tmp_path / "data.npz", scale=2.0), [AGE], 0)
    assert data.train.read_first(8).inputs["age"].tolist() == [
        [2.0 * row] for row in data.train.rows
    ]
    with pytest.raises(InputError, match="has 1 value, the model takes 2"):
        open_data(
            DataSettings(path=tmp_path / "data.npz"), [TensorInfo("age", "FLOAT", ("N", 2))], 0
        )


@pytest.mark.parametrize(
    ("own", "shared", "said"),
    [
        ({"mean": [1, 2]}, {}, 'give mean one value, or one per channel, in [data.inputs."in:0"]'),
        ({"std": [1, 2]}, {}, 'give std one value, or one per channel, in [data.inputs."in:0"]'),
        ({"resize": [5, 5]}, {}, 'set resize = [4, 4] in [data.inputs."in:0"]'),
        ({"layout": "NHWC"}, {}, 'set layout = "NCHW" in [data.inputs."in:0"]'),
        ({}, {"resize": [4, 4]}, "remove resize from [data] and [data.inputs.more]"),
    ],
)
def test_what_to_do_names_the_section_of_the_input(
    tmp_path: Path, own: object, shared: dict[str, object], said: str
):
    np.savez(
        tmp_path / "data.npz",
        **{"in:0": np.zeros((8, 3, 4, 4), np.float32), "more": np.zeros((8, 2))},
    )
    inputs = [TensorInfo("in:0", "FLOAT", ("N", 3, 4, 4)), TensorInfo("more", "FLOAT", ("N", 2))]
    settings = DataSettings.model_validate(
        {"path": tmp_path / "data.npz", "inputs": {"in:0": own}, **shared}
    )
    with pytest.raises(InputError) as caught:
        open_data(settings, inputs, 0)
    assert said in caught.value.hint
