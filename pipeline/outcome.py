"""The end of a run: its report judged and written; and whether a run that is there has all that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ltp_pipeline import ranks, report_io
from ltp_pipeline.config import ExportSettings, Settings
from ltp_pipeline.errors import InputError
from ltp_pipeline.gates import evaluate_gates, with_verdicts
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.report_parts import Verdict
from ltp_pipeline.report_schema import Report
from ltp_pipeline.stages import handoff, report
from ltp_pipeline.workspace import REPORT_JSON, SUMS, Workspace

if TYPE_CHECKING:
    from ltp_pipeline.stages.train import Job

BASELINE_FOLDER = "baseline"


@dataclass(frozen=True)
class Outcome:
    """A finished run: its directory, its report and the verdicts of its gates."""

    folder: Path
    report: Report
    verdicts: list[Verdict]


def finished_already(job: Job, model: Path, is_there: bool, exactly: bool = False) -> Outcome | None:
    """Where the run has all that is asked for now, judge its gates again; all processes are told."""
    workspace, settings, outcome = job.workspace, job.settings, None
    if ranks.is_leader() and is_there:
        done = workspace.done("report")
        enough = done is not None and (done == _asked(settings) if exactly else _covers(done, settings))
        if done and enough and _is_whole(workspace):
            had = ExportSettings.model_validate(done["export"])  # `export` may have added files
            workspace.remember_inputs(model, settings.model_copy(update={"export": had}), job.task.metric.name)
            workspace.progress.say(f"{workspace.root} is finished already; the gates are judged again")
            outcome = write_verdicts(report_io.read(workspace.path(REPORT_JSON)), settings, workspace)
    if not ranks.from_leader(float(outcome is not None), job.device):
        return None
    if outcome is None:
        return outcome_of_leader(job)
    ranks.wait()
    return outcome


def outcome_of_leader(job: Job) -> Outcome:
    """The outcome that the leader has written."""
    ranks.wait()
    content = report_io.read(job.workspace.path(REPORT_JSON))
    return Outcome(job.workspace.root, content, evaluate_gates(content, job.settings.gates))


def conclude(content: Report, settings: Settings, workspace: Workspace) -> Outcome:
    """Judge what was just proven; files of an earlier call that were not proven now are removed."""
    for folder in ("", BASELINE_FOLDER):
        for name in workspace.keep_models(folder, [file.path for file in content.files]):
            workspace.progress.say(f"Removed {name}, which was not asked for now")
    outcome = write_verdicts(content, settings, workspace)
    workspace.mark_done("report", _asked(settings))
    ranks.wait()
    return outcome


def write_verdicts(content: Report, settings: Settings, workspace: Workspace) -> Outcome:
    """Judge the gates by the files asked for, put the verdict into the report and write it."""
    gates, asked, root = settings.gates, settings.export.formats, workspace.root
    pruned = content.pruned.model_copy(update={"files": tuple(f for f in content.pruned.files if f.name in asked)})
    verdicts = evaluate_gates(content.model_copy(update={"pruned": pruned}), gates)
    limits = {**content.settings, "gates": gates.model_dump(mode="json")}
    content = with_verdicts(content.model_copy(update={"settings": limits}), verdicts)
    report.write(content, workspace)
    handoff.run(content, root, root / handoff.FOLDER)
    return Outcome(root, content, verdicts)


def _is_whole(workspace: Workspace) -> bool:
    """Whether the report and every file it names are there, unchanged and measured."""
    path, sums = workspace.path(REPORT_JSON), workspace.path(SUMS)
    try:
        content = report_io.read(path)
    except InputError:
        return False
    if not sums.is_file() or sha256_of(path) not in sums.read_text(encoding="utf-8", errors="replace"):
        return False
    if not all(file.latency for file in content.files):
        return False  # written without the data, which are there now
    paths = [(workspace.path(name), digest) for file in content.files for name, digest in file.hashes.items()]
    return all(path.is_file() and sha256_of(path) == digest for path, digest in paths)


def _asked(settings: Settings) -> dict[str, Any]:
    """What the proof of a run consists of; another wish has it done again, without training anew."""
    return {"export": settings.export.model_dump(mode="json"), "baseline": settings.baseline.enabled}


def _covers(done: Mapping[str, Any], settings: Settings) -> bool:
    """Whether a proof has all that is asked for; it may have more."""
    had = ExportSettings.model_validate(done["export"])
    return had.covers(settings.export) and settings.baseline.enabled <= done["baseline"]
