"""report.json is the truth; report.md and report.html are pure renderings of it and of the log."""

from collections.abc import Mapping
from typing import Any

from ltp_pipeline.files import hashes, sha256_of, write_json, write_text
from ltp_pipeline.report_schema import check
from ltp_pipeline.workspace import REPORT_HTML, REPORT_JSON, REPORT_MD, SUMS, Workspace


def write(report: Mapping[str, Any], workspace: Workspace) -> None:
    """Write the report and its renderings, and the hashes of everything a reader is given."""
    check(report)
    write_json(workspace.path(REPORT_JSON), report)
    render(report, workspace)
    list_hashes(report, workspace)


def list_hashes(report: Mapping[str, Any], workspace: Workspace) -> None:
    """Write the list that `sha256sum -c` takes."""
    proven = [f for part in ("pruned", "baseline") for f in (report[part] or {}).get("files", ())]
    sums = {name: digest for file in proven for name, digest in hashes(file).items()}
    sums |= {name: sha256_of(workspace.path(name)) for name in (REPORT_JSON, REPORT_MD, REPORT_HTML)}
    lines = [f"{digest}  {name}\n" for name, digest in sums.items()]
    write_text(workspace.path(SUMS), "".join(lines))


def render(report: Mapping[str, Any], workspace: Workspace) -> None:
    """Write report.md and report.html anew; the same report and log give the same bytes."""
    from ltp_pipeline.stages.report import html, markdown

    log = _of_chosen(report, workspace.read_log())
    write_text(workspace.path(REPORT_MD), markdown.render(report, log))
    write_text(workspace.path(REPORT_HTML), html.render(report, log))


def _of_chosen(report: Mapping[str, Any], log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out fine-tuning from entries of the trail that were tried and not chosen."""
    chosen = {f"finetune-{e['entry']:03d}" for e in report["trail"] if e.get("chosen")}
    return [line for line in log if line.get("stage") != "finetune" or line.get("key") in chosen]
