"""Tables on the console."""

from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.cli.tables import show_trail, show_validation
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.schema_parts import AccuracyResult, TrailEntryInfo
from ltp_pipeline.stages.measure.any_file import ReferenceResult, ValidationResult

CELSIUS = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


def validation(**changes: Any) -> ValidationResult:
    values: dict[str, Any] = {
        "path": "m",
        "metric": Metric(),
        "accuracy": AccuracyResult(value=0.9, top1=0.9, top5=None, samples=10, split="test"),
        "sparsity": 0.8,
        "compression": 5.0,
        "model_compression": 1.01,
        "nonzeros": 1,
        "bytes": 1,
        "load_ms": 1.0,
        "batch": 16,
        "threads": 1,
        "provider": "CPU",
        "notes": (),
        "latency_ms": 1.5,
        "latency_quartiles_ms": (1.0, 2.0),
    }
    return ValidationResult(**values | changes)


def test_show_validation_has_both_compressions(capsys: pytest.CaptureFixture[str]) -> None:
    show_validation(validation())
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("sparsity")]
    assert "5.00×" in line
    assert "1.01×" in line


@pytest.mark.parametrize(
    ("interval", "shown_interval"), [((-0.1, 0.5), "−0.1 to 0.5"), (None, None)]
)
def test_show_validation_other_metric_has_its_unit(
    capsys: pytest.CaptureFixture[str],
    interval: tuple[float, float] | None,
    shown_interval: str | None,
) -> None:
    extra = (ExtraMetric("R²", 0.95),)
    accuracy = AccuracyResult(
        value=2.3104, top1=None, top5=None, samples=10, split="test", extra_metrics=extra
    )
    other = AccuracyResult(value=2.1, top1=None, top5=None, samples=10, split="test")
    reference = ReferenceResult("o", other, 0.2104, interval, None, 1.0, (1.0, 1.0), 1.5, 2)
    show_validation(validation(metric=CELSIUS, accuracy=accuracy, sparsity=None, against=reference))
    shown = capsys.readouterr().out
    lines = dict(line.split(" ", 1) for line in shown.splitlines())
    assert "MAE, lower is better 2.31 °C on 10 samples" in shown
    assert lines["R²"].strip() == "95.00 %"
    assert "o: MAE 2.1 °C, 2 bytes" in lines["against"]
    assert "0.2104 °C" in lines["drop"]
    assert ("interval" in lines["drop"]) == (shown_interval is not None)
    assert (shown_interval or "") in lines["drop"]


def test_show_trail_has_metric_unit_and_marks(capsys: pytest.CaptureFixture[str]) -> None:
    entries = [
        TrailEntryInfo(
            entry=1, compression=2.0, accuracy=2.3104, file="trail/001.onnx", metric=CELSIUS
        ),
        TrailEntryInfo(
            entry=2,
            compression=4.0,
            macs_left=0.3125,
            accuracy=2.5,
            file="trail/002.onnx",
            metric=CELSIUS,
            selected=True,
            pareto=True,
        ),
    ]
    show_trail(entries, Path("run"))
    title, first, second = capsys.readouterr().out.splitlines()
    assert "MAE (val)" in title
    assert first.split() == ["1", "2.00×", "–", "–", "2.31", "°C", "run/trail/001.onnx"]
    assert second.split()[:3] == [">", "2", "*"]
    assert "31.2 %" in second
