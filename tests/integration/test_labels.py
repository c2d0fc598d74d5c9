"""Labels or samples that do not fit the model are rejected before training, with the cause."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from tests.support.cli import Result, invoke
from tests.support.trained import LIGHT, brightness_model, make_pictures

FITTING = {"scale": 1 / 255}
SHORT = ("--epochs", 2, "--finetune-epochs", 1, "--target-compression", 2, "--no-baseline")
# The model's number of each class, by its number in the data.
ORDER = np.array([2, 0, 3, 1])
SUGGESTION = re.compile(r"(?:; |Note: )with ([^;]+) it would have ([\d.]+) % on \d+ samples")
CHECKS = "check scale, mean, std, layout and classes in [data]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("brightness") / "model.onnx"
    onnx.save(brightness_model(), path)
    return path


def run(
    capsys, model: Path, folder: Path, x: np.ndarray, y: np.ndarray, data: dict, *options: object
) -> Result:
    np.savez(folder / "data.npz", x=x, y=y)
    settings = [f"data.{key}={json.dumps(value)}" for key, value in data.items()]
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    paths = ("--data", folder / "data.npz", "--out", folder / "run")
    return invoke(capsys, "run", model, *arguments, *paths, *SHORT, *options)


def check_rejected(result: Result, folder: Path, hint: str) -> str | None:
    """Check the error and its hint; return the change under which the original would be good."""
    assert result.code == 3, result.err
    message, shown_hint = result.err.splitlines()[-2:]
    assert message.startswith("error: ")
    assert hint in shown_hint
    assert "--skip-label-check" in shown_hint
    assert not [p for p in folder.glob("run/*") if not p.name.startswith(".")]
    suggestion = SUGGESTION.search(message)
    if suggestion is None:
        return None
    assert float(suggestion[2]) > 90
    return suggestion[1]


def test_run_fitting_original_is_measured_before_training(model: Path, tmp_path: Path, capsys):
    result = run(capsys, model, tmp_path, *make_pictures(), FITTING)
    assert result.code == 0, result.err
    shown = re.search(r"top-1 ([\d.]+) % on the 72 validation samples", result.err)
    assert shown
    assert float(shown[1]) > 90
    assert result.err.index(shown[0]) < result.err.index("Learn thresholds")
    assert not SUGGESTION.search(result.err)


def test_run_unscaled_pixels_suggest_scale(model: Path, tmp_path: Path, capsys):
    result = run(capsys, model, tmp_path, *make_pictures(), {})
    change = check_rejected(result, tmp_path, "set scale = 0.00392156862745098 in [data]")
    assert change == "scale = 1/255"


def test_run_pixels_scaled_twice_suggest_removing_scale(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    result = run(capsys, model, tmp_path, x.astype(np.float32) / 255, y, FITTING)
    assert check_rejected(result, tmp_path, "remove scale from [data]") == "scale = 1"


def test_run_flattened_channels_last_suggest_layout(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures(opposite=True)
    result = run(capsys, model, tmp_path, np.moveaxis(x, 1, -1), y, FITTING)
    assert check_rejected(result, tmp_path, 'set layout = "NHWC" in [data]') == 'layout = "NHWC"'


def test_run_reversed_colors_suggest_reversing(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    result = run(capsys, model, tmp_path, x[:, ::-1], y, FITTING)
    assert check_rejected(result, tmp_path, "BGR instead of RGB")


def test_run_reordered_classes_suggest_a_table_that_works(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    labels = np.argsort(ORDER)[y]
    result = run(capsys, model, tmp_path, x, labels, FITTING)
    assert check_rejected(result, tmp_path, "set classes = { 0 = 2, 1 = 0, 2 = 3, 3 = 1 } in")
    suggested = re.search(r"set (classes = .+) in \[data\]", result.err)
    assert suggested
    classes = tomllib.loads(suggested[1])["classes"]
    assert classes == {str(i): int(n) for i, n in enumerate(ORDER)}
    inline = "{" + ", ".join(f'"{i}" = {n}' for i, n in classes.items()) + "}"
    # The run directory is the one of the run that could not begin.
    again = run(capsys, model, tmp_path, x, labels, FITTING, "--set", f"data.classes={inline}")
    assert again.code == 0, again.err


def test_run_two_causes_suggest_both_changes(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    result = run(capsys, model, tmp_path, x, np.argsort(ORDER)[y], {})
    change = check_rejected(result, tmp_path, "set scale = ")
    assert change
    assert change.startswith("scale = 1/255 and ")
    assert "classes = { 0 = 2," in result.err.splitlines()[-1]


def test_run_mediocre_original_gets_a_note(model: Path, tmp_path: Path, capsys):
    """Half of the classes have each other's numbers."""
    x, y = make_pictures()
    result = run(capsys, model, tmp_path, x, np.array([1, 0, 2, 3])[y], FITTING)
    assert result.code == 0, result.err
    (note,) = (line for line in result.err.splitlines() if SUGGESTION.search(line))
    assert note.startswith("Note: ")
    assert "classes = { 0 = 1, 1 = 0, 2 = 2, 3 = 3 } in [data]" in note
    assert result.err.index(note) < result.err.index("Learn thresholds")


def test_run_random_labels_suggest_checks_only(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    labels = np.random.default_rng(1).permutation(y)
    result = run(capsys, model, tmp_path, x, labels, FITTING)
    assert check_rejected(result, tmp_path, CHECKS) is None


def test_run_damaged_network_is_not_explained_by_other_settings(example: Path, capsys):
    """The network is a little less wrong on samples that are prepared in other ways."""
    network = onnx.load(example / "model.onnx")
    for tensor in network.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if tensor.name == "stem.weight":
            array[::2] = 0
        if tensor.name == "block1.conv2.weight":
            array[:] = 0
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    onnx.save(network, example / "model.onnx")
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run")
    assert check_rejected(result, example, CHECKS) is None


def test_run_skip_label_check_warns_of_improvement(model: Path, tmp_path: Path, capsys):
    x, y = make_pictures()
    options = ("--skip-label-check", "--epochs", 20, "--max-drop", 0.01)
    result = run(capsys, model, tmp_path, x, np.argsort(ORDER)[y], FITTING, *options)
    assert result.code == 0, result.err
    assert "warning: " in result.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["pruned"]["drop_interval"][1] < 0
    assert report["suspicious_improvement"] in report["notes"]
    assert "better than the original" in (tmp_path / "run" / "report.md").read_text()


def test_run_that_skipped_the_label_check_resumes_only_with_the_option(
    model: Path, tmp_path: Path, capsys, monkeypatch
):
    from ltp_pipeline.stages import select_entry

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    x, y = make_pictures()
    wrong: Any = (x, np.argsort(ORDER)[y], FITTING)
    with monkeypatch.context() as patch:
        patch.setattr(select_entry, "run", stop)
        assert run(capsys, model, tmp_path, *wrong, "--skip-label-check").code == 130
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    rejected = run(capsys, model, tmp_path, *wrong)
    assert rejected.code == 3
    assert "classes = {" in rejected.err
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == before
    resumed = run(capsys, model, tmp_path, *wrong, "--skip-label-check")
    assert resumed.code == 0, resumed.err
    assert "Resuming" in resumed.err
    assert run(capsys, model, tmp_path, *wrong).code == 0  # a finished run is not checked again


def write_folders(root: Path, samples: int = 240) -> Path:
    x, y = make_pictures(samples)
    for i, (picture, label) in enumerate(zip(x, y, strict=True)):
        path = root / LIGHT[label] / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(picture, 0, -1)).save(path)
    return root


def test_run_class_folders_in_another_order_suggest_classes(model: Path, tmp_path: Path, capsys):
    """Folders are numbered by name; the model goes from dark over dim and light to bright."""
    folder = write_folders(tmp_path / "folders")
    scale = ("--set", f"data.scale={1 / 255!r}")
    arguments = ("run", model, "--data", folder, "--out", tmp_path / "run", *SHORT)
    result = invoke(capsys, *arguments, *scale)
    check_rejected(result, tmp_path, "classes = { bright = 3, dark = 0, dim = 1, light = 2 } in")
    config = tmp_path / "ltp.toml"
    config.write_text(
        f"[data]\nscale = {1 / 255!r}\n[data.classes]\nbright = 3\ndark = 0\ndim = 1\nlight = 2\n"
    )
    again = invoke(capsys, *arguments, "--config", config)
    assert again.code == 0, again.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["original"]["accuracy"]["top1"] > 0.9
    assert report["data"]["class_names"] == list(LIGHT)
    handed = tomllib.loads((tmp_path / "run" / "handoff" / "ltp.toml").read_text())
    assert handed["data"]["classes"] == {"bright": 3, "dark": 0, "dim": 1, "light": 2}


@pytest.mark.slow
def test_run_several_ranks_stop_alike_and_one_reports(model: Path, tmp_path: Path):
    x, y = make_pictures()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    launch = (*launch, "-m", "ltp_pipeline")
    command = (sys.executable, *launch, "run", model, "--data", "data.npz", "--out", "run", *SHORT)
    environment = {**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [*map(str, command)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert process.returncode != 0
    assert len(re.findall("error: ", process.stderr)) == 1
    assert f"scale = {1 / 255!r} in [data]" in process.stderr
    assert not [p for p in tmp_path.glob("run/*") if not p.name.startswith(".")]
