"""`export` on a finished run: further formats, the deploy graph and rounded values, without training."""

import json
import re
import shutil
from pathlib import Path

import pytest

from ltp_pipeline.results.schema import FileResult
from ltp_pipeline.run_directory.names import MANIFEST
from tests.support.cli import invoke, says_finished
from tests.support.runs import changed_manifest, copy_rewritten_run

AGAIN = (
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--max-drop",
    0.9,
    "--no-baseline",
    "--export",
    "sparse",
)


@pytest.fixture(scope="module")
def alone(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared run with one file and no baseline."""
    folder = tmp_path_factory.mktemp("export") / "example"
    export, baseline, gates = {"formats": ["sparse"]}, {"mode": "none"}, {"max_drop": 0.9}
    return copy_rewritten_run(shared, folder, export=export, baseline=baseline, gates=gates)


@pytest.fixture
def finished(alone: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(alone, tmp_path / "example")) / "run"


def exported(capsys: pytest.CaptureFixture[str], *arguments: object) -> set[str]:
    """The files that there are after a call, by format and rounding."""
    result = invoke(capsys, "export", *arguments, "--json", "--quiet")
    assert result.code == 0, result.err
    return {
        FileResult.model_validate_json(json.dumps(f)).label
        for f in json.loads(result.out)["pruned"]["files"]
    }


def test_export_adds_deploy_and_rounded_files(finished: Path, capsys: pytest.CaptureFixture[str]):
    before = (finished / "model.sparse.onnx").read_bytes()
    formats = {
        "sparse",
        "packed",
        "packed, fp16",
        "deploy-sparse",
        "deploy-packed",
        "deploy-packed, fp16",
    }
    added = ("--format", "packed", "--format", "deploy-sparse", "--format", "deploy")
    assert exported(capsys, finished, *added, "--weight-storage", "fp16") == formats
    assert (finished / "handoff" / "model.deploy.packed.rounded-fp16.onnx").is_file()
    assert exported(capsys, finished, "--format", "dense") == {*formats, "dense"}
    exact = {"sparse", "packed", "dense", "deploy-sparse", "deploy-packed"}
    assert exported(capsys, finished, "--weight-storage", "exact") == exact
    assert {f.name for f in finished.glob("model.*")} == {
        f"model.{f.replace('-', '.')}.onnx" for f in exact
    }
    assert (finished / "model.sparse.onnx").read_bytes() == before


def test_export_writes_rounded_next_to_exact_files(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    exported(capsys, finished, "--format", "packed", "--weight-storage", "exact")
    before = (finished / "model.packed.onnx").read_bytes()
    assert {"packed", "packed, int8"} <= exported(capsys, finished, "--weight-storage", "int8")
    assert {"packed", "packed, int8", "packed, fp16"} <= exported(
        capsys, finished, "--weight-storage", "fp16"
    )
    assert (finished / "model.packed.onnx").read_bytes() == before
    listed = (finished / "SHA256SUMS").read_text()
    names = [f"model.packed{rounded}.onnx" for rounded in ("", ".rounded-int8", ".rounded-fp16")]
    assert all(
        f"  {name}\n" in listed and (finished / "handoff" / name).is_file() for name in names
    )
    page = (finished / "handoff" / "HANDOFF.md").read_text()
    assert "need only one row: `model.packed.onnx`" in page
    assert "weights rounded to int8" in page
    assert "| file, packed, int8 |" in (finished / "report.md").read_text()


def test_export_with_failing_gates_exits_with_0(finished: Path, capsys):
    """The report says what the run's gates say of all its files; only `gate` fails by them."""
    with changed_manifest(finished) as content:
        content["inputs"]["settings"]["gates"]["max_drop"] = -1.0
    result = invoke(capsys, "export", finished, "--format", "dense")
    assert result.code == 0, result.err
    assert "max_drop" in result.err
    assert "FAILED" not in result.out
    report = finished / "report.json"
    assert json.loads(report.read_text())["status"] == "failed"
    assert invoke(capsys, "gate", report).code == 7


def test_export_unfinished_run_is_rejected(finished: Path, capsys: pytest.CaptureFixture[str]):
    with changed_manifest(finished) as content:
        content["proof"] = None
    result = invoke(capsys, "export", finished, "--format", "dense")
    assert (result.code, str(finished) in result.err) == (3, True)


def test_run_again_keeps_exported_files(finished: Path, capsys: pytest.CaptureFixture[str]):
    exported(capsys, finished, "--format", "dense")
    result = invoke(capsys, "run", finished.parent / "model.onnx", "--out", finished, *AGAIN)
    assert result.code == 0, result.err
    assert (finished / "model.dense.onnx").is_file()
    assert says_finished(result.err)
    assert exported(capsys, finished, "--format", "sparse") >= {"sparse", "dense"}


def test_run_again_names_removed_files(finished: Path, capsys: pytest.CaptureFixture[str]):
    exported(
        capsys, finished, "--format", "packed", "--format", "dense", "--weight-storage", "fp16"
    )
    result = invoke(capsys, "run", finished.parent / "model.onnx", "--out", finished, *AGAIN)
    assert result.code == 0, result.err
    assert not (finished / "model.dense.onnx").exists()
    assert "model.dense.onnx" in result.err


def test_gate_max_bytes_checks_requested_files_only(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    exported(capsys, finished, "--format", "packed", "--weight-storage", "exact")
    sparse, packed = (
        (finished / f"model.{name}.onnx").stat().st_size for name in ("sparse", "packed")
    )
    assert packed < sparse
    limit = ("--max-bytes", sparse - 1)
    result = invoke(
        capsys, "run", finished.parent / "model.onnx", "--out", finished, *AGAIN, *limit
    )
    assert result.code == 7
    assert re.search(r"\bmax_bytes\b.*\bmodel\.sparse\.onnx\b", result.err)


def test_export_of_picked_entry_adds_files(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert invoke(capsys, "pick", finished, 1, "--export", "packed", "--quiet").code == 0
    picked = finished / "pick-001"
    formats = {"packed", "packed, int8", "deploy-packed", "deploy-packed, int8"}
    assert exported(capsys, picked, "--format", "deploy", "--weight-storage", "int8") == formats
    formats |= {"sparse"}
    monkeypatch.chdir(picked)
    assert exported(capsys, ".", "--format", "sparse") == formats


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (("--format", "packed", "--weight-storage", "int4"), "export.weight_storage"),
        (("--format", "zip"), "'zip'"),
    ],
)
def test_export_unknown_format_or_storage_is_rejected(
    finished: Path, capsys: pytest.CaptureFixture[str], options, part
):
    result = invoke(capsys, "export", finished, *options)
    assert result.code == 3
    assert part in result.err


def test_export_failed_file_is_not_requested_again(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    from ltp_pipeline.stages.measure import network
    from ltp_pipeline.system import tolerance

    class Different:
        """Of the files alone: the import of the model is compared as ever."""

        max_difference, Agreement = tolerance.max_difference, tolerance.Agreement
        check_tolerance = staticmethod(lambda *_: tolerance.Agreement.DIFFERENT)

    with monkeypatch.context() as patched:
        patched.setattr(network, "tolerance", Different)
        failed = invoke(capsys, "export", finished, "--format", "deploy-dense", "--quiet")
    assert failed.code == 6
    assert "deploy-dense" not in exported(capsys, finished, "--format", "dense")


def test_export_deploy_is_added_to_present_formats(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    before = exported(capsys, finished)
    assert exported(capsys, finished, "--format", "deploy-dense") == {*before, "deploy-dense"}


@pytest.fixture
def without_data(finished: Path) -> Path:
    """A run that has lost its data and its checkpoints."""
    shutil.rmtree(finished / "state")
    with changed_manifest(finished) as content:
        content["inputs"]["settings"]["data"]["path"] = str(finished.parent / "gone.npz")
    return finished


def test_export_without_data_copies_accuracy_of_equal_outputs(without_data: Path, capsys):
    before = json.loads((without_data / "report.json").read_text())
    exported(capsys, without_data, "--format", "dense")
    report = json.loads((without_data / "report.json").read_text())
    (dense,) = (
        f for f in report["pruned"]["files"] if (f["graph"], f["encoding"]) == ("original", "dense")
    )
    assert dense["accuracy"] == before["pruned"]["accuracy"]
    assert "model.sparse.onnx" in dense["reasons"]["accuracy"]
    assert (dense["latency"], dense["load_ms"]) == ([], None)
    assert invoke(capsys, "gate", without_data / "report.json", "--max-drop", 0.9).code == 0


def test_export_without_data_has_no_accuracy_of_other_graphs(without_data: Path, capsys):
    exported(capsys, without_data, "--format", "deploy-dense")
    report = json.loads((without_data / "report.json").read_text())
    (deployed,) = (
        f for f in report["pruned"]["files"] if (f["graph"], f["encoding"]) == ("deploy", "dense")
    )
    assert deployed["accuracy"] is None
    assert "data" in deployed["reasons"]["accuracy"]


def test_export_replaced_model_is_rejected(without_data: Path, capsys):
    with changed_manifest(without_data) as content:
        content["inputs"]["model"] = str(without_data / "model.sparse.onnx")
    result = invoke(capsys, "export", without_data, "--format", "dense")
    assert result.code == 3
    assert str(without_data / "model.sparse.onnx") in result.err


def test_gate_unmeasured_file_fails_max_drop(without_data: Path, capsys):
    exported(capsys, without_data, "--format", "deploy-dense")
    result = invoke(capsys, "gate", without_data / "report.json", "--max-drop", 0.9)
    assert result.code == 7
    assert "max_drop" in result.err
    report = json.loads((without_data / "report.json").read_text())
    assert report["pruned"]["accuracy"] is None
    assert "model.deploy.dense.onnx" in report["pruned"]["reasons"]["accuracy"]


def test_export_restored_data_measures_earlier_files(without_data: Path, capsys):
    data = json.loads((without_data / MANIFEST).read_text())["inputs"]["settings"]["data"]["path"]
    exported(capsys, without_data, "--format", "deploy-dense")
    original = json.loads((without_data / MANIFEST).read_text())["inputs"]["model"]
    shutil.copy(Path(original).parent / "digits.npz", data)
    exported(capsys, without_data, "--format", "deploy-dense")
    report = json.loads((without_data / "report.json").read_text())
    assert report["pruned"]["accuracy"]["value"] > 0.5
    assert all(f["accuracy"] and f["latency"] for f in report["pruned"]["files"])


def test_export_without_data_keeps_the_reason_for_no_curve(shared: Path, tmp_path: Path, capsys):
    run = copy_rewritten_run(shared, tmp_path / "example", export={"formats": ["sparse"]}) / "run"
    (run.parent / "digits.npz").unlink()
    exported(capsys, run, "--format", "deploy-dense")
    baseline = json.loads((run / "report.json").read_text())["baseline"]
    unmeasured = {
        "curve",
        "gain",
        "compression_at_equal_accuracy",
        "accuracy",
        "drop",
        "drop_interval",
    }
    assert [key for key in unmeasured if baseline[key] is not None] == []
    assert unmeasured <= baseline["reasons"].keys()
