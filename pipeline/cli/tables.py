"""Print the results of trail, inspect, validate and accelerate for people, on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ltp_pipeline.results.metric import Metric, on_validation
from ltp_pipeline.stages.report.filters import format_ratio, format_shape
from ltp_pipeline.system.text import format_percent, make_printable, one_line, pluralize

if TYPE_CHECKING:
    from ltp_pipeline.results.tool_results import (
        AccelerationResult,
        InspectionResult,
        ReferenceResult,
        TrailEntryInfo,
        ValidationResult,
    )

MAX_LINE, MAX_CELL = 2000, 500  # characters of a line, and of a cell of a table
LABEL_WIDTH = 12  # characters of a label before its value


def show_trail(entries: Sequence[TrailEntryInfo], folder: Path) -> None:
    """Print the entries of a trail; `folder` comes before the paths of their files."""
    value_title = on_validation(entries[0].metric if entries else Metric())
    table = Table(box=None, pad_edge=False)
    for title in ("entry", "", "compression", "full model", value_title, "file"):
        table.add_column(title, justify="left" if title == "file" else "right", no_wrap=True)
    for entry in entries:
        marks = (">" if entry.selected else "") + ("*" if entry.pareto else "")
        cells = [
            str(entry.entry),
            marks,
            format_ratio(entry.compression),
            format_ratio(entry.model_compression),
            entry.metric.shown(entry.accuracy),
            os.path.normpath(folder / entry.file),
        ]
        table.add_row(*(_to_cell(cell) for cell in cells))
    _open_console().print(table)


def show_model(result: InspectionResult) -> None:
    """Print what `inspect` reports about a model."""
    producer = result.producer or "an unnamed producer"
    format_name = f", {result.format} format" if result.format else ""
    _print_line(
        f"{result.path}: {result.bytes:,} bytes, opset {result.opset}, by {producer}{format_name}"
    )
    for kind, tensors in (("input", result.inputs), ("output", result.outputs)):
        for tensor in tensors:
            _print_line(f"  {kind} {tensor.name}: {tensor.type} {format_shape(tensor.shape)}")
    operators = [
        f"{operator.name} {operator.count}{'' if operator.supported else ' (not supported)'}"
        for operator in result.operators
    ]
    _print_line(f"  operators: {', '.join(operators)}")
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


def _show_layers(result: InspectionResult) -> None:
    titles = ("layer", "operator", "shape", "weights", "fraction", "zeros", "blocks", "pruned")
    table = Table(*titles, box=None, pad_edge=False)
    for layer in result.layers:
        cells = [
            layer.name,
            layer.op,
            format_shape(layer.shape),
            f"{layer.elements:,}",
            f"{layer.fraction:.1%}",
            f"{1 - layer.nonzeros / layer.elements:.1%}",
            "-" if layer.block_axis is None else "4x1",
            layer.reason or "yes",
        ]
        table.add_row(*(_to_cell(cell) for cell in cells))
    _open_console().print(table)
    _print_line(
        f"{pluralize(len(result.layers), 'layer')} with {result.layer_elements:,} of the model's "
        f"{result.float_elements:,} float weights: "
        f"{result.prunable_elements / result.layer_elements:.1%} prunable, "
        f"{result.sparsity:.1%} already zero"
    )


def _show_other_weights(result: InspectionResult) -> None:
    titles = ("other weights", "tensors", "weights", "role", "largest")
    table = Table(*titles, box=None, pad_edge=False)
    for other in result.others:
        cells = [
            other.operator or "-",
            str(other.num_tensors),
            f"{other.elements:,}",
            other.role,
            other.largest,
        ]
        table.add_row(*(_to_cell(cell) for cell in cells))
    _open_console().print(table)


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
        _print_pair("kept dense", f"{name}: {reason}")
    if result.measurement is not None:
        show_validation(result.measurement)


def show_validation(result: ValidationResult) -> None:
    """Print what `validate` measured."""
    accuracy, metric = result.accuracy, result.metric
    _print_line(f"{result.path}: {result.bytes:,} bytes")
    samples = pluralize(accuracy.samples, "sample")
    value = metric.shown(accuracy.value)
    _print_pair(metric.label, f"{value} on {samples} of the {accuracy.split} split")
    if accuracy.top5 is not None:
        _print_pair("top-5", format_percent(accuracy.top5))
    for extra in accuracy.extra_metrics:
        _print_pair(extra.metric.label, extra.shown)
    if result.sparsity is not None:
        layers, model = format_ratio(result.compression), format_ratio(result.model_compression)
        _print_pair(
            "sparsity",
            f"{format_percent(result.sparsity)}, compression {layers} (full model {model})",
        )
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
    value = metric.shown(reference.accuracy.value)
    _print_pair("against", f"{reference.path}: {metric.name} {value}, {reference.bytes:,} bytes")
    drop, interval = metric.shown_drop(reference.drop), reference.drop_interval
    _print_pair(
        "drop",
        drop if interval is None else f"{drop} (95 % interval: {metric.shown_interval(interval)})",
    )
    if reference.agreement is not None:
        is_r2 = metric.name == "r2_vs_original"
        _print_pair("same argmax" if is_r2 else "agreement", format_percent(reference.agreement))
    _print_pair("latency", f"{format_ratio(reference.latency_ratio)} that of the other file")


def _open_console() -> Console:
    """Return a console as wide as the terminal; without a terminal, nothing is cut off."""
    return Console() if sys.stdout.isatty() else Console(width=1000)


def _print_pair(label: str, value: str) -> None:
    print(make_printable(f"{label:<{LABEL_WIDTH}} {value}"))


def _print_line(text: str) -> None:
    """Print a text on one line, whatever names are in it."""
    print(one_line(text, MAX_LINE))


def _to_cell(text: str) -> Text:
    return Text(one_line(text, MAX_CELL))
