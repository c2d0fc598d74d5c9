"""HANDOFF.md and the ltp.toml beside it: what the people who deploy the model need to know, from the report alone."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ltp_pipeline.data import recipe
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.graphs import GRAPHS
from ltp_pipeline.files import hashes
from ltp_pipeline.formats import EXACT, FORMATS, Format
from ltp_pipeline.stages.handoff_example import TOLERANCE
from ltp_pipeline.stages.handoff_scripts import span
from ltp_pipeline.stages.report import text
from ltp_pipeline.stages.report.markdown import code, escape
from ltp_pipeline.stages.report.text import get

MARK = "<!-- ltp-pipeline handoff -->"  # by it a folder is known as one of ours
DTYPES = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BOOL": "bool"}
MOST_CLASSES = 20  # that are named one by one


def render(report: Mapping[str, Any], tolerance: float = TOLERANCE, real: int = 0) -> str:
    """HANDOFF.md; `tolerance` holds for outputs on the example, which has `real` samples or else generated ones."""
    name = get(report, "model", "name") or "model"
    parts = [
        MARK,
        f"# {escape(name)}, pruned",
        f"{_summary(report)} {_verdict(report)}",
        "## Files\n" + _files(report),
        "## Inputs and outputs\n" + _tensors(report),
        "## Preprocessing\n" + _preprocessing(report),
        f"## Load it\n```python\n{example(report)}\n```\n" + _outputs(report),
        f"## {'Accuracy' if text.labelled(report) else text.capital(text.metric_words(report))}\n" + _accuracy(report),
        "## Who reads which format\n" + _readers(report),
        "## Verify it\n" + _verification(report, tolerance, real),
        """## What not to expect
The zeros save storage and transfer. They do not make the model faster: runtimes for dense weights, onnxruntime among
them, fill the zeros in when they load the file, and latency and memory are then those of the original.

report.html shows how the model was made and measured; report.json holds the same for machines.""",
    ]
    return "\n\n".join(parts) + "\n"


def settings_toml(report: Mapping[str, Any]) -> str:
    """The ltp.toml with which `ltp-pipeline validate` repeats the measurement."""
    data = get(report, "settings", "data") or {}
    lines = ["# How samples become the model's input; give the data themselves by --data.", "[data]"]
    for key in ("scale", "mean", "std", "layout", "resize", "crop", "validation_share"):
        if data.get(key) not in (None, []):
            value = data[key]
            lines.append(f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}")
    if data.get("classes"):
        table = ", ".join(f"{json.dumps(name, ensure_ascii=False)} = {n}" for name, n in data["classes"].items())
        lines.append(f"classes = {{ {table} }}")
    train = get(report, "settings", "train") or {}
    lines += ["", "[train]", f"seed = {train.get('seed') or 0}"]
    if train.get("imitate"):
        lines.append(f'imitate = "{train["imitate"]}"')
    return "\n".join(lines) + "\n"


def example(report: Mapping[str, Any]) -> str:
    """Five lines of Python that run the model."""
    wanted = given(report)
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in wanted.get("shape") or []]
    sample = get(report, "data", "sample_shape")
    if sample:
        shape = [*(shape[:1] or [1]), *sample]
    dtype = DTYPES.get(str(wanted.get("type")), str(wanted.get("type")).lower())
    several = len(get(report, "model", "outputs") or []) > 1 and not text.labelled(report)
    result = "outputs" if several else "scores"
    return "\n".join(
        [
            "import numpy as np",
            "import onnxruntime",
            f"session = onnxruntime.InferenceSession({_first_file(report)!r}, providers=['CPUExecutionProvider'])",
            f"x = np.zeros({tuple(shape)}, np.{dtype})  # put prepared samples here",
            f"{result} = session.run(None, {{{str(wanted.get('name'))!a}: x}}){'[0]' if result == 'scores' else ''}",
        ]
    )


def given(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's input."""
    inputs = get(report, "model", "inputs") or [{"name": "input", "type": "FLOAT", "shape": None}]
    return dict(inputs[0])


def _listed(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(get(report, "pruned", "files") or [])


def _format(file: Mapping[str, Any]) -> Format | None:
    """Graph and encoding of a file; None where the report names another."""
    return FORMATS.get(str(file.get("format")))


def _first_file(report: Mapping[str, Any]) -> str:
    """The file that is recommended."""
    files = {f["format"]: f["path"] for f in _listed(report) if f.get("values", EXACT) == EXACT}
    return str(next((files[name] for name in FORMATS if name in files), next(iter(files.values()), "model.onnx")))


def _summary(report: Mapping[str, Any]) -> str:
    compression, sparsity = get(report, "pruned", "compression"), get(report, "pruned", "sparsity")
    return (
        f"A trained network in ONNX (opset {text.plain(get(report, 'model', 'opset'))}) in which "
        f"{text.percent(sparsity, 1)} of the kernel weights are zero (compression {text.times(compression)} "
        f"in the kernels{text.whole(report)}).{_warning(report)} It has "
        "the original's inputs and outputs; nothing about the training needs to be known to run it."
    )


def _warning(report: Mapping[str, Any]) -> str:
    warning = text.few_kernels(report)
    return f" **{warning[0].upper()}{warning[1:]}.**" if warning else ""


def _verdict(report: Mapping[str, Any]) -> str:
    said = {"passed": "Its gates passed.", "not-gated": "No gates were set."}.get(str(report.get("verdict")), "")
    missed = bool(report.get("budget_missed"))
    if failed := report.get("verdict") == "failed":
        names = [code(gate["name"]) for gate in report.get("gates") or [] if not gate.get("passed")]
        said = f"**Its gates failed** ({', '.join(names) or 'report.json'}): the model is below the bar that was set."
    if missed:
        said += f" **It is outside the {'accuracy ' if text.labelled(report) else ''}budget** that was asked for."
    return f"{said} Ask before you ship it." if failed or missed else said


def _verification(report: Mapping[str, Any], tolerance: float, real: int) -> str:
    unlabelled = not text.labelled(report)
    against = " --against ORIGINAL.onnx" if unlabelled else ""
    needed = " ORIGINAL.onnx is the network before pruning, which is not in this folder." if unlabelled else ""
    version = get(report, "environment", "versions", "ltp-pipeline") or "of an unknown version"
    samples = "Its samples are generated: random values of the stored type and range, from a fixed seed."
    if real:
        samples = f"**Its samples are real data**: the first {real} of the test split."
    return f"""    python verify.py

needs numpy and onnxruntime. It hashes the files, as `sha256sum -c SHA256SUMS` does, and runs each model on the inputs
in `example.npz` (`input`, made of `samples` by preprocess.py): outputs may differ by {tolerance:g} of their largest
value from those that the file gave when it was written. {samples}

    ltp-pipeline validate {_first_file(report)} --data DATA{against}

measures the file on the test split of DATA (an `.npz` file, a folder of IDX files, of images or of shards);
`ltp.toml` tells it the preprocessing.{needed} `ltp-pipeline gate report.json` judges the report again and fails unless
every model file listed above lies beside it, unchanged.

The model was made by ltp-pipeline {escape(version)}. To install it, with Python 3.11 or newer, in a checkout of its
source at that version: `pip install -c constraints.txt .`"""


def _files(report: Mapping[str, Any]) -> str:
    rows = [f"| file | bytes | of the original | {text.metric(report)} | what it is |", "|---|--:|--:|--:|---|"]
    whole = text.number(get(report, "original", "bytes"))
    for file in _listed(report):
        size = text.number(file.get("bytes"))
        about = _about(file)
        if file.get("values", EXACT) != EXACT:
            about += f"; **values rounded to {escape(file['values'])}**"
        share = text.percent(size / whole, 1) if size is not None and whole else text.NOTHING
        accuracy = file.get("accuracy")
        top1 = text.percent(accuracy.get("top1") if isinstance(accuracy, Mapping) else accuracy)
        names = " with ".join(map(escape, hashes(file)))
        rows.append(f"| {names} | {text.plain(file.get('bytes'))} | {share} | {top1} | {about} |")
    said = f"The original has {text.plain(get(report, 'original', 'bytes'))} bytes."
    if len(_listed(report)) > 1:
        enough = next(hashes(file) for file in _listed(report) if file["path"] == _first_file(report))
        count = "Two files are" if len(enough) > 1 else "One file is"
        said += f" {count} enough: {' with '.join(map(escape, enough))}, unless your tool needs another."
    if any(len(hashes(file)) > 1 for file in _listed(report)):
        said += " A file listed *with* another keeps its large tensors there: both go into one folder, names unchanged."
    return "\n".join(rows) + f"\n\n{said}"


def _about(file: Mapping[str, Any]) -> str:
    """What a file is."""
    known = _format(file)
    if known is None:
        return escape(str(file.get("format")))
    graph, encoding = GRAPHS[known.graph], ENCODINGS[known.encoding]
    return f"as {encoding.name}, {graph.about}" if graph.about else encoding.about


def _tensors(report: Mapping[str, Any]) -> str:
    lines = []
    for kind in ("inputs", "outputs"):
        for tensor in get(report, "model", kind) or []:
            kind_of = DTYPES.get(str(tensor["type"]), str(tensor["type"]).lower())
            lines.append(f"- {kind[:-1]} {code(tensor['name'])}: {escape(kind_of)}, {_shape(tensor['shape'])}")
    sample = get(report, "data", "sample_shape")
    if sample:
        lines.append(f"- measured with samples of {_shape(sample)}")
    return "\n".join(lines) or "The report does not say."


def _shape(shape: Sequence[int | str | None] | None) -> str:
    return "any shape" if shape is None else code(" × ".join("?" if d is None else str(d) for d in shape) or "scalar")


def _preprocessing(report: Mapping[str, Any]) -> str:
    data = get(report, "settings", "data") or {}
    told = get(report, "data", "preparation")
    steps = list(map(escape, told or ())) if told is not None else ["bring it into the shape of the input above"]
    formula = "x"
    if data.get("scale") is not None:
        steps.append(f"multiply by {data['scale']}")
        formula = f"x * {data['scale']}"
    if data.get("mean"):
        steps.append(f"subtract the mean {text.plain(data['mean'])}{_each(data['mean'])}")
        formula = f"({formula} - {data['mean']})"
    if data.get("std"):
        steps.append(f"divide by the standard deviation {text.plain(data['std'])}{_each(data['std'])}")
        formula = f"{formula} / {data['std']}"
    listed = "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
    end = "nothing else: values go in as they are" if formula == "x" else "as a formula"
    listed += "\n\n" if steps else ""
    return (
        f"{_stored(report)}From a sample as it is stored to the model's input:\n\n"
        f"{listed}{end[0].upper()}{end[1:]}: `input = {formula}`"
    )


def _stored(report: Mapping[str, Any]) -> str:
    """What samples look like before they are prepared, and the script that prepares them."""
    if not get(report, "data", "recipe"):
        return ""
    steps = recipe.of_report(report["data"])
    kind = f"`{steps.dtype.name}` of shape {_shape(steps.shape)}, values {span(steps)}"
    called = "`prepare(samples)`"
    if steps.form is not None:
        kind = f"image files; decoded, a sample is {kind}"
        called = "`prepare([load(file), …])`"
    script = f"`preprocess.py` does what follows: {called}, or from a shell as its first lines say."
    return f"Samples are stored as {kind}. {script}\n\n"


def _each(values: Sequence[float]) -> str:
    return ", one per channel" if len(values) > 1 else ""


def _outputs(report: Mapping[str, Any]) -> str:
    classes = get(report, "data", "classes")
    if not text.labelled(report):
        return "Outputs mean what they mean in the original, beside which the file is measured below."
    count = f" The data have {classes} classes." if classes else ""
    names = get(report, "data", "class_names") or []
    if names and len(names) <= MOST_CLASSES:
        count += f" By number: {', '.join(f'{i} {code(name)}' for i, name in enumerate(names))}."
    elif names:
        count += " Their names stand in report.json, in the order of their numbers (`data.class_names`)."
    return f"`scores` has one row per sample; `scores.argmax(axis=1)` is the class, counted from zero.{count}"


def _accuracy(report: Mapping[str, Any]) -> str:
    before, after = get(report, "original", "accuracy"), get(report, "pruned", "accuracy")
    spread = text.interval(get(report, "pruned", "drop_interval"))
    rows = ["| | original | pruned |", "|---|--:|--:|"]
    for key, name in (("top1", text.metric(report)), ("top5", "top-5"), ("equal_argmax", "equal arg-max")):
        if get(before, key) is not None or key == "top1":
            rows.append(f"| {name} | {text.percent(get(before, key))} | {text.percent(get(after, key))} |")
    drop = text.points(get(report, "pruned", "drop")) + (f" (95 % interval {spread})" if spread else "")
    measured = f"{text.plain(get(after, 'samples'))} samples of the {escape(get(after, 'split'))} split"
    return (
        "\n".join(rows)
        + f"\n\nDrop: {drop}. Measured in onnxruntime on {measured}; of several files, the weakest counts."
    )


def _readers(report: Mapping[str, Any]) -> str:
    used = {known.encoding for file in _listed(report) if (known := _format(file))}
    encodings = [encoding for name, encoding in ENCODINGS.items() if name in used]
    rows = [f"| | {' | '.join(e.name for e in encodings)} |", "|---" * (len(encodings) + 1) + "|"]
    for tool in dict.fromkeys(tool for encoding in encodings for tool in encoding.readers):
        rows.append(f"| {tool} | {' | '.join(e.readers.get(tool, 'not tested') for e in encodings)} |")
    unpack = "`ltp-pipeline unpack FILE --out dense.onnx` writes any of them dense."
    others = "Other runtimes (TensorRT, Core ML, browsers) were not tested; try packed, else dense."
    return "\n".join(rows) + f"\n\n{others} {unpack} Encode last: transform a dense file, not an encoded one."
