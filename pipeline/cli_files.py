"""Commands that look at files: models, runs and reports."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltp_pipeline import cli_options as opt
from ltp_pipeline import formats, ranks
from ltp_pipeline.errors import GateFailed, UsageError

if TYPE_CHECKING:
    from ltp_pipeline.outcome import Outcome
    from ltp_pipeline.report_parts import Verdict
    from ltp_pipeline.report_schema import Report


def register(app: typer.Typer) -> None:
    """Add the commands to the program, in the order in which --help lists them."""
    for command in (init, inspect, validate, quantize, accelerate, kernels, trail, pick, export, handoff):
        app.command()(command)
    for command in (unpack, report, gate, compare):
        app.command()(command)


def init(
    model: opt.ModelArgument,
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    settings: opt.SetOption = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Write over an ltp.toml that is there, and begin with its [data] and [task]."),
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write an ltp.toml beside MODEL.onnx with what it and its data show, every line explained."""
    from ltp_pipeline import api

    given: dict[str, dict[str, Any]] = {}
    opt.assign(given, settings or ())
    path, said = api.init(model, data, task=task, force=force, settings=given)
    if as_json:
        print_json({"path": str(path), "found": said})
    elif not quiet:
        for line in said:
            typer.echo(line)
        own = "" if task is None else f" --task {task}"
        is_tried = any(line.startswith("data: ") for line in said)
        todo = "look through it" if is_tried else "say in it where the data are"
        typer.echo(f"{path}: {todo}, then: ltp-pipeline run {model}{own}")


def inspect(model: opt.ModelArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """Show what would be pruned, what not and why, and what is unsupported."""
    from ltp_pipeline import api

    found = api.inspect(model)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.display import show_model

        show_model(found)


def validate(
    model: opt.ModelArgument,
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    against: Annotated[Path | None, typer.Option(help="The original, to compare with.")] = None,
    provider: Annotated[str, typer.Option(help="Execution provider of onnxruntime.")] = "CPUExecutionProvider",
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Measure a file in onnxruntime on the test split."""
    from ltp_pipeline import api

    found = api.validate(model, data, config=config, against=against, provider=provider, task=task)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.display import show_validation

        show_validation(found)


def quantize(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(metavar="INT8.onnx", help="The int8 file to write.")],
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    encoding: Annotated[
        str, typer.Option(metavar="ENCODING", help=f"How it is written: {', '.join(formats.ENCODINGS)}.")
    ] = formats.ENCODINGS[0],
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write an int8 file of a float file of any origin: faster in any onnxruntime, and measured beside it."""
    from ltp_pipeline import api
    from ltp_pipeline.progress import make_reporter

    _require_encoding(encoding)
    reporter = make_reporter(quiet)
    found = api.quantize(model, data, out=out, config=config, encoding=encoding, task=task, progress=reporter)
    if as_json:
        print_json(asdict(found))
        return
    from ltp_pipeline.display import show_validation

    show_validation(found.measurement)
    for note in found.notes:
        typer.echo(note)


def accelerate(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(metavar="FAST.onnx", help="The fast file to write.")],
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    encoding: Annotated[
        str, typer.Option(metavar="ENCODING", help=f"How it is written: {', '.join(formats.ENCODINGS)}.")
    ] = formats.ENCODINGS[0],
    fast_from: Annotated[
        float | None,
        typer.Option(help="Turn over what has at least this sparsity, whether or not it is faster on this machine."),
    ] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write a file that uses the sparse kernels, of a file of any origin; exit 7 and no file where it is not faster.

    Proven on the data, or else on random inputs. It runs without the library, too, as any other file.
    """
    from ltp_pipeline import api

    _require_encoding(encoding)
    found = api.accelerate(model, data, out=out, config=config, encoding=encoding, fast_from=fast_from, task=task)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.display import show_accelerated

        show_accelerated(found)


def kernels(
    build: Annotated[bool, typer.Option("--build", help="Build it anew, with the C++ compiler in CXX or c++.")] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Say where the library of sparse kernels is, and which instructions it takes on this processor."""
    from ltp_pipeline.exporters.kernels import library

    path = library.build() if build else library.kernels_library()
    found = library.paths(path)
    if as_json:
        print_json({"library": str(path), **asdict(found)})
    elif not quiet:
        typer.echo(path)
        typer.echo(f"takes {found.chosen} on this processor")
        for name, why in found.refused.items():
            typer.echo(f"not {name}: {why}")


def trail(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """List the networks a run met on its way; * marks those that no other beats in both respects.

    For a picked entry it is the trail of its run, with > before that entry.
    """
    from ltp_pipeline import api

    rows = api.trail(folder)
    if as_json:
        print_json([asdict(row) for row in rows])
    elif not quiet:
        from ltp_pipeline.display import show_trail

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
    from ltp_pipeline.progress import make_reporter

    reporter = make_reporter(quiet)
    mode = opt.baseline_mode(baseline, no_baseline)
    outcome = api.pick(folder, entry, formats=export or (), baseline=mode, progress=reporter, task=task, **limits)
    finish(outcome, Path(), as_json)


def export(
    folder: opt.RunArgument,
    formats: opt.FurtherFiles = None,
    values: opt.Values = None,
    task: opt.TaskOption = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write and prove further files of a finished run; what is not given stays as the run had it.

    Gates are not judged here: `ltp-pipeline gate` does that.
    """
    from ltp_pipeline import api
    from ltp_pipeline.progress import make_reporter

    outcome = api.export(folder, formats or (), values=values or None, progress=make_reporter(quiet), task=task)
    show(outcome, Path(), as_json)
    for verdict in outcome.verdicts:
        if not verdict.passed:
            typer.echo(f"note: the run's gates fail with these files: {verdict.line}", err=True)


def handoff(
    folder: opt.RunArgument,
    out: Annotated[Path | None, typer.Option(help="Where to; default: RUN/handoff, RUN/handoff-baseline.")] = None,
    of: Annotated[str, typer.Option(help="Which network of the run: pruned or baseline.")] = "pruned",
    example_samples: Annotated[
        int, typer.Option(min=0, help="Put so many real samples into example.npz; 0: generated ones.")
    ] = 0,
    task: opt.TaskOption = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Gather a finished run's files, its report and hashes, and a page for those who deploy them."""
    from ltp_pipeline import api

    if of not in ("pruned", "baseline"):
        raise UsageError(f"--of {of} is no network of a run", "give --of pruned or --of baseline")
    made = api.handoff(folder, out, example_samples, of_baseline=of == "baseline", task=task)
    _print_path(made, as_json, quiet)


def unpack(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(help="The plain model to write.")],
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write a sparse or packed model as a plain dense one, for tools that need it."""
    from ltp_pipeline import api

    _print_path(api.unpack(model, out), as_json, quiet)


def report(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """Render report.md and report.html of a finished run again."""
    from ltp_pipeline import api
    from ltp_pipeline.workspace import REPORT_HTML

    api.report(folder)
    _print_path(folder / REPORT_HTML, as_json, quiet)


@opt.with_gates
def gate(
    path: opt.ReportArgument,
    *,
    config: Annotated[Path | None, typer.Option(help="Take the gates of this ltp.toml.")] = None,
    limits: opt.Limits,
    data: Annotated[
        Path | None, typer.Option(help="Measure the accuracy of the files again on these data, and judge that.")
    ] = None,
    task: opt.TaskOption = None,
    against: Annotated[
        Path | None, typer.Option(help="The original, to measure it too; default: where the report says.")
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Judge the numbers alone; no file need lie beside the report.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Judge a report and its files, by the limits given or else those of its run; exit 7 when a gate fails."""
    from ltp_pipeline import api, report_io
    from ltp_pipeline.ci import junit as as_junit
    from ltp_pipeline.files import write_text
    from ltp_pipeline.progress import make_reporter

    if report_only and any(given is not None for given in (data, task, against)):
        raise UsageError("--report-only looks at no file, so nothing can be measured", "drop it, or --data and --task")
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
        typer.echo("note: only the numbers of the report are judged; no file was looked at", err=True)
    if all(verdict.is_hash for verdict in verdicts):
        typer.echo(f"note: no gate was given; {'nothing is' if report_only else 'only files are'} checked", err=True)
    if junit is not None:
        write_text(junit, as_junit(verdicts))
    _print_verdicts(verdicts, as_json, quiet)
    if _on_github():
        _tell_github(report_io.read(path), verdicts)
    _stop_if_failed(verdicts)


def compare(
    old: opt.ReportArgument,
    new: opt.ReportArgument,
    max_drop: Annotated[float | None, typer.Option(help="Gate: drop in the metric at most this.")] = None,
    max_compression_loss: Annotated[float | None, typer.Option(help="Gate: share of compression lost.")] = None,
    max_growth: Annotated[float | None, typer.Option(help="Gate: share by which the smallest file grew.")] = None,
    different_models: Annotated[
        bool, typer.Option("--different-models", help="Compare although the originals differ.")
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Compare the reports of two runs of the same model; exit 7 when a limit is passed."""
    from ltp_pipeline import api

    found = api.compare(
        old,
        new,
        max_drop=max_drop,
        max_compression_loss=max_compression_loss,
        max_growth=max_growth,
        different_models=different_models,
    )
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        for change in found.changes:
            typer.echo(change.line)
        _print_verdicts(found.verdicts, as_json, quiet)
    for note in found.notes:  # also for those who look at nothing but the verdict
        typer.echo(f"note: {note}", err=True)
    _stop_if_failed(found.verdicts)


def show(outcome: "Outcome", shown_in: Path, as_json: bool, judged: bool = False) -> None:
    """Print the result of a run."""
    if as_json:
        from ltp_pipeline.report_io import plain

        print_json({"run": str(shown_in / outcome.folder), **plain(outcome.report)})
    else:
        from ltp_pipeline.display import show_outcome

        show_outcome(outcome, shown_in, judged)
    from ltp_pipeline.stages.report.text import few_kernels

    if warning := few_kernels(outcome.report):
        typer.echo(f"warning: {warning}", err=True)


def finish(outcome: "Outcome", shown_in: Path, as_json: bool) -> None:
    """Show the result of a run and judge it; of several ranks, one does."""
    if not ranks.is_leader():
        return
    show(outcome, shown_in, as_json, judged=True)
    for warning in (outcome.report.budget_missed, outcome.report.unlikely_gain):
        if warning:
            typer.echo(f"warning: {warning}", err=True)
    if _on_github():
        _tell_github(outcome.report, outcome.verdicts)
    _stop_if_failed(outcome.verdicts)


def print_json(value: Any) -> None:
    """Print for machines."""
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"  # then only ASCII is sure to arrive
    typer.echo(json.dumps(value, indent=2, ensure_ascii=plain))


def _print_path(path: Path, as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json({"path": str(path)})
    elif not quiet:
        typer.echo(path)


def _print_verdicts(verdicts: "Sequence[Verdict]", as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json([asdict(v) for v in verdicts])
    for verdict in verdicts if not (as_json or quiet) else ():
        typer.echo(f"{'passed' if verdict.passed else 'FAILED'}  {verdict.line}")


def _require_encoding(encoding: str) -> None:
    if encoding not in formats.ENCODINGS:
        raise UsageError(f"there is no encoding {encoding!r}", f"choose among {', '.join(formats.ENCODINGS)}")


def _on_github() -> bool:
    return bool(os.environ.get("GITHUB_STEP_SUMMARY"))


def _tell_github(report: "Report", verdicts: "Sequence[Verdict]") -> None:
    """Put the summary with these verdicts on the job's page and mark failing gates."""
    from ltp_pipeline.ci import append_step_summary, github_lines
    from ltp_pipeline.gates import with_verdicts
    from ltp_pipeline.stages.report import markdown

    append_step_summary(markdown.render(with_verdicts(report, verdicts)), os.environ)
    for line in github_lines(verdicts):
        typer.echo(line, err=True)


def _stop_if_failed(verdicts: "Sequence[Verdict]") -> None:
    from ltp_pipeline.words import printable

    failed = [v for v in verdicts if not v.passed]
    if failed:
        lines = "\n".join(f"gate failed: {v.line}" for v in failed)
        remedies = dict.fromkeys(v.advice if v.is_hash else f"{v.name}: {v.advice}" for v in failed)
        raise GateFailed(lines, "\n  ".join(map(printable, remedies)))
