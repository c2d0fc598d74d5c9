"""The ltp.toml of a handoff."""

import tomllib
from pathlib import Path

from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages.handoff import format_settings
from tests.support.finished import finished
from tests.support.sample_report import sample


def test_format_settings_repeats_how_inputs_are_made(tmp_path: Path) -> None:
    report = finished(tmp_path)
    (tmp_path / "ltp.toml").write_text(format_settings(report["settings"], "--data"))
    data = load_settings(tmp_path / "model.onnx").data
    expected = report["settings"]["data"]
    assert data.scale == expected["scale"]
    assert list(data.mean) == expected["mean"]
    assert list(data.std) == expected["std"]
    assert data.layout == "NCHW"
    assert data.resize == (32, 32)
    assert data.path is None


def test_format_settings_repeats_crop_and_kind_of_outputs() -> None:
    report, _ = sample()
    report["settings"]["data"] |= {"crop": 0.875, "resize": [224, 224]}
    report["settings"]["train"]["imitate"] = "values"
    settings = tomllib.loads(format_settings(report["settings"], "--data"))
    assert settings["data"]["crop"] == 0.875
    assert settings["train"]["imitate"] == "values"


def test_format_settings_hostile_names_are_read_as_names(tmp_path: Path) -> None:
    report, _ = sample()
    names = ("tokens:0", "a.b", 'x"]\npath = "/etc"\n#', "é\x7f\\")
    report["settings"]["data"]["inputs"] = {
        name: {"scale": 0.5, "mean": [], "layout": "NHWC"} for name in names
    }
    report["settings"]["task"] = {
        "kind": "regress",
        "target": 'y"\n',
        "output": None,
        "error": "squared",
    }
    text = format_settings(report["settings"], "--data")
    (tmp_path / "ltp.toml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "model.onnx")
    assert tuple(settings.data.inputs) == names
    for name in names:
        of_input = settings.data.of(name)
        assert of_input.scale == 0.5
        assert of_input.mean == ()
        assert of_input.layout == "NHWC"
    assert settings.task.kind == "regress"
    assert settings.task.target == 'y"\n'
    assert settings.task.output is None
    assert settings.data.path is None


def test_format_settings_unknown_keys_are_left_out() -> None:
    report, _ = sample()
    report["settings"]["data"]["inputs"] = {"a": {"scale = 1\n[train]\nseed": 7, "pad": 3.0}}
    report["settings"]["task"] = {"other": 1, "ignored_label": -100}
    settings = tomllib.loads(format_settings(report["settings"], "--data"))
    assert settings["data"]["inputs"] == {"a": {"pad": 3.0}}
    assert "task" not in settings
