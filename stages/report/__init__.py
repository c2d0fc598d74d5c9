"""report.json is the truth; report.md and report.html are pure renderings of it and of the log."""

from typing import Any

from ltp_pipeline.results import read_write
from ltp_pipeline.results.records import finetune_key
from ltp_pipeline.results.schema import Report
from ltp_pipeline.run_directory.names import REPORT_HTML, REPORT_JSON, REPORT_MD, SUMS
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.stages.report import html, markdown
from ltp_pipeline.system.files import write_text
from ltp_pipeline.system.hashing import sha256_of, write_sums


def write(report: Report, workspace: RunDirectory) -> None:
    """Write the report and its renderings, and the hashes of everything a reader is given."""
    read_write.write(report, workspace.path(REPORT_JSON))
    render(report, workspace)
    list_hashes(report, workspace)


def list_hashes(report: Report, workspace: RunDirectory) -> None:
    """Write the hashes of the exported files and of the report."""
    sums = dict(report.hashes)
    sums |= {
        name: sha256_of(workspace.path(name)) for name in (REPORT_JSON, REPORT_MD, REPORT_HTML)
    }
    write_sums(workspace.path(SUMS), sums)


def render(report: Report, workspace: RunDirectory) -> None:
    """Write report.md and report.html anew; the same report and log give the same bytes."""

    log = _of_chosen(report, workspace.read_log())
    write_text(workspace.path(REPORT_MD), markdown.render(report))
    write_text(workspace.path(REPORT_HTML), html.render(report, log))


def _of_chosen(report: Report, log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out fine-tuning from entries of the trail that were tried and not chosen."""
    chosen = {finetune_key(e.entry) for e in report.trail if e.selected}
    return [line for line in log if line.get("stage") != "finetune" or line.get("key") in chosen]
