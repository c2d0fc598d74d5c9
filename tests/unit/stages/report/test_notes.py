"""What a report tells in words."""

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import NetworkResult
from ltp_pipeline.stages.report import notes

ERROR = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


def test_a_gain_beyond_chance_is_told_in_the_unit_of_the_metric() -> None:
    told = notes.unlikely_gain(NetworkResult(drop_interval=(-0.5, -0.25)), ERROR)
    assert str(told).startswith(
        "the pruned network is better than the original by 0.25 °C to 0.5 °C, which is no chance"
    )
    told = notes.unlikely_gain(NetworkResult(drop_interval=(-0.05, -0.025)), Metric())
    assert "by 2.50 points to 5.00 points" in str(told)
    assert notes.unlikely_gain(NetworkResult(drop_interval=(-0.5, 0.0)), ERROR) is None
