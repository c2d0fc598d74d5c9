"""The lines of a new ltp.toml, and what `init` tells of a model and its data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.data import recipe
from ltp_pipeline.results.metric import BUDGET
from ltp_pipeline.settings.schema import TaskSettings
from ltp_pipeline.settings.write import format_key, format_value
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from ltp_pipeline.results.tool_results import InspectionResult
    from ltp_pipeline.settings.schema import Settings
    from ltp_pipeline.stages.prepare.trial import Trial
    from ltp_pipeline.tasks.custom import CustomTask

MOST_NAMED = 5  # kernels that are not pruned
GIVEN = "as given"
WHY = {  # settings of the task are suggested
    "kind": "labels and outputs say so",
    "output": "the one that is judged",
    "target": "what outputs should be: no input takes it",
    "ignored_label": "taken for the mark of what has no label, which is neither learned nor judged",
}


def about_model(found: InspectionResult) -> str:
    """Its size, in a line."""
    kernels = pluralize(len(found.kernels), "kernel")
    return f"{_plain(Path(found.path).name)}: opset {found.opset}, {kernels} with {found.kernel_elements:,} weights"


def sizes(trial: Trial) -> str:
    """How many samples each split has."""
    return f"data: {', '.join(f'{len(split):,} {split.name}' for split in dict.fromkeys(trial.data.splits))} samples"


def stored(trial: Trial) -> Iterator[str]:
    """For each input, what its samples are like."""
    for name, kept in trial.recipes.items():
        if kept.mask_of is not None:
            values = "no values" if kept.marks_padding else "values"
            yield f"{_plain(name)} is made: 1 where {_plain(kept.mask_of)} has {values}"
            continue
        shape = "×".join("?" if n is None else str(n) for n in kept.shape)
        many = f"{shape} {kept.dtype.name}" if shape else f"one {kept.dtype.name}"
        yield f"{_plain(name)}: {many} a sample, from {kept.low:.6g} to {kept.high:.6g}"


def how_well(trial: Trial, task: CustomTask | None) -> str:
    """Which task the labels suggest, or whose it is, and how good the original is at it."""
    metric, samples = trial.task.metric, trial.samples
    whose = _plain(task.origin) if task is not None else f'"{trial.task.describe_output().kind}"'
    if trial.value is None:
        missing = "there are no labels" if task is None else "it has neither score nor measure"
        return f"task: {whose}, {missing}; how near a pruned network is to the original is measured"
    value = f"{_plain(metric.name)} {_plain(metric.shown(trial.value))}"
    direction = "" if metric.higher_is_better else ", lower is better"
    guess = trial.task.chance_level(trial.data.val)
    told = "" if guess is None else f"; without looking at the input, {metric.shown(guess)}"
    doubt = ""
    if trial.is_hardly_better_than_a_guess:
        output = "" if trial.asked.output is None else ", the output that is meant"
        checks = f"check scale, mean, std and layout{output}, and what the labels mean"
        doubt = " That is hardly better than a guess: "
        doubt += "; ".join([checks, *map(_plain, recipe.made_masks(trial.data.val))]) + "."
    return f"task: {whose}; the original has {value} on {samples} validation samples{direction}{told}.{doubt}"


def suggested(trial: Trial, given: Settings) -> Iterator[str]:
    """What labels and outputs ask for, beyond what the user says, a line each."""
    for key, why in _reasons(trial, given).items():
        yield f"{key} = {format_value(getattr(trial.asked, key))}: {why}"


def _reasons(trial: Trial, given: Settings) -> dict[str, str]:
    """Why settings of the task stand there that the user does not give."""
    shown, reasons = trial.task.metric.shown, dict[str, str]()
    for key in trial.asked.model_fields_set - given.task.model_fields_set:
        if key == "output" and trial.others and trial.value is not None:
            others = (
                f"with {_plain(name)} {shown(value)}"
                for name, value in trial.others.items()
                if value is not None
            )
            reasons[key] = f"with it, the original has {shown(trial.value)}, {', '.join(others)}"
        elif key != "output":
            reasons[key] = WHY[key]
    return reasons


def lines(
    found: InspectionResult,
    trial: Trial | None,
    model: Path,
    task: CustomTask | None,
    given: Settings,
) -> Iterator[str]:
    """The file, line by line."""
    own = "" if task is None else f" --task {_plain(task.origin)}"
    yield f"# Settings of `ltp-pipeline run {_plain(model.name)}{own}`, written by `ltp-pipeline init`."
    yield "# A line that begins with # is off; every key is explained in docs/settings.md."
    yield f"# {about_model(found)}."
    for kind, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            shape = (
                "any shape"
                if tensor.shape is None
                else "×".join("?" if d is None else str(d) for d in tensor.shape)
            )
            yield f"# {kind} {_plain(tensor.name)}: {tensor.type.lower()}, {_plain(shape)}"
    yield from _unpruned(found)
    said = given.model_dump(mode="json", by_alias=True, exclude_unset=True)
    yield from ("", "[data]")
    yield from _data_lines(found, trial, model, task, said.pop("data", {}))
    yield from ("", "[task]", *_task_lines(trial, task, given, said.pop("task", {})))
    hints = dict(_hints(trial, given))
    for name in [*hints, *(name for name in said if name not in hints)]:
        comment, usual = hints.get(name, ("", []))
        yield from ("", f"[{name}]{comment}", *_with(usual, said.get(name, {})))


def _hints(trial: Trial | None, given: Settings) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """For other sections a comment on it, and lines that often stand there."""
    compression = "# target_compression = 10     # weights in kernels / those that are left"
    budget = [*_budget_lines(trial), compression] if given.wants_default_budget else []
    yield "budget", ("  # one of these" if budget else "", budget)
    train = [
        "seed = 0                     # of everything random: the same seed gives the same files",
        "# epochs = 12                 # of learning thresholds; by rule where nothing is said",
        "# batch_size = 128            # samples a step",
    ]
    yield "train", ("", train)
    exclude = '# exclude = ["head.*"]        # names of kernels that stay dense; `ltp-pipeline inspect` lists them'
    yield "kernels", ("", [exclude])
    yield "export", ("", ['formats = ["sparse", "packed"]  # files to write'])
    max_drop = (
        f"# max_drop = {_budget(trial):.3g}             # on test, in the unit of accuracy_budget"
    )
    yield "gates", ("  # exit 7 where one fails", [max_drop, "# min_compression = 5"])


def _with(usual: Iterable[str], said: Mapping[str, Any]) -> Iterator[str]:
    """Lines, but for those of keys that the user gives; then these."""
    for line in usual:
        if line.removeprefix("# ").partition(" = ")[0] not in said:
            yield line
    for key, value in said.items():
        yield f"{key} = {format_value(value)}  # {GIVEN}"


def _unpruned(found: InspectionResult) -> Iterator[str]:
    left = [kernel for kernel in found.kernels if not kernel.prunable]
    for kernel in left[:MOST_NAMED]:
        yield f"# not pruned: {_plain(kernel.name)}, {_plain(kernel.reason or '')}"
    if len(left) > MOST_NAMED:
        yield f"# and {len(left) - MOST_NAMED} more"
    if found.unpruned:
        yield f"# {_plain(found.unpruned)}"
    for problem in found.unsupported[:MOST_NAMED]:
        yield f"# cannot be handled: {_plain(problem)}"


def _data_lines(
    found: InspectionResult,
    trial: Trial | None,
    model: Path,
    task: CustomTask | None,
    said: dict[str, Any],
) -> Iterator[str]:
    said.pop("path", None)
    own = said.pop("inputs", {})
    if trial is None:
        names = [i.name for i in found.inputs] or ["x"]
        arrays = (
            "x_train and y_train"
            if len(names) == 1
            else ", ".join(f"{_plain(n)}_train" for n in names)
        )
        yield f"# An .npz with {arrays} and the same for _val and _test (or without any ending: then it is"
        yield "# divided), a folder of .npy files, of class folders with images, of IDX files or of .tar shards."
        yield '# path = "data.npz"           # relative to this file'
        yield from _with([], said)
    else:
        if task is not None:
            yield f"# from {_plain(task.origin)}, given by --task"
        yield f"# {sizes(trial)}"
        for line in stored(trial):
            yield f"# {line}"
        if trial.settings.path is not None:
            beside = Path(
                os.path.relpath(trial.settings.path.resolve(), model.parent.resolve())
            ).as_posix()
            yield f"path = {format_value(beside)}  # relative to this file"
        alone = len(found.inputs) < 2 and task is None
        yield from _with(_input_lines(trial, found.inputs[0].name) if alone else [], said)
        if not alone and task is None:
            yield "# What is said here of scale, mean, std and layout holds for all inputs of fractions; for one of"
            yield "# them: a section [data.inputs.NAME], the name in quotes."
            own = {name: own.get(name, {}) for name in [*own, *trial.chosen, *trial.unscaled]}
    for name, of_input in own.items():
        yield from ("", f"[data.inputs.{format_key(name)}]")
        yield from _with([] if trial is None else _input_lines(trial, name), of_input)


def _input_lines(trial: Trial, name: str) -> Iterator[str]:
    chosen, without = trial.chosen.get(name, {}), trial.unscaled.get(name)
    if "scale" in chosen:
        yield f"scale = {chosen['scale']!r}  # {_why(trial, trial)}"
    elif without is not None:
        yield f"# scale = {without.chosen[name]['scale']!r}  # {_why(trial, without)}"
    if "layout" in chosen:
        yield f'layout = "{chosen["layout"]}"             # of the stored samples: channels last'
    yield "# mean = [0.5]                # then (x - mean) / std, one number or one for each channel"
    yield "# std = [0.5]"


def _why(trial: Trial, scaled: Trial) -> str:
    told = "check that the model was trained so"
    if scaled.value is not None and trial.as_stored is not None:
        shown = trial.task.metric.shown
        told = f"so prepared, the original has {shown(scaled.value)}, and as they are stored {shown(trial.as_stored)}"
    return f"x * scale: whole numbers are stored; {told}"


def _task_lines(
    trial: Trial | None, task: CustomTask | None, given: Settings, said: Mapping[str, Any]
) -> Iterator[str]:
    if trial is None:
        hint = '# kind = "classify"           # or multilabel, regress, segment, imitate; labels and outputs tell'
        yield from _with([hint], said)
        return
    metric = _plain(trial.task.metric.described)
    if task is not None:
        yield f"# from {_plain(task.origin)}, given by --task; the metric is {metric}"
        yield from _with([], said)
        return
    labels = (
        "no labels: the original's own outputs are learned from"
        if trial.task.is_relative
        else WHY["kind"]
    )
    yield f'kind = "{trial.task.describe_output().kind}"  # {GIVEN if "kind" in said else labels}; the metric is {metric}'
    why = {"output": WHY["output"], **_reasons(trial, given), **dict.fromkeys(said, GIVEN)}
    if len(trial.task.outputs) == 1:
        yield f"output = {format_value(trial.task.outputs[0].name)}  # {why['output']}"
    else:
        yield f"# all of {', '.join(_plain(output.name) for output in trial.task.outputs)} are compared"
    for key in TaskSettings.model_fields:
        if key in why and key not in ("kind", "output"):
            yield f"{key} = {format_value(getattr(trial.asked, key))}  # {why[key]}"


def _budget_lines(trial: Trial | None) -> Iterator[str]:
    """Off where the metric is not known, or is no share: nobody knows then how much may be lost."""
    largest, more = "# the largest drop", "#" + 28 * " " + "#"
    if trial is None:
        yield f"# accuracy_budget = {BUDGET}      {largest} on validation, in the metric's unit; without this line,"
        yield f"{more} 0.01 (a point) of a share, and 1 % of the original's value of any other metric"
        return
    metric = trial.task.metric
    largest += f" of {_plain(metric.name)} on validation"
    if metric.is_fraction:
        yield f"accuracy_budget = {BUDGET}       {largest}: 0.01 is a point"
        return
    unit = f"in {_plain(metric.unit)}" if metric.unit else "in its own unit"
    yield f"# accuracy_budget = {_budget(trial):<9.3g} {largest}, {unit}; without this line,"
    yield f"{more} 1 % of the original's value"


def _budget(trial: Trial | None) -> float:
    return (
        BUDGET
        if trial is None or trial.value is None
        else trial.task.metric.default_budget(trial.value)
    )


def _plain(text: str) -> str:
    """What a file or the user calls something, on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
