"""Notes about networks and their files."""

import pytest

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import NetworkResult
from ltp_pipeline.stages.report.notes import describe_improvement, describe_skipped_files

CELSIUS = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize(
    ("interval", "metric", "expected"),
    [
        ((-0.5, -0.25), CELSIUS, "0.25 °C to 0.5 °C"),
        ((-0.05, -0.025), Metric(), "2.50 percentage points to 5.00 percentage points"),
    ],
)
def test_describe_improvement_beyond_chance_has_the_interval(
    interval: tuple[float, float], metric: Metric, expected: str
) -> None:
    warning = describe_improvement(NetworkResult(drop_interval=interval), metric)
    assert warning is not None
    assert expected in warning


def test_describe_improvement_possible_chance_gives_none() -> None:
    assert describe_improvement(NetworkResult(drop_interval=(-0.5, 0.0)), CELSIUS) is None
    assert describe_improvement(NetworkResult(), CELSIUS) is None


def test_describe_skipped_files_names_file_and_reason() -> None:
    (note,) = describe_skipped_files({"int8-packed": "no layer fits"})
    assert "model.int8.packed.onnx" in note
    assert "no layer fits" in note
