"""Arrays by name: which are offsets of others."""

from pathlib import Path

import numpy as np
import pytest

from ltp_pipeline.data.columns import get_offsets_name
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.data.open import open_data
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings

A, OTHER = TensorInfo("a", "INT64", ("N", "S")), TensorInfo("a_offsets", "INT64", ("N",))
VALUES, OFFSETS, NUMBERS = np.arange(8), np.array([0, 3, 4, 6, 8]), np.array([5, 6, 7, 8])


def opened(folder: Path, **arrays: np.ndarray) -> DatasetSplits:
    np.savez(folder / "data.npz", **arrays)
    return open_data(DataSettings(path=folder / "data.npz"), [A, OTHER], 0)


def test_no_two_arrays_have_offsets_of_one_name_and_none_that_of_an_input():
    inputs = ("a", "a_offsets", "a_offsets_", "a_offsets_offsets")
    names = [get_offsets_name(key, inputs) for key in inputs]
    assert len({*names, *inputs}) == 2 * len(inputs)
    assert get_offsets_name("a", ("a", "b")) == "a_offsets"


@pytest.mark.parametrize("divided", [False, True])
def test_an_input_named_like_offsets_is_told_from_them(tmp_path: Path, divided: bool):
    arrays = {"a": VALUES, "a_offsets": NUMBERS, "a_offsets_": OFFSETS}
    if divided:
        named = {"a_{}": VALUES, "a_{}_offsets": OFFSETS, "a_offsets_{}": NUMBERS}
        arrays = {
            key.format(split): array for key, array in named.items() for split in ("train", "val")
        }
    split = opened(tmp_path, **arrays).train
    batch = split.read_first(2)
    expected = [VALUES[OFFSETS[row] : OFFSETS[row + 1]].tolist() for row in split.rows[:2]]
    assert [
        row[: len(e)].tolist() for row, e in zip(batch.inputs["a"], expected, strict=True)
    ] == expected
    assert batch.inputs["a_offsets"].tolist() == NUMBERS[split.rows[:2]].tolist()


def test_offsets_under_the_name_of_an_input_are_that_input(tmp_path: Path):
    with pytest.raises(InputError, match=r"has 8 samples but a_offsets of data.npz has 5"):
        opened(tmp_path, a=VALUES, a_offsets=OFFSETS)
