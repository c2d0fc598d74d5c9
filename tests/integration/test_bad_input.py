"""Every wrong input ends in the right exit code and two lines, writes nothing under a final name, touches no model."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.system import child_process
from tests.support.cli import Result, invoke
from tests.support.kernels import needs_kernels


def refused(result: Result, code: int, *words: str) -> None:
    """One line what, one line what to do."""
    assert result.code == code, result.err
    lines = [
        line
        for line in result.err.splitlines()
        if not line.startswith(("Reading ", "The original has "))
    ]
    assert lines[0].startswith("error: ")
    assert lines[-1].startswith("  ")
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err


def attempt(capsys: pytest.CaptureFixture[str], example: Path, *options: object) -> Result:
    """Run in the example's folder; the model stays as it is and no report or model file appears."""
    model = example / "model.onnx"
    before = hashlib.sha256(model.read_bytes()).digest() if model.is_file() else None
    result = invoke(capsys, "run", model, "--out", example / "run", *options)
    if before is not None:
        assert hashlib.sha256(model.read_bytes()).digest() == before
    assert not [p for p in example.glob("run/*") if p.suffix in (".onnx", ".html", ".md")]
    return result


def change_data(example: Path, **changes: np.ndarray | None) -> None:
    arrays = dict(np.load(example / "digits.npz")) | changes
    np.savez(example / "digits.npz", **{k: v for k, v in arrays.items() if v is not None})


def save_graph(
    example: Path,
    nodes: list,
    tensors: dict[str, np.ndarray],
    output: list,
    shape: list | None = None,
    name: str = "model.onnx",
) -> None:
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape or ["n", 1, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
    initial = [numpy_helper.from_array(v, k) for k, v in tensors.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, example / name)


def test_missing_model_file(example: Path, capsys):
    (example / "model.onnx").unlink()
    refused(attempt(capsys, example), 3, "model.onnx")


def test_empty_model_file(example: Path, capsys):
    (example / "model.onnx").write_bytes(b"")
    refused(attempt(capsys, example), 3, "empty")


def test_a_jpeg_called_model_onnx(example: Path, capsys):
    from PIL import Image

    Image.new("RGB", (32, 32), "red").save(example / "model.onnx", format="JPEG")
    refused(attempt(capsys, example), 3, "model.onnx")


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.999])
def test_truncated_model_file(example: Path, capsys, kept: float):
    content = (example / "model.onnx").read_bytes()
    (example / "model.onnx").write_bytes(content[: int(len(content) * kept)])
    refused(attempt(capsys, example), 3, "model.onnx")


def test_a_folder_instead_of_a_model(example: Path, capsys):
    (example / "model.onnx").unlink()
    (example / "model.onnx").mkdir()
    refused(attempt(capsys, example), 3)


def test_model_without_kernels(example: Path, capsys):
    nodes = [helper.make_node("Flatten", ["image"], ["y"])]
    save_graph(example, nodes, {}, ["n", 64])
    refused(attempt(capsys, example), 4, "no kernels")


def test_int8_quantised_model(example: Path, capsys):
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "scale", "zero"], ["w"], name="dequantise"),
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"], name="fc"),
    ]
    tensors = {"w8": np.ones((64, 10), np.int8), "scale": np.float32(0.1), "zero": np.int8(0)}
    save_graph(example, nodes, {k: np.asarray(v) for k, v in tensors.items()}, ["n", 10])
    refused(attempt(capsys, example), 4, "dequantise")


def test_unsupported_operators_are_listed_all_at_once(example: Path, capsys):
    nodes = [
        helper.make_node("Mystery", ["image"], ["a"], name="first", domain="org.example"),
        helper.make_node("Riddle", ["a"], ["y"], name="second", domain="org.example"),
    ]
    save_graph(example, nodes, {}, ["n", 10])
    model = onnx.load(example / "model.onnx")
    model.opset_import.append(helper.make_opsetid("org.example", 1))
    onnx.save(model, example / "model.onnx")
    refused(attempt(capsys, example), 4, "Mystery", "first", "Riddle", "second")


def test_output_that_is_no_class_score(example: Path, capsys):
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[3, 3])]
    save_graph(example, nodes, {"w": np.ones((4, 1, 3, 3), np.float32)}, ["n", 4, 6, 6])
    refused(attempt(capsys, example), 3, "no output fits", "y")


def test_dynamic_input_with_no_way_to_know_the_shape(example: Path, capsys):
    """Spatial sizes are open and the images differ in size."""
    from PIL import Image

    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], kernel_shape=[3, 3]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["y"]),
    ]
    save_graph(
        example, nodes, {"w": np.ones((2, 1, 3, 3), np.float32)}, ["n", 2], ["n", 1, "h", "w"]
    )
    for label in ("cat", "dog"):
        for size in (8, 9, 10):
            path = example / "images" / label / f"{size}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (size, size)).save(path)
    refused(attempt(capsys, example, "--data", example / "images"), 3, "resize")


def test_labels_from_1_to_n(example: Path, capsys):
    arrays = np.load(example / "digits.npz")
    change_data(example, **{f"y_{s}": arrays[f"y_{s}"] + 1 for s in ("train", "val", "test")})
    refused(attempt(capsys, example), 3, "10", "subtract")


def test_nan_in_the_data(example: Path, capsys):
    x = np.load(example / "digits.npz")["x_train"].astype(np.float32)
    x[5, 0, 1, 1] = np.nan
    change_data(example, x_train=x)
    refused(attempt(capsys, example), 3, "x_train")


def test_data_with_the_wrong_channel_count(example: Path, capsys):
    arrays = np.load(example / "digits.npz")
    change_data(
        example, **{f"x_{s}": arrays[f"x_{s}"].repeat(3, axis=1) for s in ("train", "val", "test")}
    )
    refused(attempt(capsys, example), 3, "3")


def test_no_data_names_the_three_ways_and_the_demo(example: Path, capsys):
    (example / "ltp.toml").unlink()
    refused(attempt(capsys, example), 3, "--data", "ltp.toml", "--config", "ltp-pipeline demo")


def test_missing_data_file(example: Path, capsys):
    refused(attempt(capsys, example, "--data", example / "nowhere.npz"), 3, "nowhere.npz")


def test_out_folder_that_cannot_be_written(example: Path, capsys):
    (example / "file").write_text("in the way")
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "file" / "run")
    refused(result, 3, "--out")


def test_out_folder_with_something_else_in_it_is_left_alone(example: Path, capsys):
    result = invoke(capsys, "run", example / "model.onnx", "--out", example, "--fresh")
    refused(result, 3, "--out")
    assert (example / "digits.npz").is_file()


def test_unknown_key_in_ltp_toml(example: Path, capsys):
    with (example / "ltp.toml").open("a") as file:
        file.write("\n[train2]\nx = 1\n")
    refused(attempt(capsys, example), 3, "train2")


def test_broken_ltp_toml(example: Path, capsys):
    (example / "ltp.toml").write_text("[data\n")
    refused(attempt(capsys, example), 3, "TOML")


def test_contradictory_targets_in_ltp_toml(example: Path, capsys):
    text = (example / "ltp.toml").read_text()
    (example / "ltp.toml").write_text(
        text.replace("target_compression = 30", "target_compression = 30\ntarget_sparsity = 0.5")
    )
    refused(attempt(capsys, example), 3, "target_compression", "target_sparsity")


def test_contradictory_targets_on_the_command_line(example: Path, capsys):
    result = attempt(capsys, example, "--target-compression", 5, "--target-sparsity", 0.5)
    refused(result, 2, "--target-compression", "--target-sparsity")


def test_an_option_that_does_not_exist(example: Path, capsys):
    assert attempt(capsys, example, "--epoks", 5).code == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target-compression", 0.5), "target_compression"),
        (("--target-sparsity", 1.0), "target_sparsity"),
        (("--target-compression", 5000), "out of reach"),
        (("--epochs", 0), "epochs"),
        (("--batch-size", 1), "batch_size"),
        (("--lr", -1), "lr"),
        (("--export", "zip"), "formats"),
        (("--exclude", "*"), "--exclude"),
        (("--set", "method.lambda=-1", "--set", "budget.target_compression=5"), "lambda"),
        (("--preset", "unheard-of"), "unheard-of"),
        (("--max-drop", 5), "max_drop"),
        (("--beat-baseline", "--no-baseline"), "beat_baseline"),
        (("--target-compression", 4), "min_compression"),
        (("--target-compression", 6, "--min-sparsity", 0.9), "min_sparsity"),
    ],
)
def test_settings_out_of_range(example: Path, capsys, options: tuple, words: str):
    refused(attempt(capsys, example, *options), 3, words)


def test_a_run_without_data_is_refused_with_the_ways_to_give_them(
    tmp_path: Path, example: Path, capsys
):
    shutil.copy(example / "model.onnx", tmp_path / "alone.onnx")
    result = invoke(capsys, "run", tmp_path / "alone.onnx", "--out", tmp_path / "run")
    assert result.code == 3
    for way in (
        "--data PATH",
        "[data] path in ltp.toml beside the model",
        "--config FILE",
        "ltp-pipeline demo",
    ):
        assert way in result.err
    assert not list((tmp_path / "run").glob("[!.]*"))


def test_training_without_momentum_is_possible(example: Path, capsys):
    options = (
        "--set",
        "train.momentum=0",
        "--epochs",
        1,
        "--finetune-epochs",
        0,
        "--no-baseline",
        "--max-drop",
        0.95,
    )
    assert (
        invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *options).code == 0
    )


@pytest.mark.parametrize(
    "options", [("--provider", "Foo"), ("--against", "flat.onnx"), ("--against", "map.onnx")]
)
def test_validate_refuses_what_it_cannot_compare(example: Path, capsys, options: tuple):
    flat = [helper.make_node("MatMul", ["image", "w"], ["y"])]
    save_graph(
        example, flat, {"w": np.ones((5, 10), np.float32)}, ["n", 10], ["n", 5], name="flat.onnx"
    )
    conv = [helper.make_node("Conv", ["image", "w"], ["y"])]
    save_graph(
        example, conv, {"w": np.ones((10, 1, 3, 3), np.float32)}, ["n", 10, 6, 6], name="map.onnx"
    )
    given = tuple(example / o if o.endswith(".onnx") else o for o in options)
    refused(
        invoke(
            capsys, "validate", example / "model.onnx", "--config", example / "ltp.toml", *given
        ),
        3,
    )


def test_a_learning_rate_that_diverges_names_stage_and_step(example: Path, capsys):
    result = attempt(capsys, example, "--lr", 1e12, "--epochs", 12)
    refused(result, 5, "epoch 1, step 0", "train.lr")


def test_an_accuracy_budget_that_looks_out_of_reach_is_said_after_the_first_epoch(
    example: Path, capsys
):
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", "--epochs", 2, "--finetune-epochs", 0,
        "--accuracy-budget", 0.0, "--lr", 0.5, "--no-baseline", "--max-drop", 0.99, "--min-compression", 1,
    )  # fmt: skip
    assert "Note: the budget may be out of reach" in result.err
    assert result.err.index("out of reach") < result.err.index("after fine-tuning:")
    missed = json.loads((example / "run" / "report.json").read_text())["budget_not_met"]
    assert "no network of the trail reached" in missed
    assert f"warning: {missed}" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("validate", "run/model.dense.onnx", "--data", "digits.npz"),
        ("gate", "run/report.json", "--data", "digits.npz"),
        ("quantize", "run/model.dense.onnx", "--out", "new.onnx", "--data", "digits.npz"),
        ("init", "model.onnx", "--data", "digits.npz", "--force"),
        pytest.param(
            ("accelerate", "run/model.dense.onnx", "--out", "new.onnx"), marks=needs_kernels
        ),
    ],
    ids=lambda words: words[0],
)
def test_a_file_on_which_onnxruntime_crashes_is_tried_by_another_process(
    words: tuple[str, ...], finished: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    def died(*_: object) -> None:
        raise child_process.ChildCrashed("crashed")

    monkeypatch.chdir(finished)
    monkeypatch.setattr(onnxruntime_child, "run_model", died)
    refused(invoke(capsys, *words), 4, "onnxruntime crashed on")
    assert not (finished / "new.onnx").exists()
