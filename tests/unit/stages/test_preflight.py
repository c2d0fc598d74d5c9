"""What is prepared before training."""

from pathlib import Path

import pytest

from ltp_pipeline.config import load_settings
from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.preflight import prepare
from ltp_pipeline.workspace import Workspace


@pytest.mark.usefixtures("capped_relu", "quickly")
def test_a_run_compares_on_its_own_samples(example: Path):
    settings = load_settings(example / "model.onnx", options={"data": {"scale": 100}})
    with pytest.raises(UnsupportedModel, match=r"\(samples\)"):
        prepare(import_model.read(example / "model.onnx"), settings, Workspace(example / "run"))
