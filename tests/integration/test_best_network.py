"""A run whose baseline is better than LTP says so first, hands it on, and exports it with --best."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ltp_pipeline
from ltp_pipeline.demo import copy_example
from ltp_pipeline.errors import InputError
from ltp_pipeline.runner import run as run_module
from ltp_pipeline.stages import baseline
from tests.support.cli import invoke
from tests.support.runs import prune_example, skip_slow_parts

pytestmark = pytest.mark.slow
SECTIONS: dict[str, dict[str, Any]] = {
    "budget": {"target_compression": 8},
    "baseline": {"mode": "gradual"},
    "train": {"epochs": 2, "finetune_epochs": 1, "batch_size": 64, "lr": 0.01},
    "export": {"formats": ["packed"]},
}
BEST = {**SECTIONS, "export": {"formats": ["packed"], "best": True}}


def spoil_learned_networks(patch: pytest.MonkeyPatch) -> None:
    """Let LTP end with a network that is wrong almost always, with the same zeros."""
    finish_entry = run_module.select_entry.finish_entry

    def finish_badly(*arguments: Any) -> Any:
        network = finish_entry(*arguments)
        state = {**network.state, "classifier.weight": -network.state["classifier.weight"]}
        return replace(network, state=state)

    patch.setattr(run_module.select_entry, "finish_entry", finish_badly)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example with a run whose learned network is bad."""
    folder = tmp_path_factory.mktemp("best") / "example"
    copy_example(folder)
    with pytest.MonkeyPatch.context() as patch, skip_slow_parts():
        spoil_learned_networks(patch)
        prune_example(folder, **SECTIONS)
    return folder


@pytest.fixture
def example(finished: Path, tmp_path: Path) -> Iterator[Path]:
    with skip_slow_parts():
        yield Path(shutil.copytree(finished, tmp_path / "example"))


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every training fail."""
    monkeypatch.setattr(baseline, "train", None)
    monkeypatch.setattr(baseline.finetune, "train", None)


def read_report(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return content


def folder_of(method: str) -> str:
    return {"global-magnitude": "baseline", "gradual-magnitude": "gradual"}[method]


def test_better_baseline_is_named_first(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = read_report(example / "run")
    better = report["comparison"]["better"]
    values = {
        part["method"]: part["validation_accuracy"]
        for part in (report["pruned"], report["baseline"], report["gradual_baseline"])
    }
    assert values[better["method"]] == max(values.values())
    assert better["value"] == pytest.approx(values[better["method"]] - values["ltp"])
    assert 0 < better["interval"][0] <= better["value"] <= better["interval"][1]
    assert report["pruned"]["method"] == "ltp"
    result = invoke(capsys, "export", example / "run", "--format", "packed")
    assert "better than LTP on the validation split" in result.out.splitlines()[0]
    markdown = (example / "run" / "report.md").read_text().splitlines()
    assert "better than LTP on the validation split" in markdown[2]


def test_handoff_has_the_better_network(example: Path) -> None:
    report = read_report(example / "run")
    method = report["comparison"]["better"]["method"]
    delivered = read_report(example / "run" / "handoff")
    assert delivered["pruned"]["method"] == method
    source = example / "run" / folder_of(method) / "model.packed.onnx"
    assert (example / "run/handoff/model.packed.onnx").read_bytes() == source.read_bytes()
    ltp_pipeline.gate(example / "run/handoff/report.json")


@pytest.mark.parametrize(
    ("network", "method"), [("pruned", "ltp"), ("gradual", "gradual-magnitude")]
)
def test_handoff_of_a_named_network_is_that_network(
    example: Path, network: str, method: str
) -> None:
    folder = ltp_pipeline.handoff(example / "run", network=network)
    assert read_report(folder)["pruned"]["method"] == method
    ltp_pipeline.gate(folder / "report.json")


def test_handoff_of_ltp_next_to_itself_raises(example: Path) -> None:
    with pytest.raises(InputError, match="pruned network"):
        ltp_pipeline.handoff(example / "run", network="ltp")


@pytest.mark.usefixtures("untrained")
def test_best_exports_the_better_network_without_training(example: Path) -> None:
    before = read_report(example / "run")
    method = before["comparison"]["better"]["method"]
    key = {"global-magnitude": "baseline", "gradual-magnitude": "gradual_baseline"}[method]
    files = {
        name: (example / "run" / name / "model.packed.onnx").read_bytes()
        for name in (".", folder_of(method))
    }
    prune_example(example, **BEST)
    report = read_report(example / "run")
    pruned, ltp = report["pruned"], report["ltp"]
    assert (pruned["method"], ltp["method"], report[key]) == (method, "ltp", None)
    assert pruned["accuracy"]["value"] == before[key]["accuracy"]["value"]
    assert ltp["accuracy"]["value"] == before["pruned"]["accuracy"]["value"]
    assert ltp["difference"]["value"] > 0
    assert (example / "run/model.packed.onnx").read_bytes() == files[folder_of(method)]
    assert (example / "run/ltp/model.packed.onnx").read_bytes() == files["."]
    assert not (example / "run" / folder_of(method) / "model.packed.onnx").exists()
    assert all(layer["threshold"] is None for layer in report["layers"])
    assert read_report(example / "run/handoff")["pruned"]["method"] == method
    ltp_pipeline.gate(example / "run/report.json")
    assert prune_example(example, **BEST).report.pruned.method == method


def test_best_of_the_one_shot_baseline_has_no_baseline(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(example / "run/gradual")
    (example / "run/weights/gradual.safetensors").unlink()
    prune_example(example, **{**BEST, "baseline": {"mode": "quick"}})
    report = read_report(example / "run")
    assert (report["pruned"]["method"], report["baseline"]) == ("global-magnitude", None)
    assert report["ltp"]["method"] == "ltp"
    assert report["reasons"]["baseline"]
    results = ltp_pipeline.gate(example / "run/report.json", beat_baseline=True)
    assert [result.name for result in results if not result.passed] == ["beat_baseline"]
    monkeypatch.setattr(run_module, "measure_original", None)  # nothing is missing
    prune_example(example, **{**BEST, "baseline": {"mode": "auto"}})


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("has_data", [True, False])
def test_export_of_a_best_network_adds_files_of_the_same_network(
    example: Path, has_data: bool
) -> None:
    prune_example(example, **BEST)
    method = read_report(example / "run")["pruned"]["method"]
    if not has_data:
        (example / "digits.npz").unlink()
    ltp_pipeline.export(example / "run", ["dense"])
    report = read_report(example / "run")
    assert report["pruned"]["method"] == method
    paths = [file["path"] for file in report["pruned"]["files"] + report["ltp"]["files"]]
    expected = ["model.packed.onnx", "model.dense.onnx", "ltp/model.packed.onnx"]
    assert {*expected, "ltp/model.dense.onnx"} == set(paths)
    ltp_pipeline.gate(example / "run/report.json")


def test_pick_with_best_exports_the_better_network(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil_learned_networks(monkeypatch)
    arguments = ("--best", "--max-drop", "0.9")
    result = invoke(capsys, "pick", example / "run", "1", *arguments)
    assert result.code == 0, result.err
    report = read_report(example / "run/pick-001")
    assert report["pruned"]["method"] == "global-magnitude"
    assert report["ltp"]["method"] == "ltp"


def test_gradual_training_resumes_to_the_same_weights(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_files = {**SECTIONS, "export": {"formats": ["dense"]}}
    weights = example / "run/weights/gradual.safetensors"
    expected = weights.read_bytes()
    for name in ("weights/gradual", "state/gradual", "state/gradual-finetune"):
        (example / f"run/{name}.safetensors").unlink()
    method = baseline.GradualMagnitudePruning
    move_thresholds = method.after_backward

    def stop_in_second_epoch(self: Any, position: Any) -> None:
        if position.epoch == 1:
            raise KeyboardInterrupt
        move_thresholds(self, position)

    with monkeypatch.context() as patch:
        patch.setattr(method, "after_backward", stop_in_second_epoch)
        with pytest.raises(KeyboardInterrupt):
            prune_example(example, **other_files)
    assert (example / "run/state/gradual.safetensors").exists()
    prune_example(example, **other_files)
    assert weights.read_bytes() == expected
