"""Options that several commands share, defined once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ltp_pipeline import formats

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress; only the result and errors.")]
Silent = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print notes and errors only; the exit code tells the rest.")
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX model.")]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")]
ReportArgument = Annotated[Path, typer.Argument(metavar="REPORT.json", help="The report.json of a run.")]
DataOption = Annotated[Path | None, typer.Option(help="Data: an .npz file, or a folder: classes, IDX, .tar.")]
ConfigOption = Annotated[Path | None, typer.Option(help="Settings; default: ltp.toml beside the model.")]
OutOption = Annotated[Path | None, typer.Option(help="Run directory; default: MODEL-ltp in the working directory.")]
Exports = Annotated[list[str] | None, typer.Option(help=f"File to write, repeatable: {formats.HELP}.")]
FurtherFiles = Annotated[list[str] | None, typer.Option("--format", help=f"Further file, repeatable: {formats.HELP}.")]
Values = Annotated[
    list[str] | None,
    typer.Option(
        help=f"{' or '.join(formats.ROUNDED).capitalize()} files with rounded values, beside the exact ones: "
        f"{', '.join(formats.ROUNDINGS)}."
    ),
]

MinAccuracy = Annotated[float | None, typer.Option(help="Gate: top-1 at least this, e.g. 0.9.")]
MaxDrop = Annotated[float | None, typer.Option(help="Gate: drop in top-1 at most this, e.g. 0.01 for one point.")]
MinSparsity = Annotated[float | None, typer.Option(help="Gate: share of zeros at least this.")]
MinCompression = Annotated[float | None, typer.Option(help="Gate: compression of the kernels at least this.")]
MinModelCompression = Annotated[
    float | None, typer.Option(help="Gate: compression of the whole model, all float weights, at least this.")
]
BeatBaseline = Annotated[bool | None, typer.Option("--beat-baseline", help="Gate: better than global magnitude.")]
By = Annotated[float | None, typer.Option(help="With --beat-baseline: better by at least this.")]
MaxBytes = Annotated[int | None, typer.Option(help="Gate: smallest file at most this large.")]
MaxLatencyRatio = Annotated[float | None, typer.Option(help="Gate: latency / the original's at most this.")]
PerLayerFloor = Annotated[float | None, typer.Option(help="Gate: every kernel keeps at least this share.")]
Confidence = Annotated[float | None, typer.Option(help="Gates judge the unfavourable end of this interval, e.g. 0.95.")]

GATES = (
    "min_accuracy",
    "max_drop",
    "min_sparsity",
    "min_compression",
    "min_model_compression",
    "beat_baseline",
    "by",
    "max_bytes",
    "max_latency_ratio",
    "per_layer_floor",
    "confidence",
)


def gates_of(given: dict[str, Any]) -> dict[str, Any]:
    """Gate options among the local variables of a command."""
    return {name: given[name] for name in GATES}
