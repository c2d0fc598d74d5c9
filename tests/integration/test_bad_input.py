"""Invalid input: the exit code is right, the error has a message and a hint, and nothing is written."""

import hashlib
import json
import re
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


def check_error(result: Result, code: int, *words: str) -> None:
    """Check the exit code, and that the error has a message, a hint and these words."""
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


def run_example(capsys: pytest.CaptureFixture[str], example: Path, *options: object) -> Result:
    """Run the example, and check that the model stays as it is and that no result is written."""
    model = example / "model.onnx"
    hash_before = hashlib.sha256(model.read_bytes()).digest() if model.is_file() else None
    result = invoke(capsys, "run", model, "--out", example / "run", *options)
    if hash_before is not None:
        assert hashlib.sha256(model.read_bytes()).digest() == hash_before
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


def test_model_missing_file_is_rejected(example: Path, capsys):
    (example / "model.onnx").unlink()
    check_error(run_example(capsys, example), 3, "model.onnx")


def test_model_empty_file_is_rejected(example: Path, capsys):
    (example / "model.onnx").write_bytes(b"")
    check_error(run_example(capsys, example), 3, "empty")


def test_model_jpeg_file_is_rejected(example: Path, capsys):
    from PIL import Image

    Image.new("RGB", (32, 32), "red").save(example / "model.onnx", format="JPEG")
    check_error(run_example(capsys, example), 3, "model.onnx")


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.999])
def test_model_truncated_file_is_rejected(example: Path, capsys, fraction: float):
    content = (example / "model.onnx").read_bytes()
    (example / "model.onnx").write_bytes(content[: int(len(content) * fraction)])
    check_error(run_example(capsys, example), 3, "model.onnx")


def test_model_folder_is_rejected(example: Path, capsys):
    (example / "model.onnx").unlink()
    (example / "model.onnx").mkdir()
    check_error(run_example(capsys, example), 3)


def test_model_without_layer_weights_is_unsupported(example: Path, capsys):
    nodes = [helper.make_node("Flatten", ["image"], ["y"])]
    save_graph(example, nodes, {}, ["n", 64])
    check_error(run_example(capsys, example), 4, "layer weight")


def test_model_with_int8_weights_is_unsupported(example: Path, capsys):
    nodes = [
        helper.make_node("DequantizeLinear", ["w8", "scale", "zero"], ["w"], name="dequantise"),
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"], name="fc"),
    ]
    tensors = {"w8": np.ones((64, 10), np.int8), "scale": np.float32(0.1), "zero": np.int8(0)}
    save_graph(example, nodes, {k: np.asarray(v) for k, v in tensors.items()}, ["n", 10])
    check_error(run_example(capsys, example), 4, "dequantise")


def test_model_unsupported_operators_are_all_listed(example: Path, capsys):
    nodes = [
        helper.make_node("Mystery", ["image"], ["a"], name="first", domain="org.example"),
        helper.make_node("Riddle", ["a"], ["y"], name="second", domain="org.example"),
    ]
    save_graph(example, nodes, {}, ["n", 10])
    model = onnx.load(example / "model.onnx")
    model.opset_import.append(helper.make_opsetid("org.example", 1))
    onnx.save(model, example / "model.onnx")
    check_error(run_example(capsys, example), 4, "Mystery", "first", "Riddle", "second")


def test_output_without_class_scores_is_rejected(example: Path, capsys):
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], kernel_shape=[3, 3])]
    save_graph(example, nodes, {"w": np.ones((4, 1, 3, 3), np.float32)}, ["n", 4, 6, 6])
    check_error(run_example(capsys, example), 3, "'y'")


def test_images_of_several_sizes_need_resize(example: Path, capsys):
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
    check_error(run_example(capsys, example, "--data", example / "images"), 3, "resize")


def test_labels_from_one_are_rejected(example: Path, capsys):
    arrays = np.load(example / "digits.npz")
    change_data(example, **{f"y_{s}": arrays[f"y_{s}"] + 1 for s in ("train", "val", "test")})
    check_error(run_example(capsys, example), 3, "10", "labels")


def test_data_with_nan_are_rejected(example: Path, capsys):
    x = np.load(example / "digits.npz")["x_train"].astype(np.float32)
    x[5, 0, 1, 1] = np.nan
    change_data(example, x_train=x)
    check_error(run_example(capsys, example), 3, "x_train")


def test_data_with_other_channels_are_rejected(example: Path, capsys):
    arrays = np.load(example / "digits.npz")
    change_data(
        example, **{f"x_{s}": arrays[f"x_{s}"].repeat(3, axis=1) for s in ("train", "val", "test")}
    )
    check_error(run_example(capsys, example), 3, "3")


def test_missing_data_hint_names_every_source(example: Path, capsys):
    (example / "ltp.toml").unlink()
    check_error(
        run_example(capsys, example), 3, "--data", "ltp.toml", "--config", "ltp-pipeline demo"
    )


def test_data_missing_file_is_rejected(example: Path, capsys):
    check_error(run_example(capsys, example, "--data", example / "nowhere.npz"), 3, "nowhere.npz")


def test_out_that_cannot_be_written_is_rejected(example: Path, capsys):
    (example / "file").write_text("in the way")
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "file" / "run")
    check_error(result, 3, "--out")


def test_out_with_other_files_is_left_alone(example: Path, capsys):
    result = invoke(capsys, "run", example / "model.onnx", "--out", example, "--fresh")
    check_error(result, 3, "--out")
    assert (example / "digits.npz").is_file()


def test_settings_file_with_an_unknown_section_is_rejected(example: Path, capsys):
    with (example / "ltp.toml").open("a") as file:
        file.write("\n[train2]\nx = 1\n")
    check_error(run_example(capsys, example), 3, "train2")


def test_settings_file_that_is_not_toml_is_rejected(example: Path, capsys):
    (example / "ltp.toml").write_text("[data\n")
    check_error(run_example(capsys, example), 3, "TOML")


def test_budget_options_together_are_a_usage_error(example: Path, capsys):
    result = run_example(capsys, example, "--target-compression", 5, "--target-sparsity", 0.5)
    check_error(result, 2, "--target-compression", "--target-sparsity")


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
def test_option_out_of_range_is_rejected(example: Path, capsys, options: tuple, words: str):
    check_error(run_example(capsys, example, *options), 3, words)


def test_missing_data_nothing_is_written(tmp_path: Path, example: Path, capsys):
    shutil.copy(example / "model.onnx", tmp_path / "alone.onnx")
    result = invoke(capsys, "run", tmp_path / "alone.onnx", "--out", tmp_path / "run")
    assert result.code == 3
    assert not list((tmp_path / "run").glob("[!.]*"))


def test_training_without_momentum_succeeds(example: Path, capsys):
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
def test_validate_incomparable_file_is_rejected(example: Path, capsys, options: tuple):
    flat = [helper.make_node("MatMul", ["image", "w"], ["y"])]
    save_graph(
        example, flat, {"w": np.ones((5, 10), np.float32)}, ["n", 10], ["n", 5], name="flat.onnx"
    )
    conv = [helper.make_node("Conv", ["image", "w"], ["y"])]
    save_graph(
        example, conv, {"w": np.ones((10, 1, 3, 3), np.float32)}, ["n", 10, 6, 6], name="map.onnx"
    )
    arguments = tuple(example / word if word.endswith(".onnx") else word for word in options)
    check_error(
        invoke(
            capsys, "validate", example / "model.onnx", "--config", example / "ltp.toml", *arguments
        ),
        3,
    )


def test_training_that_diverges_names_epoch_and_step(example: Path, capsys):
    result = run_example(capsys, example, "--lr", 1e12, "--epochs", 12)
    check_error(result, 5, "1e+12")
    assert re.search(r"epoch \d+, step \d+", result.err)


def test_accuracy_budget_out_of_reach_is_noted_after_the_first_epoch(example: Path, capsys):
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", "--epochs", 2, "--finetune-epochs", 0,
        "--accuracy-budget", 0.0, "--lr", 0.5, "--no-baseline", "--max-drop", 0.99, "--min-compression", 1,
    )  # fmt: skip
    note = re.search(r"Note: .*\bbudget\b", result.err)
    assert note is not None
    assert note.start() < result.err.index("after fine-tuning:")
    missed = json.loads((example / "run" / "report.json").read_text())["budget_not_met"]
    assert "trail" in missed
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
def test_file_that_crashes_onnxruntime_is_run_in_a_child_process(
    words: tuple[str, ...], finished: Path, monkeypatch: pytest.MonkeyPatch, capsys
):
    def crash(*_: object) -> None:
        raise child_process.ChildCrashed("crashed")

    monkeypatch.chdir(finished)
    monkeypatch.setattr(onnxruntime_child, "run_model", crash)
    check_error(invoke(capsys, *words), 4, "onnxruntime")
    assert not (finished / "new.onnx").exists()
