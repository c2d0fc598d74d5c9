"""The command line: Typer commands and nothing else. Heavy imports happen inside commands, so that --help is quick."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ltp_pipeline import __version__
from ltp_pipeline.cli import model_commands, result_commands
from ltp_pipeline.cli import options as opt
from ltp_pipeline.cli.output import finish_command
from ltp_pipeline.errors import (
    GateFailed,
    InputError,
    LtpError,
    TaskFailed,
    TrainingFailed,
    UnsupportedModel,
    UsageError,
)
from ltp_pipeline.system import distributed, signals
from ltp_pipeline.system.scratch import is_disk_full
from ltp_pipeline.system.text import one_line

LONGEST_LINE = 2000  # characters of a message

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
@opt.with_gates
def run(
    model: opt.ModelArgument,
    *,
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    preset: Annotated[str | None, typer.Option(help="Settings of a network of the paper.")] = None,
    out: opt.OutOption = None,
    target_compression: Annotated[
        float | None, typer.Option(help="Budget: elements / nonzeros of kernels.")
    ] = None,
    target_sparsity: Annotated[
        float | None, typer.Option(help="Budget: share of zeros in kernels.")
    ] = None,
    accuracy_budget: Annotated[
        float | None,
        typer.Option(
            help="Budget: largest drop, in the metric's unit; default: 0.01, or 1 % of it."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of learning thresholds.")] = None,
    finetune_epochs: Annotated[int | None, typer.Option(help="Epochs of fine-tuning.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    distillation_weight: Annotated[
        float | None,
        typer.Option(
            help="Share of the loss learned from the original's outputs; default: by rule."
        ),
    ] = None,
    skip_label_check: Annotated[
        bool | None,
        typer.Option(
            "--skip-label-check", help="Go on where the original is no better than guessing."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    precision: Annotated[
        str | None, typer.Option(help="Of the forward pass: fp32 or bf16.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads; default: the cores it may use.")
    ] = None,
    include: Annotated[
        list[str] | None, typer.Option(help="Prune only kernels of these names (glob).")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Do not prune kernels of these names (glob).")
    ] = None,
    export: opt.Exports = None,
    weight_storage: opt.WeightStorageOption = None,
    baseline: opt.Baseline = None,
    no_baseline: opt.NoBaseline = False,
    limits: opt.Limits,
    settings: opt.SetOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of going on with an earlier run.")
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Prune MODEL.onnx, prove the exported files and report them beside global magnitude pruning."""
    budget = {
        "target_compression": target_compression,
        "target_sparsity": target_sparsity,
        "accuracy_budget": accuracy_budget,
    }
    asked = [f"--{name.replace('_', '-')}" for name, value in budget.items() if value is not None]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} contradict each other", "give one of them")
    train = {
        "epochs": epochs,
        "finetune_epochs": finetune_epochs,
        "batch_size": batch_size,
        "lr": lr,
        "distillation_weight": distillation_weight,
        "skip_label_check": skip_label_check,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
    }
    options: dict[str, dict[str, Any]] = {
        "data": {"path": data},
        "budget": budget,
        "train": train,
        "prune": {"include": include or None, "exclude": exclude or None},
        "export": {"formats": export or None, "weight_storage": weight_storage or None},
        "baseline": {"mode": opt.merge_baseline_mode(baseline, no_baseline)},
        "gates": dict(limits),
    }
    opt.add_assignments(options, settings or ())
    _run(model, config, preset, options, out, fresh, as_json, quiet, task=task)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the example and its run.")] = Path(
        "ltp-demo"
    ),
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Run the whole pipeline on the embedded example: digits and a small ResNet, about a minute."""
    from ltp_pipeline.demo import copy_example

    model = copy_example(out)
    if not quiet:
        typer.echo(
            f"The example is in {out}; running: cd {out} && ltp-pipeline run {model.name}", err=True
        )
    os.chdir(out)
    _run(Path(model.name), None, None, {}, None, False, as_json, quiet, shown_in=out)


IN_THE_ORDER_OF_HELP = (
    model_commands.init,
    model_commands.inspect,
    model_commands.validate,
    model_commands.quantize,
    model_commands.accelerate,
    model_commands.sparse_ops,
    result_commands.trail,
    result_commands.pick,
    result_commands.export,
    result_commands.handoff,
    model_commands.unpack,
    result_commands.report,
    result_commands.gate,
    result_commands.compare,
)
for _command in IN_THE_ORDER_OF_HELP:
    app.command()(_command)


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
    task: Path | None = None,
) -> None:
    from ltp_pipeline.cli.progress import make_reporter
    from ltp_pipeline.settings.load import load_settings

    settings = load_settings(model, config, preset, options)
    reporter = make_reporter(quiet or not distributed.is_main_process())
    if not model.is_file():
        raise InputError(f"there is no file {model}", "give the path of an ONNX model")
    reporter.say(f"Reading {model}")
    from ltp_pipeline import api

    outcome = api.run(model, settings, out=out, fresh=fresh, progress=reporter, task=task)
    distributed.destroy_process_group()
    finish_command(outcome, shown_in, as_json)


def _fail(error: LtpError) -> NoReturn:
    if signals.stop_requested():  # then it only says what that has broken off
        signals.exit_interrupted(distributed.is_main_process())
    if not distributed.should_report_errors():
        sys.exit(error.exit_code)
    rank = "" if distributed.is_main_process() else f"rank {distributed.get_rank()}: "
    if isinstance(error, TaskFailed):
        typer.echo(error.traceback_text.rstrip(), err=True)
    typer.echo(
        _line(error.message if isinstance(error, GateFailed) else f"{rank}error: {error.message}"),
        err=True,
    )
    if isinstance(error, UnsupportedModel):
        for reason in error.reasons:
            typer.echo(_line(f"  {reason}"), err=True)
    typer.echo(_line(f"  {error.hint}"), err=True)
    sys.exit(error.exit_code)


def _refused_by_system(error: OSError) -> InputError:
    """A disk that is full, a folder that has gone, rights that are missing: no bug, wherever it is met."""
    where = "" if error.filename is None else f" {error.filename}"
    full = (
        "free some space"
        if is_disk_full(error)
        else "check that it is there and may be read and written"
    )
    return InputError(
        f"cannot read or write{where}: {error.strerror or error}",
        f"{full}, then run the same again",
    )


def _line(text: str) -> str:
    return one_line(text, LONGEST_LINE)


def main() -> None:
    """Run a command; every error a user can meet ends in two lines and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no × shall not end a run
    try:
        code = app(
            standalone_mode=False
        )  # typer returns the code of an Exit, and turns Ctrl-C into one with 130
    except LtpError as error:
        _fail(error)
    except (KeyboardInterrupt, typer.Abort):
        code = signals.EXIT_CODE
    except OSError as error:
        _fail(_refused_by_system(error))
    except Exception as error:
        if distributed.is_lost_peer(error):
            _fail(
                TrainingFailed(
                    "another process of this run has ended", "its message stands above or below"
                )
            )
        show: Callable[[], None] | None = getattr(
            error, "show", None
        )  # errors of usage know how to print themselves
        if show is None:
            raise
        show()
        code = 2
    if code == signals.EXIT_CODE:
        signals.exit_interrupted(distributed.is_main_process())
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
