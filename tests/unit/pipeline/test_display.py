"""What commands print."""

import pytest

from ltp_pipeline.display import show_validation
from ltp_pipeline.metric import Metric
from ltp_pipeline.records import Accuracy
from ltp_pipeline.results import Measurement


def test_validate_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    show_validation(
        Measurement(
            path="m",
            metric=Metric(),
            accuracy=Accuracy(0.9, 0.9, None, 10, "test"),
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
