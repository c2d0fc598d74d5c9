"""Print the results of commands for people, on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ltp_pipeline.cli.output import show_gates
from ltp_pipeline.results.metric import Metric, name_validation_metric
from ltp_pipeline.system.text import (
    MISSING,
    format_percent,
    format_ratio,
    format_shape,
    make_printable,
    one_line,
    pluralize,
)

if TYPE_CHECKING:
    from ltp_pipeline.results.compare import Comparison
    from ltp_pipeline.results.schema_parts import TrailEntryInfo
    from ltp_pipeline.stages.measure.any_file import ReferenceResult, ValidationResult
    from ltp_pipeline.stages.tools.accelerate import AccelerationResult
    from ltp_pipeline.stages.tools.inspect import InspectedOperator, InspectionResult
    from ltp_pipeline.stages.tools.quantize import QuantizationResult

MAX_LINE, MAX_CELL = 2000, 500  # characters of a line, and of a cell of a table
LABEL_WIDTH = 12  # characters of a label before its value


def show_trail(entries: Sequence[TrailEntryInfo], folder: Path) -> None:
    """Print the entries of a trail; `folder` comes before the paths of their files."""
    metric = entries[0].metric if entries else Metric()
    titles = (
        "",
        "entry",
        "",
        "compression",
        "full model",
        "multiply-adds",
        name_validation_metric(metric),
        "file",
    )
    rows = [
        (
            ">" if entry.selected else "",
            str(entry.entry),
            "*" if entry.pareto else "",
            format_ratio(entry.compression),
            format_ratio(entry.model_compression),
            MISSING if entry.macs_left is None else format_percent(entry.macs_left, 1),
            metric.format_value(entry.accuracy),
            os.path.normpath(folder / entry.file),
        )
        for entry in entries
    ]
    # A wrapped path could not be copied.
    _print_table(titles, rows, numbers=titles[:-1], wraps=False)


def show_model(result: InspectionResult) -> None:
    """Print what `inspect` reports about a model."""
    producer = result.producer or "an unnamed producer"
    description = f"{result.bytes:,} bytes, opset {result.opset}, by {producer}"
    if result.format:
        description += f", {result.format} format"
    _print_line(f"{result.path}: {description}")
    for kind, tensors in (("input", result.inputs), ("output", result.outputs)):
        for tensor in tensors:
            _print_line(f"  {kind} {tensor.name}: {tensor.type} {format_shape(tensor.shape)}")
    _print_line(f"  operators: {', '.join(map(_format_operator, result.operators))}")
    _print_line(
        f"  BatchNormalization: {result.batch_norms} present, {result.folded_batch_norms} probably "
        "folded into convolutions"
    )
    if result.layers:
        _show_layers(result)
    if result.others:
        _show_other_weights(result)
    for reason in result.unsupported:
        _print_line(f"not supported: {reason}")
    for sentence in result.plan:
        _print_line(sentence)


def _format_operator(operator: InspectedOperator) -> str:
    name = f"{operator.name} {operator.count}"
    return name if operator.supported else f"{name} (not supported)"


def _show_layers(result: InspectionResult) -> None:
    """Print a table of the layers, and the sums of their weights."""
    titles = (
        "layer",
        "operator",
        "shape",
        "weights",
        "fraction",
        "zeros",
        "uses",
        "blocks",
        "pruned",
    )
    rows = [
        (
            layer.name,
            layer.op,
            format_shape(layer.shape),
            f"{layer.elements:,}",
            f"{layer.fraction:.1%}",
            f"{1 - layer.nonzeros / layer.elements:.1%}",
            "-" if layer.uses is None else f"{layer.uses:,}",
            "-" if layer.block_axis is None else "4x1",
            layer.reason or "yes",
        )
        for layer in result.layers
    ]
    _print_table(titles, rows, numbers=("weights", "fraction", "zeros", "uses"))
    _print_line(
        f"{pluralize(len(result.layers), 'layer')} with {result.layer_elements:,} of the model's "
        f"{result.float_elements:,} float weights: "
        f"{result.prunable_elements / result.layer_elements:.1%} prunable, "
        f"{result.sparsity:.1%} already zero"
    )
    if result.macs is not None:
        _print_line(f"{result.macs:,} multiply-adds in one sample")


def _show_other_weights(result: InspectionResult) -> None:
    """Print a table of the float weights that do not belong to a layer."""
    titles = ("other weights", "tensors", "weights", "role", "largest")
    rows = [
        (part.operator or "-", str(part.num_tensors), f"{part.elements:,}", part.role, part.largest)
        for part in result.others
    ]
    _print_table(titles, rows, numbers=("tensors", "weights"))


def show_acceleration(result: AccelerationResult) -> None:
    """Print what `accelerate` wrote, and its accuracy if data were passed."""
    kernels = result.sparse_kernels
    layers = pluralize(len(kernels.converted_layers), "layer")
    _print_line(f"{result.path}: {result.bytes:,} bytes, {layers} on sparse operators")
    _print_pair(
        "latency",
        f"{result.latency_ms:.3f} ms, {format_ratio(result.latency_ratio)} that of the source file "
        f"({result.source_latency_ms:.3f} ms), one sample on one thread, {kernels.instruction_set}",
    )
    _print_pair("verified on", result.proven_on)
    for name, reason in kernels.dense_layers.items():
        _print_pair("dense", f"{name}: {reason}")
    if result.measurement is not None:
        show_validation(result.measurement)


def show_quantization(result: QuantizationResult) -> None:
    """Print the measured int8 file, and the notes about it."""
    show_validation(result.measurement)
    for note in result.notes:
        typer.echo(note)


def show_comparison(comparison: Comparison) -> None:
    """Print what changed between two reports, and the results of the limits."""
    for change in comparison.changes:
        typer.echo(change.line)
    show_gates(comparison.gate_results)


def show_validation(result: ValidationResult) -> None:
    """Print what `validate` measured."""
    accuracy, metric = result.accuracy, result.metric
    _print_line(f"{result.path}: {result.bytes:,} bytes")
    samples = pluralize(accuracy.samples or 0, "sample")
    value = metric.format_value(accuracy.value)
    _print_pair(metric.label, f"{value} on {samples} of the {accuracy.split} split")
    if accuracy.top5 is not None:
        _print_pair("top-5", format_percent(accuracy.top5))
    for extra in accuracy.extra_metrics:
        _print_pair(extra.metric.label, extra.text)
    if result.sparsity is not None:
        layers, model = format_ratio(result.compression), format_ratio(result.model_compression)
        sparsity = format_percent(result.sparsity)
        _print_pair("sparsity", f"{sparsity}, compression {layers} (full model {model})")
    low, high = result.latency_quartiles_ms
    batch, threads = pluralize(result.batch, "sample"), pluralize(result.threads, "thread")
    _print_pair(
        "latency",
        f"{result.latency_ms:.3f} ms for {batch} (quartiles {low:.3f} to {high:.3f}), {threads}, "
        f"{result.provider}; load time {result.load_ms:.1f} ms",
    )
    if result.against is not None:
        _show_reference(result.against, metric)
    for note in result.notes:
        _print_line(note)


def _show_reference(reference: ReferenceResult, metric: Metric) -> None:
    """Print the other file of a validation, and how the validated file differs from it."""
    value = metric.format_value(reference.accuracy.value)
    _print_pair("against", f"{reference.path}: {metric.name} {value}, {reference.bytes:,} bytes")
    drop = metric.format_drop(reference.drop)
    if reference.drop_interval is not None:
        drop += f" (95 % interval: {metric.format_interval(reference.drop_interval)})"
    _print_pair("drop", drop)
    if reference.agreement is not None:
        label = "same argmax" if metric.name == "r2_vs_original" else "agreement"
        _print_pair(label, format_percent(reference.agreement))
    _print_pair("latency", f"{format_ratio(reference.latency_ratio)} that of the other file")


def _print_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[str],
    wraps: bool = True,
) -> None:
    """Print a table.

    Args:
        titles: Titles of the columns.
        rows: Cells; names from files may hold any characters.
        numbers: Titles of the columns that are aligned to the right.
        wraps: Wrap cells so that the table fits into the terminal.
    """
    # Rich takes a while to import.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in numbers else "left")
    for row in rows:
        table.add_row(*(Text(one_line(cell, MAX_CELL)) for cell in row))
    is_terminal = wraps and sys.stdout.isatty()
    console = Console() if is_terminal else Console(width=MAX_LINE)
    console.print(table)


def _print_pair(label: str, value: str) -> None:
    print(make_printable(f"{label:<{LABEL_WIDTH}} {value}"))


def _print_line(text: str) -> None:
    """Print a text on one line, whatever names are in it."""
    print(one_line(text, MAX_LINE))
