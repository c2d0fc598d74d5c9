"""Export further files of a finished run from its saved weights, without training.

If the data of the run are there, all files are measured again. Otherwise new files are written and
verified, but not measured: their accuracy is that of a measured file with bit-identical outputs, or
null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.exporters.files.count import FileSparsity, count_file_sparsity
from ltp_pipeline.results import read_write
from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import BaselineDifference, FileResult, NetworkResult, Report
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX, LayerResult
from ltp_pipeline.run_directory.names import REPORT_JSON, point_folder
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner.finish import RunResult, write_report
from ltp_pipeline.runner.pick import finish_entry
from ltp_pipeline.runner.run import run
from ltp_pipeline.settings.file_names import EXACT, INT8, find_format
from ltp_pipeline.settings.load import update_export
from ltp_pipeline.settings.schema import ExportSettings, Settings
from ltp_pipeline.stages import baseline, export, import_model
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
    inputs = generate_inputs(report)
    writer = _FileWriter(network, settings.export, run_directory, inputs, report.metric)
    pruned = writer.export_files(report.pruned, "pruned", "")
    layers = _put_counts(report.layers, "nonzeros", pruned.counts)
    changes: dict[str, Any] = {"pruned": pruned.result}
    if report.baseline is not None:
        key = baseline.point_key(1, settings.baseline.exclude_classifier)
        compared = writer.export_files(report.baseline, key, point_folder(1))
        layers = _put_counts(layers, "baseline_nonzeros", compared.counts)
        changes["baseline"] = compared.result
        changes["difference"] = _keep_difference(report, pruned.result, compared.result)
    run_directory.save_inputs(model, settings)
    changes |= {
        "layers": layers,
        "sizes": {},
        "settings": {**report.settings, "export": settings.export.model_dump(mode="json")},
        "notes": tuple(dict.fromkeys((*report.notes, *pruned.notes))),
    }
    return write_report(complete(report.replace(**changes)), settings, run_directory)


def _put_counts(
    layers: tuple[LayerResult, ...], key: str, counts: FileSparsity | None
) -> tuple[LayerResult, ...]:
    """Return layers with other nonzeros under a key, if there are new counts."""
    if counts is None:
        return layers
    return tuple(layer.replace(**{key: counts.nonzeros[layer.name]}) for layer in layers)


def _keep_difference(
    report: Report, pruned: NetworkResult, compared: NetworkResult
) -> BaselineDifference | None:
    """Return the difference of the report, without its interval if an accuracy changed."""
    values = (pruned.exact_value, compared.exact_value)
    if None in values:
        return None
    before = report.baseline and (report.pruned.exact_value, report.baseline.exact_value)
    return report.difference if values == before else BaselineDifference()


class _ExportedNetwork(NamedTuple):
    result: Any  # the network with its files
    counts: FileSparsity | None  # of the new file with the most nonzeros, if no other has more
    notes: list[str]


@dataclass(frozen=True)
class _FileWriter:
    """Writes files of saved weights."""

    network: Network
    settings: ExportSettings
    run_directory: RunDirectory
    inputs: Mapping[str, Array]
    metric: Metric

    def export_files(self, part: NetworkResult, key: str, folder: str) -> _ExportedNetwork:
        """Export all requested files of a network.

        Files in 8 bits need the data and stay as they are.

        Args:
            part: The network in the report.
            key: Name of its saved weights.
            folder: Folder of its files in the run directory.
        """
        file = self.network.file
        saved = self.run_directory.load_weights(key)
        if saved is None or not saved[0].keys() <= file.model.tensors.keys():
            raise InputError(
                f"the weights saved in {self.run_directory.root} do not fit the model as it is "
                "read without data",
                "restore the data, and export again",
            )
        int8_names = [name for name in self.settings.formats if find_format(name).graph == INT8]
        int8_files = [file for file in part.files if file.name in int8_names]
        missing = set(int8_names) - {file.name for file in int8_files}
        if missing:
            raise InputError(
                f"an {min(missing)} file needs the data for its calibration", "restore the data"
            )
        float_names = tuple(name for name in self.settings.formats if name not in int8_names)
        float_settings = self.settings.model_copy(update={"formats": float_names})
        weights = to_file_types(self.network, saved[0])
        layer_names = [layer.name for layer in self.network.layer_weights]
        exported = export.run(
            file, weights, layer_names, float_settings, self.run_directory, self.inputs, folder
        )
        counts = [count_file_sparsity(written.path, layer_names) for written in exported.files]
        files = [
            _merge_file(written.result, part, file_counts)
            for written, file_counts in zip(exported.files, counts, strict=True)
        ]
        reasons = {FILE_REASON_PREFIX + name: why for name, why in exported.skipped.items()}
        part = part.replace(reasons={**part.reasons, **reasons})
        result = put_files(part, (*files, *int8_files), self.metric)
        notes = [note for written in exported.files for note in written.notes]
        notes += describe_skipped_files(exported.skipped)
        most = max(counts, key=lambda each: each.layers.nonzeros, default=None)
        if most is None or most.layers.nonzeros < (part.nonzeros or 0):
            return _ExportedNetwork(result, None, notes)
        result = result.replace(model_nonzeros=most.model.nonzeros)
        return _ExportedNetwork(result, most, notes)


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


def _merge_file(written: FileResult, part: NetworkResult, counts: FileSparsity) -> FileResult:
    """Return a written file with what the report knows of it.

    Args:
        written: The file as it was exported.
        part: The network in the report. It may have the file, or one with the same outputs.
        counts: Counts of the file.
    """
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
    changes = {"nonzeros": counts.layers.nonzeros}
    if alike is None:
        reasons |= {"accuracy": NO_DATA, "paired_counts": NO_DATA}
    else:
        reasons["accuracy"] = f"not measured: that of {alike.path}, with bit-identical outputs"
        if alike.paired_counts is None:
            reasons["paired_counts"] = alike.reasons.get("paired_counts", NO_DATA)
        changes |= {"accuracy": alike.accuracy, "paired_counts": alike.paired_counts}
    return written.replace(**changes, reasons=reasons)
