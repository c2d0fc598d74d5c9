"""Further files of a finished run, from the weights that it kept: nothing is trained again.

With the data of the run all files are measured anew. Without them a file is still written and proven; its accuracy is
that of a measured file with the same outputs, bit for bit, or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.exporters.files.count import FileSparsity, count_file_sparsity, iter_float_weights
from ltp_pipeline.graph.sparsity import Sparsity
from ltp_pipeline.results import read_write
from ltp_pipeline.results.complete import bound_size
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import (
    BaselineDifference,
    BaselineResult,
    FileResult,
    NetworkResult,
    Report,
)
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX, LayerResult, SparseKernelInfo
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
    from ltp_pipeline.results.records import ExportedFile
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.system.arrays import Array

NetworkT = TypeVar("NetworkT", bound=NetworkResult)
NO_DATA = "the data of the run were not there when the file was written"


def export_again(
    folder: Path,
    formats: Sequence[str],
    progress: Reporter,
    values: Sequence[str] | None = None,
    task: CustomTask | None = None,
) -> RunResult:
    """Write and prove further files of a finished run; those it has stay."""
    if distributed.is_distributed():
        raise InputError(
            "only `run` works with several processes", "start `export` without torchrun"
        )
    workspace = RunDirectory(folder, progress)
    model, settings = workspace.load_inputs()
    asked = settings.model_copy(update={"export": _with_more(settings.export, formats, values)})
    if workspace.manifest.proof is None:
        how = "run" if workspace.entry is None else "pick"
        raise InputError(
            f"{folder} is not finished",
            f"start the same `{how}` again: it goes on where it stopped",
        )
    check_same_task(workspace, task)
    try:
        if task is None and (settings.data.path is None or not settings.data.path.exists()):
            with (
                threads.use_threads(
                    settings.train.threads, workspace.saved_threads(), progress.say
                ),
                workspace.lock(),
            ):
                return _without_data(workspace, model, asked)
        if workspace.entry is not None:
            return finish_entry(
                workspace.find_trail_run(),
                workspace.entry,
                model,
                asked,
                asked.baseline.mode,
                True,
                task,
            )
        return run(model, asked, folder, progress, exactly=True, task=task)
    except LtpError:
        with suppress(InputError), workspace.lock():  # unless another process is at work in it
            workspace.load_inputs()
            workspace.save_inputs(
                model, settings
            )  # what could not be written is not asked for again
        raise


def _with_more(
    had: ExportSettings, formats: Sequence[str], values: Sequence[str] | None = None
) -> ExportSettings:
    """The files there are and these; `values` None leaves rounding as it was."""
    if values is None:
        values = had.weight_storage
    elif set(values) != {EXACT}:
        values = [*had.weight_storage, *values]
    return update_export(had, formats=[*had.formats, *formats], weight_storage=values)


def _without_data(workspace: RunDirectory, model: Path, settings: Settings) -> RunResult:
    """Write what is asked for and put it into the report that is there."""
    file, content = read_model_file(model), read_write.read(workspace.path(REPORT_JSON))
    if file.sha256 != workspace.manifest.identity.model:
        raise InputError(
            f"{model} is no longer the model of the run in {workspace.root}", "bring it back"
        )
    workspace.progress.say(
        f"The data at {settings.data.path} are not there: new files are proven, and not measured"
    )
    network, _ = import_model.run(file, settings.prune, settings=settings.model)
    write = _Writer(network, settings.export, workspace, generate_inputs(content), content.metric)
    pruned, most, notes = write.files_of(content.pruned, "pruned", "")
    compared, most_of_baseline = None, None
    if content.baseline is not None:
        compared, most_of_baseline = _baseline(content.baseline, write, settings)
    elements, left = sum(k.elements for k in network.layer_weights), pruned.nonzeros
    bound = None if left is None else bound_size(file.num_bytes, elements, left)
    workspace.save_inputs(model, settings)
    changes = {
        "pruned": pruned,
        "baseline": compared,
        "difference": _difference(content, pruned, compared),
        "layers": tuple(_layer(layer, most, most_of_baseline) for layer in content.layers),
        "sizes": {
            "original": file.num_bytes,
            **{f.label: f.bytes for f in pruned.files},
            "entropy_bound": bound,
        },
        "settings": {**content.settings, "export": settings.export.model_dump(mode="json")},
        "notes": tuple(dict.fromkeys((*content.notes, *notes))),
    }
    return write_report(content.model_copy(update=changes), settings, workspace)


def _baseline(
    part: BaselineResult, write: _Writer, settings: Settings
) -> tuple[BaselineResult, FileSparsity | None]:
    """The baseline with all files; points of its curve that are among them have the hashes of these."""
    kept = baseline.point_key(1, settings.baseline.exclude_classifier)
    found, most, _ = write.files_of(part, kept, point_folder(1))
    hashes = {f.path: {"sha256": f.sha256, "data_sha256": f.data_sha256} for f in found.files}
    curve = part.curve and tuple(
        point.model_copy(update=hashes.get(point.path, {})) for point in part.curve
    )
    return found.model_copy(update={"curve": curve}), most


def _layer(
    layer: LayerResult, most: FileSparsity | None, most_of_baseline: FileSparsity | None
) -> LayerResult:
    """A layer as the files with the most nonzeros have it, where these are new."""
    counts = {"nonzeros": most, "baseline_nonzeros": most_of_baseline}
    return layer.model_copy(
        update={key: c.nonzeros[layer.name] for key, c in counts.items() if c is not None}
    )


def _difference(
    content: Report, pruned: NetworkResult, baseline: NetworkResult | None
) -> BaselineDifference | None:
    """Between the two networks, if both are known; how sure it is, only where neither has changed."""
    if baseline is None or pruned.exact_value is None or baseline.exact_value is None:
        return None
    had = content.baseline and (content.pruned.exact_value, content.baseline.exact_value)
    changed = had != (pruned.exact_value, baseline.exact_value)
    value = content.metric.drop(pruned.exact_value, baseline.exact_value)
    return BaselineDifference(value=value) if changed else content.difference


@dataclass(frozen=True)
class _Writer:
    """Writes files of kept weights."""

    network: Network
    settings: ExportSettings
    workspace: RunDirectory
    feeds: Mapping[str, Array]
    metric: Metric

    def files_of(
        self, part: NetworkT, name: str, folder: str
    ) -> tuple[NetworkT, FileSparsity | None, list[str]]:
        """A network of the report with all files that are asked for now.

        Also the counts of the first file with the most nonzeros, where it is new, and what is to be noted of the files.
        """
        known = self.workspace.load_weights(name)
        if known is None or not known[0].keys() <= self.network.file.model.tensors.keys():
            what = f"the weights kept in {self.workspace.root} do not fit the model as it is read without data"
            raise InputError(what, "bring the data back, and export again")
        weights = to_file_types(self.network, known[0])
        kernels = [k.name for k in self.network.layer_weights]
        file = self.network.file
        wanted = [name for name in self.settings.formats if find_format(name).graph == INT8]
        kept = tuple(
            f for f in part.files if f.name in wanted
        )  # which need the data, and are there as they were
        if missing := set(wanted) - {f.name for f in kept}:
            raise InputError(
                f"an {min(missing)} file needs the data, to choose ranges by", "bring the data back"
            )
        others = self.settings.model_copy(
            update={"formats": tuple(n for n in self.settings.formats if n not in wanted)}
        )
        written = export.run(file, weights, kernels, others, self.workspace, self.feeds, folder)
        counted = [count_file_sparsity(file.path, kernels) for file in written.files]
        files = (
            *(
                _entry(file, part, counts)
                for file, counts in zip(written.files, counted, strict=True)
            ),
            *kept,
        )
        reasons = {FILE_REASON_PREFIX + name: why for name, why in written.skipped.items()}
        part = part.model_copy(update={"reasons": {**part.reasons, **reasons}})
        notes = [note for file in written.files for note in file.notes] + describe_skipped_files(
            written.skipped
        )
        part = _summed_up(part, files, self.metric)
        most = max(counted, key=lambda counts: counts.layers.nonzeros, default=None)
        if most is None or most.layers.nonzeros < (part.nonzeros or 0):
            return part, None, notes
        return self._recounted(part, most), most, notes

    def _recounted(self, part: NetworkT, most: FileSparsity) -> NetworkT:
        """A network with the counts of this file."""
        whole = Sparsity(
            sum(c.elements for _, c in iter_float_weights(self.network.file.model)),
            most.model.nonzeros,
        )
        changes = {
            "nonzeros": most.layers.nonzeros,
            "sparsity": most.layers.sparsity,
            "compression": most.layers.compression,
            "model_nonzeros": whole.nonzeros,
            "model_compression": whole.compression,
        }
        return part.model_copy(update=changes)


def _summed_up(part: NetworkT, files: tuple[FileResult, ...], metric: Metric) -> NetworkT:
    """A network with these files: its accuracy is that of the least accurate, and unknown where that of any is."""
    unknown = [file.path for file in files if file.value is None]
    if unknown:
        reason = f"that of {unknown[0]} was not measured: {NO_DATA}"
        empty = dict.fromkeys(("accuracy", "drop", "drop_interval"))
        return part.model_copy(
            update={
                "files": files,
                **empty,
                "reasons": {**part.reasons, **dict.fromkeys(empty, reason)},
            }
        )
    least = metric.worst(files, lambda file: file.value or 0.0)
    if least.value == part.value or part.value is None or part.drop is None:
        return part.model_copy(update={"files": files})
    drop = part.drop + metric.drop(part.value, least.value or 0.0)
    changes = {"accuracy": least.accuracy, "drop": drop, "drop_interval": None}
    return part.model_copy(
        update={"files": files, **changes, "reasons": {**part.reasons, "drop_interval": NO_DATA}}
    )


def _entry(file: ExportedFile, part: NetworkResult, counts: FileSparsity) -> FileResult:
    """What the report says of a file: as it was measured, or as far as it is known."""
    for known in part.files:
        if (known.graph, known.encoding, known.weight_storage) == (
            file.graph,
            file.encoding,
            file.weight_storage,
        ):
            return known.model_copy(
                update={"sha256": file.sha256, "data_sha256": file.data_sha256, "bytes": file.bytes}
            )
    alike = [
        f
        for f in part.files
        if (f.graph, f.weight_storage) == (file.graph, file.weight_storage)
        and f.accuracy is not None
    ]
    reasons = dict.fromkeys(("parity_max_abs", "load_ms", "latency"), NO_DATA)
    if not alike or alike[0].paired_counts is None:
        reasons["paired_counts"] = (
            alike[0].reasons.get("paired_counts", NO_DATA) if alike else NO_DATA
        )
    if alike:
        reasons["accuracy"] = (
            f"not measured: that of {alike[0].path}, whose outputs are the same bit for bit"
        )
    return FileResult(
        graph=file.graph,
        encoding=file.encoding,
        weight_storage=file.weight_storage,
        path=file.name,
        sha256=file.sha256,
        data_sha256=file.data_sha256,
        bytes=file.bytes,
        nonzeros=counts.layers.nonzeros,
        accuracy=alike[0].accuracy if alike else None,
        paired_counts=alike[0].paired_counts if alike else None,
        sparse_kernels=None
        if file.sparse_kernels is None
        else SparseKernelInfo(**asdict(file.sparse_kernels)),
        reasons=reasons if alike else {**reasons, "accuracy": NO_DATA},
    )
