"""The page of a handoff."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.stages.handoff import text as handoff_text
from tests.support.finished import IMAGE, RECIPE, finished
from tests.support.sample_report import report_of, sample

HOSTILE = "in`put</code>\n# <script>alert(1)</script> | [x](http://evil)"


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
        "`preprocess.py` does what follows: `prepare([load_image(file), …])`",
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


def test_a_task_of_ones_own_is_named_and_can_do_no_harm():
    report = finished_in_memory()
    report["custom_task"] = {"name": "my task`.py\n# <b>", "sha256": "ab" * 32}
    page = handoff_text.render(report_of(report))
    assert (
        f"Samples and metric are those of `my task'.py # <b>` (SHA-256 `{'ab' * 32}`), which is not in"
        in page
    )
    assert " --task 'my task`.py # <b>'\n" in page
    report["custom_task"] = {"name": "the task Mine"}
    page = handoff_text.render(report_of(report))
    assert "are those of `the task Mine`, which is not in this folder." in page
    assert " --task FILE.py\n" in page


def test_classes_are_named_by_number():
    report = finished_in_memory()
    report["data"]["class_names"] = ["cat`", "dog"]
    assert "By number: 0 `cat'`, 1 `dog`." in handoff_text.render(report_of(report))
    report["data"]["class_names"] = [f"n{i}" for i in range(1000)]
    assert "Their names stand in report.json" in handoff_text.render(report_of(report))


def test_the_example_names_the_input_its_shape_and_type():
    report = finished_in_memory()
    report["model"]["inputs"] = [
        {"name": "x'\"\n", "type": "FLOAT16", "shape": [4, None, "h", "w"]}
    ]
    report["data"]["inputs"] = {"x'\"\n": {"sample_shape": [3, 32, 32]}}
    lines = handoff_text.example(report_of(report)).splitlines()
    assert len(lines) == 5
    assert "np.zeros((4, 3, 32, 32), np.float16)" in lines[3]
    compile("\n".join(lines), "example", "exec")


def finished_in_memory() -> dict[str, Any]:
    report, _ = sample()
    report["model"]["inputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": [HOSTILE, 3]}]
    report["model"]["outputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": None}]
    report["model"]["name"] = HOSTILE
    report["data"]["inputs"] = {HOSTILE: {"sample_shape": [3, 32, 32]}}
    return report


def test_text_from_the_model_is_shown_and_does_nothing():
    page = handoff_text.render(report_of(finished_in_memory()))
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "[x](" not in outside
    assert not [
        line for line in outside.splitlines() if line.startswith("# ") and "pruned" not in line
    ]


def test_rounded_and_deploy_files_are_called_so(tmp_path: Path):
    report = finished(tmp_path, ("packed", "deploy-packed"))
    report["pruned"]["files"][1]["weight_storage"] = "fp16"
    page = handoff_text.render(report_of(report))
    assert (
        "as packed, norms folded into the layers before: outputs equal to 1e-5; **values rounded to fp16**"
        in page
    )
    assert "| | packed |\n" in page


def test_failed_gates_are_said_at_the_top(tmp_path: Path):
    report = finished(tmp_path) | {"status": "failed"}
    report["gates"] = [
        {"name": "max_drop", "passed": False},
        {"name": "min_compression", "passed": True},
    ]
    top = handoff_text.render(report_of(report)).split("## Files")[0]
    assert (
        "**Its gates failed** (`max_drop`): the model is below the bar that was set. Ask before you ship it."
        in top
    )


def test_a_missed_budget_is_said_at_the_top(tmp_path: Path):
    report = finished(tmp_path)
    assert "budget" not in handoff_text.render(report_of(report))
    top = handoff_text.render(report_of(report | {"budget_not_met": "none is within 0.01"})).split(
        "## Files"
    )[0]
    assert (
        "Its gates passed. **It is outside the accuracy budget** that was asked for. Ask before you ship it."
        in top
    )


def test_without_labels_the_original_is_needed_to_verify(tmp_path: Path):
    report = finished(tmp_path)
    assert "--against" not in handoff_text.render(report_of(report))
    page = handoff_text.render(report_of(report | {"metric": {"name": "agreement"}}))
    assert "ltp-pipeline validate model.packed.onnx --data DATA --against ORIGINAL.onnx\n" in page
    assert "ORIGINAL.onnx is the network before pruning, which is not in this folder." in page


def test_the_example_keeps_every_output_where_none_is_the_score(tmp_path: Path):
    report = finished(tmp_path)
    assert handoff_text.example(report_of(report)).endswith(
        "\nscores = session.run(None, {'image': x})[0]"
    )
    report["model"]["outputs"] *= 2
    report["task"] = {"kind": "distillation", "output": None}
    assert handoff_text.example(report_of(report)).endswith(
        "\noutputs = session.run(None, {'image': x})"
    )


@pytest.mark.parametrize("name", ["boxes", HOSTILE])
def test_the_example_takes_the_output_that_was_judged(tmp_path: Path, name: str):
    report = finished(tmp_path)
    report["model"]["outputs"].append({"name": name, "type": "FLOAT", "shape": ["batch", 4]})
    report["task"] = {"kind": "regression", "output": name}
    last = handoff_text.example(report_of(report)).splitlines()[-1]
    assert last == f"output = session.run([{name!a}], {{'image': x}})[0]"
    page = handoff_text.render(report_of(report))
    assert "means what it means in the original" in page
    assert "argmax" not in page


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            {"kind": "classification", "class_axis": 1},
            "`scores.argmax(axis=1)` is the class, counted from zero",
        ),
        (
            {"kind": "classification", "class_axis": 2},
            "`scores.argmax(axis=2)` is the class, counted from zero",
        ),
        (
            {"kind": "segmentation", "class_axis": 1},
            "`scores.argmax(axis=1)` is the class, counted from zero, of each pixel",
        ),
        (
            {"kind": "classification", "threshold": 0.5},
            "`scores > 0.5` is true for class 1 and false for class 0.",
        ),
        (
            {"kind": "classification", "threshold": 0.0},
            "`scores > 0` is true for class 1 and false for class 0.",
        ),
        (
            {"kind": "segmentation", "threshold": 0.5},
            "is true for class 1 and false for class 0, of each pixel.",
        ),
        (
            {"kind": "multilabel", "threshold": 0.5},
            "`scores > 0.5` is true where a label is there.",
        ),
    ],
)
def test_the_page_says_how_an_output_tells_the_answer(
    tmp_path: Path, task: dict[str, Any], said: str
):
    report = finished(tmp_path) | {"task": {"output": "logits", **task}}
    assert handoff_text.example(report_of(report)).splitlines()[-1].startswith("scores = ")
    page = handoff_text.render(report_of(report))
    assert said in page
    assert page.count("argmax") == (task.get("class_axis") is not None)


@pytest.mark.parametrize(("kind", "is_said"), [("segmentation", True), ("classification", False)])
def test_the_label_of_pixels_that_do_not_count_is_named(tmp_path: Path, kind: str, is_said: bool):
    report = finished(tmp_path) | {"task": {"output": "logits", "kind": kind, "class_axis": 1}}
    report["settings"] = {"task": {"ignore_index": 255}}
    page = handoff_text.render(report_of(report))
    assert ("Pixels labelled 255 were left out." in page) == is_said


def test_a_single_file_is_not_called_one_of_several(tmp_path: Path):
    page = handoff_text.render(report_of(finished(tmp_path))).replace("\\", "")
    assert "One file is enough: model.packed.onnx" in page
    assert "One file is enough" not in handoff_text.render(
        report_of(finished(tmp_path, ("dense",)))
    )


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (
            {"difference": {"value": -0.005, "interval": [-0.008, -0.002]}},
            "beyond chance. And it needs fewer weights at the same top-1 accuracy. At",
        ),
        ({}, "wins here: it needs fewer weights at the same top-1 accuracy. At"),
    ],
)
def test_a_baseline_that_wins_is_told_without_what_only_the_run_has(
    ahead: dict[str, Any], said: str
):
    report = sample()[0] | ahead
    report["baseline"]["gain"] = 0.8
    page = handoff_text.render(report_of(report))
    assert "Global magnitude pruning wins here: " in page
    assert said in page
    assert "--network baseline" not in page
    assert "baseline.curve" not in page


IDS = {
    "sample_shape": [None],
    "preprocessing_steps": [
        "fill sequences up with 0 at their ends, to the longest of their batch"
    ],
    "preprocessing": RECIPE
    | {
        "stored": {"type": "int32", "shape": [None], "range": [3, 9], "lengths": [2, 6]},
        "image": None,
        "type": "int64",
        "pad": 0.0,
        **dict.fromkeys(("scale", "mean", "std", "resize")),
        "channels_to_front": False,
    },
}
MASK = {
    "sample_shape": [None],
    "preprocessing_steps": [],
    "preprocessing": IDS["preprocessing"]
    | {
        "stored": {"type": "bool", "shape": [None], "range": [0, 1]},
        "pad": None,
        "mask_of": HOSTILE,
    },
}


def several() -> dict[str, Any]:
    """A report of a model that takes an image, sequences and their mask."""
    report, _ = sample()
    report["model"]["inputs"] = [
        {"name": "image", "type": "FLOAT", "shape": ["batch", 3, 32, 32]},
        {"name": HOSTILE, "type": "INT64", "shape": ["batch", "T"]},
        {"name": "mask", "type": "INT64", "shape": ["batch", "T"]},
    ]
    report["data"]["inputs"] = {"image": IMAGE, HOSTILE: IDS, "mask": MASK}
    return report


def test_each_of_several_inputs_is_told():
    page = handoff_text.render(report_of(several()))
    shown = "`" + " ".join(HOSTILE.replace("`", "'").split()) + "`"
    for words in (
        "- measured with samples of `3 × 32 × 32` for `image`",
        f"- measured with samples of `2–6` for {shown}",
        "- measured with samples of `2–6` for `mask`",
        "### `image`\nSamples are stored as image files; decoded, a sample is `uint8`",
        f"### {shown}\nSamples are stored as sequences of 2 to 6 `int32`, values from 3 to 9.",
        "1. fill sequences up with 0 at their ends, to the longest of their batch",
        f"### `mask`\nMade, not stored: 1 where sequences of {shown} have values",
        "`prepare({'image': [load_image(file, 'image'), …], ",
        ": [sequence, …]})`",
    ):
        assert words in page, words


def test_names_of_several_inputs_are_shown_and_do_nothing():
    page = handoff_text.render(report_of(several()))
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<script>" not in outside
    assert "[x](" not in outside


def test_the_example_feeds_every_input_with_shapes_that_belong_together(tmp_path: Path):
    lines = handoff_text.example(report_of(several())).splitlines()
    assert len(lines) == 5
    (tmp_path / "given.py").write_text(f"import numpy as np\n{lines[3]}")
    found = runpy.run_path(str(tmp_path / "given.py"))["x"]
    given = {name: (x.shape, str(x.dtype), x.max()) for name, x in found.items()}
    assert given == {
        "image": ((1, 3, 32, 32), "float32", 0),
        HOSTILE: ((1, 1), "int64", 0),
        "mask": ((1, 1), "int64", 1),
    }
    assert lines[4] == "scores = session.run(None, x)[0]"
