"""Further files of a finished run, from the weights that it kept: nothing is trained again.

With the data of the run all files are measured anew. Without them a file is still written and proven; its accuracy is
that of a measured file with the same outputs, bit for bit, or null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline import report_io, threads
from ltp_pipeline.config import ExportSettings, Settings, changed_export
from ltp_pipeline.data import recipe
from ltp_pipeline.errors import InputError, LtpError
from ltp_pipeline.formats import EXACT
from ltp_pipeline.outcome import BASELINE_FOLDER, Outcome, conclude
from ltp_pipeline.pick_entry import finish_entry
from ltp_pipeline.progress import Reporter
from ltp_pipeline.report_schema import File, Pruned
from ltp_pipeline.runner import run
from ltp_pipeline.stages import export, import_model
from ltp_pipeline.stages.handoff.example import example_input
from ltp_pipeline.stages.lower import as_file_types
from ltp_pipeline.stages.validate import count_in_file
from ltp_pipeline.workspace import REPORT_JSON, Workspace

if TYPE_CHECKING:
    from ltp_pipeline.records import Array, ExportedFile
    from ltp_pipeline.stages.import_model.network import Network

NO_DATA = "the data of the run were not there when the file was written"


def export_again(
    folder: Path, formats: Sequence[str], progress: Reporter, values: Sequence[str] | None = None
) -> Outcome:
    """Write and prove further files of a finished run; those it has stay."""
    workspace = Workspace(folder, progress)
    model, settings = workspace.inputs()
    asked = settings.model_copy(update={"export": _with_more(settings.export, formats, values)})
    if workspace.done("report") is None:
        how = "run" if workspace.entry is None else "pick"
        raise InputError(f"{folder} is not finished", f"start the same `{how}` again: it goes on where it stopped")
    try:
        if settings.data.path is None or not settings.data.path.exists():
            with threads.used(settings.train.threads, workspace.kept_threads(), progress.say), workspace.held():
                return _without_data(workspace, model, asked)
        if workspace.entry is not None:
            return finish_entry(workspace.run_of(), workspace.entry, model, asked, asked.baseline.enabled, exactly=True)
        return run(model, asked, folder, progress, exactly=True)
    except LtpError:
        workspace.inputs()
        workspace.remember_inputs(model, settings)  # what could not be written is not asked for again
        raise


def _with_more(had: ExportSettings, formats: Sequence[str], values: Sequence[str] | None = None) -> ExportSettings:
    """The files there are and these; `values` None leaves rounding as it was."""
    if values is None:
        values = had.values
    elif set(values) != {EXACT}:
        values = [*had.values, *values]
    return changed_export(had, formats=[*had.formats, *formats], values=values)


def _without_data(workspace: Workspace, model: Path, settings: Settings) -> Outcome:
    """Write what is asked for and put it into the report that is there."""
    file, content = import_model.read(model), report_io.read(workspace.path(REPORT_JSON))
    if file.sha256 != workspace.model_sha256:
        raise InputError(f"{model} is no longer the model of the run in {workspace.root}", "bring it back")
    workspace.progress.say(f"The data at {settings.data.path} are not there: new files are proven, and not measured")
    network, _ = import_model.run(file, settings.kernels, settings=settings.model)
    samples = example_input(recipe.of_report(content.data.model_dump()), content.model.inputs[0])
    feeds = {content.model.inputs[0].name: samples}
    pruned = _with_files(content.pruned, "pruned", "", network, settings, workspace, feeds)
    changes: dict[str, object] = {"pruned": pruned}
    if content.baseline is not None:
        folder = BASELINE_FOLDER
        changes["baseline"] = _with_files(content.baseline, "baseline", folder, network, settings, workspace, feeds)
    sizes = {**content.sizes, **{f.label: f.bytes for f in pruned.files}}
    asked = {**content.settings, "export": settings.export.model_dump(mode="json")}
    workspace.remember_inputs(model, settings)
    return conclude(content.model_copy(update={**changes, "sizes": sizes, "settings": asked}), settings, workspace)


def _with_files(
    part: Pruned,
    name: str,
    folder: str,
    network: Network,
    settings: Settings,
    workspace: Workspace,
    feeds: Mapping[str, Array],
) -> Pruned:
    """A network of the report with all files that are asked for now."""
    kept = workspace.load_weights(name)
    if kept is None:
        raise InputError(f"{workspace.root} has not kept its weights", "start the same run again with its data")
    weights = as_file_types(network, kept[0])
    kernels = [k.name for k in network.kernels]
    written = export.run(network.file, weights, kernels, settings.export, workspace, feeds, folder)
    return part.model_copy(update={"files": tuple(_entry(file, part, kernels) for file in written)})


def _entry(file: ExportedFile, part: Pruned, kernels: Sequence[str]) -> File:
    """What the report says of a file: as it was measured, or as far as it is known."""
    for known in part.files:
        if (known.graph, known.encoding, known.values) == (file.graph, file.encoding, file.values):
            return known.model_copy(update={"sha256": file.sha256, "data_sha256": file.data_sha256})
    alike = [f for f in part.files if (f.graph, f.values) == (file.graph, file.values) and f.accuracy is not None]
    reasons = dict.fromkeys(("parity_max_abs", "load_ms", "latency"), NO_DATA)
    if alike:
        reasons["accuracy"] = f"not measured: that of {alike[0].path}, whose outputs are the same bit for bit"
    return File(
        graph=file.graph,
        encoding=file.encoding,
        values=file.values,
        path=file.name,
        sha256=file.sha256,
        data_sha256=file.data_sha256,
        bytes=file.bytes,
        nonzeros=count_in_file(file.path, kernels).kernels.nonzeros,
        accuracy=alike[0].accuracy if alike else None,
        reasons=reasons if alike else {**reasons, "accuracy": NO_DATA},
    )
