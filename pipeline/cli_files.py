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
from ltp_pipeline import ranks
from ltp_pipeline.errors import GateFailed

if TYPE_CHECKING:
    from ltp_pipeline.gates import Verdict
    from ltp_pipeline.runner import Outcome


def register(app: typer.Typer) -> None:
    """Add the commands to the program, in the order in which --help lists them."""
    for command in (inspect, validate, trail, pick, export, handoff, unpack, report, gate, compare):
        app.command()(command)


def inspect(model: opt.ModelArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """Show what would be pruned, what not and why, and what is unsupported."""
    from ltp_pipeline.stages.inspect import inspect as look

    found = look(model)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.display import show_model

        show_model(found)


def validate(
    model: opt.ModelArgument,
    data: opt.DataOption = None,
    config: opt.ConfigOption = None,
    against: Annotated[Path | None, typer.Option(help="The original, to compare with.")] = None,
    provider: Annotated[str, typer.Option(help="Execution provider of onnxruntime.")] = "CPUExecutionProvider",
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Measure a file in onnxruntime on the test split."""
    from ltp_pipeline import api

    found = api.validate(model, data, config=config, against=against, provider=provider)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.display import show_validation

        show_validation(found)


def trail(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """List the networks a run met on its way; * marks those that no other beats in both respects.

    For a picked entry it is the trail of its run, with > before that entry.
    """
    from ltp_pipeline.progress import on_validation
    from ltp_pipeline.stages.learn_thresholds import recall
    from ltp_pipeline.stages.select_entry import pareto
    from ltp_pipeline.workspace import Workspace

    workspace = Workspace(folder)
    workspace.inputs()
    run = workspace.run_of()
    entries = recall(run).trail
    best = pareto(entries)
    if as_json:
        rows = [{**asdict(e), "file": workspace.relative(run.path(e.file)), "metric": run.metric} for e in entries]
        print_json([{**r, "pareto": r["entry"] in best, "picked": r["entry"] == workspace.entry} for r in rows])
    if as_json or quiet:
        return
    shown, title = folder if run is workspace else Path(os.path.relpath(run.root)), on_validation(run.metric)
    typer.echo(f"entry  compression  whole model  {title:>14}  file")
    for e in entries:
        picked, mark = ">" if e.entry == workspace.entry else " ", "*" if e.entry in best else " "
        number, value = f"{picked}{e.entry:>3}", f"{e.accuracy:.2%}"
        whole = f"{e.model_compression:>10.2f}×" if e.model_compression else f"{'?':>11}"
        typer.echo(f"{number} {mark} {e.compression:>10.2f}×  {whole}  {value:>14}  {shown / e.file}")


def pick(
    folder: opt.RunArgument,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="Number of an entry of the trail.")],
    export: opt.Exports = None,
    baseline: Annotated[
        bool | None,
        typer.Option("--baseline/--no-baseline", help="Train a baseline of this size; default: the run's, if it fits."),
    ] = None,
    min_accuracy: opt.MinAccuracy = None,
    max_drop: opt.MaxDrop = None,
    min_sparsity: opt.MinSparsity = None,
    min_compression: opt.MinCompression = None,
    min_model_compression: opt.MinModelCompression = None,
    beat_baseline: opt.BeatBaseline = None,
    by: opt.By = None,
    max_bytes: opt.MaxBytes = None,
    max_latency_ratio: opt.MaxLatencyRatio = None,
    per_layer_floor: opt.PerLayerFloor = None,
    confidence: opt.Confidence = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Finish another entry of the trail: fine-tune, export, validate, judge and report it in RUN/pick-NUMBER.

    It is judged by the gates given here, or else by those of the run.
    """
    limits = opt.gates_of(locals())
    from ltp_pipeline.finished import pick as finish_entry
    from ltp_pipeline.progress import make_reporter

    finish(finish_entry(folder, entry, make_reporter(quiet), export or (), baseline, limits), Path(), as_json)


def export(
    folder: opt.RunArgument,
    formats: opt.FurtherFiles = None,
    values: opt.Values = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write and prove further files of a finished run; what is not given stays as the run had it.

    Gates are not judged here: `ltp-pipeline gate` does that.
    """
    from ltp_pipeline.finished import export_again
    from ltp_pipeline.progress import make_reporter

    outcome = export_again(folder, formats or (), make_reporter(quiet), values or None)
    show(outcome, Path(), as_json)
    for verdict in outcome.verdicts:
        if not verdict.passed:
            typer.echo(f"note: the run's gates fail with these files: {verdict.line}", err=True)


def handoff(
    folder: opt.RunArgument,
    out: Annotated[Path | None, typer.Option(help="Where to; default: RUN/handoff.")] = None,
    example_samples: Annotated[
        int, typer.Option(min=0, help="Put so many real samples into example.npz; 0: generated ones.")
    ] = 0,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Gather a finished run's files, its report and hashes, and a page for those who deploy them."""
    from ltp_pipeline.gates import read_report
    from ltp_pipeline.stages import handoff as stage
    from ltp_pipeline.stages.handoff_samples import stored_samples
    from ltp_pipeline.workspace import REPORT_JSON

    content = read_report(folder / REPORT_JSON)
    samples = stored_samples(folder, content, example_samples) if example_samples else None
    target = stage.run(content, folder, out or folder / stage.FOLDER, samples)
    _print_path(target, as_json, quiet)


def unpack(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(help="The plain model to write.")],
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write a sparse or packed model as a plain dense one, for tools that need it."""
    from ltp_pipeline import exporters
    from ltp_pipeline.errors import InputError

    if out.exists() and model.exists() and out.samefile(model):
        raise InputError(f"{out} is the file to unpack", "give another file with --out")
    plain = exporters.to_dense(exporters.load(model))
    if exporters.labels(plain):
        exporters.stamp(plain, format="dense")
    exporters.save(plain, out)
    _print_path(out, as_json, quiet)


def report(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """Render report.md and report.html of a finished run again."""
    from ltp_pipeline.gates import read_report
    from ltp_pipeline.stages import handoff
    from ltp_pipeline.stages.report import list_hashes, render
    from ltp_pipeline.workspace import REPORT_HTML, REPORT_JSON, SUMS, Workspace

    content = read_report(folder / REPORT_JSON)
    render(content, Workspace(folder))
    if (folder / SUMS).is_file():
        list_hashes(content, Workspace(folder))
    if (folder / handoff.FOLDER).is_dir():
        handoff.run(content, folder, folder / handoff.FOLDER)
    _print_path(folder / REPORT_HTML, as_json, quiet)


def gate(
    path: opt.ReportArgument,
    config: Annotated[Path | None, typer.Option(help="Take the gates of this ltp.toml.")] = None,
    min_accuracy: opt.MinAccuracy = None,
    max_drop: opt.MaxDrop = None,
    min_sparsity: opt.MinSparsity = None,
    min_compression: opt.MinCompression = None,
    min_model_compression: opt.MinModelCompression = None,
    beat_baseline: opt.BeatBaseline = None,
    by: opt.By = None,
    max_bytes: opt.MaxBytes = None,
    max_latency_ratio: opt.MaxLatencyRatio = None,
    per_layer_floor: opt.PerLayerFloor = None,
    confidence: opt.Confidence = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Judge the numbers alone; no file need lie beside the report.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Judge a report and its files, by the limits given or else those of its run; exit 7 when a gate fails."""
    limits = opt.gates_of(locals())
    from ltp_pipeline.ci import junit as as_junit
    from ltp_pipeline.config import load_settings
    from ltp_pipeline.files import write_text
    from ltp_pipeline.gate_files import check_files
    from ltp_pipeline.gates import judge, or_own, read_report, verdict_of

    content = read_report(path)
    gates = or_own(content, load_settings(None, config, options={"gates": limits}).gates)
    judged = judge(content, gates)
    verdicts = [*judged, *(() if report_only else check_files(content, path.parent))]
    if report_only:
        typer.echo("note: only the numbers of the report are judged; no file was looked at", err=True)
    if not judged:
        typer.echo(f"note: no gate was given; {'nothing is' if report_only else 'only files are'} checked", err=True)
    if junit is not None:
        write_text(junit, as_junit(verdicts))
    _print_verdicts(verdicts, as_json, quiet)
    now = {"gates": [asdict(v) for v in verdicts], "verdict": verdict_of(verdicts)}
    _tell_github({**content, **now}, verdicts)
    _stop_if_failed(verdicts)


def compare(
    old: opt.ReportArgument,
    new: opt.ReportArgument,
    max_drop: Annotated[float | None, typer.Option(help="Gate: top-1 may fall by at most this.")] = None,
    max_compression_loss: Annotated[float | None, typer.Option(help="Gate: share of compression lost.")] = None,
    max_growth: Annotated[float | None, typer.Option(help="Gate: share by which the smallest file grew.")] = None,
    different_models: Annotated[
        bool, typer.Option("--different-models", help="Compare although the originals differ.")
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Compare the reports of two runs of the same model; exit 7 when a limit is passed."""
    from ltp_pipeline.compare import compare as look
    from ltp_pipeline.gates import read_report

    reports = read_report(old), read_report(new)
    found = look(*reports, max_drop, max_compression_loss, max_growth, different_models=different_models)
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
        print_json({"run": str(shown_in / outcome.folder), **outcome.report})
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
    for key in ("budget_missed", "unlikely_gain"):
        if outcome.report.get(key):
            typer.echo(f"warning: {outcome.report[key]}", err=True)
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


def _tell_github(content: dict[str, Any], verdicts: "Sequence[Verdict]") -> None:
    """On GitHub, put the summary on the job's page and mark failing gates."""
    if not os.environ.get("GITHUB_STEP_SUMMARY"):
        return
    from ltp_pipeline.ci import append_step_summary, github_lines
    from ltp_pipeline.stages.report import markdown

    append_step_summary(markdown.render(content, ()), os.environ)
    for line in github_lines(verdicts):
        typer.echo(line, err=True)


def _stop_if_failed(verdicts: "Sequence[Verdict]") -> None:
    from ltp_pipeline.ci import printable

    failed = [v for v in verdicts if not v.passed]
    if failed:
        lines = "\n".join(f"gate failed: {v.line}" for v in failed)
        remedies = dict.fromkeys(v.advice if v.is_hash else f"{v.name}: {v.advice}" for v in failed)
        raise GateFailed(lines, "\n  ".join(map(printable, remedies)))
