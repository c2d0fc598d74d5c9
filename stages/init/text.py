"""The lines of a new ltp.toml, and what `init` tells of a model and its data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.data import recipe
from ltp_pipeline.words import counted

if TYPE_CHECKING:
    from ltp_pipeline.config import DataSettings
    from ltp_pipeline.data import Data
    from ltp_pipeline.own_task import OwnTask
    from ltp_pipeline.results import Inspection
    from ltp_pipeline.task import Task

PIXEL = 255
MOST_NAMED = 5  # kernels that are not pruned


@dataclass(frozen=True)
class Trial:
    """The original on some samples, with the settings that made them its inputs."""

    settings: DataSettings
    data: Data
    task: Task
    value: float
    samples: int


def about_model(found: Inspection) -> str:
    """Its size, in a line."""
    kernels = counted(len(found.kernels), "kernel")
    return f"{_name(found.path)}: opset {found.opset}, {kernels} with {found.kernel_elements:,} weights"


def sizes(trial: Trial) -> str:
    """How many samples each split has."""
    return f"data: {', '.join(f'{len(split):,} {split.name}' for split in dict.fromkeys(trial.data.splits))} samples"


def stored(trial: Trial) -> Iterator[str]:
    """For each input, what its samples are like."""
    for name, kept in recipe.of_data(trial.data).items():
        if kept.mask_of is not None:
            yield f"{_name(name)} is made: where {_name(kept.mask_of)} has values"
            continue
        shape = "×".join("?" if n is None else str(n) for n in kept.shape)
        many = f"{shape} {kept.dtype.name}" if shape else f"one {kept.dtype.name}"
        yield f"{_name(name)}: {many} a sample, from {kept.low:.6g} to {kept.high:.6g}"


def how_well(trial: Trial) -> str:
    """Which task the labels suggest, and how good the original is at it."""
    metric, kind = trial.task.metric, trial.task.asked.kind
    if trial.task.is_relative:
        return f'task: "{kind}", there are no labels; the original is what is learned from'
    value = metric.shown(trial.value)
    guess = trial.task.guess(trial.data.val)
    told = "" if guess is None else f"; without looking at the input, {metric.shown(guess)}"
    doubt = ""
    if guess is not None and trial.value < guess + 0.1 * (1 - guess):
        doubt = " That is hardly better than a guess: check scale, mean, std and layout, and what the labels mean."
    return f'task: "{kind}"; the original has {metric.name} {value} on {trial.samples} validation samples{told}.{doubt}'


def lines(
    found: Inspection, trial: Trial | None, model: Path, data: Path | None, task: OwnTask | None
) -> Iterator[str]:
    """The file, line by line."""
    yield f"# Settings of `ltp-pipeline run {_name(model.name)}`, written by `ltp-pipeline init`."
    yield "# A line that begins with # is off; every key is explained in docs/settings.md."
    yield f"# {about_model(found)}."
    for kind, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            shape = (
                "any shape" if tensor.shape is None else "×".join("?" if d is None else str(d) for d in tensor.shape)
            )
            yield f"# {kind} {_name(tensor.name)}: {tensor.type.lower()}, {_plain(shape)}"
    yield from _unpruned(found)
    yield ""
    yield "[data]"
    yield from _data_lines(found, trial, model, data, task)
    yield ""
    yield "[task]"
    yield from _task_lines(trial, task)
    yield ""
    yield "[budget]  # one of these"
    unit = "" if trial is None or trial.task.metric.share else f", in units of {trial.task.metric.name}"
    yield f"accuracy_budget = 0.01       # the largest drop on validation{unit}: 0.01 is a point of a share"
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
    yield "# max_drop = 0.01"
    yield "# min_compression = 5"


def _unpruned(found: Inspection) -> Iterator[str]:
    left = [kernel for kernel in found.kernels if not kernel.prunable]
    for kernel in left[:MOST_NAMED]:
        yield f"# not pruned: {_name(kernel.name)}, {_plain(kernel.reason or '')}"
    if len(left) > MOST_NAMED:
        yield f"# and {len(left) - MOST_NAMED} more"
    if found.unpruned:
        yield f"# {_plain(found.unpruned)}"
    for problem in found.unsupported[:MOST_NAMED]:
        yield f"# cannot be handled: {_plain(problem)}"


def _data_lines(
    found: Inspection, trial: Trial | None, model: Path, data: Path | None, task: OwnTask | None
) -> Iterator[str]:
    if task is not None:
        yield f"# from {_name(task.origin)}, given by --task"
        return
    if trial is None or data is None:
        names = [i.name for i in found.inputs] or ["x"]
        arrays = "x_train and y_train" if len(names) == 1 else ", ".join(f"{_name(n)}_train" for n in names)
        yield f"# An .npz with {arrays} and the same for _val and _test (or without any ending: then it is"
        yield "# divided), a folder of .npy files, of class folders with images, of IDX files or of .tar shards."
        yield '# path = "data.npz"           # relative to this file'
        return
    beside = Path(os.path.relpath(data.resolve(), model.parent.resolve())).as_posix()
    yield f"# {sizes(trial)}"
    for line in stored(trial):
        yield f"# {line}"
    yield f"path = {json.dumps(beside, ensure_ascii=False)}  # relative to this file"
    settings = trial.settings
    if settings.scale is not None:
        yield f"scale = {settings.scale!r}  # x * scale: pixels are whole numbers up to {PIXEL}; {_why(trial)}"
    if settings.layout != "NCHW":
        yield f'layout = "{settings.layout}"             # of the stored samples: channels last'
    yield "# mean = [0.5]                # then (x - mean) / std, one number or one for each channel"
    yield "# std = [0.5]"


def _why(trial: Trial) -> str:
    if trial.task.is_relative:
        return "check that the model was trained so"
    return f"the original does best with it, {trial.task.metric.shown(trial.value)}"


def _task_lines(trial: Trial | None, task: OwnTask | None) -> Iterator[str]:
    if task is not None or trial is None:
        yield '# kind = "classify"           # or multilabel, regress, segment, imitate; labels and outputs tell'
        return
    kind = trial.task.asked.kind
    outputs = ", ".join(_name(output.name) for output in trial.task.outputs)
    labels = (
        "no labels: the original's own outputs are learned from"
        if trial.task.is_relative
        else "labels and outputs say so"
    )
    yield f'kind = "{kind}"  # {labels}; the metric is {_plain(trial.task.metric.name)}'
    if len(trial.task.outputs) == 1:
        name = json.dumps(trial.task.outputs[0].name, ensure_ascii=False)
        yield f"output = {name}  # the one that is judged"
    else:
        yield f"# all of {outputs} are compared"


def _name(text: str) -> str:
    """A name from a file, on one line."""
    return _plain(Path(text).name if os.sep in text else text)


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
