"""Commands that take a model or write one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ltp_pipeline.cli import options as opt
from ltp_pipeline.cli.output import print_json, print_path
from ltp_pipeline.settings import file_names


def init(
    model: opt.ModelArgument,
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    settings: opt.SetOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Write over an ltp.toml that is there, and begin with its [data] and [task].",
        ),
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write an ltp.toml beside MODEL.onnx with what it and its data show, every line explained."""
    from ltp_pipeline import api

    given: dict[str, dict[str, Any]] = {}
    opt.add_assignments(given, settings or ())
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
        from ltp_pipeline.cli.tables import show_model

        show_model(found)


def validate(
    model: opt.ModelArgument,
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    against: Annotated[Path | None, typer.Option(help="The original, to compare with.")] = None,
    provider: Annotated[
        str, typer.Option(help="Execution provider of onnxruntime.")
    ] = "CPUExecutionProvider",
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Measure a file in onnxruntime on the test split."""
    from ltp_pipeline import api

    found = api.validate(model, data, config=config, against=against, provider=provider, task=task)
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.cli.tables import show_validation

        show_validation(found)


def quantize(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(metavar="INT8.onnx", help="The int8 file to write.")],
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    encoding: opt.Encoding = file_names.ENCODINGS[0],
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:
    """Write an int8 file of a float file of any origin: faster in any onnxruntime, and measured beside it."""
    from ltp_pipeline import api
    from ltp_pipeline.cli.progress import make_reporter

    reporter = make_reporter(quiet)
    found = api.quantize(
        model, data, out=out, config=config, encoding=encoding, task=task, progress=reporter
    )
    if as_json:
        print_json(asdict(found))
        return
    from ltp_pipeline.cli.tables import show_validation

    show_validation(found.measurement)
    for note in found.notes:
        typer.echo(note)


def accelerate(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(metavar="FAST.onnx", help="The fast file to write.")],
    data: opt.DataOption = None,
    task: opt.TaskOption = None,
    config: opt.ConfigOption = None,
    encoding: opt.Encoding = file_names.ENCODINGS[0],
    accelerate_min_sparsity: Annotated[
        float | None,
        typer.Option(
            help="Turn over what has at least this sparsity, whether or not it is faster on this machine."
        ),
    ] = None,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write a file that uses the sparse kernels, of a file of any origin; exit 7 and no file where it is not faster.

    Proven on the data, or else on random inputs. It runs without the library, too, as any other file.
    """
    from ltp_pipeline import api

    found = api.accelerate(
        model,
        data,
        out=out,
        config=config,
        encoding=encoding,
        accelerate_min_sparsity=accelerate_min_sparsity,
        task=task,
    )
    if as_json:
        print_json(asdict(found))
    elif not quiet:
        from ltp_pipeline.cli.tables import show_acceleration

        show_acceleration(found)


def unpack(
    model: opt.ModelArgument,
    out: Annotated[Path, typer.Option(help="The plain model to write.")],
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Write a sparse or packed model as a plain dense one, for tools that need it."""
    from ltp_pipeline import api

    print_path(api.unpack(model, out), as_json, quiet)


def sparse_ops(
    build: Annotated[
        bool,
        typer.Option(
            "--build", help="Build the library again, with the C++ compiler in CXX or with c++."
        ),
    ] = False,
    as_json: opt.Json = False,
    quiet: opt.Silent = False,
) -> None:
    """Show where the sparse operator library is and which instruction set it uses on this processor."""
    from ltp_pipeline.exporters.sparse_ops import library

    path = library.build_library() if build else library.sparse_ops_library()
    found = library.query_instruction_sets(path)
    if as_json:
        print_json({"library": str(path), **asdict(found)})
    elif not quiet:
        typer.echo(path)
        typer.echo(f"instruction set: {found.chosen}")
        for name, why in found.rejected.items():
            typer.echo(f"not used: {name} ({why})")
