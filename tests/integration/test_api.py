"""The Python interface: paths as text, settings as classes, results with types."""

import dataclasses
import json
import os
import typing
from pathlib import Path

import pytest
from pydantic import ValidationError

import ltp_pipeline as ltp
from ltp_pipeline.errors import InputError
from tests.support.cli import invoke
from tests.support.runs import copy_unwritten_run, skip_slow_parts


class Place(os.PathLike[str]):
    """Path that is neither text nor a Path."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


@pytest.fixture(scope="module")
def finished(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ltp.RunResult]:
    """Return a model and its run. With these settings, the weights of the shared run are reused."""
    folder = copy_unwritten_run(shared, tmp_path_factory.mktemp("api") / "example")
    model = str(folder / "model.onnx")
    settings = ltp.Settings(
        data=ltp.DataSettings(path=str(folder / "digits.npz"), scale=0.0625),
        budget=ltp.BudgetSettings(target_compression=30),
        train=ltp.TrainSettings(epochs=2, finetune_epochs=1, batch_size=64, lr=0.03),
        export=ltp.ExportSettings(formats=("packed",)),
        baseline=ltp.BaselineSettings(mode="none"),
        gates=ltp.GateSettings(max_drop=0.9),
    )
    with skip_slow_parts():
        return model, ltp.run(model, settings, out=str(folder / "run"))


def test_run_returns_the_directory_and_the_gates(finished: tuple[str, ltp.RunResult]):
    model, result = finished
    assert isinstance(result, ltp.RunResult)
    assert result.folder == Path(model).parent / "run"
    (gate_result,) = result.gate_results
    assert isinstance(gate_result, ltp.GateResult)
    assert (gate_result.name, gate_result.passed) == ("max_drop", True)


@pytest.mark.parametrize("kind", [str, Path, Place])
def test_functions_take_any_kind_of_path(finished: tuple[str, ltp.RunResult], kind: typing.Any):
    model, result = finished
    packed, data = str(result.folder / "model.packed.onnx"), str(Path(model).parent / "digits.npz")
    inspection = ltp.inspect(kind(packed))
    assert (inspection.path, inspection.format) == (packed, "packed")
    assert sum(k.nonzeros for k in inspection.layers) == result.report.pruned.nonzeros
    assert isinstance(ltp.import_model(kind(model))[0], ltp.Network)
    gate_results = ltp.gate(kind(str(result.folder / "report.json")), max_drop=0.9)
    assert all(isinstance(v, ltp.GateResult) and v.passed for v in gate_results)
    found = ltp.validate(kind(packed), kind(data), against=kind(model))
    assert result.report.pruned.accuracy is not None
    assert found.accuracy == result.report.pruned.accuracy
    assert found.against is not None
    assert found.against.drop == pytest.approx(result.report.pruned.drop)
    config = str(Path(model).parent / "ltp.toml")
    assert ltp.validate(kind(model), config=kind(config)).accuracy == found.against.accuracy


def test_validate_data_settings_replace_those_of_the_file(finished: tuple[str, ltp.RunResult]):
    model, result = finished
    data = ltp.DataSettings(
        path=str(Path(model).parent / "digits.npz")
    )  # without the scale that is beside the model
    assert ltp.validate(model, data).accuracy != ltp.validate(model).accuracy
    assert result.report.original.accuracy is not None
    assert result.report.original.accuracy == ltp.validate(model).accuracy


def test_results_are_frozen(finished: tuple[str, ltp.RunResult]):
    model, result = finished
    for frozen in (result, result.gate_results[0], ltp.inspect(model), ltp.validate(model)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, dataclasses.fields(frozen)[0].name, None)
    with pytest.raises(ValidationError) as caught:
        result.report.status = "failed"  # type: ignore[misc]
    assert [error["type"] for error in caught.value.errors()] == ["frozen_instance"]


def test_functions_return_what_the_command_prints(
    finished: tuple[str, ltp.RunResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, result = finished
    run = str(result.folder)
    rows = ltp.trail(run)
    assert all(
        isinstance(row, ltp.TrailEntryInfo) and (result.folder / row.file).is_file() for row in rows
    )
    assert json.loads(invoke(capsys, "trail", run, "--json").out) == [
        row.model_dump(mode="json") for row in rows
    ]
    assert any(row.pareto for row in rows)
    assert not any(row.selected for row in rows)
    dense = ltp.unpack(result.folder / "model.packed.onnx", str(tmp_path / "dense.onnx"))
    assert ltp.inspect(dense).format == "dense"
    with pytest.raises(InputError, match=r"/dense\.onnx\b"):
        ltp.unpack(dense, dense)
    assert (ltp.handoff(run, str(tmp_path / "out"), example_samples=2) / "HANDOFF.md").is_file()
    (result.folder / "report.html").unlink()
    assert ltp.report(run) == result.report
    assert (result.folder / "report.html").is_file()
    path = result.folder / "report.json"
    found = ltp.compare(str(path), result.report, max_drop=0.0)
    assert isinstance(found, ltp.Comparison)
    assert found.gate_results[0].passed
    printed = json.loads(invoke(capsys, "compare", path, path, "--max-drop", 0, "--json").out)
    assert printed == json.loads(json.dumps(dataclasses.asdict(found)))


def test_report_unmeasured_value_is_null_with_a_reason(finished: tuple[str, ltp.RunResult]):
    report = json.loads((finished[1].folder / "report.json").read_text())
    assert report["metric"] == {
        "name": "top-1",
        "unit": None,
        "higher_is_better": True,
        "is_fraction": True,
    }
    assert report["baseline"] is None
    assert "--no-baseline" in report["reasons"]["baseline"]
    measured = {(entry["batch"], entry["threads"]) for entry in report["original"]["latency"]}
    assert measured == {
        (batch, threads) for batch in (1, 16) for threads in (1, report["environment"]["threads"])
    }
    assert report["environment"]["processor"]
    for file in report["pruned"]["files"]:
        assert {(entry["batch"], entry["threads"]) for entry in file["latency"]} == measured
        for entry in file["latency"]:
            assert entry["ratio"] == pytest.approx(entry["ms"] / entry["original_ms"])
        assert (file["graph"], file["accuracy"]["value"]) == ("original", file["accuracy"]["top1"])
