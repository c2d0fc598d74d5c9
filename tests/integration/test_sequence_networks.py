"""Recurrent networks and fused attention through the command line: pruned, exported, proven, counted."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.graph.storage import read_model
from tests.support.cli import invoke
from tests.support.models import run_onnxruntime
from tests.support.sequence_models import (
    GATES,
    STEPS,
    WIDTH,
    fused_attention,
    recurrent,
    vision_transformer,
)

NETWORKS = {
    **{op: recurrent(op, "bidirectional", features=WIDTH, hidden=24) for op in GATES},
    "Attention": fused_attention(),
    "fixed": vision_transformer(batch=1),
}
FAST = ("LSTM", "Attention")  # the others vary these


def save(model: ModelProto, folder: Path) -> Path:
    """The model and samples whose labels are what it says."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    rng, arrays = np.random.default_rng(0), {}
    for split, count in (("train", 96), ("val", 48), ("test", 48)):
        x = rng.standard_normal((count, STEPS, WIDTH)).astype(np.float32)
        scores = np.concatenate(
            [run_onnxruntime(model, {"x": x[i : i + 1]})[0] for i in range(count)]
        )
        arrays |= {f"x_{split}": x, f"y_{split}": scores.argmax(1)}
    np.savez(folder / "data.npz", **arrays)
    return path


@pytest.mark.parametrize(
    "name", [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
def test_run_sequence_network_is_pruned_and_exported(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(NETWORKS[name], tmp_path)
    options = (
        "--epochs",
        2,
        "--finetune-epochs",
        1,
        "--batch-size",
        16,
        "--target-compression",
        4,
        "--no-baseline",
    )
    arguments = ("--data", tmp_path / "data.npz", "--out", tmp_path / "run", *options)
    result = invoke(capsys, "run", path, *arguments, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["pruned"]["compression"] == pytest.approx(4, rel=0.01)
    layers = {row["name"]: row for row in report["layers"]}
    for file in report["pruned"]["files"]:
        actual = read_tensors(read_model(tmp_path / "run" / file["path"]), list(layers))
        assert {n: int(np.count_nonzero(a)) for n, a in actual.items()} == {
            n: r["nonzeros"] for n, r in layers.items()
        }
    if name in GATES:
        assert [
            (layers[f"rnn.{part}"]["op"], layers[f"rnn.{part}"]["prunable"]) for part in "WR"
        ] == [(name, True)] * 2
        assert all(
            layers[f"rnn.{part}"]["nonzeros"] < layers[f"rnn.{part}"]["elements"] for part in "WR"
        )


def test_inspect_lists_layer_weights_and_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(NETWORKS["LSTM"], tmp_path / "model.onnx")
    shown = invoke(capsys, "inspect", tmp_path / "model.onnx")
    assert shown.code == 0
    assert "rnn.R" in shown.out
    assert "biases" in shown.out
    actual = json.loads(invoke(capsys, "inspect", tmp_path / "model.onnx", "--json").out)
    assert [k["op"] for k in actual["layers"]] == ["LSTM", "LSTM", "Gemm"]
    assert actual["others"][0] == {
        "operator": "LSTM",
        "role": "biases",
        "num_tensors": 1,
        "elements": 384,
        "largest": "rnn.B",
    }
    assert actual["float_elements"] == actual["layer_elements"] + sum(
        o["elements"] for o in actual["others"]
    )


def test_inspect_lists_untrainable_operator_with_opset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fused_attention()
    model.graph.node[0].op_type = "PackedAttention"
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(
        tmp_path / "data.npz",
        x_train=np.zeros((8, STEPS, WIDTH), np.float32),
        y_train=np.arange(8) % 3,
    )
    result = invoke(
        capsys,
        "run",
        tmp_path / "model.onnx",
        "--data",
        tmp_path / "data.npz",
        "--out",
        tmp_path / "run",
    )
    assert result.code == 4
    assert "PackedAttention" in result.err
    shown = invoke(capsys, "inspect", tmp_path / "model.onnx").out
    assert "PackedAttention 'Attention' (opset 1, domain com.microsoft)" in shown
