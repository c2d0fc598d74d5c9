"""HANDOFF.md shows the facts of a report, and text from a model has no effect in it."""

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.stages.handoff.page import format_formula, render_page
from tests.support.finished import IMAGE, RECIPE, write_run
from tests.support.sample_report import report_of, sample

HOSTILE = "in`put</code>\n# <script>alert(1)</script> | [x](http://evil)"
SHOWN = "`" + " ".join(HOSTILE.replace("`", "'").split()) + "`"  # in a code span


def render(report: dict[str, Any]) -> str:
    return render_page(report_of(report))


def section(page: str, heading: str) -> str:
    """The text under a heading."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def example(page: str) -> list[str]:
    """The lines of Python that load the model."""
    block = re.search(r"```python\n(.*?)\n```", section(page, "Load the model"), re.DOTALL)
    assert block is not None
    return block[1].splitlines()


def top(page: str) -> str:
    return page.partition("\n## ")[0]


def outside_code(page: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)


def hostile_report() -> dict[str, Any]:
    """A report in which every name of the model is hostile."""
    report, _ = sample()
    report["model"]["inputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": [HOSTILE, 3]}]
    report["model"]["outputs"] = [{"name": HOSTILE, "type": "FLOAT", "shape": None}]
    report["model"]["name"] = HOSTILE
    report["data"]["inputs"] = {HOSTILE: {"sample_shape": [3, 32, 32]}}
    return report


def test_render_page_shows_the_facts_of_the_report(tmp_path: Path) -> None:
    page = render(write_run(tmp_path))
    interface = section(page, "Inputs and outputs")
    assert "- input `image`: float32, `batch×3×32×32`\n" in interface
    assert "- output `logits`: float32, `batch×10`\n" in interface
    accuracy = section(page, "Accuracy")
    assert "| top-1 | 91.77 % | 91.32 % |\n" in accuracy
    assert "10\u202f000 samples" in accuracy
    tools = section(page, "Formats and tools")
    assert tools.lstrip().startswith("| | packed | sparse |\n|---|---|---|\n")
    assert "| OpenVINO | yes | no |\n" in tools
    verification = section(page, "Verification")
    assert "    python verify.py\n" in verification
    assert "    ltp-pipeline validate model.packed.onnx --data DATA\n" in verification
    assert "by 0.001 of the largest value" in verification
    assert "ltp-pipeline 0.1.0" in verification
    assert "passed" in top(page)


def test_render_page_numbers_the_steps_of_preprocessing(tmp_path: Path) -> None:
    preprocessing = section(render(write_run(tmp_path)), "Preprocessing")
    assert "`prepare([load_image(file), …])`" in preprocessing
    assert "`uint8` of shape `32×32×3`" in preprocessing
    steps = re.findall(r"^(\d)\. (.*)", preprocessing, re.MULTILINE)
    assert [number for number, _ in steps] == ["1", "2", "3", "4", "5"]
    assert steps[1][1].startswith("resize to 32 × 32")
    formula = "`input = (x * 0.00392 - [0.49, 0.48, 0.45]) / [0.25, 0.24, 0.26]`"
    assert formula in preprocessing


def test_format_formula_without_steps_is_x() -> None:
    assert format_formula(InputRecipe()) == "x"


def test_format_formula_keeps_all_digits() -> None:
    steps = InputRecipe(scale=0.123456789, mean=(1.0, 2.0), std=(3.0,))
    assert format_formula(steps) == "(x * 0.123456789 - [1.0, 2.0]) / [3.0]"


def test_render_page_custom_task_is_named_and_has_no_effect() -> None:
    report = hostile_report()
    report["custom_task"] = {"name": "my task`.py\n# <b>", "sha256": "ab" * 32}
    page = render(report)
    assert f"`my task'.py # <b>` (SHA-256 `{'ab' * 32}`)" in section(page, "Accuracy")
    assert " --task 'my task`.py # <b>'\n" in section(page, "Verification")
    assert "\n# <b>" not in page


def test_render_page_custom_task_without_a_file_needs_one() -> None:
    page = render(hostile_report() | {"custom_task": {"name": "the task Mine"}})
    assert "`the task Mine`, which is not in this folder" in section(page, "Accuracy")
    assert " --task FILE.py\n" in section(page, "Verification")


@pytest.mark.parametrize(("count", "are_named"), [(2, True), (1000, False)])
def test_render_page_names_few_classes_by_number(count: int, are_named: bool) -> None:
    report = hostile_report()
    report["data"]["class_names"] = ["cat`", *(f"n{i}" for i in range(1, count))]
    outputs = section(render(report), "Load the model")
    assert ("0 `cat'`, 1 `n1`." in outputs) == are_named
    assert ("`data.class_names`" in outputs) == (not are_named)


def test_render_page_example_has_name_shape_and_type_of_the_input() -> None:
    report = hostile_report()
    report["model"]["inputs"] = [
        {"name": "x'\"\n", "type": "FLOAT16", "shape": [4, None, "h", "w"]}
    ]
    report["data"]["inputs"] = {"x'\"\n": {"sample_shape": [3, 32, 32]}}
    lines = example(render(report))
    assert len(lines) == 5
    assert "np.zeros((4, 3, 32, 32), 'float16')" in lines[3]
    compile("\n".join(lines), "example", "exec")


def test_render_page_text_from_the_model_has_no_effect() -> None:
    page = render(hostile_report())
    outside = outside_code(page)
    assert "<script>" not in outside
    assert "[x](" not in outside
    (title,) = [line for line in outside.splitlines() if line.startswith("# ")]
    assert title.endswith(", pruned")


def test_render_page_hostile_type_is_a_literal_in_the_example() -> None:
    report = hostile_report()
    report["model"]["inputs"][0]["type"] = "FLOAT); raise SystemExit(9) #"
    tree = ast.parse("\n".join(example(render(report))))
    assert len(tree.body) == 5


def test_render_page_marks_rounded_and_deploy_files(tmp_path: Path) -> None:
    report = write_run(tmp_path, ("packed", "deploy-packed"))
    report["pruned"]["files"][1]["weight_storage"] = "fp16"
    page = render(report)
    (row,) = [line for line in page.splitlines() if line.startswith("| `model.deploy.packed.onnx`")]
    assert row.endswith("; **weights rounded to fp16** |")
    assert section(page, "Formats and tools").lstrip().startswith("| | packed |\n")


def test_render_page_failed_gates_stand_at_the_top(tmp_path: Path) -> None:
    report = write_run(tmp_path) | {"status": "failed"}
    report["gates"] = [
        {"name": "max_drop", "passed": False},
        {"name": "min_compression", "passed": True},
    ]
    summary = top(render(report))
    assert "failed**: `max_drop`." in summary
    assert "min_compression" not in summary


def test_render_page_missed_budget_stands_at_the_top(tmp_path: Path) -> None:
    report = write_run(tmp_path)
    assert "budget" not in render(report)
    assert "**The accuracy budget is not met.**" in top(
        render(report | {"budget_not_met": "none is within 0.01"})
    )


def test_render_page_relative_metric_needs_the_original(tmp_path: Path) -> None:
    report = write_run(tmp_path)
    assert "--against" not in render(report)
    page = render(report | {"metric": {"name": "agreement"}})
    command = "ltp-pipeline validate model.packed.onnx --data DATA --against ORIGINAL.onnx\n"
    assert command in section(page, "Verification")


def test_render_page_example_keeps_every_output_if_none_is_the_score(tmp_path: Path) -> None:
    report = write_run(tmp_path)
    assert example(render(report))[-1] == "scores = session.run(None, {'image': x})[0]"
    report["model"]["outputs"] *= 2
    report["task"] = {"kind": "distillation", "output": None}
    assert example(render(report))[-1] == "outputs = session.run(None, {'image': x})"


@pytest.mark.parametrize("name", ["boxes", HOSTILE])
def test_render_page_example_takes_the_measured_output(tmp_path: Path, name: str) -> None:
    report = write_run(tmp_path)
    report["model"]["outputs"].append({"name": name, "type": "FLOAT", "shape": ["batch", 4]})
    report["task"] = {"kind": "regression", "output": name}
    page = render(report)
    assert example(page)[-1] == f"output = session.run([{name!a}], {{'image': x}})[0]"
    assert "argmax" not in page


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ({"kind": "classification", "class_axis": 1}, "`scores.argmax(axis=1)` is the class,"),
        ({"kind": "classification", "class_axis": 2}, "`scores.argmax(axis=2)` is the class,"),
        (
            {"kind": "segmentation", "class_axis": 1},
            "`scores.argmax(axis=1)` is the class of each pixel,",
        ),
        ({"kind": "classification", "threshold": 0.5}, "`scores > 0.5` is true for class 1 and"),
        ({"kind": "classification", "threshold": 0.0}, "`scores > 0` is true for class 1 and"),
        ({"kind": "segmentation", "threshold": 0.5}, "is true for class 1 of each pixel and"),
        ({"kind": "multilabel", "threshold": 0.5}, "`scores > 0.5` is true for each label"),
    ],
)
def test_render_page_explains_how_an_output_is_read(
    tmp_path: Path, task: dict[str, Any], expected: str
) -> None:
    page = render(write_run(tmp_path) | {"task": {"output": "logits", **task}})
    assert example(page)[-1].startswith("scores = ")
    assert expected in section(page, "Load the model")
    assert page.count("argmax") == (task.get("class_axis") is not None)


@pytest.mark.parametrize(("kind", "is_named"), [("segmentation", True), ("classification", False)])
def test_render_page_names_the_ignored_label_of_pixels(
    tmp_path: Path, kind: str, is_named: bool
) -> None:
    report = write_run(tmp_path) | {"task": {"output": "logits", "kind": kind, "class_axis": 1}}
    report["settings"] = {"task": {"ignore_index": 255}}
    assert ("label 255" in section(render(report), "Accuracy")) == is_named


def test_render_page_recommends_one_of_several_files(tmp_path: Path) -> None:
    assert "need only one row: `model.packed.onnx`," in render(write_run(tmp_path))
    assert "need only one row" not in render(write_run(tmp_path, ("dense",)))


@pytest.mark.parametrize(
    "difference", [{"difference": {"value": -0.005, "interval": [-0.008, -0.002]}}, {}]
)
def test_render_page_better_baseline_is_named_without_files_of_the_run(
    difference: dict[str, Any],
) -> None:
    report = sample()[0] | difference
    report["baseline"]["gain"] = 0.8
    page = render(report)
    accuracy = section(page, "Accuracy")
    assert ("The baseline is better than LTP" in accuracy) == bool(difference)
    assert "The baseline needs fewer weights than LTP" in accuracy
    assert "--network baseline" not in page
    assert "baseline.curve" not in page


def test_render_page_int8_file_has_a_section() -> None:
    report, _ = sample()
    report["pruned"]["files"][-1] |= {
        "graph": "int8",
        "quantization": {
            "method": "percentile",
            "weight_bits": 7,
            "float_layers": {HOSTILE: "too few channels"},
        },
    }
    quantized = section(render(report), "Int8 files")
    assert "chosen by percentile" in quantized
    assert "7 bits" in quantized
    assert f"{SHOWN} (too few channels)." in quantized


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


def test_render_page_describes_each_of_several_inputs() -> None:
    page = render(several())
    interface = section(page, "Inputs and outputs")
    assert "- measured with samples of `3×32×32` for `image`\n" in interface
    assert f"- measured with samples of `2–6` for {SHOWN}\n" in interface
    assert "- measured with samples of `2–6` for `mask`\n" in interface
    preprocessing = section(page, "Preprocessing")
    assert re.findall("^### (.*)", preprocessing, re.MULTILINE) == ["`image`", SHOWN, "`mask`"]
    assert "sequences of 2 to 6 `int32`, values 3 to 9" in preprocessing
    assert f"1 at values of {SHOWN}" in preprocessing
    assert "`prepare({'image': [load_image(file, 'image'), …], " in preprocessing
    assert ": [sequence, …]})`" in preprocessing


def test_render_page_names_of_several_inputs_have_no_effect() -> None:
    outside = outside_code(render(several()))
    assert "<script>" not in outside
    assert "[x](" not in outside


def test_render_page_example_feeds_every_input(tmp_path: Path) -> None:
    lines = example(render(several()))
    assert len(lines) == 5
    (tmp_path / "feeds.py").write_text(f"import numpy as np\n{lines[3]}")
    arrays = runpy.run_path(str(tmp_path / "feeds.py"))["x"]
    feeds = {name: (x.shape, str(x.dtype), x.max()) for name, x in arrays.items()}
    assert feeds == {
        "image": ((1, 3, 32, 32), "float32", 0),
        HOSTILE: ((1, 1), "int64", 0),
        "mask": ((1, 1), "int64", 1),
    }
    assert lines[4] == "scores = session.run(None, x)[0]"
