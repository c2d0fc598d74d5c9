"""Real samples for a handoff's example, as they are stored."""

from __future__ import annotations

from pathlib import Path

from ltp_pipeline.data.dataset import Samples
from ltp_pipeline.data.open import open_data
from ltp_pipeline.data.sequences import rows_of
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema import Report
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages.prepare import check_same_task
from ltp_pipeline.tasks.custom import CustomTask
from ltp_pipeline.tasks.custom_data import open_custom_data


def stored_samples(
    folder: Path, report: Report, count: int, own: CustomTask | None = None
) -> dict[str, Samples]:
    """The first samples of a run's test split, by input, as they are stored; the data must be those of the run."""
    workspace = RunDirectory(folder)
    check_same_task(workspace, own)
    _, settings = workspace.load_inputs()
    if not report.model.inputs:
        raise InputError(
            f"the report in {folder} does not say what the model takes", "start the run again"
        )
    inputs = [
        TensorInfo(i.name, i.type, None if i.shape is None else tuple(i.shape))
        for i in report.model.inputs
    ]
    if own is None:
        data = open_data(settings.data, inputs, settings.train.seed, settings.task)
    else:
        data = open_custom_data(own, settings.data, inputs, settings.train.seed)
    if data.fingerprint != workspace.manifest.identity.data:
        where = settings.data.path if own is None else own.origin
        raise InputError(
            f"the data {'at' if own is None else 'of'} {where} are no longer those of the run in {folder}",
            "bring them back, or leave --example-samples out",
        )
    stored = {name: source.samples for name, source in data.test.inputs.items()}
    return rows_of(stored, data.test.rows[:count])
