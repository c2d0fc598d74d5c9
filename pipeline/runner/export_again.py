"""Export further files of a finished run from its saved weights, without training.

If the data of the run are there, all files are measured again. Otherwise new files are written and
verified, but not measured: their accuracy is that of a measured file with bit-identical outputs, or
null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.exporters.files.count import count_file_sparsity
from ltp_pipeline.results import read_write
from ltp_pipeline.results.complete import complete, put_nonzeros
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import BaselineDifference, FileResult, NetworkResult, Report
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX
from ltp_pipeline.run_directory.names import REPORT_JSON
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner.finish import RunResult, write_report
from ltp_pipeline.runner.pick import finish_entry
from ltp_pipeline.runner.run import run
from ltp_pipeline.runner.validation import list_weights
from ltp_pipeline.settings.file_names import EXACT, INT8, find_format
from ltp_pipeline.settings.load import update_export
from ltp_pipeline.settings.schema import ExportSettings, Settings
from ltp_pipeline.stages import export, import_model
from ltp_pipeline.stages.handoff import FILE_FOLDERS
from ltp_pipeline.stages.handoff.example import generate_inputs
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.prepare import check_same_task
from ltp_pipeline.stages.report.notes import describe_skipped_files
from ltp_pipeline.stages.write_back import to_file_types
from ltp_pipeline.system import distributed, threads
from ltp_pipeline.system.progress import Reporter
from ltp_pipeline.tasks.custom import CustomTask

if TYPE_CHECKING:
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.system.arrays import Array

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
NO_DATA = "the data of the run were not there when the file was written"


def export_again(
    folder: Path,
    formats: Sequence[str],
    progress: Reporter,
    weight_storage: Sequence[str] | None = None,
    task: CustomTask | None = None,
) -> RunResult:
    """Export further files of a finished run, and keep the files that it has.

    Args:
        folder: The run directory.
        formats: Names of the file formats to add.
        progress: Shows the progress.
        weight_storage: Rounding to add; None keeps that of the run.
        task: Custom task of the run, if it had one.

    Raises:
        InputError: The run is not finished, or its model or its data were replaced.
        ExportFailed: A file cannot be verified.
    """
    if distributed.is_distributed():
        raise InputError(
            "only `run` works with several processes", "start `export` without torchrun"
        )
    run_directory = RunDirectory(folder, progress)
    model, settings = run_directory.load_inputs()
    export_settings = _add_formats(settings.export, formats, weight_storage)
    requested = settings.model_copy(update={"export": export_settings})
    if run_directory.manifest.proof is None:
        command = "run" if run_directory.entry is None else "pick"
        raise InputError(
            f"{folder} is not finished",
            f"start the same `{command}` again: it resumes the run",
        )
    check_same_task(run_directory, task)
    has_data = settings.data.path is not None and settings.data.path.exists()
    try:
        if task is None and not has_data:
            saved_threads = run_directory.saved_threads()
            with (
                threads.use_threads(settings.train.threads, saved_threads, progress.say),
                run_directory.lock(),
            ):
                return _export_without_data(run_directory, model, requested)
        if run_directory.entry is None:
            return run(model, requested, folder, progress, exactly=True, task=task)
        parent = run_directory.find_trail_run()
        mode = requested.baseline.mode
        return finish_entry(parent, run_directory.entry, model, requested, mode, True, task)
    except LtpError:
        with suppress(InputError), run_directory.lock():  # another process may use the directory
            run_directory.load_inputs()
            # The files that could not be written are not requested when the run is started again.
            run_directory.save_inputs(model, settings)
        raise


def _add_formats(
    existing: ExportSettings, formats: Sequence[str], weight_storage: Sequence[str] | None
) -> ExportSettings:
    """Return export settings with further formats; weight storage "exact" alone resets rounding."""
    if weight_storage is None:
        weight_storage = existing.weight_storage
    elif set(weight_storage) != {EXACT}:
        weight_storage = [*existing.weight_storage, *weight_storage]
    all_formats = [*existing.formats, *formats]
    return update_export(existing, formats=all_formats, weight_storage=weight_storage)


def _export_without_data(run_directory: RunDirectory, model: Path, settings: Settings) -> RunResult:
    """Write the requested files and put them into the report of the run."""
    file = read_model_file(model)
    report = read_write.read(run_directory.path(REPORT_JSON))
    if file.sha256 != run_directory.manifest.identity.model:
        raise InputError(
            f"{model} is no longer the model of the run in {run_directory.root}",
            "restore the model of the run",
        )
    run_directory.progress.say(
        f"The data at {settings.data.path} are missing: new files are verified, but not measured"
    )
    network, _ = import_model.run(file, settings.prune, settings=settings.model)
    feeds = generate_inputs(report)
    export_files = partial(_export_files, network, settings.export, run_directory, feeds)
    weight_names = list_weights(settings.baseline)
    updated, notes = export_files(report, "pruned", weight_names[report.pruned.base_method], "")
    for key, part in report.other_networks.items():
        weights_name = weight_names[part.base_method]
        updated, _ = export_files(updated, key, weights_name, FILE_FOLDERS[key])
    updated = _keep_differences(report, updated)
    run_directory.save_inputs(model, settings)
    updated = updated.replace(
        sizes={},
        settings={**report.settings, "export": settings.export.model_dump(mode="json")},
        notes=tuple(dict.fromkeys((*report.notes, *notes))),
    )
    return write_report(complete(updated), settings, run_directory)


def _keep_differences(report: Report, updated: Report) -> Report:
    """Return the updated report, without the intervals of differences whose accuracy changed."""
    for key in updated.other_networks:
        values = [part.exact_value for part in (updated.pruned, getattr(updated, key))]
        before = [part.exact_value for part in (report.pruned, getattr(report, key))]
        if values == before and None not in values:
            continue
        changed = None if None in values else BaselineDifference()
        if key == "baseline":
            updated = updated.replace(difference=changed)
        else:
            updated = updated.replace(**{key: getattr(updated, key).replace(difference=changed)})
    return updated


def _export_files(
    network: Network,
    settings: ExportSettings,
    run_directory: RunDirectory,
    feeds: Mapping[str, Array],
    report: Report,
    name: str,
    key: str,
    folder: str,
) -> tuple[Report, list[str]]:
    """Export all requested files of a network. Files in 8 bits need the data and stay.

    Args:
        network: The model.
        settings: The requested files.
        run_directory: The run directory, which has the weights.
        feeds: Inputs to verify the files with.
        report: The report.
        name: Key of the network in the report.
        key: Name of its saved weights.
        folder: Folder of its files in the run directory.

    Returns:
        The report with the files, and notes about them.
    """
    saved = run_directory.load_weights(key)
    if saved is None or not saved[0].keys() <= network.file.model.tensors.keys():
        raise InputError(
            f"the weights saved in {run_directory.root} do not fit the model as it is "
            "read without data",
            "restore the data, and export again",
        )
    part = getattr(report, name)
    written_files = {file.name: file for file in part.files}
    float_names = []
    int8_files = []
    for format_name in settings.formats:
        if find_format(format_name).graph != INT8:
            float_names.append(format_name)
        elif format_name in written_files:
            int8_files.append(written_files[format_name])
        else:
            raise InputError(
                f"an {format_name} file needs the data for its calibration", "restore the data"
            )
    exported = export.run(
        network.file,
        to_file_types(network, saved[0]),
        [layer.name for layer in network.layer_weights],
        settings.model_copy(update={"formats": tuple(float_names)}),
        run_directory,
        feeds,
        folder,
    )
    files = []
    notes: list[str] = []
    most = None
    for file in exported.files:
        counts = count_file_sparsity(file.path, [layer.name for layer in network.layer_weights])
        files.append(_merge_file(file.result, part, counts.layers.nonzeros))
        notes += file.notes
        if most is None or counts.layers.nonzeros > most.layers.nonzeros:
            most = counts
    reasons = {FILE_REASON_PREFIX + name: why for name, why in exported.skipped.items()}
    part = part.replace(reasons={**part.reasons, **reasons})
    notes += describe_skipped_files(exported.skipped)
    report = report.replace(**{name: put_files(part, (*files, *int8_files), report.metric)})
    if most is not None and most.layers.nonzeros >= (part.nonzeros or 0):
        report = put_nonzeros(report, name, most.nonzeros, most.model.nonzeros)
    return report, notes


def put_files(part: NetworkT, files: tuple[FileResult, ...], metric: Metric) -> NetworkT:
    """Return a network with other files, and without the values that follow from them.

    `complete` computes these values again. The interval of the drop stays if the accuracy does.

    Args:
        part: The network in the report.
        files: Its files.
        metric: The metric of the report.
    """
    changes: dict[str, Any] = {"files": files, "accuracy": None, "drop": None}
    reasons = dict(part.reasons)
    least = part.replace(files=files).least_accurate(metric)
    if least is None:
        unknown = next(file.path for file in files if file.value is None)
        reason = f"{unknown} was not measured: {NO_DATA}"
        changes["drop_interval"] = None
        reasons |= dict.fromkeys(("accuracy", "drop", "drop_interval"), reason)
    elif least.value != part.value:
        changes["drop_interval"] = None
        if least.paired_counts is None:
            reasons["drop_interval"] = NO_DATA
    return part.replace(**changes, reasons=reasons)


def _merge_file(written: FileResult, part: NetworkResult, nonzeros: int) -> FileResult:
    """Return a written file with what the report knows of it, or of one with the same outputs."""
    storage = (written.graph, written.weight_storage)
    alike = None
    for file in part.files:
        if (file.graph, file.weight_storage) != storage:
            continue
        if file.encoding == written.encoding:
            changes = written.model_dump(include={"sha256", "data_sha256", "bytes"})
            return file.replace(**changes)
        if alike is None and file.accuracy is not None:
            alike = file
    reasons = dict.fromkeys(("parity_max_abs", "load_ms", "latency"), NO_DATA)
    changes = {"nonzeros": nonzeros}
    if alike is None:
        reasons |= {"accuracy": NO_DATA, "paired_counts": NO_DATA}
    else:
        reasons["accuracy"] = f"not measured: that of {alike.path}, with bit-identical outputs"
        if alike.paired_counts is None:
            reasons["paired_counts"] = alike.reasons.get("paired_counts", NO_DATA)
        changes |= {"accuracy": alike.accuracy, "paired_counts": alike.paired_counts}
    return written.replace(**changes, reasons=reasons)
