"""What commands print."""

import re
from pathlib import Path

import pytest

from ltp_pipeline.cli.tables import show_outcome, show_trail, show_validation
from ltp_pipeline.results.metric import ExtraMetric, Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.tool_results import ReferenceResult, TrailEntryInfo, ValidationResult
from ltp_pipeline.runner.finish import RunResult
from tests.support.sample_report import in_celsius, report_of


def test_validate_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    show_validation(
        ValidationResult(
            path="m",
            metric=Metric(),
            accuracy=AccuracyResult(0.9, 0.9, None, 10, "test"),
            sparsity=0.8,
            compression=5.0,
            model_compression=1.01,
            nonzeros=1,
            bytes=1,
            load_ms=1.0,
            batch=16,
            threads=1,
            provider="CPU",
            notes=(),
            latency_ms=1.5,
            latency_quartiles_ms=(1.0, 2.0),
        )
    )
    assert "compression 5.00× (whole model 1.01×)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("interval", "shown_interval"), [((-0.1, 0.5), " (95 %: −0.1 to 0.5)"), (None, "")]
)
def test_validate_shows_the_metric_in_its_unit_and_figures_beside_it(
    capsys: pytest.CaptureFixture[str], interval: tuple[float, float] | None, shown_interval: str
) -> None:
    metric = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    other = AccuracyResult(2.1, None, None, 10, "test")
    show_validation(
        ValidationResult(
            path="m",
            metric=metric,
            accuracy=AccuracyResult(
                2.3104, None, None, 10, "test", extra_metrics=(ExtraMetric("R²", 0.95),)
            ),
            sparsity=None,
            compression=None,
            model_compression=None,
            nonzeros=None,
            bytes=1,
            load_ms=1.0,
            batch=16,
            threads=1,
            provider="CPU",
            notes=(),
            latency_ms=1.5,
            latency_quartiles_ms=(1.0, 2.0),
            against=ReferenceResult("o", other, 0.2104, interval, None, 1.0, (1.0, 1.0), 1.5, 2),
        )
    )
    shown = capsys.readouterr().out
    assert "MAE, lower is better 2.31 °C on 10 samples of the test split\n" in shown
    assert "R²           95.00 %\n" in shown
    assert "against      o: MAE 2.1 °C, 2 bytes\n" in shown
    assert f"drop         0.2104 °C{shown_interval}\n" in shown


def test_a_run_shows_the_metric_in_its_unit_and_figures_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    content = in_celsius()
    content["pruned"]["accuracy"]["extra_metrics"] = [{"name": "[bold]R²", "value": 0.95}]
    show_outcome(RunResult(Path("run"), report_of(content), []), Path())
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "MAE, lower is better 2.582 °C 2.587 °C 2.596 °C" in lines
    assert "[bold]R² not measured 95.00 % not measured" in lines
    assert "drop 0.0045 °C 0.0136 °C" in lines


def test_the_trail_shows_the_metric_in_its_unit(capsys: pytest.CaptureFixture[str]) -> None:
    metric = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)
    show_trail([TrailEntryInfo(1, 1, 2.0, 2.3104, "trail/001.onnx", metric=metric)], Path())
    assert re.search(r"MAE \(val\).*\n.*2\.31 °C", capsys.readouterr().out)
