"""A task of the user's own: what it may leave out, what is refused, and whose errors are whose."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ltp_pipeline.data.dataset import Batch
from ltp_pipeline.data.prefetch import iter_batches
from ltp_pipeline.errors import InputError, TaskFailed
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import DataSettings
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_custom_data
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

X = TensorInfo("x", "FLOAT", ("N", 2))
OUTPUTS = (TaskOutput(0, "y", "values"),)
NEAR = DistillationTask(OUTPUTS)
RNG = np.random.default_rng(0)


def dataset(split: str) -> Any:
    count = {"train": 20, "val": 6, "test": 7}[split]
    return [
        {"x": np.full(2, i, np.float64), "boxes": np.zeros((i % 3, 4)), "id": i}
        for i in range(count)
    ]


def task(**parts: Any) -> CustomTask:
    return CustomTask.load(SimpleNamespace(dataset=dataset, fingerprint="1", **parts))


def opened(own: CustomTask, **settings: Any) -> Any:
    return open_custom_data(own, DataSettings(**settings), [X], 0)


def judged(outputs: np.ndarray, **beside: Any) -> list[EvaluatedBatch]:
    return [EvaluatedBatch([outputs], Batch({"x": outputs}, {"x": outputs, **beside}), None)]


def test_samples_have_inputs_of_the_models_type_and_all_else_beside_them():
    batch = opened(task()).test.read(np.array([1, 4]))
    assert batch.inputs["x"].dtype == np.float32
    assert batch.inputs["x"].tolist() == [[1, 1], [4, 4]]
    assert batch.targets["id"].tolist() == [1, 4]


def test_what_differs_in_shape_stays_a_list():
    assert [
        len(boxes) for boxes in opened(task()).test.read(np.array([0, 1, 2])).targets["boxes"]
    ] == [0, 1, 2]


def test_a_split_that_is_missing_is_split_off():
    def only_training(split: str) -> Any:
        return dataset("train") if split == "train" else None

    data = opened(CustomTask.load(SimpleNamespace(dataset=only_training)))
    assert (len(data.train), len(data.val), data.test is data.val) == (18, 2, True)


def test_random_numbers_of_a_data_set_depend_on_seed_and_row_alone():
    class Noisy:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"x": np.random.rand(2) + torch.rand(2).numpy()}

    split = opened(CustomTask.load(SimpleNamespace(dataset=lambda _: Noisy()))).train
    first, other = (
        split.read(np.array([3, 5]), 7).inputs["x"],
        split.read(np.array([5]), 7).inputs["x"],
    )
    np.testing.assert_array_equal(first[1:], other)
    assert not np.array_equal(first[1:], split.read(np.array([5]), 8).inputs["x"])


def drawn() -> tuple[float, float, float]:
    return random.random(), np.random.rand(), float(torch.rand(1))  # noqa: S311 - no secret


def test_their_code_leaves_the_random_numbers_of_training_alone(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text(
        "import random, numpy as np, torch\n"
        "def draw(*_): return random.random(), np.random.rand(), torch.rand(1)\n"
        "draw()\n"
        "def dataset(split): return draw() and [{'x': np.zeros(2)} for _ in range(20)]\n"
        "def loss(outputs, batch): return draw()[2] * outputs['y'].sum()\n"
        "def score(outputs, batch): return draw() and torch.ones(len(batch['x']))\n"
    )

    def seed() -> None:
        random.seed(0), np.random.seed(0), torch.manual_seed(0)

    seed()
    wanted = drawn()
    seed()
    own = CustomTaskAdapter(CustomTask.load(file), DistillationTask(OUTPUTS))
    split = opened(own.custom).train
    list(iter_batches(split, 4, augment_seed=5))
    own.compute_loss([torch.zeros(2, 1, requires_grad=True)], {}, None)
    own.sample_statistics(judged(np.zeros((2, 1))), ())
    assert drawn() == wanted


def test_what_a_file_draws_while_it_is_loaded_is_the_same_every_time(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text(
        "import numpy as np\ntable = np.random.rand(3)\ndef dataset(split): return table\n"
    )
    first, second = (CustomTask.load(file).code.table for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_splits_that_a_data_set_draws_are_of_one_order_which_the_seed_decides():
    def split_off(split: str) -> Any:
        rows = np.random.permutation(50)
        return [{"x": np.full(2, row)} for row in (rows[:30] if split == "train" else rows[30:])]

    def seen(seed: int) -> list[set[float]]:
        data = open_custom_data(
            CustomTask.load(SimpleNamespace(dataset=split_off)), DataSettings(), [X], seed
        )
        return [
            set(split.read_first(99).inputs["x"][:, 0].tolist()) for split in (data.train, data.val)
        ]

    train, val = seen(0)
    assert not train & val
    assert [train, val] == seen(0) != seen(1)


def test_a_loss_draws_by_the_step_and_a_score_by_the_batch():
    own = CustomTaskAdapter(
        task(
            loss=lambda y, _: y["y"].sum() * np.random.rand(), score=lambda *_: [np.random.rand()]
        ),
        NEAR,
    )
    outputs = [torch.ones(1, 1, requires_grad=True)]

    def loss(step: int) -> float:
        torch.manual_seed(step)
        return float(own.compute_loss(outputs, {}, None).detach())

    first, second = own.sample_statistics(judged(np.zeros((1, 1))) * 2, ())
    assert loss(1) == loss(1) != loss(2)
    assert first != second
    assert own.sample_statistics(judged(np.zeros((1, 1))) * 2, ()).tolist() == [first, second]


class Where:
    """Samples that tell which process and which thread has read them."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"x": np.zeros(2), "process": os.getpid(), "thread": threading.get_ident()}


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_are_read_by_the_thread_that_asks_or_by_other_processes(workers: int):
    split = opened(
        CustomTask.load(SimpleNamespace(dataset=lambda _: Where())), num_workers=workers
    ).train
    read = [batch.targets for batch in iter_batches(split, 4)]
    here = {
        (p, t) for batch in read for p, t in zip(batch["process"], batch["thread"], strict=True)
    }
    if workers:
        assert os.getpid() not in {process for process, _ in here}
    else:
        assert here == {(os.getpid(), threading.get_ident())}


def test_worker_processes_read_the_same():
    one, several = (opened(task(), num_workers=n).train.read(np.arange(9), 3) for n in (0, 2))
    np.testing.assert_array_equal(one.inputs["x"], several.inputs["x"])
    assert [len(b) for b in one.targets["boxes"]] == [len(b) for b in several.targets["boxes"]]


class Failing:
    """A data set with one bad sample; its error cannot be pickled."""

    class Odd(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(f"{one} {two}")

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> dict[str, Any]:
        if i == 7:
            raise Failing.Odd("their", "message")
        return {"x": np.zeros(2)}


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_while_reading_is_shown_once_with_their_lines(workers: int):
    split = opened(
        CustomTask.load(SimpleNamespace(dataset=lambda _: Failing())), num_workers=workers
    ).test
    with pytest.raises(TaskFailed) as caught:
        split.read(np.array([6, 7, 8]))
    said = (
        "reading sample 7 of dataset('test') of the task SimpleNamespace failed: Odd: their message"
    )
    assert caught.value.message == said
    assert caught.value.traceback_text.count('raise Failing.Odd("their", "message")') == 1
    assert "ltp_pipeline" not in caught.value.traceback_text.replace(str(Path(__file__)), "")
    assert split.read(np.array([6])).inputs["x"].tolist() == [[0, 0]]  # and reading goes on


def test_a_worker_process_that_ends_is_told():
    class Ending(Failing):
        def __getitem__(self, i: int) -> dict[str, Any]:
            return super().__getitem__(i) if i != 7 else os._exit(1)

    split = opened(CustomTask.load(SimpleNamespace(dataset=lambda _: Ending())), num_workers=2).test
    with pytest.raises(InputError, match=r"a process that reads dataset\('test'\) of .* has ended"):
        split.read(np.array([7]))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (
            {"x": np.zeros(2)},
            "sample 3 of dataset('train') of the task SimpleNamespace has no 'id'; it has 'x'",
        ),
        ({"x": np.zeros(2), "id": 1, "z": 1}, "has 'z', which others have not"),
        (
            {"x": np.zeros(2), "id": "ab"},
            "'id' of sample 3 of dataset('train') of the task SimpleNamespace holds <U2",
        ),
        ({"x": np.zeros(2), "id": None}, "holds object, not numbers"),
        ([1, 2], "sample 3 of dataset('train') of the task SimpleNamespace is a list, not a dict"),
    ],
)
def test_a_sample_unlike_the_others_is_named(bad: Any, said: str, workers: int):
    samples = [{"x": np.zeros(2), "id": i} for i in range(8)]
    samples[3] = bad
    split = opened(
        CustomTask.load(SimpleNamespace(dataset=lambda _: samples)), num_workers=workers
    ).train
    with pytest.raises(InputError) as caught:
        split.read(np.array([2, 3]))
    assert said in caught.value.message
    assert not isinstance(caught.value, TaskFailed)


def test_tensors_that_need_a_gradient_are_samples_too():
    split = opened(
        CustomTask.load(
            SimpleNamespace(dataset=lambda _: [{"x": torch.ones(2, requires_grad=True)}] * 4)
        )
    ).train
    assert split.read(np.array([0])).inputs["x"].tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda _: [{"z": 1}], "has no 'x'; it has 'z'"),
        (lambda _: [[1, 2]], "not a dict"),
        (lambda _: [], "is empty"),
        (lambda _: None, "is None"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_data_that_cannot_be_used_are_refused(found: Any, said: str):
    with pytest.raises(InputError, match=said):
        opened(CustomTask.load(SimpleNamespace(dataset=found)))


@pytest.mark.parametrize(
    "settings",
    [{"scale": 0.1}, {"augment": True}, {"inputs": {"x": {"mean": [1.0]}}}],
    ids=lambda s: next(iter(s)),
)
def test_a_setting_that_does_nothing_with_a_task_is_refused(settings: dict[str, Any]):
    with pytest.raises(
        InputError, match=f"{next(iter(settings))} under .data. does nothing with a task"
    ):
        opened(
            CustomTask.load(SimpleNamespace(dataset=lambda _: [{"x": np.zeros(2)}] * 4)), **settings
        )


def test_a_task_without_a_data_set_is_refused():
    with pytest.raises(InputError, match="has no data set"):
        CustomTask.load(SimpleNamespace(loss=len))


def test_an_error_in_their_code_comes_with_their_lines():
    def loss(outputs: Any, batch: Any) -> Any:
        return outputs["z"]

    own = CustomTaskAdapter(task(loss=loss), DistillationTask(OUTPUTS))
    with pytest.raises(
        TaskFailed, match="loss of the task SimpleNamespace failed: KeyError"
    ) as caught:
        own.compute_loss([torch.zeros(2, 2)], {}, None)
    assert 'return outputs["z"]' in caught.value.traceback_text
    assert "own_task.py" not in caught.value.traceback_text


@pytest.mark.parametrize(
    ("given", "said"), [(torch.zeros(3), r"shape \(3,\)"), (0.5, "float"), (None, "None")]
)
def test_a_loss_that_is_not_one_number_is_refused(given: Any, said: str):
    with pytest.raises(InputError, match=f"{said}.* not one number"):
        CustomTaskAdapter(task(loss=lambda *_: given), DistillationTask(OUTPUTS)).compute_loss(
            [torch.zeros(3, 2)], {}, None
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1.0], "returns shape (1,) for 2 samples"),
        ([1.0, np.nan], "returns nan"),
        ({"a": 1}, "returns a dict, not numbers"),
        ("12", "returns text, not numbers"),
        ([[1], [1, 2]], "returns a list, not numbers"),
        (None, "returns None, not numbers"),
    ],
)
def test_scores_that_cannot_be_are_refused(given: Any, said: str):
    with pytest.raises(InputError) as caught:
        CustomTaskAdapter(
            task(score=lambda *_: given), DistillationTask(OUTPUTS)
        ).sample_statistics(judged(np.zeros((2, 1))), ())
    assert f"score of the task SimpleNamespace {said}" in caught.value.message


@pytest.mark.parametrize(
    "given", [torch.ones(2, requires_grad=True), [torch.ones((), requires_grad=True)] * 2]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_that_need_a_gradient_are_taken(given: Any, dtype: torch.dtype):
    scores = (
        given.to(dtype) if isinstance(given, torch.Tensor) else [one.to(dtype) for one in given]
    )
    own = CustomTaskAdapter(task(score=lambda *_: scores), DistillationTask(OUTPUTS))
    assert own.sample_statistics(judged(np.zeros((2, 1))), ()).tolist() == [1, 1]


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, _: y["y"].detach().mean(),
        lambda *_: torch.tensor(1.0),
        lambda *_: torch.ones((), requires_grad=True),  # a gradient, but none of the outputs
    ],
)
def test_a_loss_without_a_gradient_is_told_before_anything_is_trained(loss: Any):
    with torch.inference_mode():
        outputs = [torch.zeros(2, 1)]
    with pytest.raises(InputError, match="loss of the task SimpleNamespace has no gradient"):
        CustomTaskAdapter(task(loss=loss, score=lambda *_: [1, 1]), NEAR).check_functions(
            outputs, Batch({"x": np.zeros(2)}, {})
        )


def test_a_loss_without_a_gradient_on_some_batch_is_told():
    own = CustomTaskAdapter(task(loss=lambda *_: torch.zeros(())), NEAR)
    with pytest.raises(InputError, match="has no gradient"):
        own.compute_loss([torch.zeros(2, 1, requires_grad=True)], {}, None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: 3, "measure of the task SimpleNamespace returns a int, which has no update"),
        (lambda: SimpleNamespace(update=len), "has no compute"),
        (
            lambda: Mean,
            "measure of the task SimpleNamespace returns the class Mean, no object of it",
        ),
        (
            lambda: SimpleNamespace(update=lambda *_: 0, compute=lambda: {"map": 1.0}),
            "compute of the task",
        ),
        (
            lambda: SimpleNamespace(update=lambda *_: 0, compute=lambda: [1.0, 2.0]),
            r"returns shape \(2,\)",
        ),
    ],
)
def test_a_metric_that_cannot_be_used_is_refused(given: Any, said: str):
    with pytest.raises(InputError, match=said):
        CustomTaskAdapter(task(measure=given), NEAR).sample_statistics(judged(np.zeros((2, 1))), ())


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"metric": "WER"}, "metric of the task SimpleNamespace is text, no Metric"),
        ({"metric": Metric}, "is the class Metric, no Metric"),
        ({"loss": "mse"}, "loss of the task SimpleNamespace is text, no function"),
    ],
)
def test_a_part_of_another_kind_is_refused(parts: Any, said: str):
    with pytest.raises(InputError, match=said):
        task(**parts)


def test_a_class_is_no_task():
    class Mine:
        def dataset(self, split: str) -> Any: ...

    with pytest.raises(InputError, match="the task Mine has the class") as caught:
        CustomTask.load(Mine)
    assert caught.value.hint == "make an object of it"


def test_a_loss_that_is_no_number_is_told_before_anything_is_trained():
    own = CustomTaskAdapter(
        task(loss=lambda *_: torch.tensor(torch.nan)), DistillationTask(OUTPUTS)
    )
    with pytest.raises(InputError, match="is nan on the first samples"):
        own.check_functions([torch.zeros(2, 1)], Batch({}, {}))


def test_the_mean_of_scores_is_the_metric_and_a_drop_is_positive_where_it_is_worse():
    less = Metric("error", unit="mm", higher_is_better=False, is_fraction=False)
    own = CustomTaskAdapter(
        task(score=lambda y, _: y["y"][:, 0].abs(), metric=less), DistillationTask(OUTPUTS)
    )
    before, after = (
        own.sample_statistics(judged(np.full((9, 1), size)), ()) for size in (1.0, 3.0)
    )
    assert own.compute_metric(after, "test").value == 3.0
    assert own.compute_drop_interval(before, after) == (2.0, 2.0)


class Mean:
    def __init__(self) -> None:
        self.sum, self.count = 0.0, 0

    def update(self, outputs: Any, batch: Any) -> None:
        self.sum += float(outputs["y"].sum())
        self.count += len(batch["weights"])

    def compute(self) -> float:
        return self.sum / self.count


def test_a_metric_with_update_and_compute_has_an_interval_like_that_of_a_mean():
    own = CustomTaskAdapter(task(measure=Mean), DistillationTask(OUTPUTS))
    before = RNG.normal(size=(400, 1))
    after = before - 0.3 - 0.5 * RNG.normal(size=(400, 1))
    kept = [own.sample_statistics(judged(y, weights=list(range(400))), ()) for y in (before, after)]
    assert own.compute_metric(kept[0], "test").value == pytest.approx(before.mean(), abs=1e-6)
    assert own.compute_metric(kept[0], "test").samples == 400
    low, high = own.compute_drop_interval(*kept)
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
    own, there = (
        CustomTaskAdapter(task(measure=measure), DistillationTask(OUTPUTS)),
        np.arange(100) < 2,
    )
    before, after = (
        own.sample_statistics(judged(y, there=there), ())
        for y in (np.ones((100, 1)), np.ones((100, 1)))
    )
    missing = np.isnan(before[:, 0]).sum()
    assert 0 < missing < 25
    assert own.compute_metric(before, "test").value == 1.0
    assert own.compute_drop_interval(before, after) == (0.0, 0.0)


@pytest.mark.parametrize("measure", [Recall, QuietRecall])
def test_a_metric_that_is_undefined_on_all_samples_is_refused(measure: Any):
    with pytest.raises(InputError, match="compute of the task"):
        CustomTaskAdapter(task(measure=measure), DistillationTask(OUTPUTS)).sample_statistics(
            judged(np.ones((9, 1)), there=np.zeros(9)), ()
        )


@pytest.mark.parametrize("measure", [Recall, QuietRecall])
def test_a_metric_may_be_undefined_on_the_first_samples(measure: Any):
    y = torch.ones(2, 1)
    batch = Batch({"x": np.zeros((2, 1))}, {"there": np.zeros(2)})
    CustomTaskAdapter(task(measure=measure), DistillationTask(OUTPUTS)).check_functions([y], batch)


def test_an_error_in_their_metric_is_told_before_anything_is_trained():
    class Broken(Recall):
        def compute(self) -> float:
            return self.fuond / self.there  # type: ignore[attr-defined]

    own = CustomTaskAdapter(task(measure=Broken), DistillationTask(OUTPUTS))
    with pytest.raises(TaskFailed, match="AttributeError"):
        own.check_functions(
            [torch.ones(2, 1)], Batch({"x": np.zeros((2, 1))}, {"there": np.ones(2)})
        )


def test_what_is_left_out_is_that_of_imitating_the_original():
    own = CustomTaskAdapter(task(), DistillationTask(OUTPUTS))
    assert (own.is_distilled, own.is_relative, own.metric.name) == (True, True, "r2_vs_original")
    full = CustomTaskAdapter(task(loss=len, score=len), DistillationTask(OUTPUTS))
    assert (full.is_distilled, full.is_relative, full.metric.name) == (False, False, "score")


def test_a_file_is_known_by_its_hash(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text("def dataset(split): return [{'x': [1.0]}]\n")
    first = CustomTask.load(file).fingerprint
    file.write_text("def dataset(split): return [{'x': [2.0]}]\n")
    assert first != CustomTask.load(file).fingerprint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def dataset(split: return 1", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1", "no data set"),
        ("import sys; sys.exit(0)", "my_task.py cannot be loaded: SystemExit: 0"),
        ("raise SystemExit", "my_task.py cannot be loaded: SystemExit$"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused(tmp_path: Path, text: str, said: str):
    file = tmp_path / "my_task.py"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        CustomTask.load(file)


def test_a_file_may_hold_an_object(tmp_path: Path):
    file = tmp_path / "my_task.py"
    file.write_text("class T:\n    def dataset(self, split): return [{'x': [1.0]}]\ntask = T()\n")
    assert CustomTask.load(file).has_function("dataset")
