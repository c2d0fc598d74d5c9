"""Render HANDOFF.md, the page for the people who deploy the model, from the report alone."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.graphs import GRAPHS
from ltp_pipeline.results.schema import FileResult
from ltp_pipeline.results.schema_parts import InputInfo, InputRecipe, ModelTensorInfo
from ltp_pipeline.settings.file_names import EXACT, FORMATS
from ltp_pipeline.stages.handoff.example import INT8_TOLERANCE, TOLERANCE
from ltp_pipeline.stages.report.render import render_markdown_template

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.stages.handoff.sparse_ops import SparseOpsFiles

MARKER = "<!-- ltp-pipeline handoff -->"  # first line of the page; it marks a folder as a handoff
DTYPES = {"FLOAT": "float32", "DOUBLE": "float64"}  # names that differ from those in ONNX
MAX_NAMED_CLASSES = 20


def render_page(
    report: Report,
    tolerance: float = TOLERANCE,
    num_real_samples: int = 0,
    sparse_ops: SparseOpsFiles | None = None,
) -> str:
    """Return HANDOFF.md.

    Args:
        report: Report of the handoff.
        tolerance: Allowed difference of outputs on the example, relative to the largest value.
        num_real_samples: Number of samples in the example that are from the data of the run.
        sparse_ops: What the folder has to run fast files; None without such files.
    """
    inputs = [_describe_input(report, tensor) for tensor in report.model.inputs]
    file = _select_file(report)
    used_names = {file.encoding for file in report.pruned.files}
    encodings = []
    tools: list[str] = []
    for name, encoding in ENCODINGS.items():
        if name in used_names:
            encodings.append(encoding)
            tools += encoding.tool_support
    path = "model.onnx"
    if file is not None:
        path = file.path
    values = {
        "report": report,
        "marker": MARKER,
        "recommended": file,
        "path": path,
        "inputs": inputs or [_describe_input(report, ModelTensorInfo(name="input", type="FLOAT"))],
        "result": _name_result(report),
        "preprocess_call": _format_call(inputs),
        "max_named_classes": MAX_NAMED_CLASSES,
        "graphs": GRAPHS,
        "encodings": ENCODINGS,
        "used_encodings": encodings,
        "tools": dict.fromkeys(tools),
        "tolerance": tolerance,
        "int8_tolerance": INT8_TOLERANCE,
        "needs_pillow": any(part["steps"].image or part["steps"].resize for part in inputs),
        "num_real_samples": num_real_samples,
        "sparse_ops": sparse_ops,
        "data_option": _format_data_option(report),
    }
    filters = {"name_dtype": _name_dtype, "to_python": _to_python, "to_cpp": _to_cpp}
    return render_markdown_template(Path(__file__).parent, "HANDOFF.md.j2", values, filters)


def _select_file(report: Report) -> FileResult | None:
    """Return the file to use if a tool needs no other one: exact, in the most general format."""
    files = {file.name: file for file in report.pruned.files if file.weight_storage == EXACT}
    ordered = [files[name] for name in FORMATS if name in files]
    return next(iter(ordered or files.values()), None)


def _describe_input(report: Report, tensor: ModelTensorInfo) -> dict[str, Any]:
    """Return what the page says about an input of the model."""
    info = report.data.inputs.get(tensor.name) or InputInfo()
    steps = info.preprocessing or InputRecipe()
    sizes = list(tensor.shape or [])
    if info.sample_shape is not None:
        sizes = [*(sizes[:1] or [1]), *info.sample_shape]
    for axis, size in enumerate(sizes):
        if not isinstance(size, int) or size <= 0:
            sizes[axis] = 1
    example_array = "zeros"
    if steps.mask_of is not None and not steps.marks_padding:
        example_array = "ones"
    return {
        "name": tensor.name,
        "dtype": _name_dtype(tensor.type),
        "example_shape": tuple(sizes),
        "example_array": example_array,
        "measured_shape": _find_measured_shape(report, info),
        "formula": format_formula(steps),
        "info": info,
        "steps": steps,
    }


def format_formula(steps: InputRecipe) -> str:
    """Return what preprocessing does to a value x: x, or for example (x * 0.5 - [0.1]) / [0.2]."""
    formula = "x"
    if steps.scale is not None:
        formula = f"x * {steps.scale}"
    if steps.mean:
        formula = f"({formula} - {list(steps.mean)})"
    if steps.std:
        formula = f"{formula} / {list(steps.std)}"
    return formula


def _find_measured_shape(report: Report, info: InputInfo) -> list[int | str | None] | None:
    """Return the shape of one sample; the length of sequences is a range such as 2–6."""
    if info.sample_shape is None:
        return None
    steps = info.preprocessing
    if steps is not None and steps.mask_of in report.data.inputs:
        steps = report.data.inputs[steps.mask_of].preprocessing
    if steps is None or steps.stored is None or steps.stored.lengths is None:
        return list(info.sample_shape)
    lengths = "–".join(map(str, steps.stored.lengths))
    shape: list[int | str | None] = list(info.sample_shape)
    for axis, size in enumerate(shape):
        if size is None:
            shape[axis] = lengths
    return shape


def _name_dtype(onnx_type: str) -> str:
    """Return numpy's name for an ONNX type."""
    return DTYPES.get(onnx_type, onnx_type.lower())


def _name_result(report: Report) -> str:
    """Return the variable that the example code assigns: scores, output or outputs."""
    task = report.task
    if len(report.model.outputs) > 1 and task.output is None:
        return "outputs"
    if task.class_axis is None and task.threshold is None:
        return "output"
    return "scores"


def _format_call(inputs: list[dict[str, Any]]) -> str | None:
    """Return a call of `prepare` in preprocess.py; None if the report does not have the steps."""
    if not inputs or any(part["info"].preprocessing is None for part in inputs):
        return None
    is_single = len(inputs) == 1
    arguments = []
    for part in inputs:
        name, steps = part["name"], part["steps"]
        if steps.mask_of is not None:
            continue
        argument = "samples"
        if steps.image:
            argument = "[load_image(file), …]"
            if not is_single:
                argument = f"[load_image(file, {name!a}), …]"
        elif steps.stored is not None and steps.stored.lengths is not None:
            argument = "[sequence, …]"
        if not is_single:
            argument = f"{name!a}: {argument}"
        arguments.append(argument)
    listed = ", ".join(arguments)
    if not is_single:
        listed = f"{{{listed}}}"
    return f"prepare({listed})"


def _format_data_option(report: Report) -> str:
    """Return the option of `ltp-pipeline validate` that names the data."""
    task = report.custom_task
    if task is None:
        return "--data DATA"
    file = "FILE.py"
    if task.sha256:
        file = " ".join(task.name.split())
    return f"--task {shlex.quote(file)}"


def _to_python(value: Any) -> Markup:
    """Return a Python literal for a code block; it has ASCII characters and no line breaks."""
    return Markup(ascii(value))  # noqa: S704 - not escaped, because it stands in a code block


def _to_cpp(value: str) -> Markup:
    """Return a C++ string literal for a code block."""
    return Markup(json.dumps(value))  # noqa: S704 - not escaped, because it stands in a code block
