"""Runs that restore BatchNormalization for training."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import NodeProto

from benchmarks.restore_bn import fold_norms
from ltp_pipeline.runner.run import run
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.train import loop
from ltp_pipeline.system.progress import SilentReporter
from tests.support.cli import invoke


def nodes(graph: onnx.GraphProto) -> list[NodeProto]:
    return [NodeProto.FromString(n.SerializeToString()) for n in graph.node]


@pytest.fixture
def folded_example(example: Path) -> Path:
    path = example / "model.onnx"
    onnx.save(fold_norms(onnx.load(path)), path)
    return path


def settings_for(path: Path) -> Settings:
    options = {
        "train": {"epochs": 2, "finetune_epochs": 1},
        "export": {"formats": ["dense"]},
        "model": {"restore_bn": True},
        "baseline": {"mode": "quick"},
    }
    return load_settings(path, options=options)


def test_a_run_through_the_command_line_exports_the_nodes_of_the_file(
    folded_example: Path, capsys: pytest.CaptureFixture[str]
):
    out = folded_example.parent / "run"
    quick = (
        "--epochs",
        2,
        "--finetune-epochs",
        1,
        "--set",
        "gates.max_drop=0.9",
        "--export",
        "dense",
    )
    asked = (
        "--set",
        "model.restore_bn=true",
        "--target-compression",
        10,
        "--baseline",
        "quick",
        *quick,
    )
    result = invoke(capsys, "run", folded_example, *asked, "--out", out)
    assert result.code == 0, result.err
    original, exported = onnx.load(folded_example).graph, onnx.load(out / "model.dense.onnx").graph
    assert nodes(exported) == nodes(original)
    assert [t.name for t in exported.initializer] == [t.name for t in original.initializer]
    report = json.loads((out / "report.json").read_text())
    assert any("BatchNormalization restored" in note for note in report["notes"])
    assert report["pruned"]["compression"] == pytest.approx(10, abs=0.05)
    assert report["pruned"]["accuracy"]["top1"] > 0.5


@pytest.mark.slow
def test_interrupted_and_gone_on_with_it_gives_the_same_bytes(
    folded_example: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = folded_example.parent
    run(folded_example, settings_for(folded_example), folder / "whole", SilentReporter())
    taken, original = 0, loop._train_step

    def step(*arguments):
        nonlocal taken
        taken += 1
        if taken in (25, 45, 80):  # in learning, in fine-tuning, in the baseline
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(loop, "_train_step", step)
    arguments = (folded_example, settings_for(folded_example), folder / "parts", SilentReporter())
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)
    run(*arguments)
    for name in (
        "model.dense.onnx",
        "baseline/model.dense.onnx",
        "trail/001.onnx",
        "trail/002.onnx",
    ):
        assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes(), (
            name
        )
