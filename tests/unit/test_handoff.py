"""The handoff folder and its page, from a report alone."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto

from ltp_pipeline.config import load_settings
from ltp_pipeline.errors import InputError
from ltp_pipeline.files import write_json
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.stages import handoff
from ltp_pipeline.stages.handoff import text as handoff_text
from tests.support.models import Graph
from tests.support.sample_report import report_of, sample

RECIPE = {
    "stored": {"type": "uint8", "shape": [32, 32, 3], "range": [0, 255]},
    "image": {"mode": "RGB", "size": [32, 32], "crop": None},
    "add_channel": False,
    "channels_to_front": True,
    "resize": [32, 32],
    "type": "float32",
    "scale": 0.00392,
    "mean": [0.49, 0.48, 0.45],
    "std": [0.25, 0.24, 0.26],
    "channels_to_back": False,
    "flatten": False,
}
HOSTILE = "in`put</code>\n# <script>alert(1)</script> | [x](http://evil)"


def classifier() -> ModelProto:
    graph = Graph()
    pooled = graph.add("Flatten", graph.add("GlobalAveragePool", "image"))
    return graph.model({"image": ["batch", 3, 32, 32]}, [graph.gemm(pooled, "fc", 3, 10)])


def finished(folder: Path, formats: tuple[str, ...] = ("sparse", "packed")) -> dict[str, Any]:
    """A run directory with small models, and its report."""
    report, _ = sample()
    report["model"]["inputs"] = [{"name": "image", "type": "FLOAT", "shape": ["batch", 3, 32, 32]}]
    report["model"]["outputs"] = [{"name": "logits", "type": "FLOAT", "shape": ["batch", 10]}]
    report["data"]["sample_shape"] = [3, 32, 32]
    report["data"]["preparation"] = ["decode the file to RGB, 0 to 255", "resize to 32 × 32 pixels, bilinear"]
    report["data"]["recipe"] = RECIPE
    report["settings"]["data"] |= {"scale": 0.00392, "resize": [32, 32], "validation_share": 0.1}
    folder.mkdir(exist_ok=True)
    template = report["pruned"]["files"][0]
    report["pruned"]["files"] = []
    for name in formats:
        path = folder / f"model.{name.replace('-', '.')}.onnx"
        model = classifier()
        model.doc_string = name
        path.write_bytes(model.SerializeToString())
        graph, _, encoding = name.rpartition("-")
        said = {"graph": graph or "original", "encoding": encoding, "path": path.name, "sha256": sha256_of(path)}
        report["pruned"]["files"].append({**template, **said})
    write_json(folder / "report.json", report)
    (folder / "report.html").write_text("<p>report")
    return report


def test_sha256sum_agrees_with_the_folder(tmp_path: Path):
    out = handoff.run(report_of(finished(tmp_path / "run")), tmp_path / "run", tmp_path / "new" / "out")
    names = {p.name for p in out.iterdir()}
    models = {"model.sparse.onnx", "model.packed.onnx"}
    scripts = {"preprocess.py", "example.npz", "verify.py"}
    assert names == {*models, *scripts, "report.json", "report.html", "ltp.toml", "HANDOFF.md", "SHA256SUMS"}
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(names) - 1


def test_a_second_handoff_replaces_the_first_and_takes_away_what_is_gone(tmp_path: Path):
    handoff.run(report_of(finished(tmp_path / "run", ("sparse", "dense"))), tmp_path / "run", tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("a note of the user's")
    handoff.run(report_of(finished(tmp_path / "run", ("sparse", "packed"))), tmp_path / "run", tmp_path / "out")
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert "model.packed.onnx" in names
    assert "model.dense.onnx" not in names
    assert "mine.txt" in names
    assert not [name for name in names if name.startswith(".")]
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "out", capture_output=True)
    assert done.returncode == 0


def test_an_edited_list_removes_nothing_outside_the_folder(tmp_path: Path):
    report = finished(tmp_path / "run")
    handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    (tmp_path / "victim").write_text("stays")
    with (tmp_path / "out" / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  ../victim\n{'0' * 64}  {tmp_path / 'victim'}\n")
    handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert (tmp_path / "victim").exists()


def test_foreign_folders_and_files_are_refused(tmp_path: Path):
    report = finished(tmp_path / "run")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "HANDOFF.md").write_text("# our own page")
    for out in (tmp_path / "theirs", tmp_path / "run", tmp_path / "run" / "report.json"):
        with pytest.raises(InputError):
            handoff.run(report_of(report), tmp_path / "run", out)
    assert [p.name for p in (tmp_path / "theirs").iterdir()] == ["HANDOFF.md"]


def test_a_file_that_changed_since_the_report_is_not_handed_off(tmp_path: Path):
    report = finished(tmp_path / "run")
    (tmp_path / "run" / "model.packed.onnx").write_text("something else")
    with pytest.raises(InputError, match=r"model\.packed\.onnx is not the file"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    (tmp_path / "run" / "model.packed.onnx").unlink()
    with pytest.raises(InputError, match="missing"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_external_data_go_along(tmp_path: Path):
    report = finished(tmp_path / "run")
    data = tmp_path / "run" / "model.packed.onnx.data"
    data.write_text("weights")
    next(f for f in report["pruned"]["files"] if f["encoding"] == "packed")["data_sha256"] = sha256_of(data)
    out = handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")
    assert "  model.packed.onnx.data\n" in (out / "SHA256SUMS").read_text()
    data.write_text("other weights")
    with pytest.raises(InputError, match=r"model\.packed\.onnx\.data is not the file"):
        handoff.run(report_of(report), tmp_path / "run", tmp_path / "out")


def test_a_file_with_data_beside_it_is_named_with_them(tmp_path: Path):
    report = finished(tmp_path)
    next(f for f in report["pruned"]["files"] if f["encoding"] == "packed")["data_sha256"] = "0" * 64
    page = handoff_text.render(report_of(report)).replace("\\", "")
    assert "| model.packed.onnx with model.packed.onnx.data |" in page
    assert "Two files are enough: model.packed.onnx with model.packed.onnx.data, unless" in page
    assert "both go into one folder, names unchanged" in page


def test_copies_have_no_second_name(tmp_path: Path):
    out = handoff.run(report_of(finished(tmp_path / "run")), tmp_path / "run", tmp_path / "run" / "handoff")
    assert {path.stat().st_nlink for path in (*out.iterdir(), *(tmp_path / "run").glob("*.onnx"))} == {1}


def test_the_page_says_what_a_deployer_needs(tmp_path: Path):
    page = handoff_text.render(report_of(finished(tmp_path)))
    for words in (
        "- input `image`: float32, `batch × 3 × 32 × 32`",
        "- output `logits`: float32, `batch × 10`",
        "1. decode the file to RGB, 0 to 255",
        "2. resize to 32 × 32",
        "`input = (x * 0.00392 - [0.49, 0.48, 0.45]) / [0.25, 0.24, 0.26]`",
        "| top-1 | 91.77 % | 91.32 % |",
        "10000 samples of the test split",
        "sha256sum -c SHA256SUMS",
        "decoded, a sample is `uint8` of shape `32 × 32 × 3`, values from 0 to 255",
        "`preprocess.py` does what follows: `prepare([load(file), …])`",
        "    python verify.py\n",
        "outputs may differ by 0.001 of their largest\nvalue",
        "Its samples are generated",
        "made by ltp-pipeline 0.1.0. To install it",
        "`pip install -c constraints.txt .`",
        "ltp-pipeline validate model.packed.onnx",
        "| OpenVINO | yes | no |",
        "do not make the model faster",
        "Its gates passed.",
    ):
        assert words in page, words
    assert "| | packed | sparse |" in page


def test_classes_are_named_by_number():
    report = finished_in_memory()
    report["data"]["class_names"] = ["cat`", "dog"]
    assert "By number: 0 `cat'`, 1 `dog`." in handoff_text.render(report_of(report))
    report["data"]["class_names"] = [f"n{i}" for i in range(1000)]
    assert "Their names stand in report.json" in handoff_text.render(report_of(report))


def test_a_centre_crop_and_what_outputs_are_is_repeated():
    report = finished_in_memory()
    report["settings"]["data"] |= {"crop": 0.875, "resize": [224, 224]}
    report["settings"]["train"]["imitate"] = "values"
    made = tomllib.loads(handoff_text.settings_toml(report_of(report)))
    assert (made["data"]["crop"], made["train"]["imitate"]) == (0.875, "values")


def test_the_example_names_the_input_its_shape_and_type():
    report = finished_in_memory()
    report["model"]["inputs"] = [{"name": "x'\"\n", "type": "FLOAT16", "shape": [4, None, "h", "w"]}]
    lines = handoff_text.example(report_of(report)).splitlines()
    assert len(lines) == 5
    assert "np.zeros((4, 3, 32, 32), np.float16)" in lines[3]
    compile("\n".join(lines), "example", "exec")


def finished_in_memory() -> dict[str, Any]:
    report, _ = sample()
    report["model"]["inputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": [HOSTILE, 3]}]
    report["model"]["outputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": None}]
    report["model"]["name"] = HOSTILE
    report["data"]["sample_shape"] = [3, 32, 32]
    return report


def test_text_from_the_model_is_shown_and_does_nothing():
    page = handoff_text.render(report_of(finished_in_memory()))
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "[x](" not in outside
    assert not [line for line in outside.splitlines() if line.startswith("# ") and "pruned" not in line]


def test_rounded_and_deploy_files_are_called_so(tmp_path: Path):
    report = finished(tmp_path, ("packed", "deploy-packed"))
    report["pruned"]["files"][1]["values"] = "fp16"
    page = handoff_text.render(report_of(report))
    assert "as packed, norms folded into the layers before: outputs equal to 1e-5; **values rounded to fp16**" in page
    assert "| | packed |\n" in page


def test_failed_gates_are_said_at_the_top(tmp_path: Path):
    report = finished(tmp_path) | {"verdict": "failed"}
    report["gates"] = [{"name": "max_drop", "passed": False}, {"name": "min_compression", "passed": True}]
    top = handoff_text.render(report_of(report)).split("## Files")[0]
    assert "**Its gates failed** (`max_drop`): the model is below the bar that was set. Ask before you ship it." in top


def test_a_missed_budget_is_said_at_the_top(tmp_path: Path):
    report = finished(tmp_path)
    assert "budget" not in handoff_text.render(report_of(report))
    top = handoff_text.render(report_of(report | {"budget_missed": "none is within 0.01"})).split("## Files")[0]
    assert "Its gates passed. **It is outside the accuracy budget** that was asked for. Ask before you ship it." in top


def test_without_labels_the_original_is_needed_to_verify(tmp_path: Path):
    report = finished(tmp_path)
    assert "--against" not in handoff_text.render(report_of(report))
    page = handoff_text.render(report_of(report | {"metric": {"name": "agreement"}}))
    assert "ltp-pipeline validate model.packed.onnx --data DATA --against ORIGINAL.onnx\n" in page
    assert "ORIGINAL.onnx is the network before pruning, which is not in this folder." in page


def test_the_example_keeps_every_output_where_none_is_the_score(tmp_path: Path):
    report = finished(tmp_path)
    report["model"]["outputs"] *= 2
    assert "scores = session.run(None, {'image': x})[0]" in handoff_text.example(report_of(report))
    assert (
        "outputs = session.run(None, {'image': x})\n"
        in handoff_text.example(report_of(report | {"metric": {"name": "agreement"}})) + "\n"
    )


def test_a_single_file_is_not_called_one_of_several(tmp_path: Path):
    page = handoff_text.render(report_of(finished(tmp_path))).replace("\\", "")
    assert "One file is enough: model.packed.onnx" in page
    assert "One file is enough" not in handoff_text.render(report_of(finished(tmp_path, ("dense",))))


def test_the_settings_beside_the_page_are_those_of_the_run(tmp_path: Path):
    report = finished(tmp_path)
    (tmp_path / "ltp.toml").write_text(handoff_text.settings_toml(report_of(report)))
    data = load_settings(tmp_path / "model.onnx").data
    wanted = report["settings"]["data"]
    assert (data.scale, list(data.mean), list(data.std)) == (wanted["scale"], wanted["mean"], wanted["std"])
    assert (data.layout, data.resize, data.path) == ("NCHW", (32, 32), None)
