"""What is checked of the samples of a user's own data set, as they are read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_custom_data

INPUTS = [TensorInfo("x", "FLOAT", ("N", 2)), TensorInfo("ids", "INT64", ("N", "T"))]
GOOD: dict[str, Any] = {"x": [0.5, 1.5], "ids": [1, 2, 3], "boxes": [[0, 1]]}
LAST = 5


def opened(**last: Any) -> DatasetSplits:
    """Ten samples for training, of which one is another."""
    samples = [dict(GOOD) for _ in range(10)]
    samples[LAST] = {name: value for name, value in {**GOOD, **last}.items() if value is not None}
    given = SimpleNamespace(dataset=lambda split: samples if split == "train" else [GOOD, GOOD])
    return open_custom_data(CustomTask.load(given), DataSettings(), INPUTS, 0, {"ids": 10})


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (
            {"ids": [1, 10, 3]},
            "sample 5 of input 'ids' holds token 10, and the model's table has 10 rows",
        ),
        ({"ids": [1, -11, 3]}, "sample 5 of input 'ids' holds token -11"),
        (
            {"ids": [1, 2.5, 3]},
            r"'ids' of dataset\('train'\) .* holds 2.5 in sample 5, which .* cannot hold",
        ),
        ({"ids": [1, 2, 3, 4]}, r"differ in the shape of 'ids': \(3,\) and \(4,\)"),
        ({"ids": [[1, 2, 3]]}, "'ids' of sample 5 .* has shape 1×3, and the model takes T"),
        ({"x": [0.5, np.nan]}, r"'x' of dataset\('train'\) .* holds nan in sample 5"),
        ({"x": [0.5, 1e300]}, "holds 1e[+]300 in sample 5"),
        ({"x": [0.5]}, "'x' of sample 5 .* has shape 1, and the model takes 2"),
        ({"x": ["a", "b"]}, "'x' of sample 5 .* holds <U1, not numbers"),
        ({"x": None}, "sample 5 of .* has no 'x'; it has 'ids', 'boxes'"),
        ({"boxes": None}, "sample 5 of .* has no 'boxes'; it has 'x', 'ids'"),
    ],
)
def test_a_sample_that_cannot_be_used_is_named(last: dict[str, Any], said: str):
    split = opened(**last).train
    split.read(np.arange(LAST))
    with pytest.raises(InputError, match=said):
        split.read(np.arange(LAST - 1, LAST + 1))


def test_good_samples_come_in_the_types_that_the_model_takes():
    batch = opened().train.read(np.arange(3))
    assert {name: (x.dtype.name, x.shape) for name, x in batch.inputs.items()} == {
        "x": ("float32", (3, 2)),
        "ids": ("int64", (3, 3)),
    }
    assert batch.targets["boxes"].shape == (3, 1, 2)


def test_who_looks_at_one_input_alone_is_told_as_well():
    samples = opened(ids=[1, 2, 3, 4]).train.inputs["ids"].samples
    with pytest.raises(InputError, match="differ in the shape of 'ids'"):
        samples.take(np.arange(10))
