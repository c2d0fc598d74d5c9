"""Write a first ltp.toml for a model and its data, each line explained."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ltp_pipeline.data.generated import describe_inputs
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import DEFAULT_BUDGET
from ltp_pipeline.settings.load import (
    SETTINGS_FILE,
    load_settings,
    merge_tables,
    read_settings_file,
)
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.settings.write import format_section_name, format_value
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.stages.prepare.settings_search import (
    SearchResult,
    evaluate_custom_task,
    search_settings,
)
from ltp_pipeline.stages.tools.inspect import InspectionResult, inspect
from ltp_pipeline.system.files import write_text
from ltp_pipeline.system.templates import render_template
from ltp_pipeline.system.text import pluralize
from ltp_pipeline.tasks.custom import CustomTask

REUSED_SECTIONS = ("data", "task")  # sections of an ltp.toml that --force keeps
SUGGESTED_SECTIONS = ("data", "task", "budget", "train", "prune", "export", "gates")
MAX_NAMED = 5  # layer weights and problems that are named
BYTE_SCALE = 1 / 255


def init(
    model: Path,
    options: Mapping[str, Mapping[str, Any]],
    task: CustomTask | None = None,
    force: bool = False,
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml next to the model.

    Args:
        model: ONNX file.
        options: Settings by section that the user passed. The file contains them unchanged; other
            settings are inferred from the model and from its accuracy on the data.
        task: The user's own task, which brings data, loss and metric.
        force: Replace an ltp.toml, but keep its `[data]` and `[task]`.

    Returns:
        The path of the file, and the lines to print about model and data.

    Raises:
        InputError: If the file exists and `force` is False, or the data do not fit the model.
    """
    target = model.parent / SETTINGS_FILE
    if target.exists() and not force:
        raise InputError(
            f"{target} exists already",
            "edit it, or pass --force to write a new file with its [data] and [task]",
        )
    sections: dict[str, Any] = {}
    if target.exists() and task is None:
        stored = read_settings_file(target)
        sections = {name: stored[name] for name in REUSED_SECTIONS if name in stored}
    merge_tables(sections, options)
    settings = load_settings(None, options=sections)
    inspection = inspect(model)
    search = _try_original(model, settings, task)
    task_origin = None
    if task is not None:
        task_origin = task.origin
    values = {
        "custom_task": task_origin,
        "model": inspection,
        "file_name": model.name,
        "max_named": MAX_NAMED,
        "search": search,
        **_suggest_settings(inspection, search, settings, model, task),
    }
    filters: dict[str, Any] = {
        "toml": format_value,
        "line": _one_line,
        "shape": _format_shape,
        "pluralize": pluralize,
    }
    if search is not None:
        values |= _describe_trial(search, settings)
    folder = Path(__file__).parent
    write_text(target, render_template(folder, "ltp.toml.j2", values, filters))
    summary = render_template(folder, "init.txt.j2", values, filters)
    return target, tuple(summary.splitlines())


def _try_original(model: Path, settings: Settings, task: CustomTask | None) -> SearchResult | None:
    """Measure the original on some samples; None if the user passed neither data nor a task."""
    file = read_model_file(model)
    if task is not None:
        return evaluate_custom_task(file, Session(model, is_foreign=True), task, settings)
    if settings.data.path is not None:
        return search_settings(file, Session(model, is_foreign=True), settings)
    return None


def _describe_trial(search: SearchResult, settings: Settings) -> dict[str, Any]:
    """Return what both templates say about the data and the task of the best trial."""
    trial = search.trial
    outputs = [output.name for output in trial.task.outputs]
    task_settings = {"kind": trial.task.describe_output().kind}
    if len(outputs) == 1:
        task_settings["output"] = outputs[0]
    for key, value in trial.task_settings.model_dump(exclude_unset=True).items():
        task_settings.setdefault(key, value)
    return {
        "trial": trial,
        "task": trial.task,
        "format_metric": lambda value: _one_line(trial.task.metric.format_value(value)),
        "splits": {split.name: len(split) for split in trial.data.splits},
        "samples": describe_inputs(trial.data),
        "task_settings": task_settings,
        "inferred": trial.task_settings.model_fields_set - settings.task.model_fields_set,
        "chance_value": trial.task.chance_level(trial.data.val),
    }


def _suggest_settings(
    inspection: InspectionResult,
    search: SearchResult | None,
    settings: Settings,
    model: Path,
    task: CustomTask | None,
) -> dict[str, Any]:
    """Return the settings for ltp.toml: those that the user passed, and suggestions for others."""
    passed = settings.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    sections = {name: passed.pop(name, {}) for name in SUGGESTED_SECTIONS}
    data = sections["data"]
    data.pop("path", None)
    path = None
    if settings.data.path is not None:
        relative_path = os.path.relpath(settings.data.path.resolve(), model.parent.resolve())
        path = Path(relative_path).as_posix()
    by_input = data.pop("inputs", {})
    inputs = []
    if search is not None and task is None:
        if len(inspection.inputs) == 1:
            # Settings of the only input stand directly in [data].
            inputs.append(_suggest_input(None, inspection.inputs[0].name, data, search))
            sections["data"] = {}
        else:
            for name in (*search.trial.inputs, *search.scaled_trials):
                by_input.setdefault(name, {})
    for name, values in by_input.items():
        section = format_section_name("data", "inputs", name)
        inputs.append(_suggest_input(section, name, values, search))
    budget = DEFAULT_BUDGET
    if search is not None and search.trial.value is not None:
        budget = search.trial.task.metric.default_budget(search.trial.value)
    return {
        "path": path,
        "passed": sections,
        "inputs": inputs,
        "has_default_budget": settings.has_default_budget,
        "budget": f"{budget:.3g}",
        "further_sections": passed,
    }


def _suggest_input(
    section: str | None, name: str, passed: Mapping[str, Any], search: SearchResult | None
) -> dict[str, Any]:
    """Return the settings of an input for ltp.toml; `section` is None if they stand in `[data]`."""
    chosen: Mapping[str, Any] = {}
    scaled = None
    scale = BYTE_SCALE
    if search is not None:
        chosen = search.trial.inputs.get(name, {})
        scaled = search.scaled_trials.get(name)
        if "scale" in chosen:
            scaled = search.trial
    if scaled is not None:
        scale = scaled.inputs[name]["scale"]
    return {
        "section": section,
        "passed": passed,
        "scale": scale,
        "scaled": scaled,
        "is_scaled": "scale" in chosen,
        "is_channels_last": "layout" in chosen,
    }


def _format_shape(shape: Sequence[int | str | None] | None) -> str:
    """Return a shape like 3×224×224; unknown sizes are question marks."""
    if shape is None:
        return "any shape"
    sizes = ["?" if size is None else str(size) for size in shape]
    return _one_line("×".join(sizes)) or "scalar"


def _one_line(text: str) -> str:
    """Return a text from a file or a user without control characters and line breaks."""
    printable = [character if character.isprintable() else " " for character in text]
    return " ".join("".join(printable).split())
