"""The end of a run: check its gates and write the report; notice a run that is finished already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.gates.evaluation import evaluate_gates, evaluate_run_gates, set_gate_results
from ltp_pipeline.results import read_write
from ltp_pipeline.results.schema import GRADUAL_METHOD, MAGNITUDE_METHOD, Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.run_directory.manifest import ReportInputs
from ltp_pipeline.run_directory.names import HANDOFF, REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.runner.handoff import deliver_network
from ltp_pipeline.settings.schema import BaselineMode, ExportSettings, Settings
from ltp_pipeline.stages.report import render
from ltp_pipeline.system import distributed
from ltp_pipeline.system.hashing import sha256_file

if TYPE_CHECKING:
    from ltp_pipeline.stages.train.context import RunContext


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Attributes:
        folder: The run directory.
        report: The report.
        gate_results: The results of its gates.
    """

    folder: Path
    report: Report
    gate_results: list[GateResult]


def load_finished_run(
    context: RunContext, model: Path, is_there: bool, exactly: bool = False
) -> RunResult | None:
    """Return a finished run that has everything requested now, with its gates checked again.

    Args:
        context: The run.
        model: The ONNX file.
        is_there: Whether the directory holds the same run.
        exactly: The run must have exactly the requested files. Otherwise it may have more.

    Returns:
        The run, in all processes; None if something has to be done.
    """
    result = None
    if distributed.is_main_process() and is_there:
        result = _check_gates_again(context, model, exactly)
    if not distributed.broadcast_from_main(float(result is not None)):
        return None
    if result is None:
        return load_main_result(context)
    distributed.barrier()
    return result


def _check_gates_again(context: RunContext, model: Path, exactly: bool) -> RunResult | None:
    """Return the finished run with other gate results; None if something has to be done."""
    run_directory = context.run_directory
    settings = context.settings
    done = run_directory.manifest.proof
    if done is None or not _covers(done, settings, run_directory.manifest.curve, exactly):
        return None
    report = _read_complete_report(run_directory)
    if report is None:
        return None
    # `export` may have added files.
    existing = settings.model_copy(update={"export": done.export, "baseline": done.baseline})
    run_directory.save_inputs(model, existing, context.task.metric)
    run_directory.progress.say(
        f"{run_directory.root} is finished already; its gates are checked again"
    )
    return _write_gate_results(report, settings, run_directory)


def load_main_result(context: RunContext) -> RunResult:
    """Return the result that the main process has written."""
    distributed.barrier()
    run_directory = context.run_directory
    report = read_write.read(run_directory.path(REPORT_JSON))
    return RunResult(run_directory.root, report, evaluate_gates(report, context.settings.gates))


def write_report(report: Report, settings: Settings, run_directory: RunDirectory) -> RunResult:
    """Check the gates and write the report; files that were not measured now are removed.

    The manifest records what the report was made of: another request makes the report again,
    without training.
    """
    for name in run_directory.remove_other_models(report.hashes):
        run_directory.progress.say(f"Removed {name}, which is not requested now")
    result = _write_gate_results(report, settings, run_directory)
    methods = {network.base_method for network in report.networks}
    mode: BaselineMode = "none"
    if report.baseline is not None:
        mode = "quick" if report.baseline.curve is None else "curve"
    elif MAGNITUDE_METHOD in methods:
        mode = "curve"  # the baseline was delivered; a curve would be compared with itself
    proof = ReportInputs(
        export=settings.export,
        baseline=settings.baseline.model_copy(update={"mode": mode}),
        has_gradual=GRADUAL_METHOD in methods or settings.baseline.mode == "gradual",
        quantize=settings.train.quantization_aware,
        library=_hash_library(settings.export),
    )
    run_directory.update_manifest(proof=proof)
    distributed.barrier()
    return result


def _write_gate_results(
    report: Report, settings: Settings, run_directory: RunDirectory
) -> RunResult:
    """Check the gates of the requested files and write the report with their results."""
    root = run_directory.root
    requested = settings.model_dump(mode="json", include={"gates", "export"})
    report = report.replace(settings={**report.settings, **requested})
    gate_results = evaluate_run_gates(report, settings.gates)
    report = set_gate_results(report, gate_results)
    render.write_report(report, run_directory)
    deliver_network(report, root, root / HANDOFF)
    return RunResult(root, report, gate_results)


def _read_complete_report(run_directory: RunDirectory) -> Report | None:
    """Return the report if it and every file it names are there, unchanged and measured."""
    path, sums = run_directory.path(REPORT_JSON), run_directory.path(SUMS)
    try:
        report = read_write.read(path)
    except InputError:
        return None
    if not sums.is_file():
        return None
    if sha256_file(path) not in sums.read_text(encoding="utf-8", errors="replace"):
        return None
    if not all(file.latency for file in report.files):
        return None  # written without the data, which are there now
    for name, digest in report.hashes.items():
        file = run_directory.path(name)
        if not file.is_file() or sha256_file(file) != digest:
            return None
    return report


def _hash_library(export: ExportSettings) -> str | None:
    """Return the hash of the sparse operators that fast files are measured with.

    With other operators, the files are measured again.
    """
    try:
        return sha256_file(library.sparse_ops_library()) if export.has_fast else None
    except InputError:
        return None


def _covers(
    done: ReportInputs, settings: Settings, makes_curve: bool | None, exactly: bool
) -> bool:
    """Return whether a report has everything requested.

    `makes_curve` says whether `auto` decided for a curve of the baseline.
    """
    if done.quantize != settings.train.quantization_aware:
        return False
    if done.library != _hash_library(done.export):
        return False
    if exactly and done.export != settings.export:
        return False
    if not done.export.has_all_files(settings.export):
        return False
    mode = settings.requested_baseline
    if mode == "none":
        return True
    if done.baseline != settings.baseline.model_copy(update={"mode": done.baseline.mode}):
        return False
    if mode == "gradual" and not done.has_gradual:
        return False
    needs_curve = mode == "curve" or (mode == "auto" and makes_curve is not False)
    return done.baseline.mode in (("curve",) if needs_curve else ("quick", "curve"))
