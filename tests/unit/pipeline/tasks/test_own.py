"""A task of the user's own: what it may leave out, what is refused, and whose errors are whose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data.own import open_own
from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.own_task import OwnTask
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.task import Batch, Judged, Metric, Output
from ltp_pipeline.tasks.imitation import Imitation
from ltp_pipeline.tasks.own import Own

X = TensorInfo("x", "FLOAT", ("N", 2))
OUTPUTS = (Output(0, "y", "values"),)
RNG = np.random.default_rng(0)


def dataset(split: str) -> Any:
    count = {"train": 20, "val": 6, "test": 7}[split]
    return [{"x": np.full(2, i, np.float64), "boxes": np.zeros((i % 3, 4)), "id": i} for i in range(count)]


def task(**parts: Any) -> OwnTask:
    return OwnTask.of(SimpleNamespace(dataset=dataset, fingerprint="1", **parts))


def opened(own: OwnTask, **settings: Any) -> Any:
    return open_own(own, DataSettings(**settings), [X], 0)


def judged(outputs: np.ndarray, **beside: Any) -> list[Judged]:
    return [Judged([outputs], Batch({"x": outputs}, {"x": outputs, **beside}), None)]


def test_samples_have_inputs_of_the_models_type_and_all_else_beside_them():
    batch = opened(task()).test.read(np.array([1, 4]))
    assert batch.inputs["x"].dtype == np.float32
    assert batch.inputs["x"].tolist() == [[1, 1], [4, 4]]
    assert batch.targets["id"].tolist() == [1, 4]


def test_what_differs_in_shape_stays_a_list():
    assert [len(boxes) for boxes in opened(task()).test.read(np.array([0, 1, 2])).targets["boxes"]] == [0, 1, 2]


def test_a_split_that_is_missing_is_split_off():
    def only_training(split: str) -> Any:
        return dataset("train") if split == "train" else None

    data = opened(OwnTask.of(SimpleNamespace(dataset=only_training)))
    assert (len(data.train), len(data.val), data.test is data.val) == (18, 2, True)


def test_random_numbers_of_a_data_set_depend_on_seed_and_row_alone():
    class Noisy:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": np.random.rand(2) + torch.rand(2).numpy()}

    split = opened(OwnTask.of(SimpleNamespace(dataset=lambda _: Noisy()))).train
    first, other = split.read(np.array([3, 5]), 7).inputs["x"], split.read(np.array([5]), 7).inputs["x"]
    np.testing.assert_array_equal(first[1:], other)
    assert not np.array_equal(first[1:], split.read(np.array([5]), 8).inputs["x"])


def test_reading_leaves_the_random_numbers_of_training_alone():
    split = opened(task()).train
    torch.manual_seed(0)
    wanted = torch.rand(1)
    torch.manual_seed(0)
    split.read(np.array([1]), 5)
    assert torch.rand(1) == wanted


def test_worker_processes_read_the_same():
    one, several = (opened(task(), workers=n).train.read(np.arange(9), 3) for n in (0, 2))
    np.testing.assert_array_equal(one.inputs["x"], several.inputs["x"])
    assert [len(b) for b in one.targets["boxes"]] == [len(b) for b in several.targets["boxes"]]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda _: [{"z": 1}], "have no 'x', which the model takes"),
        (lambda _: [[1, 2]], "not a dict"),
        (lambda _: [], "is empty"),
        (lambda _: None, "is None"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_data_that_cannot_be_used_are_refused(found: Any, said: str):
    with pytest.raises(InputError, match=said):
        opened(OwnTask.of(SimpleNamespace(dataset=found)))


def test_a_task_without_a_data_set_is_refused():
    with pytest.raises(InputError, match="has no data set"):
        OwnTask.of(SimpleNamespace(loss=len))


def test_an_error_in_their_code_comes_with_their_lines():
    def loss(outputs: Any, batch: Any) -> Any:
        return outputs["z"]

    own = Own(task(loss=loss), Imitation(OUTPUTS))
    with pytest.raises(TaskFailed, match="loss of the task SimpleNamespace failed: KeyError") as caught:
        own.loss([torch.zeros(2, 2)], {}, None)
    assert 'return outputs["z"]' in caught.value.trace
    assert "own_task.py" not in caught.value.trace


@pytest.mark.parametrize(("given", "said"), [(torch.zeros(3), r"shape \(3,\)"), (0.5, "float"), (None, "NoneType")])
def test_a_loss_that_is_not_one_number_is_refused(given: Any, said: str):
    with pytest.raises(InputError, match=f"{said}.* not one number"):
        Own(task(loss=lambda *_: given), Imitation(OUTPUTS)).loss([torch.zeros(3, 2)], {}, None)


@pytest.mark.parametrize(("given", "said"), [([1.0], "for 2 samples"), ([1.0, np.nan], "returns nan")])
def test_scores_that_cannot_be_are_refused(given: Any, said: str):
    with pytest.raises(InputError, match=said):
        Own(task(score=lambda *_: given), Imitation(OUTPUTS)).evidence(judged(np.zeros((2, 1))), ())


def test_a_loss_that_is_no_number_is_told_before_anything_is_trained():
    own = Own(task(loss=lambda *_: torch.tensor(torch.nan)), Imitation(OUTPUTS))
    with pytest.raises(InputError, match="is nan on the first samples"):
        own.check([torch.zeros(2, 1)], Batch({}, {}))


def test_the_mean_of_scores_is_the_metric_and_a_drop_is_positive_where_it_is_worse():
    less = Metric("error", unit="mm", higher_is_better=False, share=False)
    own = Own(task(score=lambda y, _: y["y"][:, 0].abs(), metric=less), Imitation(OUTPUTS))
    before, after = (own.evidence(judged(np.full((9, 1), size)), ()) for size in (1.0, 3.0))
    assert own.accuracy(after, "test").value == 3.0
    assert own.interval(before, after) == (2.0, 2.0)


class Mean:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def update(self, outputs: Any, batch: Any) -> None:
        self.sum += float(outputs["y"].sum())
        self.count += len(batch["weights"])

    def compute(self) -> float:
        return self.sum / self.count


def test_a_metric_with_update_and_compute_has_an_interval_like_that_of_a_mean():
    own = Own(task(measure=Mean), Imitation(OUTPUTS))
    before = RNG.normal(size=(400, 1))
    after = before - 0.3 - 0.5 * RNG.normal(size=(400, 1))
    kept = [own.evidence(judged(y, weights=list(range(400))), ()) for y in (before, after)]
    assert own.accuracy(kept[0], "test").value == pytest.approx(before.mean(), abs=1e-6)
    assert own.accuracy(kept[0], "test").samples == 400
    low, high = own.interval(*kept)
    apart = before - after
    half = 1.96 * apart.std() / 20
    assert (low, high) == pytest.approx((apart.mean() - half, apart.mean() + half), abs=half / 2)


class Recall:
    """Of positives; there may be none."""

    def __init__(self) -> None:
        self.found, self.there = 0, 0

    def update(self, outputs: Any, batch: Any) -> None:
        there = batch["there"] > 0
        self.found += int((there & (outputs["y"][:, 0] > 0)).sum())
        self.there += int(there.sum())

    def compute(self) -> float:
        return self.found / self.there


class QuietRecall(Recall):
    def compute(self) -> float:
        return self.found / self.there if self.there else float("nan")


@pytest.mark.parametrize("measure", [Recall, QuietRecall])
def test_replicates_on_which_a_metric_is_undefined_end_nothing(measure: Any):
    own, there = Own(task(measure=measure), Imitation(OUTPUTS)), np.arange(100) < 2
    before, after = (own.evidence(judged(y, there=there), ()) for y in (np.ones((100, 1)), np.ones((100, 1))))
    missing = np.isnan(before[:, 0]).sum()
    assert 0 < missing < 25
    assert own.accuracy(before, "test").value == 1.0
    assert own.interval(before, after) == (0.0, 0.0)


@pytest.mark.parametrize("measure", [Recall, QuietRecall])
def test_a_metric_that_is_undefined_on_all_samples_is_refused(measure: Any):
    with pytest.raises(InputError, match="compute of the task"):
        Own(task(measure=measure), Imitation(OUTPUTS)).evidence(judged(np.ones((9, 1)), there=np.zeros(9)), ())


@pytest.mark.parametrize("measure", [Recall, QuietRecall])
def test_a_metric_may_be_undefined_on_the_first_samples(measure: Any):
    y = torch.ones(2, 1)
    batch = Batch({"x": np.zeros((2, 1))}, {"there": np.zeros(2)})
    Own(task(measure=measure), Imitation(OUTPUTS)).check([y], batch)


def test_an_error_in_their_metric_is_told_before_anything_is_trained():
    class Broken(Recall):
        def compute(self) -> float:
            return self.fuond / self.there  # type: ignore[attr-defined]

    own = Own(task(measure=Broken), Imitation(OUTPUTS))
    with pytest.raises(TaskFailed, match="AttributeError"):
        own.check([torch.ones(2, 1)], Batch({"x": np.zeros((2, 1))}, {"there": np.ones(2)}))


def test_what_is_left_out_is_that_of_imitating_the_original():
    own = Own(task(), Imitation(OUTPUTS))
    assert (own.is_taught, own.is_relative, own.metric.name) == (True, True, "explained")
    full = Own(task(loss=len, score=len), Imitation(OUTPUTS))
    assert (full.is_taught, full.is_relative, full.metric.name) == (False, False, "score")


def test_a_file_is_known_by_its_hash(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text("def dataset(split): return [{'x': [1.0]}]\n")
    first = OwnTask.of(file).fingerprint
    file.write_text("def dataset(split): return [{'x': [2.0]}]\n")
    assert first != OwnTask.of(file).fingerprint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def dataset(split: return 1", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1", "no data set"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(tmp_path: Path, text: str, said: str):
    file = tmp_path / "my_task.py"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        OwnTask.of(file)


def test_a_file_may_hold_an_object(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text("class T:\n    def dataset(self, split): return [{'x': [1.0]}]\ntask = T()\n")
    assert OwnTask.of(file).has("dataset")
