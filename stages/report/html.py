"""report.html: one file that needs nothing else, for those who decide and for those who dig."""

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from ltp_pipeline.results.schema import (
    LTP_METHOD,
    FileResult,
    LatencyResult,
    NetworkResult,
    OriginalResult,
    Report,
)
from ltp_pipeline.results.schema_parts import LayerResult
from ltp_pipeline.stages.report import comparison_facts, curve_plot, filters, inputs, plots
from ltp_pipeline.system.text import pluralize

VERDICTS = {"passed": ("✓", "Passed"), "failed": ("✗", "Failed"), "no-gates": ("○", "Not gated")}
DROPS = {"top-1": "Accuracy drop", "r2_vs_original": "Drop in variance explained"}
COLUMNS = [
    ("#", "number"),
    ("Layer", "text"),
    ("Op", "text"),
    ("Shape", "number"),
    ("Weights", "number"),
    ("Kept", "number"),
    ("Kept share", "number"),
    ("Baseline's share", "number"),
    ("Threshold τ", "number"),
]
SORT = """
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const up = head.getAttribute("aria-sort") !== "ascending", at = head.cellIndex;
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const key = row => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const order = (a, b) => (key(a) === "") - (key(b) === "")
      || (up ? 1 : -1) * key(a).localeCompare(key(b), "en", {numeric: true});
    const number = (a, b) => (key(a) === "") - (key(b) === "") || (up ? 1 : -1) * (key(a) - key(b));
    body.append(...[...body.rows].sort(head.dataset.kind === "number" ? number : order));
  });
}
"""


def render(report: Report, log: plots.Log) -> str:
    """The page, from the report and the training log alone."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    mark, verdict = VERDICTS[report.status]
    view = {
        "name": report.model.title,
        "status": {"mark": mark, "word": verdict, "class": verdict.lower().replace(" ", "-")},
        "headline": comparison_facts.headline(report),
        "warning": filters.few_kernels(report),
        "failed": [gate for gate in report.gates if not gate.passed],
        "cards": _cards(report),
        "facts": _facts(report),
        "notes": [*report.notes, *report.data.notes, *_reasons(report)],
        "pictures": _pictures(report, log),
        "layers": [_layer(i, layer) for i, layer in enumerate(report.layers, 1)],
        "columns": COLUMNS,
        "gates": report.gates,
        "plain": filters.plain,
        "tables": [
            *([("int8", "8 bits", rows)] if (rows := _quantised(report)) else []),
            ("data", "Data", _data(report)),
            ("settings", "Settings", filters.flat(report.used_settings)),
            ("environment", "Environment", filters.flat(report.environment.model_dump())),
            (
                "timings",
                "Timings",
                [(stage, f"{seconds:.1f} s") for stage, seconds in report.timings.items()],
            ),
        ],
        "files": _files(report),
        "script": SORT,
        "script_hash": base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode(),
        "schema": report.schema_,
        "metric": filters.metric_words(report.metric),
        "other": "" if report.pruned.method != LTP_METHOD else "global magnitude",
    }
    return environment.from_string(source).render(view)


def _cards(report: Report) -> list[dict[str, str]]:
    """The four numbers that decide, each beside the baseline's."""
    original, pruned, baseline, metric = (
        report.original,
        report.pruned,
        report.baseline or NetworkResult(),
        report.metric,
    )
    spread, smallest = filters.interval(metric, pruned.drop_interval), _smallest(pruned)
    change = "Drop" if metric.higher_is_better else "Rise"
    return [
        {
            "label": "Compression of kernels / of the whole model",
            "value": _compressions(pruned),
            "note": f"{filters.percent(pruned.sparsity, 1)} of kernel weights are zero",
            "baseline": _compressions(baseline),
        },
        {
            "label": DROPS.get(metric.name, f"{change} in {metric.name}"),
            "value": filters.drop(metric, pruned.drop),
            "note": f"95 % interval {spread}" if spread else "no interval measured",
            "baseline": filters.drop(metric, baseline.drop),
            "spread": filters.interval(metric, baseline.drop_interval),
        },
        {
            "label": filters.capital(filters.metric_title(metric)),
            "value": filters.value(metric, pruned.value),
            "note": f"original {filters.value(metric, original.value)}{_beside(pruned)}",
            "baseline": filters.value(metric, baseline.value),
        },
        {
            "label": "Smallest file",
            "value": filters.size(smallest),
            "note": f"before {filters.size(original.bytes)}{_smaller(original.bytes, smallest)}",
            "baseline": filters.size(_smallest(baseline)),
        },
    ]


def _compressions(network: NetworkResult) -> str:
    return f"{filters.times(network.compression)} / {filters.times(network.model_compression)}"


def _beside(network: NetworkResult) -> str:
    return "".join(f"; {name} {shown}" for name, shown in filters.beside(network).items())


def _smallest(network: NetworkResult) -> int | None:
    return min((file.bytes for file in network.files if file.bytes), default=None)


def _smaller(before: int | None, after: int | None) -> str:
    return (
        f", {filters.times(before / after)} smaller" if before and after and before > after else ""
    )


def _facts(report: Report) -> list[str]:
    """What was measured on what, in half sentences."""
    model, accuracy = report.model, report.pruned.accuracy
    facts = []
    if accuracy:
        facts.append(
            f"{filters.count(accuracy.samples)} samples of the {accuracy.split} split, onnxruntime"
        )
    if model.num_layers is not None:
        kernels, weights = filters.count(model.num_layers), filters.count(model.layer_elements)
        floats = (
            f" of the model's {filters.count(model.float_elements)}" if model.float_elements else ""
        )
        facts.append(
            f"{kernels} kernels with {weights}{floats} weights, opset {filters.plain(model.opset)}"
        )
    if report.data.classes:
        facts.append(f"{filters.count(report.data.classes)} classes")
    for network in report.networks:
        if epochs := network.epochs:
            told = (
                f"{pluralize(epochs.prune, 'epoch')} of pruning, {epochs.finetune} of fine-tuning"
            )
            facts.append(f"{filters.network_words(network)}: {told}")
    return facts


def _data(report: Report) -> list[tuple[str, str]]:
    """What it was trained and measured on: how many samples, and what each input is made of."""
    splits = [
        (f"samples for {name}", filters.count(size)) for name, size in report.data.splits.items()
    ]
    return [
        *splits,
        *((f"input {name}", inputs.summary(part)) for name, part in report.data.inputs.items()),
    ]


def _quantised(report: Report) -> list[tuple[str, str]]:
    """How files that compute in 8 bits were made, for each network once, and where they were measured."""
    rows = []
    for network in report.networks:
        how = next(
            (file.quantization for file in network.files if file.quantization is not None), None
        )
        if how is None:
            continue
        ranges = (
            "found at every run"
            if how.samples is None
            else f"{how.method}, on {how.samples} training samples"
        )
        safe = (
            "sums cannot overflow"
            if (how.weight_bits or 8) < 8
            else "sums may overflow on x86 without VNNI"
        )
        told = {
            "ranges of activations": ranges,
            "weights": f"{filters.plain(how.weight_bits)} bits: {safe}",
            "kernels in 8 bits": filters.count(how.num_layers),
            "drop against the float file, validation split": filters.drop(
                report.metric, how.validation_drop
            ),
            "trained in 8 bits": pluralize(how.trained_epochs, "epoch")
            if how.trained_epochs
            else "no",
            **{f"still float: {name}": reason for name, reason in how.float_layers.items()},
        }
        rows += [(f"{filters.short_name(network)}: {key}", value) for key, value in told.items()]
    return (
        [*rows, ("latency was measured on", filters.plain(report.environment.processor))]
        if rows
        else []
    )


def _reasons(report: Report) -> list[str]:
    """Why something was not measured; what several parts lack for the same reason is told once."""
    lacking: dict[tuple[str, str], list[str]] = {}
    networks = [(filters.short_name(network), network) for network in report.networks]
    for name, part in (("original", report.original), *networks):
        for why in dict.fromkeys(part.reasons.values()):
            keys = ", ".join(key for key, said in part.reasons.items() if said == why)
            lacking.setdefault((keys, why), []).append(name)
    found = [
        f"{keys} ({', '.join(names)}) not measured: {why}" for (keys, why), names in lacking.items()
    ]
    if report.baseline is None:
        found.append(f"no baseline: {report.reasons.get('baseline', 'not run')}")
    return found


def _pictures(report: Report, log: plots.Log) -> list[dict[str, Any]]:
    """Every picture with its caption, or the sentence why it is left out."""
    judged = filters.capital(filters.metric_words(report.metric))
    blocks = (
        " In blocks, the mean of their squares counts."
        if any(layer.block for layer in report.layers)
        else ""
    )
    dots = (
        f"w² before and after: {report.scatter.name}" if report.scatter else "w² before and after"
    )
    found = [
        ("curve", f"{judged} beside global magnitude", curve_plot.curve(report), _no_curve(report),
         "Each point of global magnitude is a network trained as long as LTP's, measured on the test split."),
        ("trail", f"{judged} against compression", plots.trail(report), "the run kept no trail",
         "The trail is measured on the validation split before fine-tuning; marked results are of the test split."),
        ("sizes", "File size per format", plots.sizes(report), "no file sizes are known",
         "The bound is what the nonzeros and their positions need at least."),
        ("thresholds", "Thresholds over training", plots.thresholds(log), "the log holds no thresholds",
         f"A weight is pruned when its square is below the threshold of its layer.{blocks}"),
        ("training", "Loss and λ over steps", plots.training(log), "the log holds no losses",
         "λ weighs the pruning term of the loss."),
        ("histograms", "Weights of the largest layers", plots.histograms(report), "no histograms were taken",
         f"Counts of |w| before and after, on a logarithmic scale.{blocks}"),
        ("scatter", dots, plots.scatter(report), "no weights were sampled",
         "Each dot is one weight; the dashed line is the threshold; weights that became zero lie on the lower edge."
         f"{blocks}"),
        ("layers-picture", "Kept share per layer, in graph order", plots.layers(report), "no layer was counted",
         "Global magnitude has one threshold for all layers, LTP one per layer."),
    ]  # fmt: skip
    keys = ("id", "title", "svg", "missing", "caption")
    return [dict(zip(keys, picture, strict=True)) for picture in found]


def _no_curve(report: Report) -> str:
    """Why there is no picture of the baseline's curve."""
    if report.baseline is None:
        return f"no baseline: {report.reasons.get('baseline', 'not run')}"
    return report.baseline.reasons.get("curve", "no curve of the baseline was measured")


def _layer(place: int, layer: LayerResult) -> dict[str, Any]:
    """One row: of every cell what sorting compares and what is shown."""
    cells = [
        (place, str(place)),
        (layer.name, layer.name),
        (layer.op, layer.op),
        (layer.elements, "×".join(str(n) for n in layer.shape)),
        (layer.elements, filters.count(layer.elements)),
        (layer.nonzeros, filters.count(layer.nonzeros)),
        (layer.density, filters.percent(layer.density, 1)),
        (layer.baseline_density, filters.percent(layer.baseline_density, 1)),
        (layer.threshold, filters.NOTHING if layer.threshold is None else f"{layer.threshold:.2e}"),
    ]
    remark = f"pruned in {layer.block} blocks" if layer.block else ""
    if not layer.prunable:
        remark = f"not pruned: {layer.reason or 'no reason given'}"
    return {"cells": cells, "remark": remark}


def _files(report: Report) -> list[tuple[str, ...]]:
    rows = [_row("original", report.original, report.original.latency, report.model.sha256)]
    for network in report.networks:
        name = filters.short_name(network)
        rows += [
            _row(f"{name}, {file.label}", file, file.latency, file.sha256) for file in network.files
        ]
    single = report.baseline.unstructured if report.baseline else None
    points = [
        (f"global magnitude, {filters.times(point.compression)}", point)
        for point in report.curve[1:]
    ]
    for what, point in [
        *points,
        *([("global magnitude, single weights", single)] if single else []),
    ]:
        rows.append(
            (
                what,
                filters.plain(point.path),
                filters.NOTHING,
                filters.NOTHING,
                filters.plain(point.sha256),
            )
        )
    return rows


def _row(
    what: str,
    file: OriginalResult | FileResult,
    latency: Sequence[LatencyResult],
    digest: str | None,
) -> tuple[str, ...]:
    ms = latency[0].ms if latency else None
    speed = filters.NOTHING if ms is None else f"{ms:.2f} ms"
    if isinstance(file, FileResult) and file.gated_latency_ratio is not None:
        speed += f" ({file.gated_latency_ratio:.2f} × the original's)"
    return what, filters.plain(file.path), filters.count(file.bytes), speed, filters.plain(digest)
