"""Whole runs with another optimizer than SGD."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.cli import invoke, says_finished
from tests.support.models import Graph, run_onnxruntime

SHORT = (
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--target-compression",
    3,
    "--max-drop",
    0.9,
    "--baseline",
    "quick",
)


@pytest.fixture
def normed(tmp_path: Path) -> Path:
    """A network with a layer norm, and samples that have the classes which it names."""
    g = Graph()
    x = g.gemm("x", "first", 8, 32)
    x = g.add(
        "LayerNormalization", x, g.positive("norm.scale", 32), g.random("norm.bias", 32, scale=0.1)
    )
    g.gemm(g.add("Relu", x), "second", 32, 4)
    model = g.model({"x": ("N", 8)}, [g.nodes[-1].output[0]])
    samples = np.random.default_rng(0).standard_normal((1200, 8)).astype(np.float32)
    (scores,) = run_onnxruntime(model, {"x": samples})
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=samples, y=scores.argmax(1))
    return tmp_path


def command(folder: Path, *options: object) -> tuple[object, ...]:
    return (
        "run",
        folder / "model.onnx",
        "--data",
        folder / "data.npz",
        "--out",
        folder / "run",
        *SHORT,
        *options,
    )


def test_run_layer_norm_is_trained_by_adamw(normed: Path, capsys: pytest.CaptureFixture[str]):
    result = invoke(capsys, *command(normed))
    assert result.code == 0, result.err
    assert len(re.findall(r"Note: AdamW .*\b0\.0001\b", result.err)) == 1
    report = json.loads((normed / "run" / "report.json").read_text())
    train = report["resolved"]["train"]
    resolved = {
        key: train[key]
        for key in ("optimizer", "lr", "weight_decay", "warmup_fraction", "max_grad_norm")
    }
    assert resolved == {
        "optimizer": "adamw",
        "lr": 1e-4,
        "weight_decay": 0.01,
        "warmup_fraction": 0.06,
        "max_grad_norm": 1.0,
    }
    assert report["settings"]["train"]["lr"] is None
    assert any(note.startswith("AdamW ") for note in report["notes"])
    assert report["pruned"]["compression"] == pytest.approx(3, rel=0.01)
    assert report["baseline"]["nonzeros"] == report["pruned"]["nonzeros"]
    again = invoke(capsys, *command(normed))
    assert says_finished(again.err)


def test_run_identity_has_the_settings_of_the_user(
    normed: Path, capsys: pytest.CaptureFixture[str]
):
    assert invoke(capsys, *command(normed)).code == 0
    identity = json.loads((normed / "run" / "manifest.json").read_text())["identity"]["settings"][
        "train"
    ]
    assert (identity["optimizer"], identity["lr"]) == (None, None)
    other = invoke(capsys, *command(normed, "--set", "train.optimizer=adamw"))
    assert other.code == 3
    assert re.search(r"\btrain\.optimizer .*\bNone\b.*'adamw'", other.err)


@pytest.mark.parametrize(
    ("option", "code", "part"),
    [
        ("train.optimizer=adam", 3, "train.optimizer"),
        ("train.warmup_fraction=6", 3, "0.06"),
        ("train.max_grad_norm=-1", 3, "train.max_grad_norm"),
        ("train.label_smoothing=1.0", 3, "train.label_smoothing"),
    ],
)
def test_run_invalid_train_settings_are_rejected(
    normed: Path, capsys: pytest.CaptureFixture[str], option: str, code: int, part: str
):
    result = invoke(capsys, *command(normed, "--set", option))
    assert result.code == code
    assert part in result.err


def test_run_clamped_gradient_with_adamw_is_rejected(
    normed: Path, capsys: pytest.CaptureFixture[str]
):
    options = ("--set", "method.lambda=1e-6", "--set", "method.weight_gradient=clamped")
    arguments = [a for a in command(normed, *options) if a not in ("--target-compression", 3)]
    result = invoke(capsys, *arguments)
    assert result.code == 3
    assert re.search(r"\bmethod\.weight_gradient\b.*\bAdamW\b", result.err)
    assert "train.optimizer" in result.err
    assert not (normed / "run").exists()
