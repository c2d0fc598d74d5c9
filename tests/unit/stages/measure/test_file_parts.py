"""Parts of the report that a measured file has."""

from ltp_pipeline.results.metric import Figure
from ltp_pipeline.results.records import Accuracy
from ltp_pipeline.stages.measure import file_parts


def test_figures_beside_the_metric_come_into_the_report() -> None:
    figures = (
        Figure("R²", 0.9),
        Figure("worst error", 3.5, "°C", is_fraction=False, higher_is_better=False),
    )
    found = file_parts.accuracy_part(Accuracy(2.0, None, None, 100, "test", beside=figures))
    assert found.beside == figures
