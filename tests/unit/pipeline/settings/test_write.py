"""The ltp.toml of a handoff."""

import tomllib
from pathlib import Path

from ltp_pipeline.settings import write
from ltp_pipeline.settings.load import load_settings
from tests.support.finished import finished
from tests.support.sample_report import sample


def test_the_settings_beside_the_page_are_those_of_the_run(tmp_path: Path):
    report = finished(tmp_path)
    (tmp_path / "ltp.toml").write_text(write.render(report["settings"], "--data"))
    data = load_settings(tmp_path / "model.onnx").data
    wanted = report["settings"]["data"]
    assert (data.scale, list(data.mean), list(data.std)) == (
        wanted["scale"],
        wanted["mean"],
        wanted["std"],
    )
    assert (data.layout, data.resize, data.path) == ("NCHW", (32, 32), None)


def test_a_centre_crop_and_what_outputs_are_is_repeated():
    report, _ = sample()
    report["settings"]["data"] |= {"crop": 0.875, "resize": [224, 224]}
    report["settings"]["train"]["imitate"] = "values"
    made = tomllib.loads(write.render(report["settings"], "--data"))
    assert (made["data"]["crop"], made["train"]["imitate"]) == (0.875, "values")


def test_inputs_and_the_task_are_told_under_quoted_names(tmp_path: Path):
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
    (tmp_path / "ltp.toml").write_text(write.render(report["settings"], "--data"), encoding="utf-8")
    found = load_settings(tmp_path / "model.onnx")
    assert tuple(found.data.inputs) == names
    for name in names:
        assert (
            found.data.of(name).scale,
            found.data.of(name).mean,
            found.data.of(name).layout,
        ) == (0.5, (), "NHWC")
    assert (found.task.kind, found.task.target, found.task.output) == ("regress", 'y"\n', None)
    assert found.data.path is None


def test_what_no_section_knows_is_not_repeated(tmp_path: Path):
    report, _ = sample()
    report["settings"]["data"]["inputs"] = {"a": {"scale = 1\n[train]\nseed": 7, "pad": 3.0}}
    report["settings"]["task"] = {"other": 1, "ignored_label": -100}
    made = tomllib.loads(write.render(report["settings"], "--data"))
    assert made["data"]["inputs"] == {"a": {"pad": 3.0}}
    assert "task" not in made
