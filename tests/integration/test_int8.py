"""Int8 files through the command line, of a run, a finished run and any other file."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ltp_pipeline.exporters.int8.search import QuantizationSearch, QuantizedVariant
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.settings.file_names import INT8
from tests.support.cli import invoke
from tests.support.runs import changed_manifest, copy_rewritten_run

PACKED = "model.int8.packed.onnx"


@pytest.fixture(scope="module")
def example(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run with a packed and an int8 file, of the baseline too."""
    folder = tmp_path_factory.mktemp("int8") / "example"
    return copy_rewritten_run(
        shared, folder, export={"formats": ["packed", "int8"]}, gates={"max_drop": 0.9}
    )


@pytest.fixture
def copied(example: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(example, tmp_path / "example"))


def report_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return content


def file_of(network: dict[str, Any], graph: str = INT8) -> dict[str, Any]:
    result: dict[str, Any] = next(f for f in network["files"] if f["graph"] == graph)
    return result


def test_run_writes_int8_file_smaller_than_float(example: Path) -> None:
    report = report_of(example)
    built, float_ = file_of(report["pruned"]), file_of(report["pruned"], "original")
    assert built["path"] == PACKED
    assert built["bytes"] == (example / "run" / PACKED).stat().st_size < float_["bytes"]
    assert built["nonzeros"] <= float_["nonzeros"]
    how = built["quantization"]
    assert how["weight_bits"] == 7
    assert how["num_layers"] + len(how["float_layers"]) == report["model"]["num_layers"]
    assert float_["quantization"] is None
    page = (example / "run" / "handoff" / "HANDOFF.md").read_text()
    assert "## Int8 files" in page
    assert report["environment"]["processor"] in page.replace("\\", "")


def test_run_measures_latency_on_one_thread_first(example: Path) -> None:
    for file in report_of(example)["pruned"]["files"]:
        assert [entry["batch"] for entry in file["latency"][:2]] == [1, 16]
        assert file["latency"][0]["threads"] == 1
        assert all(entry["ratio"] > 0 for entry in file["latency"])


def test_baseline_has_int8_file_and_exact_files_are_compared(example: Path) -> None:
    report = report_of(example)
    assert file_of(report["baseline"])["quantization"]["num_layers"] > 0
    exact = [
        file_of(report[key], "original")["accuracy"]["value"] for key in ("pruned", "baseline")
    ]
    assert report["difference"]["value"] == pytest.approx(exact[0] - exact[1])


def test_handoff_verifies_int8_file(example: Path) -> None:
    folder = example / "run" / "handoff"
    done = subprocess.run(
        [sys.executable, "verify.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert f"{PACKED}: outputs differ" in done.stdout


def test_gate_limits_int8_file(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = example / "run" / "report.json"
    size = file_of(report_of(example)["pruned"])["bytes"]
    assert (
        invoke(
            capsys, "gate", report, "--max-bytes", f"int8={size}", "--max-latency-ratio", "int8=100"
        ).code
        == 0
    )
    failed = invoke(
        capsys, "gate", report, "--max-bytes", f"int8={size - 1}", "--max-bytes", "packed=999999"
    )
    assert failed.code == 7
    assert "max_bytes int8-packed" in failed.err
    missing = invoke(capsys, "gate", report, "--max-latency-ratio", "int8-dense=2")
    assert missing.code == 7
    assert re.search(r"\bmax_latency_ratio\b.*\bint8-dense\b", missing.err)
    assert invoke(capsys, "gate", report, "--max-bytes", "int9=3").code == 3


def test_unpack_writes_dense_int8_file(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "dense.onnx"
    assert invoke(capsys, "unpack", example / "run" / PACKED, "--out", out).code == 0
    onnx.checker.check_model(str(out), full_check=True)
    dense = onnx.load(out).graph
    assert not [n for n in dense.node if n.op_type == "ScatterElements"]
    assert any(
        t.name.endswith("_quantized") and t.data_type == onnx.TensorProto.INT8
        for t in dense.initializer
    )


def test_inspect_and_validate_read_int8_file(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads(invoke(capsys, "inspect", example / "run" / PACKED, "--json").out)
    assert result["format"] == "int8-packed"
    assert len(result["layers"]) == report_of(example)["model"]["num_layers"]
    measured = json.loads(invoke(capsys, "validate", example / "run" / PACKED, "--json").out)
    assert measured["nonzeros"] == file_of(report_of(example)["pruned"])["nonzeros"]


def test_compare_shows_int8_file(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = example / "run" / "report.json"
    shown = invoke(capsys, "compare", report, report).out
    assert "int8-packed, bytes" in shown
    assert "int8-packed, top-1" in shown


def test_export_without_data_keeps_int8_file_and_writes_no_new_one(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with changed_manifest(copied / "run") as content:
        content["inputs"]["settings"]["data"]["path"] = str(copied / "gone.npz")
    before = (copied / "run" / PACKED).read_bytes()
    assert invoke(capsys, "export", copied / "run", "--format", "dense", "--quiet").code == 0
    assert (copied / "run" / PACKED).read_bytes() == before
    refused = invoke(capsys, "export", copied / "run", "--format", "int8-dense", "--quiet")
    assert refused.code == 3
    assert re.search(r"\bint8\b.*\bdata\b", refused.err)


def test_export_adds_encodings_without_changing_first_file(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (copied / "run" / PACKED).read_bytes()
    done = invoke(
        capsys,
        "export",
        copied / "run",
        "--format",
        "int8-dense",
        "--format",
        "int8-sparse",
        "--quiet",
    )
    assert done.code == 0, done.err
    assert (copied / "run" / PACKED).read_bytes() == before
    values = [
        f["accuracy"]["value"] for f in report_of(copied)["pruned"]["files"] if f["graph"] == INT8
    ]
    assert len(values) == 3
    assert len(set(values)) == 1


def test_quantize_converts_any_file(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "int8.onnx"
    done = invoke(
        capsys, "quantize", example / "run" / "model.packed.onnx", "--out", out, "--json", "--quiet"
    )
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["quantization"]["num_layers"] > 0
    assert result["measurement"]["against"]["drop"] < 0.05
    again = invoke(
        capsys, "quantize", out, "--out", tmp_path / "twice.onnx", "--config", example / "ltp.toml"
    )
    assert again.code == 4
    assert "DequantizeLinear" in again.err
    assert not (tmp_path / "twice.onnx").exists()


def test_run_without_quantizable_layer_fails_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.support.models import Graph

    g = Graph()
    g.random("w", 1, 2, 3, 3)
    g.add("Flatten", g.add("GlobalAveragePool", g.add("ConvTranspose", "x", "w")), outputs=("y",))
    onnx.save(g.model({"x": ("N", 1, 8, 8)}, ["y"]), tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal((64, 1, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x_train=x, x_val=x[:16], x_test=x[:16])
    out = tmp_path / "run"
    result = invoke(
        capsys,
        "run",
        tmp_path / "m.onnx",
        "--data",
        tmp_path / "d.npz",
        "--export",
        "int8",
        "--out",
        out,
    )
    assert result.code == 4
    assert "no layer" in result.err
    assert not (out / "trail").exists()


@pytest.fixture(scope="module")
def trained(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, trained in 8 bits; the trained graphs count as no worse than the others."""
    train = {"epochs": 2, "finetune_epochs": 1, "quantization_aware": True}
    formats, folder = {"formats": ["packed", "int8"]}, tmp_path_factory.mktemp("int8") / "trained"
    evaluate = QuantizationSearch.evaluate_trained

    def evaluate_as_no_worse(
        search: QuantizationSearch, variant: QuantizedVariant, model: OnnxModel
    ) -> QuantizedVariant:
        return replace(evaluate(search, variant, model), drop=variant.drop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuantizationSearch, "evaluate_trained", evaluate_as_no_worse)
        return copy_rewritten_run(
            example, folder, export=formats, gates={"max_drop": 0.9}, train=train
        )


@pytest.mark.slow
def test_quantization_aware_run_keeps_float_files(example: Path, trained: Path) -> None:
    folder = trained
    report, page = report_of(folder), (folder / "run" / "handoff" / "HANDOFF.md").read_text()
    for network in ("pruned", "baseline"):
        assert file_of(report[network])["quantization"]["trained_epochs"] == 1
    assert "trained for 1 epoch with quantization" in page
    before, after = ((f / "run" / "model.packed.onnx").read_bytes() for f in (example, folder))
    assert before == after
    assert (folder / "run" / PACKED).read_bytes() != (example / "run" / PACKED).read_bytes()
    assert report["settings"]["train"]["quantization_aware"] is True


@pytest.mark.slow
def test_pick_trains_in_8_bits_only_for_int8_files(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(trained / "run", tmp_path / "run"))
    picked = run / "pick-001"
    assert invoke(capsys, "pick", run, 1, "--export", "packed", "--quiet").code == 0
    (plain,) = json.loads((picked / "report.json").read_text())["pruned"]["files"]
    assert plain["quantization"] is None
    assert (
        invoke(capsys, "pick", run, 1, "--export", "packed", "--export", "int8", "--quiet").code
        == 0
    )
    files = json.loads((picked / "report.json").read_text())["pruned"]["files"]
    assert [f["quantization"] and f["quantization"]["trained_epochs"] for f in files] == [None, 1]
    assert files[0]["sha256"] == plain["sha256"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--export", "packed"), "export.formats"),
        (("--export", "int8", "--finetune-epochs", 0), "train.finetune_epochs"),
    ],
)
def test_quantization_aware_run_without_effect_exits_with_3(
    arguments: tuple[object, ...],
    expected: str,
    example: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("--set", "train.quantization_aware=true", *arguments)
    refused = invoke(capsys, "run", example / "model.onnx", "--out", tmp_path / "run", *options)
    assert refused.code == 3
    assert expected in refused.err
    assert not (tmp_path / "run").exists()
