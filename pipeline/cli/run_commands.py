"""Commands that prune a model: `run`, and `demo` on the embedded example."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

import ltp_pipeline
from ltp_pipeline.cli import options
from ltp_pipeline.cli.output import finish_command
from ltp_pipeline.cli.progress import make_reporter
from ltp_pipeline.demo import copy_example
from ltp_pipeline.errors import InputError, UsageError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.system import distributed


@options.with_settings(*Settings.model_fields)
def run(
    model: options.ModelArgument,
    *,
    task: options.TaskOption = None,
    config: options.ConfigOption = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Start from the settings of a network of the paper."),
    ] = None,
    out: options.RunDirectoryOption = None,
    values: options.SettingValues,
    no_baseline: options.NoBaselineOption = False,
    assignments: options.SetOption = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over instead of resuming an earlier run.")
    ] = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Prune MODEL.onnx, verify the exported files and compare them with the baseline."""
    _check_single_budget(values["budget"])
    baseline = values["baseline"]
    baseline["mode"] = options.merge_baseline_mode(baseline["mode"], no_baseline)
    options.add_assignments(values, assignments)
    settings = load_settings(model, config, preset, values)
    _prune_model(model, settings, as_json, quiet, out=out, fresh=fresh, task=task)


def demo(
    out: Annotated[
        Path, typer.Option(help="Write the example and its run to this directory.")
    ] = Path("ltp-demo"),
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Prune the embedded example, a small ResNet on images of digits, in about a minute."""
    model = copy_example(out)
    if not quiet:
        command = f"cd {out} && ltp-pipeline run {model.name}"
        typer.echo(f"The example is in {out}; running: {command}", err=True)
    os.chdir(out)
    model = Path(model.name)
    _prune_model(model, load_settings(model), as_json, quiet, shown_in=out)


def _check_single_budget(budget: dict[str, object]) -> None:
    """Raise UsageError if more than one option sets a budget."""
    names = [
        option.name for option in options.iter_options("budget") if budget[option.key] is not None
    ]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)} contradict each other", "pass one of them")


def _prune_model(
    model: Path,
    settings: Settings,
    as_json: bool,
    quiet: bool,
    shown_in: Path = Path(),
    **arguments: Any,
) -> None:
    """Call `ltp_pipeline.run` and print the result; `shown_in` begins each printed path."""
    reporter = make_reporter(quiet or not distributed.is_main_process())
    if not model.is_file():
        raise InputError(f"there is no file {model}", "pass the path of an ONNX model")
    reporter.say(f"Reading {model}")
    result = ltp_pipeline.run(model, settings, progress=reporter, **arguments)
    distributed.destroy_process_group()
    finish_command(result, shown_in, as_json)
