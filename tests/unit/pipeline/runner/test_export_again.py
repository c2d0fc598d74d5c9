"""Reports of networks with files that were written without the data of the run."""

from typing import Any

import pytest

from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.schema import NetworkResult, Report
from ltp_pipeline.runner.export_again import put_files
from tests.support.sample_report import in_celsius, one_point, report_of, sample


@pytest.fixture
def report() -> Report:
    """A report with a baseline of one point, whose reasons say why it has no curve."""
    return report_of(one_point(sample()[0]))


def put_value(part: NetworkResult, number: int, value: float | None, report: Report) -> Any:
    """A network of the report with another accuracy of one of its files."""
    files = list(part.files)
    accuracy = files[number].accuracy
    assert accuracy is not None
    changed = accuracy.model_copy(update={"value": value, "top1": None})
    files[number] = files[number].model_copy(
        update={"accuracy": None if value is None else changed, "paired_counts": None}
    )
    return put_files(part, tuple(files), report.metric)


@pytest.mark.parametrize(
    ("value", "new_reasons"),
    [(None, {"accuracy", "drop", "drop_interval"}), (0.9, {"drop_interval"}), (0.9041, set())],
)
def test_put_files_keeps_reasons_that_still_hold(
    report: Report, value: float | None, new_reasons: set[str]
) -> None:
    assert report.baseline is not None
    network = put_value(report.baseline, 0, value, report)
    assert network.reasons.keys() == report.baseline.reasons.keys() | new_reasons
    assert (network.drop_interval is None) == bool(new_reasons)
    for key, reason in report.baseline.reasons.items():
        assert network.reasons[key] == reason


def test_put_files_error_metric_counts_the_largest_value() -> None:
    report = report_of(in_celsius())
    network = put_value(report.pruned, 1, 2.6, report)
    completed = complete(report.model_copy(update={"pruned": network})).pruned
    assert report.original.value is not None
    assert completed.value == 2.6
    assert completed.drop == pytest.approx(2.6 - report.original.value)
