"""What a report says of a network whose files were written without the data of the run."""

from typing import Any

import pytest

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import NetworkResult
from ltp_pipeline.runner.export_again import _summed_up
from tests.support.sample_report import in_celsius, one_point, report_of, sample


@pytest.fixture
def baseline() -> NetworkResult:
    """A baseline of one point, which says why it has no curve."""
    found = report_of(one_point(sample()[0])).baseline
    assert found is not None
    return found


def with_accuracy(part: NetworkResult, value: float | None) -> NetworkResult:
    (file,) = part.files
    known = (
        None
        if value is None or file.accuracy is None
        else file.accuracy.model_copy(update={"value": value})
    )
    return _summed_up(part, (file.model_copy(update={"accuracy": known}),), Metric())


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, {"accuracy", "drop", "drop_interval"}), (0.9, {"drop_interval"}), (0.9041, set())],
)
def test_reasons_that_still_hold_stay(
    baseline: NetworkResult, value: float | None, told: set[str]
) -> None:
    found: dict[str, Any] = dict(with_accuracy(baseline, value).reasons)
    assert found.keys() == {"curve", "gain", "compression_at_equal_accuracy", *told}
    assert all(found[key] == why for key, why in baseline.reasons.items())


def test_where_less_is_better_the_largest_value_of_the_files_counts() -> None:
    report = report_of(in_celsius())
    part, (first, second) = report.pruned, report.pruned.files
    assert second.accuracy is not None
    files = (
        first,
        second.model_copy(update={"accuracy": second.accuracy.model_copy(update={"value": 2.6})}),
    )
    found = _summed_up(part, files, report.metric)
    assert found.value == 2.6
    assert found.drop == pytest.approx(0.0045 + 2.6 - 2.5868)
