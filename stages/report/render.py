"""Render the pages of a report by templates: report.html, report.md and the console's summary."""

from __future__ import annotations

import base64
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from ltp_pipeline.results import read_write
from ltp_pipeline.run_directory.names import REPORT_HTML, REPORT_JSON, REPORT_MD, SUMS
from ltp_pipeline.stages.finetune import finetune_key
from ltp_pipeline.stages.report import comparison_facts, filters
from ltp_pipeline.system import text
from ltp_pipeline.system.files import write_text
from ltp_pipeline.system.hashing import sha256_file, write_checksums
from ltp_pipeline.system.templates import render_template

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.run_directory.run_directory import RunDirectory
    from ltp_pipeline.stages.report.run_plots import TrainingLog

TEMPLATES = Path(__file__).parent
FILTERS: dict[str, Any] = {
    **dict(inspect.getmembers(text, inspect.isfunction)),
    **dict(inspect.getmembers(comparison_facts, inspect.isfunction)),
    **dict(inspect.getmembers(filters, inspect.isfunction)),
}


def render_html(report: Report, log: TrainingLog) -> str:
    """Return report.html: one file that loads nothing else; its script is allowed by its hash."""
    from ltp_pipeline.stages.report import layer_plots, run_plots, tradeoff_plot

    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    values = {
        "report": report,
        "plots": {
            "tradeoff": tradeoff_plot.plot_tradeoff(report),
            "sizes": run_plots.plot_sizes(report),
            "thresholds": run_plots.plot_thresholds(log),
            "training": run_plots.plot_training(log),
            "histograms": layer_plots.plot_histograms(report),
            "scatter": layer_plots.plot_scatter(report),
            "densities": layer_plots.plot_densities(report),
        },
        "style": Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704
        "script": Markup(script),  # noqa: S704
        "script_hash": base64.b64encode(digest).decode(),
    }
    named = {**FILTERS, "code": Markup("<code>{}</code>").format}
    return render_template(TEMPLATES, "report.html.j2", values, named, escape)


def render_markdown(report: Report) -> str:
    """Return report.md: a summary that fits into a comment on a pull request."""
    return render_markdown_template(TEMPLATES, "report.md.j2", {"report": report})


def render_markdown_template(
    folder: Path,
    name: str,
    values: Mapping[str, Any],
    more_filters: Mapping[str, Any] | None = None,
) -> str:
    """Render a Markdown template that can use the filters and the macros of the report.

    Args:
        folder: Folder of the template.
        name: Name of the template in that folder.
        values: Values of the names in the template; each is escaped where the template shows it.
        more_filters: Filters in addition to those of the report.

    Returns:
        Markdown. Text from the values has no effect as markup.
    """
    named = {**FILTERS, "code": filters.to_code_span, **(more_filters or {})}
    folders = [folder, TEMPLATES]
    return render_template(folders, name, values, named, filters.escape_markdown)


def render_summary(report: Report, gates: Sequence[GateResult], paths: Sequence[Path]) -> str:
    """Return the summary of a finished run for the console.

    Args:
        report: Report of the run.
        gates: Results of gates to list; empty to list none.
        paths: Files to list at the end.
    """
    return _render_text("summary.txt.j2", report=report, gates=gates, paths=paths)


def list_warnings(report: Report) -> list[str]:
    """Return the warnings of a report for the console, each on one line."""
    lines = _render_text("warnings.txt.j2", report=report).splitlines()
    return [line for line in lines if line]


def write_report(report: Report, run_directory: RunDirectory) -> None:
    """Write report.json, the pages made from it, and SHA256SUMS."""
    read_write.write(report, run_directory.path(REPORT_JSON))
    write_pages(report, run_directory)
    write_hashes(report, run_directory)


def write_pages(report: Report, run_directory: RunDirectory) -> None:
    """Write report.md and report.html; the same report and log give the same bytes."""
    log = _select_log(report, run_directory.read_log())
    write_text(run_directory.path(REPORT_MD), render_markdown(report))
    write_text(run_directory.path(REPORT_HTML), render_html(report, log))


def write_hashes(report: Report, run_directory: RunDirectory) -> None:
    """Write SHA256SUMS with the exported files, the report and its pages."""
    hashes = dict(report.hashes)
    for name in (REPORT_JSON, REPORT_MD, REPORT_HTML):
        hashes[name] = sha256_file(run_directory.path(name))
    write_checksums(run_directory.path(SUMS), hashes)


def _select_log(report: Report, log: Sequence[Mapping[str, Any]]) -> TrainingLog:
    """Return the log without the fine-tuning of trail entries that were not selected."""
    selected = {finetune_key(entry.entry) for entry in report.trail if entry.selected}
    return [line for line in log if line.get("stage") != "finetune" or line.get("key") in selected]


def _render_text(name: str, **values: Any) -> str:
    """Render a template as plain text without control characters."""
    return render_template(TEMPLATES, name, values, {**FILTERS, "code": str}, _escape_text)


def _escape_text(value: Any) -> str:
    return text.make_printable(str(value).replace("\u202f", ","))
