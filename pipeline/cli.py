"""The command line: Typer commands and nothing else. Heavy imports happen inside commands, so that --help is quick."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ltp_pipeline import __version__
from ltp_pipeline.errors import GateFailed, LtpError, UnsupportedModel, UsageError

if TYPE_CHECKING:
    from ltp_pipeline.gate import Verdict

INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the result and errors.")]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A trained ONNX model.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
ReportArgument = Annotated[Path, typer.Argument(metavar="REPORT.json", help="The report.json of a run.")]
DataOption = Annotated[Path | None, typer.Option(help="Data: an .npz file, a folder of IDX files, or class folders.")]
ConfigOption = Annotated[Path | None, typer.Option(help="Settings; default: ltp.toml beside the model.")]
OutOption = Annotated[Path | None, typer.Option(help="Run directory; default: MODEL-ltp in the working directory.")]

MinAccuracy = Annotated[float | None, typer.Option(help="Gate: top-1 accuracy at least this, e.g. 0.9.")]
MaxDrop = Annotated[float | None, typer.Option(help="Gate: drop in top-1 at most this, e.g. 0.01 for one point.")]
MinSparsity = Annotated[float | None, typer.Option(help="Gate: share of zeros at least this.")]
MinCompression = Annotated[float | None, typer.Option(help="Gate: compression at least this.")]
BeatBaseline = Annotated[bool | None, typer.Option("--beat-baseline", help="Gate: better than global magnitude.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ltp-pipeline {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Prune a trained ONNX model with learned thresholds and prove the exported file."""


@app.command()
def run(
    model: ModelArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    preset: Annotated[str | None, typer.Option(help="Settings of a network of the paper.")] = None,
    out: OutOption = None,
    target_compression: Annotated[float | None, typer.Option(help="Budget: elements / nonzeros of kernels.")] = None,
    target_sparsity: Annotated[float | None, typer.Option(help="Budget: share of zeros in kernels.")] = None,
    accuracy_budget: Annotated[
        float | None, typer.Option(help="Budget: largest drop on the validation split; the default, with 0.01.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of learning thresholds.")] = None,
    finetune_epochs: Annotated[int | None, typer.Option(help="Epochs of fine-tuning.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    include: Annotated[list[str] | None, typer.Option(help="Prune only kernels of these names (glob).")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Do not prune kernels of these names (glob).")] = None,
    export: Annotated[list[str] | None, typer.Option(help="Formats: sparse, packed, dense.")] = None,
    baseline: Annotated[
        bool | None, typer.Option("--baseline/--no-baseline", help="Compare with global magnitude.")
    ] = None,
    min_accuracy: MinAccuracy = None,
    max_drop: MaxDrop = None,
    min_sparsity: MinSparsity = None,
    min_compression: MinCompression = None,
    beat_baseline: BeatBaseline = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other key of ltp.toml.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of going on with an earlier run.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prune MODEL.onnx, prove the exported files and report them beside global magnitude pruning."""
    budget = {
        "target_compression": target_compression,
        "target_sparsity": target_sparsity,
        "accuracy_budget": accuracy_budget,
    }
    given = [f"--{name.replace('_', '-')}" for name, value in budget.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} contradict each other", "give one of them")
    options: dict[str, dict[str, Any]] = {
        "data": {"path": data},
        "budget": budget,
        "train": {
            "epochs": epochs,
            "finetune_epochs": finetune_epochs,
            "batch_size": batch_size,
            "lr": lr,
            "seed": seed,
            "device": device,
        },
        "kernels": {"include": include or None, "exclude": exclude or None},
        "export": {"formats": export or None},
        "baseline": {"enabled": baseline},
        "gates": {
            "min_accuracy": min_accuracy,
            "max_drop": max_drop,
            "min_sparsity": min_sparsity,
            "min_compression": min_compression,
            "beat_baseline": beat_baseline,
        },
    }
    for section, key, value in map(_assignment, settings or ()):
        options.setdefault(section, {})[key] = value
    _run(model, config, preset, options, out, fresh, as_json, quiet)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the example and its run.")] = Path("ltp-demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the whole pipeline on the embedded example: digits, a small ResNet, about a minute."""
    from ltp_pipeline.demo import copy_to

    model = copy_to(out)
    if not quiet:
        typer.echo(f"The example is in {out}; running: cd {out} && ltp-pipeline run {model.name}", err=True)
    os.chdir(out)
    _run(Path(model.name), None, None, {}, None, False, as_json, quiet, shown_in=out)


@app.command()
def inspect(model: ModelArgument, as_json: Json = False) -> None:
    """Show what would be pruned, what not and why, and what is unsupported."""
    from ltp_pipeline.stages.inspect import inspect as look

    found = look(model)
    if as_json:
        _print_json(found)
        return
    from ltp_pipeline.display import show_model

    show_model(found)


@app.command()
def validate(
    model: ModelArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    against: Annotated[Path | None, typer.Option(help="The original, to compare with.")] = None,
    provider: Annotated[str, typer.Option(help="Execution provider of onnxruntime.")] = "CPUExecutionProvider",
    as_json: Json = False,
) -> None:
    """Measure a file in onnxruntime on the test split."""
    from ltp_pipeline.config import load_settings
    from ltp_pipeline.stages.validate import validate as measure

    settings = load_settings(model, config, options={"data": {"path": data}})
    found = measure(model, settings.data, against=against, seed=settings.train.seed, provider=provider)
    if as_json:
        _print_json(found)
        return
    from ltp_pipeline.display import show_validation

    show_validation(found)


@app.command()
def report(folder: RunArgument) -> None:
    """Render report.md and report.html of a finished run again."""
    from ltp_pipeline.gate import read_report
    from ltp_pipeline.stages.report import render
    from ltp_pipeline.workspace import REPORT_HTML, REPORT_JSON, Workspace

    render(read_report(folder / REPORT_JSON), Workspace(folder))
    typer.echo(folder / REPORT_HTML)


@app.command()
def gate(
    path: ReportArgument,
    config: Annotated[Path | None, typer.Option(help="Take the gates of this ltp.toml.")] = None,
    min_accuracy: MinAccuracy = None,
    max_drop: MaxDrop = None,
    min_sparsity: MinSparsity = None,
    min_compression: MinCompression = None,
    beat_baseline: BeatBaseline = None,
    junit: Annotated[Path | None, typer.Option(help="Write the verdicts as JUnit XML.")] = None,
    as_json: Json = False,
) -> None:
    """Judge a report; exit 7 when a gate fails."""
    from dataclasses import asdict

    from ltp_pipeline.config import load_settings
    from ltp_pipeline.files import write_text
    from ltp_pipeline.gate import check_files, judge, read_report
    from ltp_pipeline.gate import junit as as_junit

    limits = {
        "min_accuracy": min_accuracy,
        "max_drop": max_drop,
        "min_sparsity": min_sparsity,
        "min_compression": min_compression,
        "beat_baseline": beat_baseline,
    }
    gates = load_settings(None, config, options={"gates": limits}).gates
    content = read_report(path)
    verdicts = [*judge(content, gates), *check_files(content, path.parent)]
    if junit is not None:
        write_text(junit, as_junit(verdicts))
    if as_json:
        _print_json([asdict(v) for v in verdicts])
    else:
        for verdict in verdicts:
            typer.echo(f"{'passed' if verdict.passed else 'FAILED'}  {verdict.line}")
    _stop_if_failed(verdicts)


def _run(
    model: Path,
    config: Path | None,
    preset: str | None,
    options: dict[str, dict[str, Any]],
    out: Path | None,
    fresh: bool,
    as_json: bool,
    quiet: bool,
    shown_in: Path = Path(),
) -> None:
    from ltp_pipeline.config import load_settings

    settings = load_settings(model, config, preset, options)
    from ltp_pipeline.progress import make_reporter

    reporter = make_reporter(quiet)
    if not model.is_file():
        from ltp_pipeline.errors import InputError

        raise InputError(f"there is no file {model}", "give the path of an ONNX model")
    reporter.say(f"Reading {model}")
    from ltp_pipeline import api

    outcome = api.run(model, settings, out=out, fresh=fresh, progress=reporter)
    if as_json:
        _print_json({"run": str(shown_in / outcome.folder), **outcome.report})
    else:
        from ltp_pipeline.display import show_outcome

        show_outcome(outcome, shown_in)
    _stop_if_failed(outcome.verdicts)


def _assignment(text: str) -> tuple[str, str, Any]:
    """Take `section.key=value` apart; the value is TOML, or else a plain string."""
    import tomllib

    name, equals, value = text.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and section and key):
        raise UsageError(f"--set {text} is not of the form SECTION.KEY=VALUE", "write for example --set method.t0=0.01")
    try:
        return section, key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return section, key, value.strip()


def _stop_if_failed(verdicts: "Sequence[Verdict]") -> None:
    failed = [v for v in verdicts if not v.passed]
    if failed:
        lines = "\n".join(f"gate failed: {v.line}" for v in failed)
        raise GateFailed(lines, "the work is done and the report is written; the result is below the bar")


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _fail(error: LtpError) -> NoReturn:
    typer.echo(f"error: {error.what}" if not isinstance(error, GateFailed) else error.what, err=True)
    if isinstance(error, UnsupportedModel):
        for reason in error.reasons:
            typer.echo(f"  {reason}", err=True)
    typer.echo(f"  {error.remedy}", err=True)
    sys.exit(error.exit_code)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run a command; every error a user can meet ends in two lines and its exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = app(standalone_mode=False)  # typer returns the code of an Exit, and turns Ctrl-C into one with 130
    except LtpError as error:
        _fail(error)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        show: Callable[[], None] | None = getattr(error, "show", None)  # click's own errors of usage
        if show is None:
            raise
        show()
        code = 2
    if code == INTERRUPTED:
        typer.echo("\ninterrupted; what is done is kept, the same command goes on", err=True)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
