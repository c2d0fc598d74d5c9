"""A run through the command line, and its files recomputed without the project's own code."""

import hashlib
import json
import re
import shutil
import subprocess
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from tests.support.cli import invoke, says_finished
from tests.support.runs import FORMATS, OPTIONS

EVERY = tuple(chain.from_iterable(("--export", name) for name in FORMATS))
QUICK = (
    "--epochs",
    2,
    "--finetune-epochs",
    1,
    "--set",
    "gates.max_drop=0.5",
    "--set",
    "gates.min_compression=2",
)


def report_of(folder: Path) -> dict:
    return json.loads((folder / "run" / "report.json").read_text())


def kernels_of(path: Path) -> dict[str, np.ndarray]:
    """Conv and Gemm weights of a sparse or dense file, read with onnx and numpy alone."""
    graph = onnx.load(path).graph
    names = {n.input[1] for n in graph.node if n.op_type in ("Conv", "Gemm")}
    actual = {t.name: numpy_helper.to_array(t) for t in graph.initializer if t.name in names}
    for sparse in graph.sparse_initializer:
        dense = np.zeros(int(np.prod(sparse.dims)), np.float32)
        dense[numpy_helper.to_array(sparse.indices)] = numpy_helper.to_array(sparse.values)
        actual[sparse.values.name] = dense.reshape(tuple(sparse.dims))
    return actual


def test_sparsity_and_nonzeros_of_the_report_are_those_of_the_file(finished: Path):
    pruned = report_of(finished)["pruned"]
    for name in ("model.sparse.onnx", "model.dense.onnx"):
        kernels = kernels_of(finished / "run" / name)
        nonzeros = sum(np.count_nonzero(w) for w in kernels.values())
        elements = sum(w.size for w in kernels.values())
        assert pruned["nonzeros"] == nonzeros
        assert pruned["sparsity"] == pytest.approx(1 - nonzeros / elements)
        assert pruned["compression"] == pytest.approx(elements / nonzeros)


def test_run_target_compression_is_met_exactly(finished: Path):
    report = report_of(finished)
    assert report["pruned"]["nonzeros"] == report["model"]["layer_elements"] // 30
    assert report["baseline"]["nonzeros"] == report["pruned"]["nonzeros"]


def test_baseline_is_trained_as_long_as_the_learned_network(finished: Path):
    report = report_of(finished)
    assert report["baseline"]["epochs"] == {
        "prune": 0,
        "finetune": sum(report["pruned"]["epochs"].values()),
    }
    lines = map(json.loads, (finished / "run" / "log.jsonl").read_text().splitlines())
    assert {line["epoch"] for line in lines if line["key"] == "baseline"} == {0, 1, 2}


def test_baseline_missing_values_have_reasons(finished: Path):
    baseline = report_of(finished)["baseline"]
    for key in ("curve", "compression_at_equal_accuracy", "gain"):
        assert baseline[key] is None
        assert (
            baseline["reasons"][key]
            == "one point of the baseline was measured; `--baseline curve` measures more"
        )


def test_report_accuracy_is_that_of_onnxruntime(finished: Path):
    data = np.load(finished / "digits.npz")
    x = data["x_test"].astype(np.float32) * np.float32(0.0625)
    report = report_of(finished)
    files = [*report["pruned"]["files"], *report["baseline"]["files"]]
    paths = [(finished / "run" / f["path"], f["accuracy"]["top1"]) for f in files]
    for path, stated in [*paths, (finished / "model.onnx", report["original"]["accuracy"]["top1"])]:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        scores = session.run(None, {"image": x})[0]
        assert stated == pytest.approx((scores.argmax(1) == data["y_test"]).mean()), path


def test_drop_is_the_difference_of_the_two_accuracies(finished: Path):
    report = report_of(finished)
    difference = report["original"]["accuracy"]["top1"] - report["pruned"]["accuracy"]["top1"]
    assert report["pruned"]["drop"] == pytest.approx(difference)
    assert (
        report["pruned"]["drop_interval"][0] <= difference <= report["pruned"]["drop_interval"][1]
    )


def test_graph_of_the_sparse_file_is_the_original_one(finished: Path):
    original, sparse = (
        onnx.load(finished / p).graph for p in ("model.onnx", "run/model.sparse.onnx")
    )
    assert list(original.node) == list(sparse.node)
    assert list(original.input) == list(sparse.input)
    assert list(original.output) == list(sparse.output)
    assert sparse.sparse_initializer
    onnx.checker.check_model(str(finished / "run" / "model.sparse.onnx"))


def test_trail_entries_run_in_onnxruntime(finished: Path):
    x = np.load(finished / "digits.npz")["x_val"].astype(np.float32) * np.float32(0.0625)
    labels = np.load(finished / "digits.npz")["y_val"]
    trail = report_of(finished)["trail"]
    assert [e["entry"] for e in trail] == [1, 2]
    for entry in trail:
        session = onnxruntime.InferenceSession(
            finished / "run" / entry["file"], providers=["CPUExecutionProvider"]
        )
        accuracy = (session.run(None, {"image": x})[0].argmax(1) == labels).mean()
        assert accuracy == pytest.approx(entry["accuracy"], abs=0.011)


def test_hashes_are_those_of_the_files(finished: Path):
    for line in (finished / "run" / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((finished / "run" / name).read_bytes()).hexdigest() == digest
    report = report_of(finished)
    for file in report["pruned"]["files"]:
        assert (
            hashlib.sha256((finished / "run" / file["path"]).read_bytes()).hexdigest()
            == file["sha256"]
        )


def test_run_leaves_the_original_file_unchanged(finished: Path):
    from importlib import resources

    assert (finished / "model.onnx").read_bytes() == resources.files("ltp_pipeline.demo").joinpath(
        "model.onnx"
    ).read_bytes()


def test_report_lists_layers_with_thresholds(finished: Path):
    layers = report_of(finished)["layers"]
    assert [x["name"] for x in layers][:2] == ["stem.weight", "block1.conv1.weight"]
    assert all(
        x["prunable"] and x["threshold"] > 0 and x["temperature"] > 0 and x["nonzeros"] > 0
        for x in layers
    )
    assert sum(x["nonzeros"] for x in layers) == report_of(finished)["pruned"]["nonzeros"]


def test_run_again_only_checks_gates(finished: Path, capsys: pytest.CaptureFixture[str]):
    before = (finished / "run" / "model.sparse.onnx").stat().st_mtime_ns
    result = invoke(
        capsys, "run", finished / "model.onnx", "--out", finished / "run", *OPTIONS, *EVERY
    )
    assert result.code == 0, result.err
    assert says_finished(result.err)
    assert (finished / "run" / "model.sparse.onnx").stat().st_mtime_ns == before


def test_run_changed_setting_is_rejected_by_name(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(
        capsys, "run", finished / "model.onnx", "--out", finished / "run", "--epochs", 3
    )
    assert result.code == 3
    assert re.search(r"\bsettings\.train\.epochs .*\b2\b.*\b3\b", result.err)
    assert "--fresh" in result.err


def test_gate_failure_exits_with_7_and_names_the_limit(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(capsys, "gate", finished / "run" / "report.json", "--min-compression", 50)
    assert result.code == 7
    assert re.search(r"\bmin_compression: .*\b50\b", result.err)
    assert (
        invoke(capsys, "gate", finished / "run" / "report.json", "--min-compression", 29).code == 0
    )


def test_gate_changed_file_fails(finished: Path, capsys: pytest.CaptureFixture[str]):
    path = finished / "run" / "model.dense.onnx"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    result = invoke(capsys, "gate", finished / "run" / "report.json")
    assert result.code == 7
    assert "model.dense.onnx" in result.err


@pytest.mark.usefixtures("as_shipped")
def test_rendering_again_gives_the_same_bytes(finished: Path, capsys: pytest.CaptureFixture[str]):
    names = ("report.md", "report.html")
    before = [(finished / "run" / n).read_bytes() for n in names]
    assert invoke(capsys, "report", finished / "run").code == 0
    assert [(finished / "run" / n).read_bytes() for n in names] == before


def test_gate_job_summary_shows_its_results(
    finished: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    result = invoke(capsys, "gate", finished / "run" / "report.json", "--min-accuracy", 1)
    assert result.code == 7
    assert "❌ failed" in (tmp_path / "summary.md").read_text(encoding="utf-8")


def test_gate_without_limits_judges_by_those_of_the_run(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(capsys, "gate", finished / "run" / "report.json")
    assert result.code == 0
    assert "passed  max_drop: limit 0.5" in result.out


def test_validate_of_a_file_in_its_run_prepares_as_the_run_did(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    sparse = finished / "run" / "model.sparse.onnx"
    result = invoke(capsys, "validate", sparse, "--data", finished / "digits.npz", "--json")
    assert json.loads(result.out)["accuracy"] == report_of(finished)["pruned"]["accuracy"]


def test_rendering_again_renews_the_hashes(finished: Path, capsys: pytest.CaptureFixture[str]):
    run = finished / "run"
    (run / "log.jsonl").write_text("")
    assert invoke(capsys, "report", run).code == 0
    for folder in (run, run / "handoff"):
        assert (
            subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=folder).returncode == 0
        )


@pytest.mark.parametrize("content", [b"{", None])
def test_run_edited_report_is_written_again(
    finished: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
):
    run, report = finished / "run", finished / "run" / "report.json"
    before = report_of(finished)["pruned"]["drop"]
    changed = json.loads(report.read_text())
    changed["pruned"]["drop"] = -0.5
    report.write_bytes(json.dumps(changed).encode() if content is None else content)
    result = invoke(capsys, "run", finished / "model.onnx", "--out", run, *OPTIONS, *EVERY)
    assert result.code == 0, result.err
    assert json.loads(report.read_text())["pruned"]["drop"] == before


def test_validate_repeats_the_report(finished: Path, capsys: pytest.CaptureFixture[str]):
    sparse, original = finished / "run" / "model.sparse.onnx", finished / "model.onnx"
    result = invoke(
        capsys,
        "validate",
        sparse,
        "--config",
        finished / "ltp.toml",
        "--against",
        original,
        "--json",
    )
    assert result.code == 0, result.err
    actual, report = json.loads(result.out), report_of(finished)
    assert actual["accuracy"] == report["pruned"]["accuracy"]
    assert actual["nonzeros"] == report["pruned"]["nonzeros"]
    assert actual["against"]["drop"] == pytest.approx(report["pruned"]["drop"])


def test_validate_counts_external_data_of_both_files(
    finished: Path, capsys: pytest.CaptureFixture[str]
):
    outside = finished / "outside.onnx"
    model = onnx.load(finished / "model.onnx")
    onnx.save(model, outside, save_as_external_data=True, location="outside.data", size_threshold=0)
    result = invoke(
        capsys,
        "validate",
        outside,
        "--config",
        finished / "ltp.toml",
        "--against",
        outside,
        "--json",
    )
    actual = json.loads(result.out)
    assert (
        actual["bytes"] == actual["against"]["bytes"] > (finished / "outside.data").stat().st_size
    )


def test_accuracy_budget_is_the_default_and_its_search_is_reported(
    example: Path, capsys: pytest.CaptureFixture[str]
):
    (example / "ltp.toml").write_text(
        '[data]\npath = "digits.npz"\nscale = 0.0625\n[train]\nbatch_size = 64\n'
    )
    arguments = (
        "--epochs",
        3,
        "--finetune-epochs",
        1,
        "--no-baseline",
        "--export",
        "sparse",
        "--json",
    )
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *arguments)
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["resolved"]["budget"]["accuracy_budget"] == 0.01
    assert any(note.startswith("tried ") for note in report["notes"])
    assert report["baseline"] is None
    assert report["reasons"]["baseline"]


def test_run_lambda_prunes(example: Path, capsys: pytest.CaptureFixture[str]):
    text = (example / "ltp.toml").read_text().split("[budget]")[0]
    (example / "ltp.toml").write_text(text + "[method]\nlambda = 1e-4\nthreshold_lr_ratio = 0.01\n")
    options = (*QUICK[:4], "--no-baseline", "--export", "sparse", "--json")
    result = invoke(capsys, "run", example / "model.onnx", "--out", example / "run", *options)
    assert result.code == 0, result.err
    assert json.loads(result.out)["pruned"]["compression"] > 1.01


def test_excluded_kernels_stay_dense_and_the_target_still_holds(
    example: Path, capsys: pytest.CaptureFixture[str]
):
    result = invoke(
        capsys, "run", example / "model.onnx", "--out", example / "run", *QUICK, "--no-baseline", "--export", "dense",
        "--exclude", "stem*", "--exclude", "classifier*", "--json"
    )  # fmt: skip
    assert result.code == 0, result.err
    report = json.loads(result.out)
    stem = next(x for x in report["layers"] if x["name"] == "stem.weight")
    assert (stem["prunable"], stem["reason"], stem["nonzeros"]) == (
        False,
        "excluded by 'stem*'",
        stem["elements"],
    )
    assert report["pruned"]["nonzeros"] == report["model"]["layer_elements"] // 30


@pytest.mark.parametrize("budget", [("--target-compression", 60), ("--set", "method.lambda=1e-4")])
def test_run_pruned_model_keeps_its_zeros(finished: Path, tmp_path: Path, capsys, budget: tuple):
    """Our own output as input, in budget mode and in paper mode: what was zero stays zero."""
    config = tmp_path / "ltp.toml"
    text = f'[data]\npath = "{finished / "digits.npz"}"\nscale = 0.0625\n[method]\nthreshold_lr_ratio = 0.01\n'
    config.write_text(text)
    source = finished / "run" / "model.packed.onnx"
    options = (
        "--config",
        config,
        "--epochs",
        1,
        "--finetune-epochs",
        1,
        "--no-baseline",
        "--export",
        "dense",
    )
    result = invoke(capsys, "run", source, "--out", tmp_path / "run", *options, *budget)
    assert result.code == 0, result.err
    before = kernels_of(finished / "run" / "model.dense.onnx")
    after = kernels_of(tmp_path / "run" / "model.dense.onnx")
    assert all(not np.any(after[name][before[name] == 0]) for name in before)
    assert sum(map(np.count_nonzero, after.values())) < sum(map(np.count_nonzero, before.values()))


def test_validate_refuses_labels_the_model_does_not_score(finished: Path, tmp_path: Path, capsys):
    arrays = dict(np.load(finished / "digits.npz"))
    arrays["y_test"] = arrays["y_test"] + 5
    np.savez(tmp_path / "data.npz", **arrays)
    result = invoke(capsys, "validate", finished / "model.onnx", "--data", tmp_path / "data.npz")
    assert result.code == 3
    assert result.err.startswith("error: ")


def test_pick_finishes_another_entry_in_a_folder_of_its_own(finished: Path, capsys):
    result = invoke(capsys, "pick", finished / "run", 1, "--export", "dense", "--json", "--quiet")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["run"].endswith("pick-001")
    assert [e["entry"] for e in report["trail"] if e["selected"]] == [1]
    kernels = kernels_of(finished / "run" / "pick-001" / "model.dense.onnx")
    assert report["pruned"]["nonzeros"] == sum(np.count_nonzero(w) for w in kernels.values())
    assert report["pruned"]["compression"] == pytest.approx(report["trail"][0]["compression"])
    trail = json.loads((finished / "run" / "trail" / "trail.json").read_text())
    assert {x["name"]: x["threshold"] for x in report["layers"]} == trail[0]["thresholds"]
    assert (finished / "run" / "pick-001" / report["trail"][0]["file"]).is_file()
    again = invoke(capsys, "export", finished / "run" / "pick-001", "--format", "sparse", "--quiet")
    assert again.code == 0, again.err
    assert (finished / "run" / "pick-001" / "model.sparse.onnx").is_file()


def test_trail_lists_entries_and_marks_the_best(finished: Path, capsys):
    entries = json.loads(invoke(capsys, "trail", finished / "run", "--json").out)
    assert [e["entry"] for e in entries] == [1, 2]
    assert entries[-1]["pareto"]  # nothing is sparser than the last
    assert "*" in invoke(capsys, "trail", finished / "run").out


@pytest.mark.parametrize("simplify", ["auto", "always"])
def test_run_exclude_without_match_is_rejected(
    finished: Path, tmp_path: Path, capsys, simplify: str
):
    options = ("--exclude", "stem*", "--exclude", "typo*", "--set", f"model.simplify={simplify}")
    result = invoke(capsys, "run", finished / "model.onnx", *options, "--out", tmp_path / "run")
    assert (result.code, "'typo*'" in result.err) == (3, True)
    assert not (tmp_path / "run").exists()


def test_unpack_gives_back_the_dense_weights(finished: Path, tmp_path: Path, capsys):
    assert (
        invoke(
            capsys,
            "unpack",
            finished / "run" / "model.packed.onnx",
            "--out",
            tmp_path / "plain.onnx",
        ).code
        == 0
    )
    expected, actual = (
        kernels_of(finished / "run" / "model.dense.onnx"),
        kernels_of(tmp_path / "plain.onnx"),
    )
    assert all(np.array_equal(expected[name], actual[name]) for name in expected)


def test_inspect_names_packed_and_unpacked_files(finished: Path, tmp_path: Path, capsys):
    packed = finished / "run" / "model.packed.onnx"
    invoke(capsys, "unpack", packed, "--out", tmp_path / "plain.onnx")
    actual = [
        json.loads(invoke(capsys, "inspect", f, "--json").out)["format"]
        for f in (packed, tmp_path / "plain.onnx")
    ]
    assert actual == ["packed", "dense"]


def test_export_further_format_trains_nothing(finished: Path, capsys):
    run = finished / "run"
    (run / "model.dense.onnx").unlink()
    before = (run / "model.sparse.onnx").read_bytes()
    assert (
        invoke(
            capsys, "run", finished / "model.onnx", "--out", run, *OPTIONS, "--export", "sparse"
        ).code
        == 0
    )
    assert invoke(capsys, "export", run, "--format", "dense").code == 0
    assert (run / "model.dense.onnx").is_file()
    assert (run / "model.sparse.onnx").read_bytes() == before


def test_fresh_never_deletes_a_model_that_lies_in_the_run_directory(finished: Path, capsys):
    run = finished / "run"
    shutil.copy(finished / "model.onnx", run / "original.onnx")
    (run / "notes.txt").write_text("mine")
    arguments = ("--config", finished / "ltp.toml", "--out", run, "--fresh")
    result = invoke(capsys, "run", run / "original.onnx", *arguments)
    assert result.code == 3
    assert (run / "original.onnx").is_file()
    options = ("--epochs", 1, "--finetune-epochs", 0, "--no-baseline", "--max-drop", 0.9)
    assert invoke(capsys, "run", finished / "model.onnx", *arguments, *options).code == 0
    assert (run / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("damage", ["deleted", "replaced"])
def test_run_finished_restores_missing_or_changed_files(finished: Path, capsys, damage: str):
    run, sparse = finished / "run", finished / "run" / "model.sparse.onnx"
    before = sparse.read_bytes()
    if damage == "deleted":
        sparse.unlink()
    else:
        shutil.copy(run / "model.packed.onnx", sparse)
    result = invoke(capsys, "run", finished / "model.onnx", "--out", run, *OPTIONS, *EVERY)
    assert result.code == 0, result.err
    assert sparse.read_bytes() == before


def test_thresholds_of_the_report_are_those_of_the_chosen_entry(finished: Path):
    trail = json.loads((finished / "run" / "trail" / "trail.json").read_text())
    assert {x["name"]: x["threshold"] for x in report_of(finished)["layers"]} == trail[-1][
        "thresholds"
    ]


def test_zeros_that_were_there_before_stay_wherever_they_are(example: Path, capsys):
    """In a kernel that is all zero already, and in one that is excluded from pruning."""
    model = onnx.load(example / "model.onnx")
    tensors = {t.name: t for t in model.graph.initializer}
    half = numpy_helper.to_array(tensors["stem.weight"]).copy()
    half[::2] = 0
    empty = np.zeros(tuple(tensors["block1.conv2.weight"].dims), np.float32)
    for name, array in (("stem.weight", half), ("block1.conv2.weight", empty)):
        tensors[name].CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(model, example / "model.onnx")
    options = (
        "--epochs",
        1,
        "--finetune-epochs",
        1,
        "--exclude",
        "stem*",
        "--no-baseline",
        "--max-drop",
        0.9,
    )
    budget = (
        "--target-compression",
        8,
        "--skip-label-check",
    )  # what is left of the network knows no labels
    result = invoke(
        capsys,
        "run",
        example / "model.onnx",
        "--out",
        example / "run",
        *budget,
        "--quiet",
        *options,
    )
    assert result.code == 0, result.err
    report = json.loads((example / "run" / "report.json").read_text())
    layers = {layer["name"]: layer["nonzeros"] for layer in report["layers"]}
    assert layers["stem.weight"] == np.count_nonzero(half)
    assert layers["block1.conv2.weight"] == 0
    assert report["pruned"]["nonzeros"] == report["model"]["layer_elements"] // 8
