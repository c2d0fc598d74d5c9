"""The Typer app, and the one place that turns errors into lines and exit codes."""

import io
import sys
from typing import Annotated, NoReturn

import typer

from ltp_pipeline import __version__
from ltp_pipeline.cli import model_commands, result_commands, run_commands
from ltp_pipeline.errors import (
    GateFailed,
    InputError,
    LtpError,
    TaskFailed,
    TrainingFailed,
    UnsupportedModel,
)
from ltp_pipeline.system import distributed, signals
from ltp_pipeline.system.scratch import is_disk_full
from ltp_pipeline.system.text import one_line

MAX_LINE_LENGTH = 2000  # characters of a printed message
USAGE_EXIT_CODE = 2

COMMANDS = (  # in the order of the help text
    run_commands.run,
    run_commands.demo,
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

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in COMMANDS:
    app.command()(_command)


def print_version(is_requested: bool) -> None:
    """Print the version and exit if --version is set."""
    if is_requested:
        typer.echo(f"ltp-pipeline {__version__}")
        raise typer.Exit


@app.callback()
def handle_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Prune a trained ONNX model with learned thresholds, and verify the exported file."""


def main() -> None:
    """Run a command. An error that a user can meet ends in two lines and its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot print × must not end a run.
            stream.reconfigure(errors="replace")
    try:
        # Typer returns the code of an Exit, and 130 after Ctrl-C.
        code = app(standalone_mode=False)
    except LtpError as error:
        exit_with_error(error)
    except (KeyboardInterrupt, typer.Abort):
        code = signals.EXIT_CODE
    except OSError as error:
        exit_with_error(_convert_os_error(error))
    except Exception as error:
        if distributed.is_lost_peer(error):
            exit_with_error(
                TrainingFailed(
                    "another process of this run has ended",
                    "read the message of that process above or below",
                )
            )
        # Usage errors of Typer have a method that prints them.
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        code = USAGE_EXIT_CODE
    if code == signals.EXIT_CODE:
        signals.exit_interrupted(distributed.is_main_process())
    sys.exit(code if isinstance(code, int) else 0)


def exit_with_error(error: LtpError) -> NoReturn:
    """Print an error and exit with its code."""
    if signals.stop_requested():
        # After an interrupt, an error only tells what the interrupt has broken off.
        signals.exit_interrupted(distributed.is_main_process())
    if not distributed.should_report_errors():
        sys.exit(error.exit_code)
    if isinstance(error, TaskFailed):
        typer.echo(error.traceback_text.rstrip(), err=True)
    if isinstance(error, GateFailed):
        _print_lines(error.message)
    else:
        rank = "" if distributed.is_main_process() else f"rank {distributed.get_rank()}: "
        _print_lines(f"{rank}error: {error.message}")
    if isinstance(error, UnsupportedModel):
        for reason in error.reasons:
            _print_lines(f"  {reason}")
    _print_lines(f"  {error.hint}")
    sys.exit(error.exit_code)


def _print_lines(text: str) -> None:
    for line in text.split("\n"):
        typer.echo(one_line(line, MAX_LINE_LENGTH), err=True)


def _convert_os_error(error: OSError) -> InputError:
    """Return an InputError for a full disk, a missing folder or missing rights."""
    path = "" if error.filename is None else f" {error.filename}"
    action = "check that it exists and can be read and written"
    if is_disk_full(error):
        action = "free some space"
    return InputError(
        f"cannot read or write{path}: {error.strerror or error}", f"{action}, then try again"
    )


if __name__ == "__main__":
    main()
