"""report.md: what fits a pull-request comment."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import EvaluatedResult, NetworkResult, Report
from ltp_pipeline.results.schema_parts import LayerResult
from ltp_pipeline.stages.report import comparison_facts, filters, inputs

MARKS = {"passed": "✅ passed", "failed": "❌ failed", "no-gates": "➖ not gated"}
EXTREMES = 3


def render(report: Report) -> str:
    """Markdown of a report; the log has nothing that belongs into so little space."""
    report = with_escaped_metric(report)
    parts = [
        f"## Pruning report: {escape(report.model.title)}",
        f"**{MARKS[report.status]}**: {comparison_facts.headline(report)}",
        _warning(report),
        _gates(report),
        _comparison(report),
        "\n".join(filters.speed_sentences(report, escape)),
        _extremes(report),
        _files(report),
        _inputs(report),
        "\n".join(f"- {escape(note)}" for note in [*report.notes, *report.data.notes]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(value: Any) -> str:
    """Text from a model or data as Markdown that shows it and does nothing else."""
    flat = " ".join(str(value).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~@-])", r"\\\1", flat)


def with_escaped_metric(report: Report) -> Report:
    """The report with the name and unit of its metric as Markdown; names that are known stay as they are."""
    metric = report.metric
    name = metric.name if metric.name in filters.METRICS else escape(metric.name)
    unit = None if metric.unit is None else escape(metric.unit)
    return report.model_copy(update={"metric": replace(metric, name=name, unit=unit)})


def code(value: Any) -> str:
    """A name of a layer or file; in a code span nothing is a link, a mention or a tag."""
    return "`" + " ".join(str(value).replace("`", "'").split()) + "`"


def _warning(report: Report) -> str:
    warning = filters.few_kernels(report)
    return f"⚠️ **Warning**: {warning}." if warning else ""


def _gates(report: Report) -> str:
    lines = []
    for gate in report.gates:
        if not gate.passed:
            detail = f" ({escape(gate.detail)})" if gate.detail else ""
            advice = f". {escape(gate.advice)}" if gate.advice else ""
            said = f"limit {escape(filters.plain(gate.limit))}, value {escape(filters.plain(gate.value))}{detail}{advice}"
            lines.append(f"- ❌ **{escape(gate.name)}**: {said}")
    return "\n".join(lines)


def _comparison(report: Report) -> str:
    original, pruned, baseline = report.original, report.pruned, report.baseline
    both, metric = (pruned, baseline or NetworkResult()), report.metric
    rows = [
        (metric.label, *(filters.value(metric, x.value) for x in (original, *both))),
        *beside_rows(original, *both),
        ("drop", filters.NOTHING, *(_drop(metric, x) for x in both)),
        (filters.KERNELS, "1×", *(filters.times(x.compression) for x in both)),
        (filters.WHOLE, "1×", *(filters.times(x.model_compression) for x in both)),
        ("sparsity", filters.NOTHING, *(filters.percent(x.sparsity, 1) for x in both)),
    ]
    for index, name in enumerate(dict.fromkeys(f.label for f in report.files)):
        first = filters.size(original.bytes) if index == 0 else ""
        rows.append((f"file, {escape(name)}", first, *(_bytes(x, name) for x in both)))
    rows.append(("epochs", filters.NOTHING, *(_epochs(x) for x in both)))
    names = [
        filters.short_name(pruned),
        filters.short_name(baseline) if baseline else "global magnitude",
    ]
    head = [f"| | original | {' | '.join(names)} |", "|---|--:|--:|--:|"]
    table = "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])
    if baseline is None:
        table += f"\n\nNo baseline: {escape(report.reasons.get('baseline', 'not run'))}."
    if original.accuracy and original.accuracy.samples is not None:
        samples, split = original.accuracy.samples, original.accuracy.split
        table += f"\n\nMeasured in onnxruntime on {samples} samples of the {escape(split)} split."
    return table


def beside_rows(*parts: EvaluatedResult) -> list[tuple[str, ...]]:
    """What is told beside the metric, as Markdown."""
    return [
        row if row[0] == filters.EQUAL_ARGMAX else tuple(map(escape, row))
        for row in filters.beside_rows(*parts)
    ]


def _drop(metric: Metric, network: NetworkResult) -> str:
    spread = filters.interval(metric, network.drop_interval)
    return filters.drop(metric, network.drop) + (f" ({spread})" if spread else "")


def _bytes(network: NetworkResult, label: str) -> str:
    return next((filters.size(f.bytes) for f in network.files if f.label == label), filters.NOTHING)


def _epochs(network: NetworkResult) -> str:
    epochs = network.epochs
    return filters.NOTHING if epochs is None else f"{epochs.prune} + {epochs.finetune}"


def _extremes(report: Report) -> str:
    layers = [layer for layer in report.layers if layer.prunable and layer.density is not None]
    layers.sort(key=lambda layer: layer.density or 0.0)
    if not layers:
        return ""
    most = layers[:EXTREMES]
    least = list(reversed(layers[EXTREMES:][-EXTREMES:]))
    lines = [f"Most pruned: {_named(most)}."]
    if least:
        lines.append(f"Least pruned: {_named(least)}.")
    return "  \n".join(lines)


def _named(layers: Sequence[LayerResult]) -> str:
    return ", ".join(
        f"{code(layer.name)} ({filters.percent(layer.density, 1)} kept)" for layer in layers
    )


def _files(report: Report) -> str:
    return f"Files: {', '.join(code(file.path) for file in report.files)}." if report.files else ""


def _inputs(report: Report) -> str:
    found = [
        f"{code(name)} ({inputs.shape(part.sample_shape)})"
        for name, part in report.data.inputs.items()
    ]
    return f"Inputs, by sample: {', '.join(found)}." if found else ""
