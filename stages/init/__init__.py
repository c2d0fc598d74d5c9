"""An ltp.toml to begin with: what model and data show, each line explained, and how well the original does on them."""

from __future__ import annotations

from pathlib import Path

from ltp_pipeline.config import CONFIG_NAME, DataSettings
from ltp_pipeline.errors import InputError
from ltp_pipeline.files import write_text
from ltp_pipeline.own_task import OwnTask
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.init import text, trial
from ltp_pipeline.stages.inspect import inspect
from ltp_pipeline.stages.validate import Session


def init(
    model: Path, data: Path | None, task: OwnTask | None = None, force: bool = False
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml beside the model; its path, and what was found, in lines."""
    target = model.parent / CONFIG_NAME
    if target.exists() and not force:
        raise InputError(f"{target} is there already", "look at it, or give --force to write a new one")
    file, found = import_model.read(model), inspect(model)
    tried = None
    if task is not None:
        tried = trial.of_task(file, Session(model), task, DataSettings(path=data))
    elif data is not None:
        tried = trial.of_data(file, Session(model), data)
    said = [text.about_model(found), *found.plan]
    if tried is not None:
        said += [text.sizes(tried), *text.stored(tried), text.how_well(tried, task)]
    if task is not None:
        said.append(f"data, loss and metric come from {task.origin}: give --task with every command")
    write_text(target, "\n".join(text.lines(found, tried, model, task)) + "\n")
    return target, tuple(said)
