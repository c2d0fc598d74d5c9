"""A model with external data, as torch exports it: every file of the run and of the handoff opens."""

import json
import shutil
from pathlib import Path

import onnx
import pytest

from ltp_pipeline.demo import copy_example
from ltp_pipeline.runner.finish import RunResult
from ltp_pipeline.runner.pick import pick
from ltp_pipeline.runner.run import run
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.system.hashing import sha256_file
from ltp_pipeline.system.progress import SilentReporter
from tests.support.bare import ONNX, run_bare
from tests.support.cli import invoke
from tests.support.runs import skip_slow_parts

FORMATS = ("sparse", "packed", "dense", "deploy-sparse", "deploy-packed", "deploy-dense")
OPEN = """
import sys, onnx
for path in sys.argv[1:]:
    model = onnx.load(path)
    onnx.checker.check_model(path)
    assert all(tensor.raw_data or not tensor.dims for tensor in model.graph.initializer), path
    print(path)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    copy_example(folder)
    model = onnx.load(folder / "model.onnx")
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    with skip_slow_parts():
        short_run(folder)
    return folder


def short_run(folder: Path, formats: tuple[str, ...] = FORMATS, **export: object) -> RunResult:
    options = {
        "train": {"epochs": 2, "finetune_epochs": 1},
        "export": {"formats": formats, **export},
        "baseline": {"mode": "none"},
        "gates": {"max_drop": 0.9, "min_compression": 2},
    }
    settings = load_settings(folder / "model.onnx", options=options)
    return run(folder / "model.onnx", settings, folder / "run", SilentReporter())


def opens_everywhere(folder: Path, work: Path) -> list[str]:
    """Load and check every model below a folder where there is only onnx; their names."""
    script = work / "open.py"
    script.write_text(OPEN)
    models = sorted(folder.rglob("*.onnx"))
    done = run_bare(work, ONNX, script, *models)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(map(str, models))
    return [str(path.relative_to(folder)) for path in models]


def holds_its_tensors(path: Path) -> bool:
    model = onnx.load(path, load_external_data=False)
    return not any(tensor.external_data for tensor in model.graph.initializer)


def test_exported_files_open_with_onnx_alone(finished: Path, tmp_path: Path, capsys):
    assert invoke(capsys, "handoff", finished / "run", "--out", tmp_path / "out").code == 0
    assert len(opens_everywhere(finished / "run", tmp_path)) == 2 * 6 + 2
    assert len(opens_everywhere(tmp_path / "out", tmp_path)) == 6


def test_exported_files_hold_their_tensors(finished: Path):
    models = list((finished / "run").rglob("*.onnx"))
    assert {"001.onnx", "model.packed.onnx", "model.deploy.dense.onnx"} <= {
        path.name for path in models
    }
    assert all(map(holds_its_tensors, models))
    assert not list((finished / "run").rglob("*.data"))
    report = json.loads((finished / "run" / "report.json").read_text())
    for file in report["pruned"]["files"]:
        path = finished / "run" / file["path"]
        assert file["data_sha256"] is None
        assert (file["bytes"], file["sha256"]) == (path.stat().st_size, sha256_file(path))
    assert "need only one row: `model.packed.onnx`, unless" in page(finished)


def page(finished: Path) -> str:
    return (finished / "run" / "handoff" / "HANDOFF.md").read_text().replace("\\", "")


def test_picked_files_are_not_links(finished: Path, tmp_path: Path, capsys):
    pick(finished / "run", 1, SilentReporter(), ["packed"])
    assert (
        invoke(capsys, "handoff", finished / "run" / "pick-001", "--out", tmp_path / "picked").code
        == 0
    )
    for folder in (finished / "run", tmp_path / "picked"):
        assert [
            p
            for p in folder.rglob("*")
            if p.is_symlink() or (p.is_file() and p.stat().st_nlink > 1)
        ] == []
    opens_everywhere(tmp_path / "picked", tmp_path)


def test_external_data_are_named_hashed_and_open(finished: Path, tmp_path: Path):
    finished = shutil.copytree(finished, tmp_path / "copy", ignore=shutil.ignore_patterns("pick-*"))
    few = ("packed", "dense")
    report = short_run(finished, few, external_data=True).report
    for folder in (finished / "run", finished / "run" / "handoff"):
        for file in report.pruned.files:
            path = folder / file.path
            data = path.with_name(path.name + ".data")
            assert not holds_its_tensors(path)
            assert file.data_sha256 == sha256_file(data)
            assert file.bytes == path.stat().st_size + data.stat().st_size
            assert f"| `{path.name}` with `{data.name}` |" in page(finished)
    assert "need only one row: `model.packed.onnx` with `model.packed.onnx.data`, unless" in page(
        finished
    )
    opens_everywhere(finished / "run", tmp_path)
    shutil.copytree(finished / "run" / "handoff", tmp_path / "out")
    assert (
        run_bare(tmp_path, ("numpy", "onnxruntime"), tmp_path / "out" / "verify.py").returncode == 0
    )
    with (tmp_path / "out" / "model.packed.onnx.data").open("r+b") as data:
        data.write(b"other")
    done = run_bare(tmp_path, ("numpy", "onnxruntime"), tmp_path / "out" / "verify.py")
    assert done.returncode == 1
    assert "FAILED  model.packed.onnx.data has been changed" in done.stdout
    assert "FAILED  model.packed.onnx is not run" in done.stdout
    again = short_run(finished, few).report
    assert not list((finished / "run").rglob("*.onnx.data"))
    assert [file.data_sha256 for file in again.pruned.files] == [None, None]
    assert ".data" not in page(finished)
