"""Options that several commands share, defined once."""

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ltp_pipeline.errors import UsageError
from ltp_pipeline.settings import file_names
from ltp_pipeline.system.text import quote_name


def _known_encoding(name: str) -> str:
    if name not in file_names.ENCODINGS:
        raise UsageError(
            f"there is no encoding {name!r}", f"choose among {', '.join(file_names.ENCODINGS)}"
        )
    return name


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress; only the result and errors.")
]
Silent = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Print notes and errors only; the exit code tells the rest."
    ),
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX model.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
ReportArgument = Annotated[
    Path, typer.Argument(metavar="REPORT.json", help="The report.json of a run.")
]
DataOption = Annotated[
    Path | None, typer.Option(help="Data: an .npz file, or a folder: classes, IDX, .tar.")
]
TaskOption = Annotated[
    Path | None,
    typer.Option(
        "--task", metavar="FILE.py", help="Your own data set, loss and metric (docs/tasks.md)."
    ),
]
ConfigOption = Annotated[
    Path | None, typer.Option(help="Settings; default: ltp.toml beside the model.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other key of ltp.toml."),
]
OutOption = Annotated[
    Path | None, typer.Option(help="Run directory; default: MODEL-ltp in the working directory.")
]
Exports = Annotated[
    list[str] | None, typer.Option(help=f"File to write, repeatable: {file_names.FORMAT_HELP}.")
]
FurtherFiles = Annotated[
    list[str] | None,
    typer.Option("--format", help=f"Further file: {file_names.FORMAT_HELP}; repeatable."),
]
Encoding = Annotated[
    str,
    typer.Option(
        metavar="ENCODING",
        callback=_known_encoding,
        help=f"How it is written: {', '.join(file_names.ENCODINGS)}.",
    ),
]
WeightStorageOption = Annotated[
    list[str] | None,
    typer.Option(
        help=f"{' or '.join(file_names.ROUNDABLE_ENCODINGS).capitalize()} files with rounded values, beside the exact ones: "
        f"{', '.join(file_names.ROUNDED_STORAGES)}."
    ),
]

Baseline = Annotated[
    str | None,
    typer.Option(
        metavar="MODE", help="Measure global magnitude pruning: auto, curve, quick or none."
    ),
]
NoBaseline = Annotated[bool, typer.Option("--no-baseline", help="The same as --baseline none.")]

Limits = Mapping[str, Any]  # of gates, by name
BY_FILE = ("max_bytes", "max_latency_ratio")  # gates that may be given more than once
GATES: dict[str, Any] = {
    "min_accuracy": Annotated[
        float | None, typer.Option(help="Gate: the metric no worse than this, e.g. 0.9.")
    ],
    "max_drop": Annotated[
        float | None,
        typer.Option(
            help="Gate: drop at most this, in the metric's unit; 0.01 is a point of a share."
        ),
    ],
    "min_sparsity": Annotated[
        float | None, typer.Option(help="Gate: share of zeros at least this.")
    ],
    "min_compression": Annotated[
        float | None, typer.Option(help="Gate: compression of the kernels at least this.")
    ],
    "min_model_compression": Annotated[
        float | None,
        typer.Option(
            help="Gate: compression of the whole model, all float weights, at least this."
        ),
    ],
    "beat_baseline": Annotated[
        bool | None, typer.Option("--beat-baseline", help="Gate: better than global magnitude.")
    ],
    "baseline_margin": Annotated[
        float | None,
        typer.Option(help="With --beat-baseline: better by at least this, in its unit."),
    ],
    "min_gain": Annotated[
        float | None,
        typer.Option(
            help="Gate: times fewer weights than global magnitude at equal accuracy, e.g. 1.5."
        ),
    ],
    "max_bytes": Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]N",
            help="Gate: smallest file, or the one of this name, at most this large.",
        ),
    ],
    "max_latency_ratio": Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]R",
            help="Gate: latency / the original's at most this, of the slowest file or of the one of this name.",
        ),
    ],
    "min_layer_density": Annotated[
        float | None, typer.Option(help="Gate: every kernel keeps at least this share.")
    ],
    "confidence": Annotated[
        float | None,
        typer.Option(help="Gates judge the unfavourable end of this interval, e.g. 0.95."),
    ],
}


def merge_baseline_mode(given: str | None, none: bool) -> str | None:
    """What --baseline and --no-baseline say together."""
    if none and given not in (None, "none"):
        raise UsageError(
            f"--baseline {given} and --no-baseline contradict each other", "give one of them"
        )
    return "none" if none else given


def add_assignments(options: dict[str, dict[str, Any]], settings: Sequence[str]) -> None:
    """Add to options by section and key what --set says."""
    if settings:
        from ltp_pipeline.settings.load import merge_tables

        for assigned in map(parse_assignment, settings):
            merge_tables(options, assigned)


def parse_assignment(text: str) -> dict[str, Any]:
    """Read `section.key=value` as TOML; a value that is none is a plain string."""
    from ltp_pipeline.settings.load import parse_toml

    name, _, value = text.partition("=")
    for written in (value, json.dumps(value.strip())):
        try:
            found = parse_toml(f"{name} = {written}")
        except ValueError:
            continue
        if len(found) == 1 and all(isinstance(section, dict) for section in found.values()):
            return found
    remedy = 'write for example --set method.t0=0.01; names with dots or colons need quotes, data.inputs."a:0".scale'
    raise UsageError(f"--set {quote_name(text)} is not of the form SECTION.KEY=VALUE", remedy)


def with_gates(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each gate, in the place of its parameter `limits`, which gets their values."""
    signature = inspect.signature(command)

    @functools.wraps(command)
    def parsed(**given: Any) -> None:
        limits = {
            name: given.pop(name) or None if name in BY_FILE else given.pop(name) for name in GATES
        }
        command(**given, limits=limits)

    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "limits":
            parameters += [
                parameter.replace(name=n, default=None, annotation=kind)
                for n, kind in GATES.items()
            ]
        else:
            parameters.append(parameter)
    parsed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # which Typer reads
    return parsed
