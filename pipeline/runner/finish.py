"""The end of a run: its report judged and written; and whether a run that is there has all that is asked for."""

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
    from ltp_pipeline.stages.train.job import RunContext


@dataclass(frozen=True)
class RunResult:
    """A finished run: its directory, its report and the verdicts of its gates."""

    folder: Path
    report: Report
    gate_results: list[GateResult]


def load_finished_run(
    job: RunContext, model: Path, is_there: bool, exactly: bool = False
) -> RunResult | None:
    """Where the run has all that is asked for now, judge its gates again; all processes are told."""
    workspace, settings, outcome = job.workspace, job.settings, None
    if distributed.is_main_process() and is_there:
        done = workspace.manifest.proof
        if (
            done
            and _covers(done, settings, workspace.manifest.curve, exactly)
            and _is_complete(workspace)
        ):
            had = settings.model_copy(
                update={"export": done.export, "baseline": done.baseline}
            )  # `export` may have added files
            workspace.save_inputs(model, had, job.task.metric)
            workspace.progress.say(
                f"{workspace.root} is finished already; the gates are judged again"
            )
            outcome = write_gate_results(
                read_write.read(workspace.path(REPORT_JSON)), settings, workspace
            )
    if not distributed.broadcast_from_main(float(outcome is not None), job.device):
        return None
    if outcome is None:
        return load_main_result(job)
    distributed.barrier()
    return outcome


def load_main_result(job: RunContext) -> RunResult:
    """The outcome that the leader has written."""
    distributed.barrier()
    content = read_write.read(job.workspace.path(REPORT_JSON))
    return RunResult(job.workspace.root, content, evaluate_gates(content, job.settings.gates))


def write_report(content: Report, settings: Settings, workspace: RunDirectory) -> RunResult:
    """Judge what was just proven; files of an earlier call that were not proven now are removed."""
    for name in workspace.remove_other_models(content.hashes):
        workspace.progress.say(f"Removed {name}, which was not asked for now")
    outcome = write_gate_results(content, settings, workspace)
    workspace.update_manifest(proof=_report_inputs(content, settings))
    distributed.barrier()
    return outcome


def write_gate_results(content: Report, settings: Settings, workspace: RunDirectory) -> RunResult:
    """Judge the gates by the files asked for, put the verdict into the report and write it."""
    root = workspace.root
    requested = {
        "gates": settings.gates.model_dump(mode="json"),
        "export": settings.export.model_dump(mode="json"),
    }
    content = content.model_copy(update={"settings": {**content.settings, **requested}})
    verdicts = evaluate_run_gates(content, settings.gates)
    content = set_gate_results(content, verdicts)
    render.write_report(content, workspace)
    handoff.run(content, root, root / handoff.FOLDER)
    return RunResult(root, content, verdicts)


def _is_complete(workspace: RunDirectory) -> bool:
    """Whether the report and every file it names are there, unchanged and measured."""
    path, sums = workspace.path(REPORT_JSON), workspace.path(SUMS)
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
    paths = [(workspace.path(name), digest) for name, digest in content.hashes.items()]
    return all(path.is_file() and sha256_file(path) == digest for path, digest in paths)


def _report_inputs(content: Report, settings: Settings) -> ReportInputs:
    """What the proof of a run consists of; another wish has it done again, without training anew."""
    baseline = content.baseline
    mode: BaselineMode = (
        "none" if baseline is None else "quick" if baseline.curve is None else "curve"
    )
    made = BaselineSettings(mode=mode, exclude_classifier=settings.baseline.exclude_classifier)
    hashed = _hash_library(settings.export)
    return ReportInputs(
        export=settings.export,
        baseline=made,
        quantize=settings.train.quantization_aware,
        library=hashed,
    )


def _hash_library(export: ExportSettings) -> str | None:
    """Hash of the sparse kernels that fast files are measured with: with others, they are measured again."""
    try:
        return sha256_file(library.sparse_ops_library()) if export.has_fast else None
    except InputError:
        return None


def _covers(
    done: ReportInputs, settings: Settings, makes_curve: bool | None, exactly: bool
) -> bool:
    """Whether a proof has all that is asked for; it may have more, but no more files if `exactly` these are wanted."""
    had, made = done.export, done.baseline
    if done.quantize != settings.train.quantization_aware or done.library != _hash_library(had):
        return False
    if not (had == settings.export if exactly else had.covers(settings.export)):
        return False
    wanted = settings.requested_baseline
    if wanted == "auto":
        wanted = "quick" if makes_curve is False else "curve"
    enough = {"none": ("none", "quick", "curve"), "quick": ("quick", "curve"), "curve": ("curve",)}
    alike = wanted == "none" or made.exclude_classifier == settings.baseline.exclude_classifier
    return alike and made.mode in enough[wanted]
