"""report.html: one file that needs nothing else, for those who decide and for those who dig."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from ltp_pipeline.files import label
from ltp_pipeline.stages.report import plots, text
from ltp_pipeline.stages.report.text import get
from ltp_pipeline.words import counted

VERDICTS = {"passed": ("✓", "Passed"), "failed": ("✗", "Failed"), "not-gated": ("○", "Not gated")}
DROPS = {"top-1": "Accuracy drop", "agreement": "Drop in agreement", "explained": "Drop in variance explained"}
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


def render(report: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> str:
    """The page, from the report and the training log alone."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    mark, verdict = VERDICTS.get(str(report.get("verdict")), VERDICTS["not-gated"])
    view = {
        "name": get(report, "model", "name") or get(report, "model", "path") or "model",
        "verdict": {"mark": mark, "word": verdict, "class": verdict.lower().replace(" ", "-")},
        "headline": text.headline(report),
        "warning": text.few_kernels(report),
        "failed": [g for g in report.get("gates") or [] if not g.get("passed")],
        "cards": _cards(report),
        "facts": _facts(report),
        "notes": [*(report.get("notes") or []), *(get(report, "data", "notes") or []), *_reasons(report)],
        "pictures": _pictures(report, log),
        "layers": [_layer(i, x) for i, x in enumerate(report.get("layers") or [], 1)],
        "columns": COLUMNS,
        "gates": report.get("gates") or [],
        "plain": text.plain,
        "tables": [
            ("settings", "Settings", text.flat(report.get("settings") or {})),
            ("environment", "Environment", text.flat(report.get("environment") or {})),
            ("timings", "Timings", [(k, f"{v:.1f} s") for k, v in (report.get("timings") or {}).items()]),
        ],
        "files": _files(report),
        "script": SORT,
        "script_hash": base64.b64encode(hashlib.sha256(SORT.encode()).digest()).decode(),
        "schema": report.get("schema"),
        "metric": text.metric_words(report),
    }
    return environment.from_string(source).render(view)


def _cards(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """The four numbers that decide, each beside the baseline's."""
    original, pruned, baseline = (get(report, part) for part in ("original", "pruned", "baseline"))
    before, spread = get(original, "bytes"), text.interval(get(pruned, "drop_interval"))
    return [
        {
            "label": "Compression of kernels / of the whole model",
            "value": _compressions(pruned),
            "note": f"{text.percent(get(pruned, 'sparsity'), 1)} of kernel weights are zero",
            "baseline": _compressions(baseline),
        },
        {
            "label": DROPS[text.metric(report)],
            "value": text.points(get(pruned, "drop")),
            "note": f"95 % interval {spread}" if spread else "no interval measured",
            "baseline": text.points(get(baseline, "drop")),
            "spread": text.interval(get(baseline, "drop_interval")),
        },
        {
            "label": text.capital(text.metric_words(report)),
            "value": text.percent(get(pruned, "accuracy", "top1")),
            "note": f"original {text.percent(get(original, 'accuracy', 'top1'))}{_equal_argmax(pruned)}",
            "baseline": text.percent(get(baseline, "accuracy", "top1")),
        },
        {
            "label": "Smallest file",
            "value": text.size(_smallest(pruned)),
            "note": f"before {text.size(before)}{_smaller(before, _smallest(pruned))}",
            "baseline": text.size(_smallest(baseline)),
        },
    ]


def _compressions(part: Any) -> str:
    return " / ".join(text.times(get(part, key)) for key in text.COMPRESSIONS.values())


def _equal_argmax(part: Any) -> str:
    share = text.number(get(part, "accuracy", "equal_argmax"))
    return "" if share is None else f"; equal arg-max {text.percent(share)}"


def _smallest(part: Any) -> float | None:
    return min((b for f in get(part, "files") or [] if (b := text.number(f.get("bytes")))), default=None)


def _smaller(before: Any, after: float | None) -> str:
    first = text.number(before)
    return f", {text.times(first / after)} smaller" if first and after and first > after else ""


def _facts(report: Mapping[str, Any]) -> list[str]:
    """What was measured on what, in half sentences."""
    model, accuracy, data = (get(report, *k) for k in (("model",), ("pruned", "accuracy"), ("data",)))
    facts = []
    if accuracy:
        facts.append(f"{text.count(accuracy.get('samples'))} samples of the {accuracy.get('split')} split, onnxruntime")
    if model:
        kernels, weights = text.count(model.get("kernels")), text.count(model.get("kernel_elements"))
        floats = f" of the model's {text.count(model['float_elements'])}" if model.get("float_elements") else ""
        facts.append(f"{kernels} kernels with {weights}{floats} weights, opset {text.plain(model.get('opset'))}")
    if get(data, "classes"):
        facts.append(f"{text.count(data['classes'])} classes")
    for name, part in (("LTP", "pruned"), ("global magnitude", "baseline")):
        if epochs := get(report, part, "epochs"):
            pruning = counted(epochs.get("prune") or 0, "epoch")
            facts.append(f"{name}: {pruning} of pruning, {epochs.get('finetune')} of fine-tuning")
    return facts


def _reasons(report: Mapping[str, Any]) -> list[str]:
    """Why something was not measured."""
    found = []
    for part in ("original", "pruned", "baseline"):
        found += [f"{part}, {key}: {why}" for key, why in (get(report, part, "reasons") or {}).items()]
    if report.get("baseline") is None:
        found.append(f"no baseline: {report.get('baseline_reason') or 'not run'}")
    return found


def _pictures(report: Mapping[str, Any], log: plots.Log) -> list[dict[str, Any]]:
    """Every picture with its caption, or the sentence why it is left out."""
    layer = get(report, "scatter", "name")
    judged = text.capital(text.metric_words(report))
    dots = f"w² before and after: {layer}" if layer else "w² before and after"
    found = [
        ("trail", f"{judged} against compression", plots.trail(report), "the run kept no trail",
         "The trail is measured on the validation split before fine-tuning; marked results are of the test split."),
        ("sizes", "File size per format", plots.sizes(report), "no file sizes are known",
         "The bound is what the nonzeros and their positions need at least."),
        ("thresholds", "Thresholds over training", plots.thresholds(log), "the log holds no thresholds",
         "A weight is pruned when its square is below the threshold of its layer."),
        ("training", "Loss and λ over steps", plots.training(log), "the log holds no losses",
         "λ weighs the pruning term of the loss."),
        ("histograms", "Weights of the largest layers", plots.histograms(report), "no histograms were taken",
         "Counts of |w| before and after, on a logarithmic scale."),
        ("scatter", dots, plots.scatter(report), "no weights were sampled",
         "Each dot is one weight; the dashed line is the threshold; weights that became zero lie on the lower edge."),
        ("layers-picture", "Kept share per layer, in graph order", plots.layers(report), "no layer was counted",
         "Global magnitude has one threshold for all layers, LTP one per layer."),
    ]  # fmt: skip
    keys = ("id", "title", "svg", "missing", "caption")
    return [dict(zip(keys, picture, strict=True)) for picture in found]


def _layer(place: int, layer: Mapping[str, Any]) -> dict[str, Any]:
    """One row: of every cell what sorting compares and what is shown."""
    kept, other = text.kept(layer), text.kept(layer, "baseline_nonzeros")
    threshold = text.number(layer.get("threshold"))
    cells = [
        (place, str(place)),
        (str(layer.get("name")), str(layer.get("name"))),
        (str(layer.get("op")), str(layer.get("op"))),
        (layer.get("elements"), "×".join(str(n) for n in layer.get("shape") or [])),
        (layer.get("elements"), text.count(layer.get("elements"))),
        (layer.get("nonzeros"), text.count(layer.get("nonzeros"))),
        (kept, text.percent(kept, 1)),
        (other, text.percent(other, 1)),
        (threshold, text.NOTHING if threshold is None else f"{threshold:.2e}"),
    ]
    remark = "" if layer.get("prunable") else f"not pruned: {layer.get('reason') or 'no reason given'}"
    return {"cells": cells, "remark": remark}


def _files(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    original = {**(get(report, "original") or {}), **(get(report, "model") or {})}
    named = [("original", original)]
    for name, part in (("LTP", "pruned"), ("global magnitude", "baseline")):
        named += [(f"{name}, {label(f)}", f) for f in get(report, part, "files") or []]
    rows: list[tuple[str, ...]] = []
    for what, file in named:
        latency = text.number(file.get("latency_ms"))
        speed = text.NOTHING if latency is None else f"{latency:.2f} ms"
        path, digest = text.plain(file.get("path")), text.plain(file.get("sha256"))
        rows.append((what, path, text.count(file.get("bytes")), speed, digest))
    return rows
