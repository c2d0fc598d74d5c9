"""What HANDOFF.md says of files that compute in 8 bits."""

from ltp_pipeline.results.schema import FileResult, Report
from ltp_pipeline.stages.handoff import page_text as filters
from ltp_pipeline.stages.handoff.page_text import code, escape
from ltp_pipeline.system.text import pluralize

SAFE = (
    "Weights have 7 bits, so that sums cannot overflow, also on x86 without VNNI: outputs are the "
    "same there up to rounding."
)
UNSAFE = (
    "**Weights have 8 bits. On x86 processors without VNNI sums may overflow, and outputs may be wrong**: use it where "
    "you have measured it."
)


def section(report: Report) -> str:
    """A section for these files; empty where there are none."""
    files = [file for file in report.pruned.files if file.quantization is not None]
    if not files:
        return ""
    how = files[0].quantization
    assert how is not None  # noqa: S101 - chosen so
    processor = escape(report.environment.processor or "an unknown processor")
    lines = [filters.speed(report, file, code) for file in files]
    ranges = (
        "found at every run"
        if how.method == "dynamic"
        else f"part of the file, chosen by {escape(how.method)}"
    )
    if how.trained_epochs:
        ranges += (
            f"; the network was trained in 8 bits for {pluralize(how.trained_epochs, 'epoch')}"
        )
    said = f"Ranges of activations are {ranges}. {SAFE if (how.weight_bits or 8) < 8 else UNSAFE}"
    return "\n\n".join(
        [
            "## 8 bits",
            *(f"{line} Latency was measured on {processor}." for line in lines),
            f"{said}{_left_float(files[0])}",
            "Speed depends on the processor: without instructions for 8 bits it may be no faster than the original.",
        ]
    )


def _left_float(file: FileResult) -> str:
    left = file.quantization.float_layers if file.quantization else {}
    if not left:
        return ""
    named = ", ".join(f"{code(name)} ({escape(reason)})" for name, reason in left.items())
    return f" These kernels are still float: {named}."
