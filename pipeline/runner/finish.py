"""The end of a run: check its gates and write the report; notice a run that is finished already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.gates.evaluation import evaluate_gates, evaluate_run_gates, set_gate_results
from ltp_pipeline.results import read_write
from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.schema_parts import GateResult
from ltp_pipeline.run_directory.manifest import ReportInputs
from ltp_pipeline.run_directory.names import REPORT_JSON, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import BaselineMode, BaselineSettings, ExportSettings, Settings
from ltp_pipeline.stages import handoff
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
    run_directory = context.run_directory
    settings = context.settings
    result = None
    if distributed.is_main_process() and is_there:
        done = run_directory.manifest.proof
        if (
            done
            and _covers(done, settings, run_directory.manifest.curve, exactly)
            and _is_complete(run_directory)
        ):
            had = settings.model_copy(
                update={"export": done.export, "baseline": done.baseline}
            )  # `export` may have added files
            run_directory.save_inputs(model, had, context.task.metric)
            run_directory.progress.say(
                f"{run_directory.root} is finished already; its gates are checked again"
            )
            result = write_gate_results(
                read_write.read(run_directory.path(REPORT_JSON)), settings, run_directory
            )
    if not distributed.broadcast_from_main(float(result is not None)):
        return None
    if result is None:
        return load_main_result(context)
    distributed.barrier()
    return result


def load_main_result(context: RunContext) -> RunResult:
    """Return the result that the main process has written."""
    distributed.barrier()
    content = read_write.read(context.run_directory.path(REPORT_JSON))
    return RunResult(
        context.run_directory.root, content, evaluate_gates(content, context.settings.gates)
    )


def write_report(content: Report, settings: Settings, run_directory: RunDirectory) -> RunResult:
    """Check the gates and write the report; files that were not measured now are removed."""
    for name in run_directory.remove_other_models(content.hashes):
        run_directory.progress.say(f"Removed {name}, which is not requested now")
    result = write_gate_results(content, settings, run_directory)
    run_directory.update_manifest(proof=_report_inputs(content, settings))
    distributed.barrier()
    return result


def write_gate_results(
    content: Report, settings: Settings, run_directory: RunDirectory
) -> RunResult:
    """Check the gates of the requested files and write the report with their results."""
    root = run_directory.root
    requested = {
        "gates": settings.gates.model_dump(mode="json"),
        "export": settings.export.model_dump(mode="json"),
    }
    content = content.model_copy(update={"settings": {**content.settings, **requested}})
    gate_results = evaluate_run_gates(content, settings.gates)
    content = set_gate_results(content, gate_results)
    render.write_report(content, run_directory)
    handoff.run(content, root, root / handoff.FOLDER)
    return RunResult(root, content, gate_results)


def _is_complete(run_directory: RunDirectory) -> bool:
    """Return whether the report and every file it names are there, unchanged and measured."""
    path, sums = run_directory.path(REPORT_JSON), run_directory.path(SUMS)
    try:
        content = read_write.read(path)
    except InputError:
        return False
    if not sums.is_file() or sha256_file(path) not in sums.read_text(
        encoding="utf-8", errors="replace"
    ):
        return False
    if not all(file.latency for file in content.files):
        return False  # written without the data, which are there now
    paths = [(run_directory.path(name), digest) for name, digest in content.hashes.items()]
    return all(path.is_file() and sha256_file(path) == digest for path, digest in paths)


def _report_inputs(content: Report, settings: Settings) -> ReportInputs:
    """Return what the report of a run was made of.

    Another request makes the report again, without training.
    """
    mode: BaselineMode = "none"
    if content.baseline is not None:
        mode = "quick" if content.baseline.curve is None else "curve"
    excludes_classifier = settings.baseline.exclude_classifier
    return ReportInputs(
        export=settings.export,
        baseline=BaselineSettings(mode=mode, exclude_classifier=excludes_classifier),
        quantize=settings.train.quantization_aware,
        library=_hash_library(settings.export),
    )


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

    Args:
        done: What the report was made of.
        settings: The settings requested now.
        makes_curve: Whether `auto` decided for a curve of the baseline.
        exactly: More files than the requested ones are not accepted.
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
    if done.baseline.exclude_classifier != settings.baseline.exclude_classifier:
        return False
    needs_curve = mode == "curve" or (mode == "auto" and makes_curve is not False)
    return done.baseline.mode in (("curve",) if needs_curve else ("quick", "curve"))
