"""What commands print: results, verdicts, and what a hosted CI job is told."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ltp_pipeline.errors import GateFailed
from ltp_pipeline.system import distributed

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import Report
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.runner.finish import RunResult


def show(outcome: "RunResult", shown_in: Path, as_json: bool, judged: bool = False) -> None:
    """Print the result of a run."""
    if as_json:
        from ltp_pipeline.results.read_write import plain

        print_json({"run": str(shown_in / outcome.folder), **plain(outcome.report)})
    else:
        from ltp_pipeline.cli.tables import show_outcome

        show_outcome(outcome, shown_in, judged)
    from ltp_pipeline.stages.report.filters import few_kernels

    if warning := few_kernels(outcome.report):
        typer.echo(f"warning: {warning}", err=True)


def finish(outcome: "RunResult", shown_in: Path, as_json: bool) -> None:
    """Show the result of a run and judge it; of several ranks, one does."""
    if not distributed.is_main_process():
        return
    show(outcome, shown_in, as_json, judged=True)
    for warning in (outcome.report.budget_not_met, outcome.report.suspicious_improvement):
        if warning:
            typer.echo(f"warning: {warning}", err=True)
    if on_github():
        tell_github(outcome.report, outcome.gate_results)
    stop_if_failed(outcome.gate_results)


def print_json(value: Any) -> None:
    """Print for machines."""
    plain = (sys.stdout.encoding or "").lower().replace(
        "-", ""
    ) != "utf8"  # then only ASCII is sure to arrive
    typer.echo(json.dumps(value, indent=2, ensure_ascii=plain))


def print_path(path: Path, as_json: bool, quiet: bool) -> None:
    """Print where something was written."""
    if as_json:
        print_json({"path": str(path)})
    elif not quiet:
        typer.echo(path)


def print_verdicts(verdicts: "Sequence[GateResult]", as_json: bool, quiet: bool) -> None:
    """Print how each gate was judged."""
    if as_json:
        print_json([asdict(v) for v in verdicts])
    for verdict in verdicts if not (as_json or quiet) else ():
        typer.echo(f"{'passed' if verdict.passed else 'FAILED'}  {verdict.line}")


def on_github() -> bool:
    """Whether this is a job there."""
    return bool(os.environ.get("GITHUB_STEP_SUMMARY"))


def tell_github(report: "Report", verdicts: "Sequence[GateResult]") -> None:
    """Put the summary with these verdicts on the job's page and mark failing gates."""
    from ltp_pipeline.gates.ci_output import append_step_summary, github_lines
    from ltp_pipeline.gates.verdicts import with_verdicts
    from ltp_pipeline.stages.report import markdown

    append_step_summary(markdown.render(with_verdicts(report, verdicts)), os.environ)
    for line in github_lines(verdicts):
        typer.echo(line, err=True)


def stop_if_failed(verdicts: "Sequence[GateResult]") -> None:
    """End with the gates that failed, if any."""
    from ltp_pipeline.system.text import printable

    failed = [v for v in verdicts if not v.passed]
    if failed:
        lines = "\n".join(f"gate failed: {v.line}" for v in failed)
        remedies = dict.fromkeys(v.advice if v.is_hash else f"{v.name}: {v.advice}" for v in failed)
        raise GateFailed(lines, "\n  ".join(map(printable, remedies)))
