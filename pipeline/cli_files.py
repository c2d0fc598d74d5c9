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
        print_json(found)
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
    from ltp_pipeline.config import CONFIG_NAME, load_settings
    from ltp_pipeline.stages.validate import validate as measure
    from ltp_pipeline.workspace import MANIFEST, Workspace

    settings = load_settings(model, config, options={"data": {"path": data}})
    if config is None and not (model.parent / CONFIG_NAME).is_file() and (model.parent / MANIFEST).is_file():
        _, of_run = Workspace(model.parent).inputs()  # a file in its own run: prepared as it was there
        path = settings.data.path or of_run.data.path
        settings = of_run.model_copy(update={"data": of_run.data.model_copy(update={"path": path})})
    train = settings.train
    found = measure(model, settings.data, against=against, seed=train.seed, provider=provider, imitate=train.imitate)
    if as_json:
        print_json(found)
    elif not quiet:
        from ltp_pipeline.display import show_validation

        show_validation(found)


def trail(folder: opt.RunArgument, as_json: opt.Json = False, quiet: opt.Silent = False) -> None:
    """List the networks a run met on its way; * marks those that no other beats in both respects."""
    from ltp_pipeline.progress import on_validation
    from ltp_pipeline.stages.choose import pareto
    from ltp_pipeline.stages.learn_thresholds import recall
    from ltp_pipeline.workspace import Workspace

    workspace = Workspace(folder)
    workspace.inputs()
    entries = recall(workspace).trail
    best = pareto(entries)
    if as_json:
        print_json([{**asdict(e), "pareto": e.entry in best} for e in entries])
    if as_json or quiet:
        return
    title = on_validation(workspace.metric)
    typer.echo(f"entry  compression  {title:>14}  file")
    for e in entries:
        mark = "*" if e.entry in best else " "
        typer.echo(f"{e.entry:>4} {mark} {e.compression:>10.2f}×  {e.accuracy:>14.2%}  {folder / e.file}")


def pick(
    folder: opt.RunArgument,
    entry: Annotated[int, typer.Argument(metavar="ENTRY", help="Number of an entry of the trail.")],
    export: opt.Exports = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Finish another entry of the trail: fine-tune, export, validate, judge and report it in RUN/pick-NUMBER."""
    from ltp_pipeline.progress import make_reporter
    from ltp_pipeline.runner import pick as finish_entry

    finish(finish_entry(folder, entry, make_reporter(quiet), export or ()), Path(), as_json)


def export(
    folder: opt.RunArgument,
    formats: Annotated[list[str] | None, typer.Option("--format", help="sparse, packed or dense; repeatable.")] = None,
    deploy: Annotated[
        bool | None, typer.Option("--deploy/--no-deploy", help="Also write the graph with norms folded.")
    ] = None,
    values: Annotated[str | None, typer.Option(help="Values of packed files: exact, fp16 or int8.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write and prove a finished run's model in further formats; what is not given stays as the run had it."""
    from ltp_pipeline.progress import make_reporter
    from ltp_pipeline.runner import export_again

    finish(export_again(folder, formats or (), make_reporter(quiet), deploy, values), Path(), as_json)


def handoff(
    folder: opt.RunArgument,
    out: Annotated[Path | None, typer.Option(help="Where to; default: RUN/handoff.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Gather a finished run's files, its report and hashes, and a page for those who deploy them."""
    from ltp_pipeline.gates import read_report
    from ltp_pipeline.stages import handoff as stage
    from ltp_pipeline.workspace import REPORT_JSON

    target = stage.run(read_report(folder / REPORT_JSON), folder, out or folder / stage.FOLDER)
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
    beat_baseline: opt.BeatBaseline = None,
    by: opt.By = None,
    max_bytes: opt.MaxBytes = None,
    max_latency_ratio: opt.MaxLatencyRatio = None,
    per_layer_floor: opt.PerLayerFloor = None,
    confidence: opt.Confidence = None,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Judge a report, by the limits given or else those of its run; exit 7 when a gate fails."""
    limits = opt.gates_of(locals())
    from ltp_pipeline.ci import junit as as_junit
    from ltp_pipeline.config import load_settings
    from ltp_pipeline.files import write_text
    from ltp_pipeline.gates import check_files, judge, or_own, read_report, verdict_of

    content = read_report(path)
    gates = or_own(content, load_settings(None, config, options={"gates": limits}).gates)
    judged = judge(content, gates)
    verdicts = [*judged, *check_files(content, path.parent)]
    if not judged:
        typer.echo("note: no gate was given; only the hashes of files beside the report are checked", err=True)
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
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Compare the reports of two runs of the same model; exit 7 when a limit is passed."""
    from ltp_pipeline.compare import compare as look
    from ltp_pipeline.gates import read_report

    found = look(read_report(old), read_report(new), max_drop, max_compression_loss, max_growth)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        for change in found.changes:
            typer.echo(change.line)
        _print_verdicts(found.verdicts, as_json, quiet)
    for note in found.notes:  # also for those who look at nothing but the verdict
        typer.echo(f"note: {note}", err=True)
    _stop_if_failed(found.verdicts)


def finish(outcome: "Outcome", shown_in: Path, as_json: bool) -> None:
    """Show the result of a run and judge it; of several ranks, one does."""
    if not ranks.leads():
        return
    if as_json:
        print_json({"run": str(shown_in / outcome.folder), **outcome.report})
    else:
        from ltp_pipeline.display import show_outcome

        show_outcome(outcome, shown_in)
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
    failed = [v for v in verdicts if not v.passed]
    if failed:
        lines = "\n".join(f"gate failed: {v.line}" for v in failed)
        changed = all(v.is_hash for v in failed)
        remedy = "restore the files the report speaks of" if changed else "improve the result, or change the limit"
        raise GateFailed(lines, remedy)
