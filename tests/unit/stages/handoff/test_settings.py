"""The ltp.toml of a handoff."""

import tomllib
from pathlib import Path

from ltp_pipeline.config import load_settings
from ltp_pipeline.stages.handoff import settings as handoff_settings
from tests.support.finished import finished
from tests.support.sample_report import report_of, sample


def test_the_settings_beside_the_page_are_those_of_the_run(tmp_path: Path):
    report = finished(tmp_path)
    (tmp_path / "ltp.toml").write_text(handoff_settings.render(report_of(report)))
    data = load_settings(tmp_path / "model.onnx").data
    wanted = report["settings"]["data"]
    assert (data.scale, list(data.mean), list(data.std)) == (wanted["scale"], wanted["mean"], wanted["std"])
    assert (data.layout, data.resize, data.path) == ("NCHW", (32, 32), None)


def test_a_centre_crop_and_what_outputs_are_is_repeated():
    report, _ = sample()
    report["settings"]["data"] |= {"crop": 0.875, "resize": [224, 224]}
    report["settings"]["train"]["imitate"] = "values"
    made = tomllib.loads(handoff_settings.render(report_of(report)))
    assert (made["data"]["crop"], made["train"]["imitate"]) == (0.875, "values")
