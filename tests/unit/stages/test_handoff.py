"""The handoff folder, filled from a report and the files of a run."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import format_settings
from ltp_pipeline.stages.handoff.page import render_page
from ltp_pipeline.system.hashing import sha256_file
from tests.support.finished import write_run
from tests.support.sample_report import report_of, sample


def test_run_folder_agrees_with_sha256sum(tmp_path: Path):
    out = handoff.run(
        report_of(write_run(tmp_path / "run")), tmp_path / "run", tmp_path / "new" / "out"
    )
    names = {p.name for p in out.iterdir()}
    models = {"model.sparse.onnx", "model.packed.onnx"}
    scripts = {"preprocess.py", "preprocess.json", "example.npz", "verify.py"}
    assert names == {
        *models,
        *scripts,
        "report.json",
        "report.html",
        "ltp.toml",
        "HANDOFF.md",
        "SHA256SUMS",
    }
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(names) - 1


def test_run_second_handoff_removes_outdated_files_only(tmp_path: Path):
    handoff.run(
        report_of(write_run(tmp_path / "run", ("sparse", "dense"))),
        tmp_path / "run",
        tmp_path / "out",
    )
    (tmp_path / "out" / "mine.txt").write_text("a note of the user's")
    handoff.run(
        report_of(write_run(tmp_path / "run", ("sparse", "packed"))),
        tmp_path / "run",
        tmp_path / "out",
    )
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert "model.packed.onnx" in names
    assert "model.dense.onnx" not in names
    assert "mine.txt" in names
    assert not [name for name in names if name.startswith(".")]
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True
    )
    assert done.returncode == 0


def test_run_edited_checksums_remove_nothing_outside_the_folder(tmp_path: Path):
    report = write_run(tmp_path / "run")
    handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    (tmp_path / "victim").write_text("stays")
    with (tmp_path / "out" / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../victim\n{'0' * 64}  {tmp_path / 'victim'}\n")
    handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert (tmp_path / "victim").exists()


def test_run_foreign_folder_raises(tmp_path: Path):
    report = write_run(tmp_path / "run")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "HANDOFF.md").write_text("# our own page")
    for out in (tmp_path / "theirs", tmp_path / "run", tmp_path / "run" / "report.json"):
        with pytest.raises(InputError):
            handoff.run(report_of(report), tmp_path / "run", out)
    assert [p.name for p in (tmp_path / "theirs").iterdir()] == ["HANDOFF.md"]


def test_run_changed_model_raises(tmp_path: Path):
    report = write_run(tmp_path / "run")
    (tmp_path / "run" / "model.packed.onnx").write_text("something else")
    with pytest.raises(InputError, match=r"/model\.packed\.onnx ") as changed:
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert "ltp-pipeline export" in changed.value.hint
    (tmp_path / "run" / "model.packed.onnx").unlink()
    with pytest.raises(InputError, match=r"/model\.packed\.onnx ") as missing:
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert "ltp-pipeline export" not in missing.value.hint
    assert not (tmp_path / "out").exists()


def test_run_external_data_are_copied_and_checked(tmp_path: Path):
    report = write_run(tmp_path / "run")
    data = tmp_path / "run" / "model.packed.onnx.data"
    data.write_text("weights")
    next(f for f in report["pruned"]["files"] if f["encoding"] == "packed")["data_sha256"] = (
        sha256_file(data)
    )
    out = handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert "  model.packed.onnx.data\n" in (out / "SHA256SUMS").read_text()
    data.write_text("other weights")
    with pytest.raises(InputError, match=r"/model\.packed\.onnx\.data "):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")


def test_render_page_file_with_data_is_named_with_them(tmp_path: Path) -> None:
    report = write_run(tmp_path)
    packed = next(f for f in report["pruned"]["files"] if f["encoding"] == "packed")
    packed["data_sha256"] = "0" * 64
    page = render_page(report_of(report))
    both = "`model.packed.onnx` with `model.packed.onnx.data`"
    assert f"| {both} |" in page
    assert f"need only one row: {both}," in page
    assert "Keep both in one folder" in page


def test_run_copies_are_not_hard_links(tmp_path: Path):
    out = handoff.run(
        report_of(write_run(tmp_path / "run")), tmp_path / "run", tmp_path / "run" / "handoff"
    )
    assert {
        path.stat().st_nlink for path in (*out.iterdir(), *(tmp_path / "run").glob("*.onnx"))
    } == {1}


def test_format_settings_repeats_how_inputs_are_made(tmp_path: Path) -> None:
    report = write_run(tmp_path)
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
    report["settings"]["train"]["distill_outputs_as"] = "values"
    settings = tomllib.loads(format_settings(report["settings"], "--data"))
    assert settings["data"]["crop"] == 0.875
    assert settings["train"]["distill_outputs_as"] == "values"


def test_format_settings_hostile_names_are_read_as_names(tmp_path: Path) -> None:
    report, _ = sample()
    names = ("tokens:0", "a.b", 'x"]\npath = "/etc"\n#', "é\x7f\\")
    report["settings"]["data"]["inputs"] = {
        name: {"scale": 0.5, "mean": [], "layout": "NHWC"} for name in names
    }
    report["settings"]["task"] = {
        "kind": "regression",
        "target": 'y"\n',
        "output": None,
        "loss": "squared_error",
    }
    text = format_settings(report["settings"], "--data")
    (tmp_path / "ltp.toml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "model.onnx")
    assert tuple(settings.data.inputs) == names
    for name in names:
        of_input = settings.data.for_input(name)
        assert of_input.scale == 0.5
        assert of_input.mean == ()
        assert of_input.layout == "NHWC"
    assert settings.task.kind == "regression"
    assert settings.task.target == 'y"\n'
    assert settings.task.output is None
    assert settings.data.path is None


def test_format_settings_unknown_keys_are_left_out() -> None:
    report, _ = sample()
    report["settings"]["data"]["inputs"] = {
        "a": {"scale = 1\n[train]\nseed": 7, "padding_value": 3.0}
    }
    report["settings"]["task"] = {"other": 1, "ignore_index": -100}
    settings = tomllib.loads(format_settings(report["settings"], "--data"))
    assert settings["data"]["inputs"] == {"a": {"padding_value": 3.0}}
    assert "task" not in settings
