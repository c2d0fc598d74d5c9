"""The lines of a new ltp.toml, and what `init` tells of a model and its data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline.metric import BUDGET
from ltp_pipeline.words import counted

if TYPE_CHECKING:
    from ltp_pipeline.own_task import OwnTask
    from ltp_pipeline.results import Inspection
    from ltp_pipeline.stages.init.trial import Trial

MOST_NAMED = 5  # kernels that are not pruned


def about_model(found: Inspection) -> str:
    """Its size, in a line."""
    kernels = counted(len(found.kernels), "kernel")
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


def how_well(trial: Trial, task: OwnTask | None) -> str:
    """Which task the labels suggest, or whose it is, and how good the original is at it."""
    metric, samples = trial.task.metric, trial.samples
    whose = _plain(task.origin) if task is not None else f'"{trial.task.asked.kind}"'
    if trial.value is None:
        missing = "there are no labels" if task is None else "it has neither score nor measure"
        return f"task: {whose}, {missing}; how near a pruned network is to the original is measured"
    value = f"{_plain(metric.name)} {_plain(metric.shown(trial.value))}"
    direction = "" if metric.higher_is_better else ", lower is better"
    guess = trial.task.guess(trial.data.val)
    told = "" if guess is None else f"; without looking at the input, {metric.shown(guess)}"
    doubt = ""
    if trial.is_hardly_better_than_a_guess:
        doubt = " That is hardly better than a guess: check scale, mean, std and layout, and what the labels mean."
    return f"task: {whose}; the original has {value} on {samples} validation samples{direction}{told}.{doubt}"


def lines(found: Inspection, trial: Trial | None, model: Path, task: OwnTask | None) -> Iterator[str]:
    """The file, line by line."""
    own = "" if task is None else f" --task {_plain(task.origin)}"
    yield f"# Settings of `ltp-pipeline run {_plain(model.name)}{own}`, written by `ltp-pipeline init`."
    yield "# A line that begins with # is off; every key is explained in docs/settings.md."
    yield f"# {about_model(found)}."
    for kind, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            shape = (
                "any shape" if tensor.shape is None else "×".join("?" if d is None else str(d) for d in tensor.shape)
            )
            yield f"# {kind} {_plain(tensor.name)}: {tensor.type.lower()}, {_plain(shape)}"
    yield from _unpruned(found)
    yield ""
    yield "[data]"
    yield from _data_lines(found, trial, model, task)
    yield ""
    yield "[task]"
    yield from _task_lines(trial, task)
    yield ""
    yield "[budget]  # one of these"
    yield from _budget_lines(trial)
    yield "# target_compression = 10     # weights in kernels / those that are left"
    yield ""
    yield "[train]"
    yield "seed = 0                     # of everything random: the same seed gives the same files"
    yield "# epochs = 12                 # of learning thresholds; by rule where nothing is said"
    yield "# batch_size = 128            # samples a step"
    yield ""
    yield "[kernels]"
    yield '# exclude = ["head.*"]        # names of kernels that stay dense; `ltp-pipeline inspect` lists them'
    yield ""
    yield "[export]"
    yield 'formats = ["sparse", "packed"]  # files to write'
    yield ""
    yield "[gates]  # exit 7 where one fails"
    yield f"# max_drop = {_budget(trial):.3g}             # on test, in the unit of accuracy_budget"
    yield "# min_compression = 5"


def _unpruned(found: Inspection) -> Iterator[str]:
    left = [kernel for kernel in found.kernels if not kernel.prunable]
    for kernel in left[:MOST_NAMED]:
        yield f"# not pruned: {_plain(kernel.name)}, {_plain(kernel.reason or '')}"
    if len(left) > MOST_NAMED:
        yield f"# and {len(left) - MOST_NAMED} more"
    if found.unpruned:
        yield f"# {_plain(found.unpruned)}"
    for problem in found.unsupported[:MOST_NAMED]:
        yield f"# cannot be handled: {_plain(problem)}"


def _data_lines(found: Inspection, trial: Trial | None, model: Path, task: OwnTask | None) -> Iterator[str]:
    if trial is None:
        names = [i.name for i in found.inputs] or ["x"]
        arrays = "x_train and y_train" if len(names) == 1 else ", ".join(f"{_plain(n)}_train" for n in names)
        yield f"# An .npz with {arrays} and the same for _val and _test (or without any ending: then it is"
        yield "# divided), a folder of .npy files, of class folders with images, of IDX files or of .tar shards."
        yield '# path = "data.npz"           # relative to this file'
        return
    if task is not None:
        yield f"# from {_plain(task.origin)}, given by --task"
    yield f"# {sizes(trial)}"
    for line in stored(trial):
        yield f"# {line}"
    if trial.settings.path is None:
        return
    beside = Path(os.path.relpath(trial.settings.path.resolve(), model.parent.resolve())).as_posix()
    yield f"path = {quoted(beside)}  # relative to this file"
    if len(found.inputs) < 2:
        yield from _input_lines(trial, *trial.chosen.values() or ({},))
        return
    yield "# What is said here of scale, mean, std and layout holds for all inputs of fractions; for one of them:"
    yield "# a section [data.inputs.NAME], the name in quotes."
    for name, own in trial.chosen.items():
        yield ""
        yield f"[data.inputs.{quoted(name)}]"
        yield from _input_lines(trial, own)


def _input_lines(trial: Trial, own: Mapping[str, Any]) -> Iterator[str]:
    if "scale" in own:
        yield f"scale = {own['scale']!r}  # x * scale: whole numbers are stored; {_why(trial)}"
    if "layout" in own:
        yield f'layout = "{own["layout"]}"             # of the stored samples: channels last'
    yield "# mean = [0.5]                # then (x - mean) / std, one number or one for each channel"
    yield "# std = [0.5]"


def _why(trial: Trial) -> str:
    if trial.value is None or trial.as_stored is None:
        return "check that the model was trained so"
    shown = trial.task.metric.shown
    return f"so prepared, the original has {shown(trial.value)}, and as they are stored {shown(trial.as_stored)}"


def _task_lines(trial: Trial | None, task: OwnTask | None) -> Iterator[str]:
    if trial is None:
        yield '# kind = "classify"           # or multilabel, regress, segment, imitate; labels and outputs tell'
        return
    metric = _plain(trial.task.metric.described)
    if task is not None:
        yield f"# from {_plain(task.origin)}, given by --task; the metric is {metric}"
        return
    kind = trial.task.asked.kind
    outputs = ", ".join(_plain(output.name) for output in trial.task.outputs)
    relative = trial.task.is_relative
    labels = "no labels: the original's own outputs are learned from" if relative else "labels and outputs say so"
    yield f'kind = "{kind}"  # {labels}; the metric is {metric}'
    if len(trial.task.outputs) == 1:
        yield f"output = {quoted(trial.task.outputs[0].name)}  # the one that is judged"
    else:
        yield f"# all of {outputs} are compared"


def _budget_lines(trial: Trial | None) -> Iterator[str]:
    """Off where the metric is not known, or is no share: nobody knows then how much may be lost."""
    largest, more = "# the largest drop", "#" + 28 * " " + "#"
    if trial is None:
        yield f"# accuracy_budget = {BUDGET}      {largest} on validation, in the metric's unit; without this line,"
        yield f"{more} 0.01 (a point) of a share, and 1 % of the original's value of any other metric"
        return
    metric = trial.task.metric
    largest += f" of {_plain(metric.name)} on validation"
    if metric.share:
        yield f"accuracy_budget = {BUDGET}       {largest}: 0.01 is a point"
        return
    unit = f"in {_plain(metric.unit)}" if metric.unit else "in its own unit"
    yield f"# accuracy_budget = {_budget(trial):<9.3g} {largest}, {unit}; without this line,"
    yield f"{more} 1 % of the original's value"


def _budget(trial: Trial | None) -> float:
    return BUDGET if trial is None or trial.value is None else trial.task.metric.default_budget(trial.value)


def quoted(text: str) -> str:
    """As a string or a key of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(text: str) -> str:
    """What a file or the user calls something, on one line."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
