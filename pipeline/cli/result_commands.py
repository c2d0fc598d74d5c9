"""Commands that take a run or its report."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import ltp_pipeline
from ltp_pipeline.cli import options, tables
from ltp_pipeline.cli.output import (
    finish_command,
    print_path,
    print_result,
    print_run,
    show_gates,
)
from ltp_pipeline.cli.progress import make_reporter
from ltp_pipeline.errors import UsageError
from ltp_pipeline.run_directory.names import REPORT_HTML
from ltp_pipeline.system.files import write_text


class DeliveredNetwork(StrEnum):
    """Network of a run that `handoff` can deliver."""

    BEST = "best"
    PRUNED = "pruned"
    BASELINE = "baseline"
    GRADUAL = "gradual"
    LTP = "ltp"


def trail(
    folder: options.RunArgument,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """List the networks on the trail of a run.

    * marks a network if no other one beats it in both compression and accuracy. If RUN is that of
    a picked entry, > marks this entry.
    """
    show_trail = partial(tables.show_trail, folder=folder)
    print_result(ltp_pipeline.trail(folder), show_trail, as_json, quiet)


@options.with_settings("gates")
def pick(
    folder: options.RunArgument,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="Number of the entry.")],
    *,
    task: options.TaskOption = None,
    export: options.ExportOption = None,
    baseline: options.BaselineOption = None,
    no_baseline: options.NoBaselineOption = False,
    best: options.BestOption = None,
    values: options.SettingValues,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Finish another entry of the trail in RUN/pick-ENTRY: fine-tune, export, measure, report.

    If no gate is passed, the gates of the run are checked. Without --baseline, the baseline of
    the run is used if it has the same size.
    """
    result = ltp_pipeline.pick(
        folder,
        entry,
        formats=export or (),
        baseline=options.merge_baseline_mode(baseline, no_baseline),
        best=best,
        progress=make_reporter(quiet),
        task=task,
        **values["gates"],
    )
    finish_command(result, Path(), as_json)


def export(
    folder: options.RunArgument,
    formats: options.FormatsOption = None,
    weight_storage: options.WeightStorageOption = None,
    task: options.TaskOption = None,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Write and verify further files of a finished run, and keep the existing files.

    A failed gate does not change the exit code. `ltp-pipeline gate` checks the gates.
    """
    result = ltp_pipeline.export(
        folder,
        formats or (),
        weight_storage=weight_storage or None,
        progress=make_reporter(quiet),
        task=task,
    )
    print_run(result, Path(), as_json)
    for gate_result in result.gate_results:
        if not gate_result.passed:
            typer.echo(f"note: a gate of the run fails: {gate_result.line}", err=True)


def handoff(
    folder: options.RunArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write to this directory. Default: RUN/handoff, or RUN/handoff-NETWORK for"
            " baseline, gradual and ltp."
        ),
    ] = None,
    network: Annotated[
        DeliveredNetwork,
        typer.Option(
            help="Deliver this network of the run: its pruned network, a baseline, or the better"
            " one on the validation split."
        ),
    ] = DeliveredNetwork.BEST,
    example_samples: Annotated[
        int,
        typer.Option(
            min=0,
            help="Put this number of test samples into example.npz; 0 puts random samples.",
        ),
    ] = 0,
    task: options.TaskOption = None,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Collect the files of a finished run for deployment, with report, hashes and HANDOFF.md."""
    path = ltp_pipeline.handoff(folder, out, example_samples, network=network, task=task)
    print_path(path, as_json, quiet)


def report(
    folder: options.RunArgument,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Render report.md and report.html of a finished run again."""
    ltp_pipeline.report(folder)
    print_path(folder / REPORT_HTML, as_json, quiet)


@options.with_settings("gates")
def gate(
    path: options.ReportArgument,
    *,
    config: Annotated[
        Path | None, typer.Option(help="Check the gates of this file of settings.")
    ] = None,
    values: options.SettingValues,
    data: Annotated[
        Path | None,
        typer.Option(help="Measure the accuracy again on these data, and check it."),
    ] = None,
    task: options.TaskOption = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Measure this file again as the original. Default: the path in the report."
        ),
    ] = None,
    report_only: Annotated[
        bool,
        typer.Option("--report-only", help="Check only the report, not the files next to it."),
    ] = False,
    junit: Annotated[
        Path | None, typer.Option(help="Write the results to this file as JUnit XML.")
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Check a report, its files and its gates; exit with 7 if a gate fails.

    If no gate is passed, the gates of the run are checked.
    """
    from ltp_pipeline.gates.ci_output import format_junit, is_github_job, notify_github
    from ltp_pipeline.gates.evaluation import check_gates
    from ltp_pipeline.results import read_write

    if report_only and (data or task or against):
        raise UsageError(
            "--report-only reads no files, so nothing can be measured",
            "remove --report-only, or --data, --task and --against",
        )
    results = ltp_pipeline.gate(
        path,
        config=config,
        report_only=report_only,
        data=data,
        task=task,
        against=against,
        progress=make_reporter(),
        **values["gates"],
    )
    if report_only:
        typer.echo("note: only the report was checked, not the files next to it", err=True)
    if all(result.is_hash for result in results):
        checked = "nothing was" if report_only else "only the files were"
        typer.echo(f"note: no gate is set, so {checked} checked", err=True)
    if junit is not None:
        write_text(junit, format_junit(results))
    print_result(results, show_gates, as_json, quiet)
    if is_github_job():
        notify_github(read_write.read(path), results)
    check_gates(results)


def compare(
    old: options.ReportArgument,
    new: options.ReportArgument,
    max_drop: Annotated[
        float | None,
        typer.Option(help="Fail if the metric drops by more than this, in its unit."),
    ] = None,
    max_compression_loss: Annotated[
        float | None,
        typer.Option(help="Fail if the compression decreases by more than this fraction."),
    ] = None,
    max_size_increase: Annotated[
        float | None,
        typer.Option(help="Fail if the smallest file grows by more than this fraction."),
    ] = None,
    allow_different_models: Annotated[
        bool,
        typer.Option(
            "--allow-different-models", help="Compare even if the original models differ."
        ),
    ] = False,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Compare the reports of two runs of the same model; exit with 7 if a limit is exceeded."""
    from ltp_pipeline.gates.evaluation import check_gates

    comparison = ltp_pipeline.compare(
        old,
        new,
        max_drop=max_drop,
        max_compression_loss=max_compression_loss,
        max_size_increase=max_size_increase,
        allow_different_models=allow_different_models,
    )
    print_result(comparison, tables.show_comparison, as_json, quiet)
    # Notes are printed in any case, for readers who look at nothing but the status.
    for note in comparison.notes:
        typer.echo(f"note: {note}", err=True)
    check_gates(comparison.gate_results)
