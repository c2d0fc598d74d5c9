"""report.md: what fits a pull-request comment."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ltp_pipeline.files import label
from ltp_pipeline.stages.report import text
from ltp_pipeline.stages.report.text import get

MARKS = {"passed": "✅ passed", "failed": "❌ failed", "not-gated": "➖ not gated"}
EXTREMES = 3


def render(report: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of a report; the log has nothing that belongs into so little space."""
    del log
    name = get(report, "model", "name") or get(report, "model", "path") or "model"
    verdict = str(report.get("verdict"))
    parts = [
        f"## Pruning report: {escape(name)}",
        f"**{MARKS.get(verdict, escape(verdict))}**: {text.headline(report)}",
        _warning(report),
        _gates(report),
        _comparison(report),
        _extremes(report),
        _files(report),
        "\n".join(
            f"- {escape(note)}" for note in [*(report.get("notes") or []), *(get(report, "data", "notes") or [])]
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(value: Any) -> str:
    """Text from a model or data as Markdown that shows it and does nothing else."""
    flat = " ".join(str(value).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+!|~@-])", r"\\\1", flat)


def code(value: Any) -> str:
    """A name of a layer or file; in a code span nothing is a link, a mention or a tag."""
    return "`" + " ".join(str(value).replace("`", "'").split()) + "`"


def _warning(report: Mapping[str, Any]) -> str:
    warning = text.few_kernels(report)
    return f"⚠️ **Warning**: {warning}." if warning else ""


def _gates(report: Mapping[str, Any]) -> str:
    failed = [g for g in report.get("gates") or [] if not g.get("passed")]
    lines = []
    for gate in failed:
        detail = f" ({escape(gate['detail'])})" if gate.get("detail") else ""
        limit, value = text.plain(gate.get("limit")), text.plain(gate.get("value"))
        advice = f". {escape(gate['advice'])}" if gate.get("advice") else ""
        said = f"limit {escape(limit)}, value {escape(value)}{detail}{advice}"
        lines.append(f"- ❌ **{escape(gate.get('name'))}**: {said}")
    return "\n".join(lines)


def _comparison(report: Mapping[str, Any]) -> str:
    original, pruned, baseline = (get(report, part) for part in ("original", "pruned", "baseline"))
    rows = [
        (text.metric(report), *(text.percent(get(x, "accuracy", "top1")) for x in (original, pruned, baseline))),
        *_equal_argmax(original, pruned, baseline),
        ("drop", text.NOTHING, _drop(pruned), _drop(baseline)),
        *(
            (name, "1×", *(text.times(get(x, key)) for x in (pruned, baseline)))
            for name, key in text.COMPRESSIONS.items()
        ),
        ("sparsity", text.NOTHING, *(text.percent(get(x, "sparsity"), 1) for x in (pruned, baseline))),
    ]
    formats = list(dict.fromkeys(label(f) for x in (pruned, baseline) for f in get(x, "files") or []))
    for index, name in enumerate(formats):
        first = text.size(get(original, "bytes")) if index == 0 else ""
        rows.append((f"file, {escape(name)}", first, _bytes(pruned, name), _bytes(baseline, name)))
    rows.append(("epochs", text.NOTHING, _epochs(pruned), _epochs(baseline)))
    head = ["| | original | LTP | global magnitude |", "|---|--:|--:|--:|"]
    table = "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])
    if baseline is None:
        table += f"\n\nNo baseline: {escape(report.get('baseline_reason') or 'not run')}."
    samples, split = get(original, "accuracy", "samples"), get(original, "accuracy", "split")
    if samples is not None:
        table += f"\n\nMeasured in onnxruntime on {samples} samples of the {escape(split)} split."
    return table


def _equal_argmax(*parts: Any) -> list[tuple[str, ...]]:
    """Beside the variance explained, for outputs that could be class scores."""
    shares = [get(part, "accuracy", "equal_argmax") for part in parts]
    return [("equal arg-max", *map(text.percent, shares))] if any(share is not None for share in shares) else []


def _drop(part: Any) -> str:
    spread = text.interval(get(part, "drop_interval"))
    return text.points(get(part, "drop")) + (f" ({spread})" if spread else "")


def _bytes(part: Any, name: str) -> str:
    found = [f.get("bytes") for f in get(part, "files") or [] if label(f) == name]
    return text.size(found[0]) if found else text.NOTHING


def _epochs(part: Any) -> str:
    epochs = get(part, "epochs")
    return text.NOTHING if epochs is None else f"{epochs.get('prune')} + {epochs.get('finetune')}"


def _extremes(report: Mapping[str, Any]) -> str:
    layers = [x for x in report.get("layers") or [] if x.get("prunable") and text.kept(x) is not None]
    layers.sort(key=lambda x: text.kept(x) or 0.0)
    if not layers:
        return ""
    most = layers[:EXTREMES]
    least = [x for x in reversed(layers[-EXTREMES:]) if x not in most]
    lines = [f"Most pruned: {_named(most)}."]
    if least:
        lines.append(f"Least pruned: {_named(least)}.")
    return "  \n".join(lines)


def _named(layers: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{code(x.get('name'))} ({text.percent(text.kept(x), 1)} kept)" for x in layers)


def _files(report: Mapping[str, Any]) -> str:
    files = [f.get("path") for part in ("pruned", "baseline") for f in get(report, part, "files") or []]
    return f"Files: {', '.join(code(path) for path in files)}." if files else ""
