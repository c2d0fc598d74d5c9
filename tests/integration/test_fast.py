"""Files with sparse operators through the command line, of a run and of any other file."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ltp_pipeline
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.settings.file_names import FAST
from ltp_pipeline.stages.handoff.sparse_ops import ARCHIVE, FOLDER
from ltp_pipeline.system.hashing import sha256_file
from tests.support.cli import invoke
from tests.support.kernels import conv_net, needs_kernels, raise_missing
from tests.support.runs import copy_rewritten_run, skip_slow_parts

PACKED = "model.fast.packed.onnx"
# Turned over whatever it costs here: the example is too small to gain.
FORCED = {"formats": ["packed", "fast"], "accelerate_min_sparsity": 0.3}


@pytest.fixture(scope="module")
def example(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run with a packed and a fast file, of the baseline too."""
    return copy_rewritten_run(
        shared, tmp_path_factory.mktemp("fast") / "example", export=FORCED, gates={"max_drop": 0.9}
    )


def report_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run" / "report.json").read_text())
    return content


def file_of(network: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = next(f for f in network["files"] if f["graph"] == FAST)
    return result


@needs_kernels
def test_run_measures_fast_file_and_lists_converted_layers(example: Path) -> None:
    report = report_of(example)
    built = file_of(report["pruned"])
    assert built["path"] == PACKED
    kernels = built["sparse_kernels"]
    assert (
        len(kernels["converted_layers"]) + len(kernels["dense_layers"])
        == report["model"]["num_layers"]
    )
    assert kernels["library_sha256"] == sha256_file(ltp_pipeline.sparse_ops_library())
    assert (
        kernels["instruction_set"]
        == library.query_instruction_sets(ltp_pipeline.sparse_ops_library()).chosen
    )
    assert 0 <= kernels["largest_difference"] <= 1e-5
    assert built["accuracy"]["value"] == pytest.approx(
        report["pruned"]["files"][0]["accuracy"]["value"], abs=0.01
    )
    assert [entry["batch"] for entry in built["latency"][:2]] == [1, 16]
    assert report["pruned"]["files"][0]["sparse_kernels"] is None
    assert file_of(report["baseline"])["sparse_kernels"]["converted_layers"]


@needs_kernels
def test_gate_limits_latency_of_fast_file(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = example / "run" / "report.json"
    assert invoke(capsys, "gate", report, "--max-latency-ratio", "fast=1000").code == 0
    assert invoke(capsys, "gate", report, "--max-latency-ratio", "fast=0.0001").code == 7


@needs_kernels
def test_validate_and_inspect_read_fast_file(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = json.loads(invoke(capsys, "validate", example / "run" / PACKED, "--json").out)
    assert measured["nonzeros"] == file_of(report_of(example)["pruned"])["nonzeros"]
    assert any("measured with the sparse operators" in note for note in measured["notes"])
    result = json.loads(invoke(capsys, "inspect", example / "run" / PACKED, "--json").out)
    assert result["format"] == "fast-packed"
    assert len(result["layers"]) == report_of(example)["model"]["num_layers"]


@needs_kernels
def test_handoff_has_library_and_verifies_fast_file(example: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(example / "run" / "handoff", tmp_path / "handoff"))
    verify = [sys.executable, "verify.py"]
    done = subprocess.run(verify, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"ok      {PACKED} with {library.FILE_NAME}: outputs differ" in done.stdout
    page = (folder / "HANDOFF.md").read_text()
    assert sha256_file(folder / library.FILE_NAME) in page
    assert "do not make the model faster" not in page
    (folder / library.FILE_NAME).write_bytes(b"another library")
    done = subprocess.run(verify, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{PACKED} with" not in done.stdout  # a library that is not the one is not loaded


@needs_kernels
def test_handoff_page_registers_library(example: Path) -> None:
    folder = example / "run" / "handoff"
    blocks = re.findall(r"```python\n(.*?)\n```", (folder / "HANDOFF.md").read_text(), re.DOTALL)
    code = next(block for block in blocks if "register_custom_ops_library" in block)
    check = (
        "import numpy; print(session.run(None, {'input': numpy.zeros((1, 1, 8, 8), 'f')})[0].shape)"
    )
    name = report_of(example)["model"]["inputs"][0]["name"]
    command = [sys.executable, "-c", f"{code}\n{check.replace('input', name, 1)}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(1, 10)", done.stderr


@needs_kernels
@pytest.mark.slow
def test_handoff_page_builds_library(example: Path, tmp_path: Path) -> None:
    shutil.copy(example / "run" / "handoff" / ARCHIVE, tmp_path)
    shutil.copy(example / "run" / PACKED, tmp_path)
    page = (example / "run" / "handoff" / "HANDOFF.md").read_text()
    command = next(line for line in page.splitlines() if ARCHIVE in line and "&&" in line).split(
        "&&"
    )[1]
    with zipfile.ZipFile(tmp_path / ARCHIVE) as archive:
        archive.extractall(tmp_path)
    assert (tmp_path / FOLDER / "ops.cpp").is_file()
    # The page gives a shell command.
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)  # noqa: S602
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(tmp_path / library.FILE_NAME))
    onnxruntime.InferenceSession(
        str(tmp_path / PACKED), options, providers=["CPUExecutionProvider"]
    )


def test_run_without_library_skips_fast_file_and_gate_fails(
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    folder = copy_rewritten_run(
        shared, tmp_path / "example", export=FORCED, baseline={"mode": "none"}
    )
    assert [f["path"] for f in report_of(folder)["pruned"]["files"]] == ["model.packed.onnx"]
    assert any(PACKED in note for note in report_of(folder)["notes"])
    with skip_slow_parts():
        again = invoke(capsys, "export", folder / "run", "--format", "fast-packed")
    assert re.search(r"\bfast-packed\b.*\blibrary\b", again.out)
    failed = invoke(capsys, "gate", folder / "run" / "report.json", "--max-latency-ratio", "fast=2")
    assert failed.code == 7
    assert re.search(r"\bfast-packed\b.*\blibrary\b", failed.err)
    if (library.SOURCE.parent / library.FILE_NAME).is_file():
        monkeypatch.undo()
        with skip_slow_parts():  # now that it is there, the same run writes the file
            options = (
                "--export",
                "packed",
                "--export",
                "fast",
                "--set",
                "export.accelerate_min_sparsity=0.3",
                "--no-baseline",
                "--max-drop",
                "0.9",
            )
            expected = ("--epochs", 2, "--finetune-epochs", 1, "--quiet", *options)
            assert (
                invoke(
                    capsys, "run", folder / "model.onnx", "--out", folder / "run", *expected
                ).code
                == 0
            )
        assert (folder / "run" / PACKED).is_file()


@needs_kernels
def test_accelerate_writes_sparse_file_and_rejects_dense_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, share in (("sparse", 0.95), ("dense", 0.1)):
        onnx.save(conv_net(share), tmp_path / f"{name}.onnx")
    out = tmp_path / "fast.onnx"
    done = invoke(capsys, "accelerate", tmp_path / "sparse.onnx", "--out", out, "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert result["sparse_kernels"]["latency_ratio"] < 0.95
    assert result["proven_on"].startswith("random input")
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(ltp_pipeline.sparse_ops_library()))
    x = {"x": np.random.default_rng(1).standard_normal((3, 3, 28, 28)).astype(np.float32)}
    ours = onnxruntime.InferenceSession(str(out), options, providers=["CPUExecutionProvider"]).run(
        None, x
    )[0]
    theirs = onnxruntime.InferenceSession(
        str(tmp_path / "sparse.onnx"), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_allclose(ours, theirs.run(None, x)[0], rtol=1e-4, atol=1e-6)
    refused = invoke(capsys, "accelerate", tmp_path / "dense.onnx", "--out", tmp_path / "none.onnx")
    assert refused.code == 7
    assert re.search(r"\bno layer\b.*\.weight\b", refused.err)
    assert not (tmp_path / "none.onnx").exists()


@needs_kernels
def test_quantize_finds_layers_of_fast_file(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ("--config", example / "ltp.toml", "--data", example / "digits.npz")
    source = example / "run" / "model.packed.onnx"
    done = invoke(
        capsys,
        "accelerate",
        source,
        "--out",
        tmp_path / "fast.onnx",
        "--accelerate-min-sparsity",
        0.3,
        "--quiet",
    )
    assert done.code == 0, done.err
    done = invoke(
        capsys,
        "quantize",
        tmp_path / "fast.onnx",
        "--out",
        tmp_path / "int8.onnx",
        *config,
        "--quiet",
    )
    assert done.code == 0, done.err
    written = onnx.load(tmp_path / "int8.onnx")
    assert not [node.op_type for node in written.graph.node if node.domain == "ltp.kernels"]


@needs_kernels
def test_accelerate_after_failure_keeps_older_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(conv_net(0.0, size=8), tmp_path / "dense.onnx")
    (tmp_path / "out.onnx").write_text("older")
    refused = invoke(capsys, "accelerate", tmp_path / "dense.onnx", "--out", tmp_path / "out.onnx")
    assert refused.code == 7
    assert (tmp_path / "out.onnx").read_text() == "older"
    assert invoke(capsys, "accelerate", tmp_path / "dense.onnx", "--out", "").code == 3


@needs_kernels
def test_accelerate_rejects_output_over_its_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data of the input have the name that the data of the output would have."""
    onnx.save(
        conv_net(0.9, size=8),
        tmp_path / "old.onnx",
        save_as_external_data=True,
        location="new.onnx.data",
    )
    before = sha256_file(tmp_path / "new.onnx.data")
    refused = invoke(
        capsys,
        "accelerate",
        tmp_path / "old.onnx",
        "--out",
        tmp_path / "new.onnx",
        "--accelerate-min-sparsity",
        "0.5",
    )
    assert refused.code == 3
    assert sha256_file(tmp_path / "new.onnx.data") == before


@needs_kernels
def test_accelerate_of_unloadable_file_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = conv_net(0.9, size=8)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("dilations", [1, 1, 1]))
    onnx.save(model, tmp_path / "sparse.onnx")
    refused = invoke(
        capsys, "accelerate", tmp_path / "sparse.onnx", "--out", tmp_path / "fast.onnx"
    )
    assert refused.code == 3, refused.err
    assert re.search(r"\bonnxruntime\b.*\bdilations?\b", refused.err)


@needs_kernels
def test_accelerate_interrupted_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    onnx.save(conv_net(0.9, size=8), tmp_path / "sparse.onnx")
    monkeypatch.setattr("ltp_pipeline.stages.tools.accelerate.time_interleaved", stop)
    with pytest.raises(KeyboardInterrupt):
        ltp_pipeline.accelerate(
            tmp_path / "sparse.onnx", out=tmp_path / "fast.onnx", accelerate_min_sparsity=0.5
        )
    assert [path.name for path in tmp_path.iterdir()] == ["sparse.onnx"]


@needs_kernels
def test_accelerate_with_data_measures_both_files(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "--config",
        example / "ltp.toml",
        "--data",
        example / "digits.npz",
        "--accelerate-min-sparsity",
        0.3,
        "--json",
    )
    out = tmp_path / "fast.onnx"
    done = invoke(
        capsys, "accelerate", example / "run" / "model.packed.onnx", "--out", out, *arguments
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["measurement"]["against"]["drop"] == pytest.approx(0, abs=0.01)


def test_sparse_ops_command_shows_library_or_fails_with_exit_3(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (library.SOURCE.parent / library.FILE_NAME).is_file():
        result = json.loads(invoke(capsys, "sparse-ops", "--json").out)
        assert Path(result["library"]) == ltp_pipeline.sparse_ops_library()
        assert result["chosen"] in ("avx512", "avx2", "neon", "portable")
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused = invoke(capsys, "sparse-ops", "--build")
    assert refused.code == 3
    assert "'no-such-compiler'" in refused.err
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    assert invoke(capsys, "sparse-ops").code == 3
