"""What is checked before training."""

from pathlib import Path

import pytest

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.prepare import prepare_run


@pytest.mark.usefixtures("capped_relu", "quickly")
def test_prepare_compares_torch_with_onnxruntime_on_samples_of_the_data(example: Path):
    settings = load_settings(example / "model.onnx", options={"data": {"scale": 100}})
    with pytest.raises(UnsupportedModel) as caught:
        prepare_run(
            read_model_file(example / "model.onnx"), settings, RunDirectory(example / "run")
        )
    assert "(samples)" in caught.value.message
