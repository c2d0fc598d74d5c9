"""An ltp.toml to begin with: what model and data show, each line explained, and how well the original does on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ltp_pipeline.config import CONFIG_NAME, DataSettings, TaskSettings
from ltp_pipeline.data import open_for, recipe
from ltp_pipeline.errors import InputError
from ltp_pipeline.files import write_text
from ltp_pipeline.own_task import OwnTask
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.init import text
from ltp_pipeline.stages.init.text import PIXEL, Trial
from ltp_pipeline.stages.inspect import inspect
from ltp_pipeline.stages.validate import TWO, Session
from ltp_pipeline.tasks import Imitation, find_task
from ltp_pipeline.tasks.evaluator import Evaluator

if TYPE_CHECKING:
    from ltp_pipeline.records import ModelFile

SAMPLES = 512  # on which the original is tried


def init(
    model: Path, data: Path | None, task: OwnTask | None = None, force: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml beside the model; its path, and what was found, in lines."""
    target = model.parent / CONFIG_NAME
    if target.exists() and not force:
        raise InputError(f"{target} is there already", "look at it, or give --force to write a new one")
    file, found = import_model.read(model), inspect(model)
    trial = None if data is None else _best(file, model, data)
    said = [text.about_model(found), *found.plan]
    if trial is not None:
        said += [text.sizes(trial), *text.stored(trial), text.how_well(trial)]
    if task is not None:
        said.append(f"data, loss and metric come from {task.origin}: give --task with every command")
    write_text(target, "\n".join(text.lines(found, trial, model, data, task)) + "\n")
    return target, tuple(said)


def _best(file: ModelFile, model: Path, path: Path) -> Trial:
    """The original on samples as they are stored; pixels are also scaled and turned, and the best counts."""
    session, trials, refused = Session(model), list[Trial](), list[InputError]()
    images = any(len(info.shape or ()) == 4 for info in file.inputs)
    for layout in ("NCHW", "NHWC") if images else ("NCHW",):
        scales: list[float | None] = [None]
        for scale in scales:
            settings = DataSettings.model_validate({"path": path, "layout": layout, "scale": scale})
            try:
                trials.append(_tried(file, session, settings))
            except InputError as error:
                refused.append(error)
                break
            if scale is None:
                scales += _scales(trials[-1])
    if not trials:
        raise refused[0]
    if isinstance(trials[0].task, Imitation):  # there is nothing to tell which is right
        return trials[min(1, len(trials) - 1)]
    return max(trials, key=lambda trial: trial.value)


def _scales(trial: Trial) -> list[float]:
    """Other scales that could be meant: of pixels in whole numbers, for an input of fractions."""
    kept = recipe.of_data(trial.data).values()
    pixels = [r.high for r in kept if r.prepare.dtype.kind == "f" and len(r.shape) >= 2 and r.high > 1]
    whole = [high for high in pixels if high == int(high)]
    return list(dict.fromkeys([1 / PIXEL, *(1 / high for high in whole)])) if whole else []


def _tried(file: ModelFile, session: Session, settings: DataSettings) -> Trial:
    data = open_for(file, settings, 0)
    task = find_task(data, file.model.graph, session.shapes(data.test), TWO, TaskSettings())
    rows = np.arange(min(SAMPLES, len(data.val)))
    if task.is_relative:
        return Trial(settings, data, task, 1.0, len(rows))
    session.positions = [output.position for output in task.outputs]
    accuracy, _ = Evaluator(task)(session.outputs, data.val, rows)
    return Trial(settings, data, task, accuracy.value, len(rows))
