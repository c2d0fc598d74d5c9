"""Print the results of commands: summaries, gates, JSON, and messages for a hosted CI job."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from pydantic_core import to_jsonable_python

from ltp_pipeline.system import distributed

if TYPE_CHECKING:
    from ltp_pipeline.results.schema_parts import GateResult
    from ltp_pipeline.runner.finish import RunResult


def print_run(result: RunResult, parent: Path, as_json: bool, shows_gates: bool = False) -> None:
    """Print the summary of a finished run on standard output, and its warnings on standard error.

    Args:
        result: Finished run.
        parent: Folder that comes before the run's folder in printed paths.
        as_json: Print the report as JSON instead of the summary.
        shows_gates: Include the results of the gates in the summary.
    """
    from ltp_pipeline.results.read_write import to_json
    from ltp_pipeline.run_directory.names import REPORT_HTML
    from ltp_pipeline.stages.report.render import list_warnings, render_summary

    report, folder = result.report, parent / result.folder
    if as_json:
        print_json({"run": str(folder), **to_json(report)})
    else:
        paths = [folder / file.path for file in report.pruned.files]
        gates = result.gate_results if shows_gates else ()
        typer.echo(render_summary(report, gates, [*paths, folder / REPORT_HTML]), nl=False)
    for warning in list_warnings(report):
        typer.echo(f"warning: {warning}", err=True)


def finish_command(result: RunResult, parent: Path, as_json: bool) -> None:
    """Print a finished run and raise GateFailed if a gate failed; only rank 0 does."""
    from ltp_pipeline.gates.ci_output import is_github_job, notify_github
    from ltp_pipeline.gates.evaluation import check_gates

    if not distributed.is_main_process():
        return
    print_run(result, parent, as_json, shows_gates=True)
    if is_github_job():
        notify_github(result.report, result.gate_results)
    check_gates(result.gate_results)


def print_json(value: Any) -> None:
    """Print a value as JSON; only ASCII if standard output is not UTF-8."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    typer.echo(json.dumps(to_jsonable_python(value), indent=2, ensure_ascii=encoding != "utf8"))


def print_result(
    result: Any, show: Callable[[Any], None], as_json: bool, quiet: bool = False
) -> None:
    """Print a result as JSON or by the function that shows it to people, unless that is quiet."""
    if as_json:
        print_json(result)
    elif not quiet:
        show(result)


def print_path(path: Path, as_json: bool, quiet: bool) -> None:
    """Print the path of a file that was written."""
    print_result({"path": str(path)}, lambda _: typer.echo(path), as_json, quiet)


def show_gates(results: Sequence[GateResult]) -> None:
    """Print the result of each gate on one line."""
    for result in results:
        typer.echo(f"{'passed' if result.passed else 'FAILED'}  {result.line}")
