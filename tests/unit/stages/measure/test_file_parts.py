"""Parts of the report that a measured file has."""

from ltp_pipeline.results.metric import ExtraMetric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.stages.measure import file_parts


def test_figures_beside_the_metric_come_into_the_report() -> None:
    figures = (
        ExtraMetric("R²", 0.9),
        ExtraMetric("worst error", 3.5, "°C", is_fraction=False, higher_is_better=False),
    )
    found = file_parts.accuracy_part(
        AccuracyResult(2.0, None, None, 100, "test", extra_metrics=figures)
    )
    assert found.extra_metrics == figures
