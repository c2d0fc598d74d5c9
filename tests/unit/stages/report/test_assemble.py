"""The report from what was measured: the baseline's curve and the gain."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import (
    AccuracyResult,
    ExportedFile,
    LatencyResult,
    MeasuredBaseline,
    MeasuredFile,
    MeasuredNetwork,
    MeasuredPoint,
)
from ltp_pipeline.results.schema import BaselineResult
from ltp_pipeline.settings.schema import ExportSettings, Settings
from ltp_pipeline.stages.measure import file_parts
from ltp_pipeline.stages.report import assemble

ELEMENTS = 1600
ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


def measured(
    compression: float, accuracy: float, folder: str = "", rounded: float | None = None
) -> MeasuredNetwork:
    """A network in its packed file, and one with rounded values where their accuracy is given."""
    metric = Metric() if accuracy <= 1 else ERROR
    counted = Sparsity(ELEMENTS, round(ELEMENTS / compression))
    files = []
    for values, value in (
        ("exact", accuracy),
        *([("int8", rounded)] if rounded is not None else []),
    ):
        name = f"{folder}model.packed.{values}.onnx"
        files.append(
            MeasuredFile(
                file=ExportedFile(
                    Path(name), name, "original", "packed", "0" * 64, 1, weight_storage=values
                ),
                accuracy=AccuracyResult(
                    value, value if metric.is_fraction else None, None, 100, "test"
                ),
                counted=counted,
                whole=counted,
                nonzeros={},
                parity_max_abs_diff=0.0,
                load_ms=1.0,
                latency=(LatencyResult(1, 1, 1.0, 1.0),),
            )
        )
    return MeasuredNetwork(files, np.ones(1), {"prune": 0, "finetune": 3}, metric)


def baseline_of(
    pruned: MeasuredNetwork, points: list[MeasuredNetwork], is_curve: bool = True, **more: Any
) -> BaselineResult:
    findings: Any = SimpleNamespace(
        pruned=pruned,
        baseline=MeasuredBaseline(tuple(MeasuredPoint(m, 0.5) for m in points), is_curve),
        original=SimpleNamespace(
            accuracy=AccuracyResult(0.97, 0.97, None, 100, "test"), scores=np.ones(1)
        ),
        task=SimpleNamespace(metric=pruned.metric, compute_drop_interval=lambda *_: (0.0, 0.0)),
        settings=Settings(export=ExportSettings(formats=("packed",))),
        budget=None,
    )
    vars(findings).update(more)
    found = assemble._baseline(findings)
    assert found is not None
    return found


POINTS = [
    measured(16, 0.90, "baseline/"),
    measured(4, 0.98, "baseline/2/"),
    measured(8, 0.96, "baseline/3/"),
]


def test_the_curve_has_every_point_with_its_file_and_the_gain_is_interpolated() -> None:
    found = baseline_of(measured(16, 0.97), POINTS)
    assert found.curve is not None
    assert [
        (p.compression, p.accuracy, p.nonzeros, p.validation_accuracy) for p in found.curve
    ] == [
        (16, 0.90, 100, 0.5),
        (4, 0.98, 400, 0.5),
        (8, 0.96, 200, 0.5),
    ]
    assert [p.path.rpartition("/")[0] for p in found.curve] == [
        "baseline",
        "baseline/2",
        "baseline/3",
    ]
    assert found.compression_at_equal_accuracy == pytest.approx(32**0.5)
    assert found.gain == pytest.approx(16 / 32**0.5)
    assert (found.gain_bound, found.num_trainings, found.compression) == (None, 3, 16)


@pytest.mark.parametrize(
    ("budget", "accuracy", "equal"),
    [
        (0.02, 0.96, 8.0),  # within 95 %, whatever LTP has above it
        (0.02, 0.97, 8.0),
        (0.05, 0.97, 8.0),
        (0.005, 0.95, 8.0),  # LTP is outside, so its own accuracy counts
        (0.0, 0.97, 4.0),
    ],
)
def test_within_a_budget_the_sparsest_point_counts(
    budget: float, accuracy: float, equal: float
) -> None:
    found = baseline_of(measured(16, accuracy), POINTS, budget=budget)
    assert (found.compression_at_equal_accuracy, found.gain, found.budget) == (
        equal,
        16 / equal,
        budget,
    )


def test_a_bound_has_its_reason_in_the_place_of_the_compression() -> None:
    found = baseline_of(measured(16, 0.99), POINTS)
    assert (found.compression_at_equal_accuracy, found.gain, found.gain_bound) == (
        None,
        4.0,
        "at least",
    )
    assert "down to 4×" in found.reasons["compression_at_equal_accuracy"]
    assert "gain" not in found.reasons


def test_the_gain_is_that_of_exact_files_and_the_accuracy_that_of_the_weakest() -> None:
    """Whoever is handed a rounded file is promised no more than it has; methods are compared by exact weights."""
    found = baseline_of(
        measured(16, 0.97, rounded=0.5), [measured(16, 0.90, rounded=0.4), *POINTS[1:]]
    )
    assert found.gain == pytest.approx(16 / 32**0.5)
    assert found.value == 0.4
    assert found.curve is not None
    assert found.curve[0].accuracy == 0.90


def test_one_point_has_no_curve_and_says_how_to_get_one() -> None:
    found = baseline_of(measured(16, 0.97), POINTS[:1], is_curve=False)
    assert (found.curve, found.gain, found.compression_at_equal_accuracy, found.num_trainings) == (
        None,
        None,
        None,
        1,
    )
    assert {found.reasons[key] for key in ("curve", "gain", "compression_at_equal_accuracy")} == {
        assemble.ONE_POINT
    }
    assert "--baseline curve" in assemble.ONE_POINT


def test_where_less_is_better_the_largest_value_is_the_weakest_and_a_rise_is_a_drop() -> None:
    original = SimpleNamespace(
        accuracy=AccuracyResult(2.0, None, None, 100, "test"), scores=np.ones(1)
    )
    pruned, first = measured(16, 2.5, rounded=3.0), measured(16, 4.0, rounded=3.5)
    others = [first, measured(4, 2.2), measured(8, 2.8)]
    found = baseline_of(pruned, others, original=original)
    assert (found.value, found.drop) == (4.0, 2.0)
    assert found.gain == pytest.approx(
        16 / 32**0.5
    )  # 2.5 lies in the middle between 2.2 at 4× and 2.8 at 8×
    compared: Any = SimpleNamespace(
        pruned=pruned,
        baseline=MeasuredBaseline((MeasuredPoint(first, 4.0),), False),
        task=SimpleNamespace(metric=ERROR),
    )
    compared.task.compute_drop_interval = lambda *_: (1.0, 2.0)
    compared.task.correct_samples = lambda _: None
    difference = assemble._difference(compared)
    assert difference is not None
    assert difference.value == 1.5  # the pruned network is better


def test_a_drop_without_an_interval_says_why() -> None:
    task: Any = SimpleNamespace(
        metric=Metric(), compute_drop_interval=lambda *_: None, correct_samples=lambda _: None
    )
    found = baseline_of(measured(16, 0.97), POINTS[:1], is_curve=False, task=task)
    assert found.drop_interval is None
    assert found.reasons["drop_interval"] == UNDEFINED
    assert (
        "drop_interval" not in baseline_of(measured(16, 0.97), POINTS[:1], is_curve=False).reasons
    )
    compared: Any = SimpleNamespace(
        pruned=measured(16, 0.97),
        baseline=MeasuredBaseline((MeasuredPoint(POINTS[0], 0.9),), False),
        task=task,
    )
    difference = assemble._difference(compared)
    assert difference is not None
    assert (difference.interval, difference.reasons["interval"]) == (None, UNDEFINED)


def test_outcomes_that_are_not_counted_have_their_reason() -> None:
    (file,) = baseline_of(measured(16, 0.97), POINTS[:1], is_curve=False).files
    assert (file.paired_counts, file.reasons["paired_counts"]) == (None, file_parts.IN_PARTS)


@pytest.mark.parametrize(("spared", "method"), [(False, ""), (True, ", classifier excluded")])
def test_a_baseline_in_blocks_has_the_point_of_single_weights_or_says_why_not(
    spared: bool, method: str
) -> None:
    points, pruned = (MeasuredPoint(POINTS[0], 0.9),), measured(16, 0.97)
    single = MeasuredPoint(measured(16, 0.95, "baseline/single/"), 0.94)
    for found, reasons in ((single, {}), (None, {"unstructured": assemble.NO_SINGLE})):
        told = baseline_of(
            pruned,
            [],
            baseline=MeasuredBaseline(points, False, spared, in_blocks=True, unstructured=found),
        )
        assert told.method == f"global-magnitude, in blocks{method}"
        assert (told.unstructured is None) == (found is None)
        assert {key: why for key, why in told.reasons.items() if key == "unstructured"} == reasons
    kept = baseline_of(
        pruned, [], baseline=MeasuredBaseline(points, True, in_blocks=True, unstructured=single)
    ).unstructured
    assert kept is not None
    assert (kept.accuracy, kept.validation_accuracy, kept.compression) == (0.95, 0.94, 16)


def test_without_blocks_there_is_no_point_of_single_weights() -> None:
    found = baseline_of(measured(16, 0.97), POINTS)
    assert found.method == "global-magnitude"
    assert found.unstructured is None
    assert "unstructured" not in found.reasons
