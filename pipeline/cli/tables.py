"""Results for people, on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ltp_pipeline.results.metric import Metric, on_validation
from ltp_pipeline.results.schema_parts import FILE_REASON_PREFIX
from ltp_pipeline.run_directory.names import REPORT_HTML
from ltp_pipeline.stages.report.comparison_facts import sentences
from ltp_pipeline.stages.report.filters import KERNELS, WHOLE, beside, short_name, speed_sentences
from ltp_pipeline.stages.report.notes import left_out_notes
from ltp_pipeline.system.text import line, percent, pluralize, printable

if TYPE_CHECKING:
    from ltp_pipeline.results.schema import EvaluatedResult, NetworkResult
    from ltp_pipeline.results.tool_results import (
        AccelerationResult,
        InspectionResult,
        TrailEntryInfo,
        ValidationResult,
    )
    from ltp_pipeline.runner.finish import RunResult

UNMEASURED = "not measured"
LONGEST, LONGEST_CELL = 2000, 500  # characters of a line, and of a cell of a table


def show_outcome(outcome: RunResult, folder: Path, judged: bool = True) -> None:
    """The result beside the baseline, the gates if they were judged, the files, and where to read more."""
    report = outcome.report
    original, pruned, baseline = report.original, report.pruned, report.baseline
    console = _console()
    table = Table(box=None, pad_edge=False)
    for title in ("", "original", short_name(pruned), "global magnitude"):
        table.add_column(title, justify="left" if not title else "right")

    def add(name: str, first: str, cell: Callable[[NetworkResult], str], absent: str = "") -> None:
        cells = (name, first, cell(pruned), cell(baseline) if baseline else absent)
        table.add_row(*(Text(printable(text)) for text in cells))

    metric = report.metric
    add(
        metric.label,
        _or_unmeasured(original.value, metric.shown),
        lambda x: _or_unmeasured(x.value, metric.shown),
    )
    for told in beside(pruned):
        add(told, _figure(original, told), partial(_figure, name=told))
    add("drop", "", lambda x: _or_unmeasured(x.drop, metric.shown_drop), absent="not run")
    add(KERNELS, "1×", lambda x: _times(x.compression))
    add(WHOLE, "1×", lambda x: _times(x.model_compression))
    add("sparsity", "", lambda x: _or_unmeasured(x.sparsity, percent))
    others = {file.label: _bytes(file.bytes) for file in baseline.files} if baseline else {}
    for file in pruned.files:
        table.add_row(
            file.label, _bytes(original.bytes), _bytes(file.bytes), others.get(file.label, "")
        )
    console.print(table)
    if original.accuracy and original.accuracy.samples is not None:
        samples, split = pluralize(original.accuracy.samples, "sample"), original.accuracy.split
        console.print(
            f"\nMeasured in onnxruntime on {samples} of the {split} split.", highlight=False
        )
    for sentence in (*speed_sentences(report), *sentences(report)):
        console.print(sentence, highlight=False, markup=False)
    missing = {
        key.removeprefix(FILE_REASON_PREFIX): why
        for key, why in pruned.reasons.items()
        if key.startswith(FILE_REASON_PREFIX)
    }
    for note in left_out_notes(missing):
        print(printable(note))
    for verdict in outcome.gate_results if judged else ():
        print(f"{'passed' if verdict.passed else 'FAILED'}  {verdict.line}")
    for file in pruned.files:
        print(str(folder / outcome.folder / file.path))
    print(str(folder / outcome.folder / REPORT_HTML))


def _console() -> Console:
    """As wide as the terminal; where there is none, nothing is cut off."""
    return Console() if sys.stdout.isatty() else Console(width=1000)


def _times(value: float | None) -> str:
    return UNMEASURED if value is None else f"{value:.2f}×"


def _figure(part: EvaluatedResult, name: str) -> str:
    """What is told beside the metric under this name."""
    return beside(part).get(name, UNMEASURED)


def _or_unmeasured(value: float | None, show: Callable[[float], str]) -> str:
    return UNMEASURED if value is None else show(value)


def _bytes(value: int | None) -> str:
    return UNMEASURED if value is None else f"{value:,} bytes"


def show_trail(rows: Sequence[TrailEntryInfo], folder: Path) -> None:
    """What `trail` lists, with paths as the user would write them."""
    title = on_validation(rows[0].metric if rows else Metric())
    print(f"entry  compression  whole model  {title:>14}  file")
    for row in rows:
        picked, mark = ">" if row.selected else " ", "*" if row.pareto else " "
        number, value = f"{picked}{row.entry:>3}", row.metric.shown(row.accuracy)
        whole = f"{row.model_compression:>10.2f}×" if row.model_compression else f"{'?':>11}"
        path = os.path.normpath(folder / row.file)
        print(f"{number} {mark} {row.compression:>10.2f}×  {whole}  {value:>14}  {path}")


def show_model(found: InspectionResult) -> None:
    """What `inspect` found."""
    console = _console()
    made = f"opset {found.opset}, by {found.producer or 'an unnamed producer'}"
    kept = f", {found.format} format" if found.format else ""
    _say(f"{found.path}: {found.bytes:,} bytes, {made}{kept}")
    for kind, tensors in (("input", found.inputs), ("output", found.outputs)):
        for tensor in tensors:
            _say(f"  {kind} {tensor.name}: {tensor.type} {_shape(tensor.shape)}")
    names = (
        f"{o.name} {o.count}{'' if o.supported else ' (not supported)'}" for o in found.operators
    )
    _say(f"  operators: {', '.join(names)}")
    norms = (
        f"{found.batch_norms} present, {found.folded_batch_norms} probably folded into convolutions"
    )
    _say(f"  BatchNormalization: {norms}")
    if found.layers:
        table = Table(
            "kernel",
            "op",
            "shape",
            "elements",
            "share",
            "zeros",
            "blocks",
            "pruned?",
            box=None,
            pad_edge=False,
        )
        for k in found.layers:
            zeros = 1 - k.nonzeros / k.elements
            cells = [
                k.name,
                k.op,
                _shape(k.shape),
                f"{k.elements:,}",
                f"{k.fraction:.1%}",
                f"{zeros:.1%}",
            ]
            cells += ["-" if k.block_axis is None else "4x1", k.reason or "yes"]
            table.add_row(*(_cell(c) for c in cells))
        console.print(table)
        console.print(
            Text(
                f"{pluralize(len(found.layers), 'kernel')} with {found.layer_elements:,} of the model's "
                f"{found.float_elements:,} float weights, "
                f"{found.prunable_elements / found.layer_elements:.1%} of these prunable, "
                f"{found.sparsity:.1%} zero already"
            )
        )
    if found.others:
        table = Table(
            "no kernels", "tensors", "elements", "what", "largest", box=None, pad_edge=False
        )
        for other in found.others:
            cells = [
                other.operator or "-",
                f"{other.num_tensors}",
                f"{other.elements:,}",
                other.role,
                other.largest,
            ]
            table.add_row(*(_cell(c) for c in cells))
        console.print(table)
    for reason in found.unsupported:
        _say(f"not supported: {reason}")
    for sentence in found.plan:
        _say(sentence)


def _say(text: str) -> None:
    """A line of text, whatever names are in it."""
    print(line(text, LONGEST))


def _cell(text: str) -> Text:
    return Text(line(text, LONGEST_CELL))


def _shape(shape: Sequence[int | str | None] | None) -> str:
    return (
        "any shape"
        if shape is None
        else "×".join("?" if d is None else str(d) for d in shape) or "scalar"
    )


def show_accelerated(found: AccelerationResult) -> None:
    """What `accelerate` wrote."""
    kernels = found.sparse_kernels
    lines = [
        f"{found.path}: {found.bytes:,} bytes, {pluralize(len(kernels.converted_layers), 'kernel')} on sparse kernels",
        f"latency      {found.latency_ratio:.2f} × the given file's, for one sample on one thread ({kernels.instruction_set}): "
        f"{found.latency_ms:.3f} ms against {found.source_latency_ms:.3f}",
        f"proven on    {found.proven_on}",
        *(f"left dense   {name}: {why}" for name, why in kernels.dense_layers.items()),
    ]
    for told in lines:
        print(printable(told))
    if found.measurement is not None:
        show_validation(found.measurement)


def show_validation(found: ValidationResult) -> None:
    """What `validate` measured."""
    accuracy, metric = found.accuracy, found.metric
    samples, batch = pluralize(accuracy.samples, "sample"), pluralize(found.batch, "sample")
    lines = [
        f"{found.path}: {found.bytes:,} bytes",
        f"{printable(metric.label):<12} {metric.shown(accuracy.value)} on {samples} of the {accuracy.split} split",
    ]
    if accuracy.top5 is not None:
        lines.append(f"top-5        {percent(accuracy.top5)}")
    lines += [
        f"{printable(figure.metric.label):<12} {figure.shown}" for figure in accuracy.extra_metrics
    ]
    if found.sparsity is not None:
        ratios = _times(found.compression), _times(found.model_compression)
        lines.append(
            f"sparsity     {percent(found.sparsity)}, compression {ratios[0]} (whole model {ratios[1]})"
        )
    low, high = found.latency_quartiles_ms
    lines.append(
        f"latency      {found.latency_ms:.3f} ms for {batch} (middle half {low:.3f} to {high:.3f})"
        f", {pluralize(found.threads, 'thread')}, {found.provider}; load {found.load_ms:.1f} ms"
    )
    other = found.against
    if other:
        name, agreed = (
            printable(metric.name),
            "equal arg-max" if metric.name == "r2_vs_original" else "agreement",
        )
        spread = (
            ""
            if other.drop_interval is None
            else f" (95 %: {metric.shown_interval(other.drop_interval)})"
        )
        lines += [
            f"against      {other.path}: {name} {metric.shown(other.accuracy.value)}, {other.bytes:,} bytes",
            f"drop         {metric.shown_drop(other.drop)}{spread}",
            *([] if other.agreement is None else [f"{agreed:<12} {percent(other.agreement)}"]),
            f"latency      {other.latency_ratio:.2f} × the other's",
        ]
    for text in [*lines, *found.notes]:
        print(text)
