"""Labels or samples that do not fit the model are found before training, with what would make them fit."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from tests.support.cli import Result, invoke
from tests.support.trained import LIGHT, brightness_model, pictures

FIT = {"scale": 1 / 255}
SHORT = ("--epochs", 2, "--finetune-epochs", 1, "--target-compression", 2, "--no-baseline")
SWAP = np.array(
    [2, 0, 3, 1]
)  # the number that a class has in the model, by the number that the data give it


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("brightness") / "model.onnx"
    onnx.save(brightness_model(), path)
    return path


def attempt(
    capsys, model: Path, folder: Path, x: np.ndarray, y: np.ndarray, data: dict, *options: object
) -> Result:
    np.savez(folder / "data.npz", x=x, y=y)
    given = (
        item for key, value in data.items() for item in ("--set", f"data.{key}={json.dumps(value)}")
    )
    arguments = (*given, "--data", folder / "data.npz", "--out", folder / "run", *SHORT, *options)
    return invoke(capsys, "run", model, *arguments)


def refused(result: Result, folder: Path, *words: str) -> None:
    assert result.code == 3, result.err
    what, remedy = result.err.splitlines()[-2:]
    assert what.startswith("error: the original is right on ")
    assert "most frequent class" in what
    assert remedy.endswith("--skip-label-check")
    for word in words:
        assert word in f"{what}\n{remedy}"
    assert not [p for p in folder.glob("run/*") if not p.name.startswith(".")]


def accuracy_told(result: Result) -> float:
    """The accuracy that the explanation gives, in percent."""
    found = re.search(r"it is right on ([\d.]+)% of \d+$", result.err.splitlines()[-2])
    assert found, result.err
    return float(found[1])


def test_an_original_that_fits_is_measured_and_shown_before_training(
    model: Path, tmp_path: Path, capsys
):
    result = attempt(capsys, model, tmp_path, *pictures(), FIT)
    assert result.code == 0, result.err
    shown = re.search(
        r"The original is right on ([\d.]+)% of the 72 validation samples; naming the most",
        result.err,
    )
    assert shown
    assert float(shown[1]) > 90
    assert result.err.index(shown[0]) < result.err.index("Learn thresholds")
    assert "would be right" not in result.err


def test_pixels_that_were_not_scaled(model: Path, tmp_path: Path, capsys):
    result = attempt(capsys, model, tmp_path, *pictures(), {})
    refused(result, tmp_path, "with scale = 1/255", "set scale = 0.00392156862745098 in [data]")
    assert accuracy_told(result) > 90


def test_pixels_that_were_scaled_already(model: Path, tmp_path: Path, capsys):
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x.astype(np.float32) / 255, y, FIT)
    refused(result, tmp_path, "remove scale from [data]")
    assert accuracy_told(result) > 90


def test_channels_that_lie_last_in_samples_that_are_flattened(model: Path, tmp_path: Path, capsys):
    x, y = pictures(opposite=True)
    result = attempt(capsys, model, tmp_path, np.moveaxis(x, 1, -1), y, FIT)
    refused(result, tmp_path, 'set layout = "NHWC" in [data]')
    assert accuracy_told(result) > 90


def test_colours_in_reverse_order(model: Path, tmp_path: Path, capsys):
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x[:, ::-1], y, FIT)
    refused(result, tmp_path, "colours in reverse order", "reverse order (BGR for RGB)")
    assert accuracy_told(result) > 90


def test_classes_in_another_order_and_the_table_that_mends_it(model: Path, tmp_path: Path, capsys):
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x, np.argsort(SWAP)[y], FIT)
    refused(
        result,
        tmp_path,
        "classes numbered in another order",
        "classes = { 0 = 2, 1 = 0, 2 = 3, 3 = 1 } in [data]",
    )
    assert accuracy_told(result) > 90
    table = json.dumps({str(i): int(n) for i, n in enumerate(SWAP)})
    toml = tomllib.loads(result.err.splitlines()[-1].split(": ", 1)[1].split(" in [data]")[0])
    assert toml["classes"] == json.loads(table)
    inline = "{" + ", ".join(f'"{i}" = {n}' for i, n in enumerate(SWAP)) + "}"
    again = attempt(
        capsys, model, tmp_path, x, np.argsort(SWAP)[y], FIT, "--set", f"data.classes={inline}"
    )  # in the same folder: nothing was left of the run that could not begin
    assert again.code == 0, again.err


def test_two_causes_at_once(model: Path, tmp_path: Path, capsys):
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x, np.argsort(SWAP)[y], {})
    refused(
        result, tmp_path, "with scale = 1/255 and the classes", "set scale = ", "classes = { 0 = 2,"
    )


def test_an_original_that_beats_guessing_but_would_be_far_better_otherwise(
    model: Path, tmp_path: Path, capsys
):
    """Half of the classes have each other's numbers."""
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x, np.array([1, 0, 2, 3])[y], FIT)
    assert result.code == 0, result.err
    (note,) = (line for line in result.err.splitlines() if "would be right" in line)
    assert note.startswith(
        "Note: with the classes numbered in another order the original would be right on 9"
    )
    assert note.endswith("classes = { 0 = 1, 1 = 0, 2 = 2, 3 = 3 } in [data]")
    assert result.err.index(note) < result.err.index("Learn thresholds")


def test_labels_that_nothing_explains(model: Path, tmp_path: Path, capsys):
    x, y = pictures()
    result = attempt(capsys, model, tmp_path, x, np.random.default_rng(1).permutation(y), FIT)
    refused(result, tmp_path, "check scale, mean, std, layout and classes in [data]")
    assert "it is right on" not in result.err


def test_a_spoiled_network_that_is_a_little_less_wrong_on_other_inputs_is_not_explained_by_them(
    example: Path, capsys
):
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
    refused(result, example, "check scale, mean, std, layout and classes in [data]")
    assert "it is right on" not in result.err


def test_labels_are_trusted_when_that_is_asked_for_and_the_gain_is_a_warning(
    model: Path, tmp_path: Path, capsys
):
    x, y = pictures()
    result = attempt(
        capsys,
        model,
        tmp_path,
        x,
        np.argsort(SWAP)[y],
        FIT,
        "--skip-label-check",
        "--epochs",
        20,
        "--max-drop",
        0.01,
    )
    assert result.code == 0, result.err
    assert "warning: the pruned network is better than the original" in result.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["pruned"]["drop_interval"][1] < 0
    assert report["suspicious_improvement"] in report["notes"]
    assert "is better than the original" in (tmp_path / "run" / "report.md").read_text()


def test_a_run_that_trusted_its_labels_goes_on_only_if_they_still_are(
    model: Path, tmp_path: Path, capsys, monkeypatch
):
    from ltp_pipeline.stages import select_entry

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    x, y = pictures()
    wrong = (x, np.argsort(SWAP)[y], FIT)
    with monkeypatch.context() as patch:
        patch.setattr(select_entry, "run", stop)
        assert attempt(capsys, model, tmp_path, *wrong, "--skip-label-check").code == 130
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    result = attempt(capsys, model, tmp_path, *wrong)
    assert result.code == 3
    assert "classes numbered in another order" in result.err
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == before
    again = attempt(capsys, model, tmp_path, *wrong, "--skip-label-check")
    assert again.code == 0, again.err
    assert "Going on" in again.err
    assert attempt(capsys, model, tmp_path, *wrong).code == 0  # what is finished is not asked again


def write_folders(root: Path, samples: int = 240) -> Path:
    x, y = pictures(samples)
    for i, (picture, label) in enumerate(zip(x, y, strict=True)):
        path = root / LIGHT[label] / f"{i:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(picture, 0, -1)).save(path)
    return root


def test_class_folders_in_another_order_than_the_models_classes(
    model: Path, tmp_path: Path, capsys
):
    """Folders count by their names: bright, dark, dim, light; the model counts from dark to bright."""
    folder = write_folders(tmp_path / "folders")
    scale = ("--set", f"data.scale={1 / 255!r}")
    arguments = ("run", model, "--data", folder, "--out", tmp_path / "run", *SHORT)
    result = invoke(capsys, *arguments, *scale)
    refused(result, tmp_path, "classes = { bright = 3, dark = 0, dim = 1, light = 2 } in [data]")
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
def test_several_ranks_stop_alike_and_one_of_them_tells_why(model: Path, tmp_path: Path):
    x, y = pictures()
    np.savez(tmp_path / "data.npz", x=x, y=y)
    launch = (
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        2,
        "-m",
        "ltp_pipeline",
    )
    command = (sys.executable, *launch, "run", model, "--data", "data.npz", "--out", "run", *SHORT)
    environment = {**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [*map(str, command)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
    )
    assert found.returncode != 0
    assert found.stderr.count("error: the original is right on") == 1
    assert "set scale = 0.00392156862745098 in [data]" in found.stderr
    assert "rank 1: error" not in found.stderr
    assert not [p for p in tmp_path.glob("run/*") if not p.name.startswith(".")]
