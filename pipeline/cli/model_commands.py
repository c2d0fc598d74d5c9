"""Commands that take a model or write one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import ltp_pipeline
from ltp_pipeline.cli import options, tables
from ltp_pipeline.cli.output import print_path, print_result
from ltp_pipeline.cli.progress import make_reporter
from ltp_pipeline.settings.file_names import ENCODINGS


def init(
    model: options.ModelArgument,
    data: options.DataOption = None,
    task: options.TaskOption = None,
    assignments: options.SetOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Replace an existing ltp.toml, but keep its [data] and [task]."
        ),
    ] = False,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Write an ltp.toml next to MODEL.onnx, with settings inferred from the model and its data."""
    values: options.SettingValues = {}
    options.add_assignments(values, assignments)
    path, findings = ltp_pipeline.init(model, data, task=task, force=force, settings=values)

    def show_findings(_: object) -> None:
        for line in findings:
            typer.echo(line)
        has_data = any(line.startswith("data: ") for line in findings)
        next_step = "check it" if has_data else "set path in [data]"
        task_option = "" if task is None else f" --task {task}"
        typer.echo(f"{path}: {next_step}, then run: ltp-pipeline run {model}{task_option}")

    print_result({"path": str(path), "found": findings}, show_findings, as_json, quiet)


def inspect(
    model: options.ModelArgument,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Show which layer weights `run` would prune, which not and why, and what is unsupported."""
    print_result(ltp_pipeline.inspect(model), tables.show_model, as_json, quiet)


def validate(
    model: options.ModelArgument,
    data: options.DataOption = None,
    task: options.TaskOption = None,
    config: options.ConfigOption = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with this file, for example the original.")
    ] = None,
    provider: Annotated[
        str, typer.Option(help="Run with this execution provider of onnxruntime.")
    ] = "CPUExecutionProvider",
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Measure accuracy and latency of a file in onnxruntime, on the test split."""
    result = ltp_pipeline.validate(
        model, data, config=config, against=against, provider=provider, task=task
    )
    print_result(result, tables.show_validation, as_json, quiet)


def quantize(
    model: options.ModelArgument,
    out: Annotated[
        Path, typer.Option(metavar="INT8.onnx", help="Write the int8 file to this path.")
    ],
    data: options.DataOption = None,
    task: options.TaskOption = None,
    config: options.ConfigOption = None,
    encoding: options.EncodingOption = ENCODINGS[0],
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:
    """Quantize any float file to int8, and measure both files."""
    result = ltp_pipeline.quantize(
        model,
        data,
        out=out,
        config=config,
        encoding=encoding,
        task=task,
        progress=make_reporter(quiet),
    )
    print_result(result, tables.show_quantization, as_json)


def accelerate(
    model: options.ModelArgument,
    out: Annotated[
        Path, typer.Option(metavar="FAST.onnx", help="Write the fast file to this path.")
    ],
    data: options.DataOption = None,
    task: options.TaskOption = None,
    config: options.ConfigOption = None,
    encoding: options.EncodingOption = ENCODINGS[0],
    accelerate_min_sparsity: Annotated[
        float | None,
        typer.Option(
            help="Convert layers from this sparsity on, whether or not they are faster on this"
            " machine."
            " Default: the layers that are faster on this machine."
        ),
    ] = None,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Convert any float file to sparse operators; exit with 7 if the new file is not faster.

    The new file is verified on the data, or on random inputs if there are no data. Without the
    library of sparse operators, it runs at the speed of a dense file.
    """
    result = ltp_pipeline.accelerate(
        model,
        data,
        out=out,
        config=config,
        encoding=encoding,
        accelerate_min_sparsity=accelerate_min_sparsity,
        task=task,
    )
    print_result(result, tables.show_acceleration, as_json, quiet)


def unpack(
    model: options.ModelArgument,
    out: Annotated[Path, typer.Option(help="Write the dense file to this path.")],
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Convert a sparse or packed file to a dense one, for tools that need it."""
    print_path(ltp_pipeline.unpack(model, out), as_json, quiet)


def sparse_ops(
    build: Annotated[
        bool,
        typer.Option("--build", help="Build the library again, with the compiler $CXX or c++."),
    ] = False,
    as_json: options.JsonOption = False,
    quiet: options.SilentOption = False,
) -> None:
    """Print the path of the library of sparse operators, and the instruction set it uses here."""
    from ltp_pipeline.exporters.sparse_ops import library

    path = library.build_library() if build else library.sparse_ops_library()
    instruction_sets = library.query_instruction_sets(path)

    def show_library(_: object) -> None:
        typer.echo(path)
        typer.echo(f"instruction set: {instruction_sets.chosen}")
        for name, reason in instruction_sets.rejected.items():
            typer.echo(f"not used: {name} ({reason})")

    print_result({"library": str(path), **asdict(instruction_sets)}, show_library, as_json, quiet)
