"""The examples, run by the commands of their README with less training."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.cli import invoke
from tests.support.paths import ROOT

# Options for each command after those of the README; the last value of an option counts.
SMALL = {
    "init": (),
    "run": ("--epochs", 1, "--finetune-epochs", 2, "--no-baseline", "--threads", 1),
    "gate": ("--max-drop", 0.9),
    "handoff": (),
}
REMOVED_OPTIONS = ("--baseline", "quick")


def read_commands(readme: Path) -> list[list[str]]:
    """Return the shell commands of a README."""
    lines = re.findall(r"^    (\S.*)$", readme.read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
def test_detector_commands_of_its_readme_work(tmp_path: Path, capsys, monkeypatch) -> None:
    folder = tmp_path / "detector"
    generated = shutil.ignore_patterns("*.npz", "*.onnx", "*-ltp", "__pycache__", "ltp.toml")
    shutil.copytree(ROOT / "examples" / "detector", folder, ignore=generated)
    monkeypatch.chdir(folder)
    install, train, *verbs = read_commands(folder / "README.md")
    assert install[:2] == ["pip", "install"]
    assert [verb[1] for verb in verbs] == ["init", "run", "gate", "handoff"]
    trained = subprocess.run(
        [sys.executable, *train[1:], "--fraction", "0.1", "--epochs", "10"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr == ""
    printed = {}
    for _, verb, *arguments in verbs:
        remaining = [argument for argument in arguments if argument not in REMOVED_OPTIONS]
        result = invoke(capsys, verb, *remaining, *SMALL[verb])
        assert result.code == 0, f"{verb}: {result.err}"
        printed[verb] = result.out
    assert "the original has mAP" in printed["init"]
    report = json.loads(Path("detector-ltp/report.json").read_text())
    assert report["metric"] == {
        "name": "mAP",
        "unit": None,
        "higher_is_better": True,
        "is_fraction": True,
    }
    assert report["pruned"]["compression"] == pytest.approx(3, rel=0.01)
    in_torch = float(re.findall(r"mAP ([\d.]+)%", trained.stdout)[0]) / 100
    assert in_torch > 0.1
    assert report["original"]["accuracy"]["value"] == pytest.approx(in_torch, abs=2e-3)
    assert Path("for-deployment/HANDOFF.md").is_file()


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "detector")
    monkeypatch.delitem(sys.modules, "task", raising=False)
    import task

    yield task
    del sys.modules["task"]


def exact_outputs(task, boxes, classes):
    """Outputs of a detector that finds exactly these boxes."""
    import torch

    heat, box = torch.full((len(boxes), 3, 8, 8), -9.0), torch.zeros(len(boxes), 4, 8, 8)
    for picture in range(len(boxes)):
        for (left, top, right, bottom), number in zip(
            boxes[picture].tolist(), classes[picture].tolist(), strict=True
        ):
            if number >= 0:
                x, y = (left + right) / 2 / task.STRIDE, (top + bottom) / 2 / task.STRIDE
                size = np.log([(right - left) / task.STRIDE, (bottom - top) / task.STRIDE])
                heat[picture, number, int(y), int(x)] = 9.0
                box[picture, :, int(y), int(x)] = torch.tensor([x % 1, y % 1, *size])
    return {"heat": heat, "box": box}


def test_detector_exact_outputs_have_full_map_and_little_loss(task) -> None:
    import torch

    boxes = torch.tensor([[[8.0, 8, 24, 28], [40, 30, 52, 44]], [[0, 0, 12, 12], [0, 0, 0, 0]]])
    batch = {"boxes": boxes, "classes": torch.tensor([[0, 2], [1, -1]])}
    outputs = exact_outputs(task, boxes, batch["classes"])
    metric = task.measure()
    metric.update(outputs, batch)
    assert metric.compute() == pytest.approx(1.0)
    assert float(task.loss(outputs, batch)) < 1e-3
    shifted = {**outputs, "box": outputs["box"] - 0.2}
    metric = task.measure()
    metric.update(shifted, batch)
    assert 0 < metric.compute() < 1
    assert float(task.loss(shifted, batch)) > 0.5


def test_detector_without_detections_has_zero_map(task) -> None:
    import torch

    batch = {"boxes": torch.tensor([[[8.0, 8, 24, 28]]]), "classes": torch.tensor([[0]])}
    metric = task.measure()
    metric.update({"heat": torch.full((1, 3, 8, 8), -9.0), "box": torch.zeros(1, 4, 8, 8)}, batch)
    assert metric.compute() == 0
