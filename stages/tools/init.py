"""An ltp.toml to begin with: what model and data show, each line explained, and how well the original does on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import CONFIG_NAME, join, load_settings, read_settings
from ltp_pipeline.stages.import_model.read import read
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.stages.prepare import trial
from ltp_pipeline.stages.tools import init_text
from ltp_pipeline.stages.tools.inspect import inspect
from ltp_pipeline.system.files import write_text
from ltp_pipeline.tasks.custom import CustomTask

KEPT = ("data", "task")  # sections of a file that is written over


def init(
    model: Path,
    options: Mapping[str, Mapping[str, Any]],
    task: CustomTask | None = None,
    force: bool = False,
) -> tuple[Path, tuple[str, ...]]:
    """Write an ltp.toml beside the model; its path, and what was found, in lines.

    What options say stands, and with `force` what a file that is there says of data and task; the rest is suggested.
    """
    target = model.parent / CONFIG_NAME
    if target.exists() and not force:
        remedy = "look at it, or give --force to write a new one, which begins with its [data] and [task]"
        raise InputError(f"{target} is there already", remedy)
    said: dict[str, Any] = {}
    if target.exists() and task is None:
        said = {name: section for name, section in read_settings(target).items() if name in KEPT}
    join(said, options)
    given = load_settings(None, options=said)
    file, found = read(model), inspect(model)
    tried = None
    if task is not None:
        tried = trial.of_task(file, Session(model, foreign=file.model), task, given)
    elif given.data.path is not None:
        tried = trial.of_data(file, Session(model, foreign=file.model), given)
    told = [init_text.about_model(found), *found.plan]
    if tried is not None:
        told += [
            init_text.sizes(tried),
            *init_text.stored(tried),
            *init_text.suggested(tried, given),
            init_text.how_well(tried, task),
        ]
    if task is not None:
        told.append(
            f"data, loss and metric come from {task.origin}: give --task with every command"
        )
    write_text(target, "\n".join(init_text.lines(found, tried, model, task, given)) + "\n")
    return target, tuple(told)
