"""The user's own data set as splits, and which samples are rejected."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_custom_data

INPUTS = [TensorInfo("x", "FLOAT", ("N", 2)), TensorInfo("ids", "INT64", ("N", "T"))]
GOOD: dict[str, Any] = {"x": [0.5, 1.5], "ids": [1, 2, 3], "boxes": [[0, 1]]}
LAST = 5


def open_changed(**changed: Any) -> DatasetSplits:
    """Ten training samples, of which one is changed; None removes an array."""
    samples = [dict(GOOD) for _ in range(10)]
    last = {**GOOD, **changed}
    samples[LAST] = {name: value for name, value in last.items() if value is not None}
    code = SimpleNamespace(dataset=lambda split: samples if split == "train" else [GOOD, GOOD])
    return open_custom_data(CustomTask.load(code), DataSettings(), INPUTS, 0, {"ids": 10})


def open_split(dataset: Any, **settings: Any) -> DatasetSplits:
    """The data of a task with one input x of two values."""
    task = CustomTask.load(SimpleNamespace(dataset=dataset))
    return open_custom_data(task, DataSettings(**settings), INPUTS[:1], 0)


def counted(split: str) -> list[dict[str, Any]]:
    count = {"train": 20, "val": 6, "test": 7}[split]
    return [{"x": np.full(2, i), "boxes": np.zeros((i % 3, 4)), "id": i} for i in range(count)]


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"ids": [1, 10, 3]}, ("sample 5", "'ids'", "token 10", "10 rows")),
        ({"ids": [1, -11, 3]}, ("sample 5", "'ids'", "token -11")),
        ({"ids": [1, 2.5, 3]}, ("'ids'", "2.5", "sample 5")),
        ({"ids": [1, 2, 3, 4]}, ("'ids'", "(3,) and (4,)")),
        ({"ids": [[1, 2, 3]]}, ("'ids' of sample 5", "1×3", "T")),
        ({"x": [0.5, np.nan]}, ("'x'", "nan", "sample 5")),
        ({"x": [0.5, 1e300]}, ("1e+300", "sample 5")),
        ({"x": [0.5]}, ("'x' of sample 5", "shape 1,", "takes 2")),
        ({"x": ["a", "b"]}, ("'x' of sample 5", "<U1")),
        ({"x": None}, ("sample 5", "no 'x'", "'ids', 'boxes'")),
        ({"boxes": None}, ("sample 5", "no 'boxes'", "'x', 'ids'")),
    ],
)
def test_read_unusable_sample_names_it(changed: dict[str, Any], parts: tuple[str, ...]):
    split = open_changed(**changed).train
    split.read(np.arange(LAST))
    with pytest.raises(InputError) as caught:
        split.read(np.arange(LAST - 1, LAST + 1))
    assert [part for part in parts if part not in caught.value.message] == []


def test_take_of_one_input_checks_its_samples():
    samples = open_changed(ids=[1, 2, 3, 4]).train.inputs["ids"].samples
    with pytest.raises(InputError) as caught:
        samples.take(np.arange(10))
    assert "'ids'" in caught.value.message


def test_read_returns_inputs_in_the_types_of_the_model():
    batch = open_changed().train.read(np.arange(3))
    types = {name: (x.dtype.name, x.shape) for name, x in batch.inputs.items()}
    assert types == {"x": ("float32", (3, 2)), "ids": ("int64", (3, 3))}
    assert batch.targets["boxes"].shape == (3, 1, 2)


def test_read_returns_further_arrays_as_targets():
    batch = open_split(counted).test.read(np.array([1, 4]))
    assert batch.inputs["x"].tolist() == [[1, 1], [4, 4]]
    assert batch.targets["id"].tolist() == [1, 4]


def test_read_arrays_of_uneven_shape_stay_a_list():
    boxes = open_split(counted).test.read(np.array([0, 1, 2])).targets["boxes"]
    assert [len(array) for array in boxes] == [0, 1, 2]


def test_read_accepts_tensors_that_require_a_gradient():
    samples = [{"x": torch.ones(2, requires_grad=True)}] * 4
    split = open_split(lambda _: samples).train
    assert split.read(np.array([0])).inputs["x"].tolist() == [[1, 1]]


def test_open_custom_data_splits_off_a_missing_split():
    data = open_split(lambda split: counted("train") if split == "train" else None)
    assert (len(data.train), len(data.val), data.test is data.val) == (18, 2, True)


def test_open_custom_data_random_splits_have_one_order_by_seed():
    def divide(split: str) -> Any:
        rows = np.random.permutation(50)
        return [{"x": np.full(2, row)} for row in (rows[:30] if split == "train" else rows[30:])]

    def read_values(seed: int) -> list[set[float]]:
        task = CustomTask.load(SimpleNamespace(dataset=divide))
        data = open_custom_data(task, DataSettings(), INPUTS[:1], seed)
        splits = (data.train, data.val)
        return [set(split.read_first(99).inputs["x"][:, 0].tolist()) for split in splits]

    train, val = read_values(0)
    assert not train & val
    assert [train, val] == read_values(0) != read_values(1)


@pytest.mark.parametrize(
    ("dataset", "part"),
    [
        (lambda _: [{"z": 1}], "no 'x'"),
        (lambda _: [[1, 2]], "list"),
        (lambda _: [], "dataset('train')"),
        (lambda _: None, "dataset('train')"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_open_custom_data_unusable_data_raises_input_error(dataset: Any, part: str):
    with pytest.raises(InputError) as caught:
        open_split(dataset)
    assert part in caught.value.message


@pytest.mark.parametrize(
    "settings",
    [{"scale": 0.1}, {"augment": True}, {"inputs": {"x": {"mean": [1.0]}}}],
    ids=lambda settings: next(iter(settings)),
)
def test_open_custom_data_setting_without_effect_names_it(settings: dict[str, Any]):
    with pytest.raises(InputError) as caught:
        open_split(lambda _: [{"x": np.zeros(2)}] * 4, **settings)
    (key,) = settings
    assert f"{key} in [data]" in caught.value.message
    assert key in caught.value.hint
