"""Commands that take a run or its report."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ltp_pipeline.cli import options as opt
from ltp_pipeline.cli.output import (
    finish_command,
    print_gates,
    print_json,
    print_path,
    print_run,
)
from ltp_pipeline.errors import UsageError


def trail(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """List the networks a run met on its way; * marks those that no other beats in both respects.

    For a picked entry it is the trail of its run, with > before that entry.
    """
    from ltp_pipeline import api

    rows = api.trail(folder)
    if as_json:
        print_json([asdict(row) for row in rows])
    elif not quiet:
        from ltp_pipeline.cli.tables import show_trail

        show_trail(rows, folder)


@opt.with_gates
def pick(
    folder: opt.RunArgument,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="Number of an entry of the trail.")],
    *,
    task: opt.TaskOption = None,
    export: opt.Exports = None,
    baseline: opt.Baseline = None,
    no_baseline: opt.NoBaseline = False,
    limits: opt.Limits,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Finish another entry of the trail: fine-tune, export, validate, judge and report it in RUN/pick-NUMBER.

    Judged by the gates given here, or else the run's. Unless told otherwise, the baseline is the run's where it fits.
    """
    from ltp_pipeline import api
    from ltp_pipeline.cli.progress import make_reporter

    reporter = make_reporter(quiet)
    mode = opt.merge_baseline_mode(baseline, no_baseline)
    outcome = api.pick(
        folder, entry, formats=export or (), baseline=mode, progress=reporter, task=task, **limits
    )
    finish_command(outcome, Path(), as_json)


def export(
    folder: opt.RunArgument,
    formats: opt.FurtherFiles = None,
    weight_storage: opt.WeightStorageOption = None,
    task: opt.TaskOption = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write and prove further files of a finished run; what is not given stays as the run had it.

    Gates are not judged here: `ltp-pipeline gate` does that.
    """
    from ltp_pipeline import api
    from ltp_pipeline.cli.progress import make_reporter

    outcome = api.export(
        folder,
        formats or (),
        weight_storage=weight_storage or None,
        progress=make_reporter(quiet),
        task=task,
    )
    print_run(outcome, Path(), as_json)
    for verdict in outcome.gate_results:
        if not verdict.passed:
            typer.echo(f"note: the run's gates fail with these files: {verdict.line}", err=True)


def handoff(
    folder: opt.RunArgument,
    out: Annotated[
        Path | None, typer.Option(help="Where to; default: RUN/handoff, RUN/handoff-baseline.")
    ] = None,
    network: Annotated[
        str, typer.Option(help="Which network of the run: pruned or baseline.")
    ] = "pruned",
    example_samples: Annotated[
        int,
        typer.Option(min=0, help="Put so many real samples into example.npz; 0: generated ones."),
    ] = 0,
    task: opt.TaskOption = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Gather a finished run's files, its report and hashes, and a page for those who deploy them."""
    from ltp_pipeline import api

    if network not in ("pruned", "baseline"):
        raise UsageError(
            f"--network {network} is no network of a run",
            "give --network pruned or --network baseline",
        )
    made = api.handoff(folder, out, example_samples, of_baseline=network == "baseline", task=task)
    print_path(made, as_json, quiet)


def report(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """Render report.md and report.html of a finished run again."""
    from ltp_pipeline import api
    from ltp_pipeline.run_directory.names import REPORT_HTML

    api.report(folder)
    print_path(folder / REPORT_HTML, as_json, quiet)


@opt.with_gates
def gate(
    path: opt.ReportArgument,
    *,
    config: Annotated[Path | None, typer.Option(help="Take the gates of this ltp.toml.")] = None,
    limits: opt.Limits,
    data: Annotated[
        Path | None,
        typer.Option(help="Measure the accuracy of the files again on these data, and judge that."),
    ] = None,
    task: opt.TaskOption = None,
    against: Annotated[
        Path | None,
        typer.Option(help="The original, to measure it too; default: where the report says."),
    ] = None,
    report_only: Annotated[
        bool,
        typer.Option(
            "--report-only", help="Judge the numbers alone; no file need lie beside the report."
        ),
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Judge a report and its files, by the limits given or else those of its run; exit 7 when a gate fails."""
    from ltp_pipeline import api
    from ltp_pipeline.cli.progress import make_reporter
    from ltp_pipeline.gates.ci_output import format_junit, is_github_job, notify_github
    from ltp_pipeline.gates.evaluation import check_gates
    from ltp_pipeline.results import read_write
    from ltp_pipeline.system.files import write_text

    if report_only and any(given is not None for given in (data, task, against)):
        raise UsageError(
            "--report-only looks at no file, so nothing can be measured",
            "drop it, or --data and --task",
        )
    verdicts = api.gate(
        path,
        config=config,
        report_only=report_only,
        data=data,
        task=task,
        against=against,
        progress=make_reporter(),
        **limits,
    )
    if report_only:
        typer.echo(
            "note: only the numbers of the report are judged; no file was looked at", err=True
        )
    if all(verdict.is_hash for verdict in verdicts):
        typer.echo(
            f"note: no gate was given; {'nothing is' if report_only else 'only files are'} checked",
            err=True,
        )
    if junit is not None:
        write_text(junit, format_junit(verdicts))
    print_gates(verdicts, as_json, quiet)
    if is_github_job():
        notify_github(read_write.read(path), verdicts)
    check_gates(verdicts)


def compare(
    old: opt.ReportArgument,
    new: opt.ReportArgument,
    max_drop: Annotated[
        float | None, typer.Option(help="Gate: drop in the metric at most this.")
    ] = None,
    max_compression_loss: Annotated[
        float | None, typer.Option(help="Gate: share of compression lost.")
    ] = None,
    max_size_increase: Annotated[
        float | None, typer.Option(help="Gate: share by which the smallest file grew.")
    ] = None,
    allow_different_models: Annotated[
        bool,
        typer.Option("--allow-different-models", help="Compare although the originals differ."),
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Compare the reports of two runs of the same model; exit 7 when a limit is passed."""
    from ltp_pipeline import api
    from ltp_pipeline.gates.evaluation import check_gates

    found = api.compare(
        old,
        new,
        max_drop=max_drop,
        max_compression_loss=max_compression_loss,
        max_size_increase=max_size_increase,
        allow_different_models=allow_different_models,
    )
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        for change in found.changes:
            typer.echo(change.line)
        print_gates(found.verdicts, as_json, quiet)
    for note in found.notes:  # also for those who look at nothing but the verdict
        typer.echo(f"note: {note}", err=True)
    check_gates(found.verdicts)
