"""HANDOFF.md: what the people who deploy the model need to know, from the report alone."""

import shlex
from collections.abc import Sequence

from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.graphs import GRAPHS
from ltp_pipeline.results.schema import LTP_METHOD, FileResult, Report
from ltp_pipeline.results.schema_parts import (
    AccuracyResult,
    InputInfo,
    ModelTensorInfo,
    PreprocessingInfo,
)
from ltp_pipeline.settings.file_names import EXACT, FORMATS
from ltp_pipeline.stages.handoff import input_text as inputs
from ltp_pipeline.stages.handoff import int8_text, sparse_ops
from ltp_pipeline.stages.handoff import page_text as comparison_facts
from ltp_pipeline.stages.handoff import page_text as filters
from ltp_pipeline.stages.handoff.example import TOLERANCE
from ltp_pipeline.stages.handoff.page_text import (
    beside_rows,
    code,
    escape,
    with_escaped_metric,
)

MARK = "<!-- ltp-pipeline handoff -->"  # by it a folder is known as one of ours
DTYPES = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BOOL": "bool"}
MOST_CLASSES = 20  # that are named one by one


def render(
    report: Report,
    tolerance: float = TOLERANCE,
    real: int = 0,
    handed: sparse_ops.Kernels | None = None,
) -> str:
    """HANDOFF.md; `tolerance` holds for outputs on the example, which has `real` samples or else generated ones.

    `handed` are the sparse kernels that are in the folder.
    """
    report = with_escaped_metric(report)
    parts = [
        MARK,
        f"# {escape(report.model.name or 'model')}, pruned",
        f"{_summary(report)} {_verdict(report)}",
        "## Files\n" + _files(report),
        "## Inputs and outputs\n" + _tensors(report),
        "## Preprocessing\n" + _preprocessing(report),
        f"## Load it\n```python\n{example(report)}\n```\n" + _outputs(report),
        f"## {_heading(report)}\n" + _accuracy(report),
        *filter(None, [int8_text.section(report)]),
        *([sparse_ops.section(report, handed)] if handed else []),
        "## Who reads which format\n" + _readers(report),
        "## Verify it\n" + _verification(report, tolerance, real),
        "## What not to expect\n" + sparse_ops.expectations(report),
        "report.html shows how the model was made and measured; report.json holds the same for machines.",
    ]
    return "\n\n".join(parts) + "\n"


def example(report: Report) -> str:
    """Five lines of Python that run the model."""
    filled = {tensor.name: _filled(report, tensor) for tensor in _given(report)}
    given, feeds = f"x = {next(iter(filled.values()))}", f"{{{next(iter(filled))!a}: x}}"
    if len(filled) > 1:
        given, feeds = (
            f"x = {{{', '.join(f'{name!a}: {made}' for name, made in filled.items())}}}",
            "x",
        )
    taken, task = "[0]", report.task
    names = "None" if len(report.model.outputs) < 2 else f"[{task.output!a}]"
    result = "output" if task.class_axis is None and task.threshold is None else "scores"
    if len(report.model.outputs) > 1 and task.output is None:
        names, result, taken = "None", "outputs", ""
    return "\n".join(
        [
            "import numpy as np",
            "import onnxruntime",
            f"session = onnxruntime.InferenceSession({_first_file(report)!r}, providers=['CPUExecutionProvider'])",
            f"{given}  # put prepared samples here",
            f"{result} = session.run({names}, {feeds}){taken}",
        ]
    )


def _given(report: Report) -> Sequence[ModelTensorInfo]:
    """The model's inputs."""
    return report.model.inputs or (ModelTensorInfo(name="input", type="FLOAT"),)


def _fed(report: Report, tensor: ModelTensorInfo) -> InputInfo:
    return report.data.inputs.get(tensor.name) or InputInfo()


def _filled(report: Report, tensor: ModelTensorInfo) -> str:
    """An array that an input can be; sequences are one long, and so are their masks."""
    part = _fed(report, tensor)
    shape = [d if isinstance(d, int) and d > 0 else 1 for d in tensor.shape or []]
    if part.sample_shape is not None:
        shape = [*(shape[:1] or [1]), *(n or 1 for n in part.sample_shape)]
    is_one = (
        part.preprocessing is not None
        and part.preprocessing.mask_of is not None
        and not part.preprocessing.marks_padding
    )
    return f"np.{'ones' if is_one else 'zeros'}({tuple(shape)}, np.{_dtype(tensor)})"


def _dtype(tensor: ModelTensorInfo) -> str:
    return DTYPES.get(tensor.type, tensor.type.lower())


def _heading(report: Report) -> str:
    metric = report.metric
    return (
        "Accuracy" if metric.counts_right_answers else filters.capital(filters.metric_words(metric))
    )


def _first_file(report: Report) -> str:
    """The file that is recommended."""
    files = {f.name: f.path for f in report.pruned.files if f.weight_storage == EXACT}
    return next(
        (files[name] for name in FORMATS if name in files), next(iter(files.values()), "model.onnx")
    )


def _summary(report: Report) -> str:
    pruned = report.pruned
    return (
        f"A trained network in ONNX (opset {filters.plain(report.model.opset)}) in which "
        f"{filters.percent(pruned.sparsity, 1)} of the kernel weights are zero (compression "
        f"{filters.times(pruned.compression)} in the kernels{filters.whole(pruned)}).{_warning(report)} It has "
        f"the original's inputs and outputs; nothing about the training needs to be known to run it.{_method(report)}"
    )


def _method(report: Report) -> str:
    pruned = report.pruned
    return (
        ""
        if pruned.method == LTP_METHOD
        else f" It was pruned by {filters.network_words(pruned)}, the plain method."
    )


def _warning(report: Report) -> str:
    warning = filters.few_kernels(report)
    return f" **{warning[0].upper()}{warning[1:]}.**" if warning else ""


def _verdict(report: Report) -> str:
    said = {"passed": "Its gates passed.", "no-gates": "No gates were set."}.get(report.status, "")
    missed = bool(report.budget_not_met)
    if failed := report.status == "failed":
        names = [code(gate.name) for gate in report.gates if not gate.passed]
        said = f"**Its gates failed** ({', '.join(names) or 'report.json'}): the model is below the bar that was set."
    if missed:
        budget = "accuracy budget" if report.metric.counts_right_answers else "budget"
        said += f" **It is outside the {budget}** that was asked for."
    return f"{said} Ask before you ship it." if failed or missed else said


def _verification(report: Report, tolerance: float, real: int) -> str:
    relative = report.metric.is_relative
    against = " --against ORIGINAL.onnx" if relative else ""
    needed = (
        " ORIGINAL.onnx is the network before pruning, which is not in this folder."
        if relative
        else ""
    )
    version = report.environment.versions.get("ltp-pipeline") or "of an unknown version"
    samples = (
        "Its samples are generated: random values of the stored type and range, from a fixed seed."
    )
    if real:
        samples = f"**Its samples are real data**: the first {real} of the test split."
    given = "--data DATA"
    measured = (
        "the test split of DATA (an `.npz` file, a folder of IDX files, of images or of shards)"
    )
    if report.custom_task is not None:
        file = " ".join(report.custom_task.name.split()) if report.custom_task.sha256 else "FILE.py"
        given, measured = f"--task {shlex.quote(file)}", "the test split of that task"
    return f"""    python verify.py

needs numpy and onnxruntime. It hashes the files, as `sha256sum -c SHA256SUMS` does, and runs each model on
`input/NAME` of `example.npz`, which is `samples/NAME` prepared: outputs may differ by {tolerance:g} of their largest
value from those that the file gave when it was written. {samples}

    ltp-pipeline validate {_first_file(report)} {given}{against}

measures the file on {measured};
`ltp.toml` tells it the preprocessing.{needed} `ltp-pipeline gate report.json` judges the report again and fails unless
every model file listed above lies beside it, unchanged.

The model was made by ltp-pipeline {escape(version)}. To install it, with Python 3.11 or newer, in a checkout of its
source at that version: `pip install -c constraints.txt .`"""


def _files(report: Report) -> str:
    metric = report.metric
    rows = [
        f"| file | bytes | of the original | {metric.name} | what it is |",
        "|---|--:|--:|--:|---|",
    ]
    whole, files = report.original.bytes, report.pruned.files
    for file in files:
        share = (
            filters.percent(file.bytes / whole, 1)
            if file.bytes is not None and whole
            else filters.NOTHING
        )
        names = " with ".join(map(escape, file.hashes))
        cells = (
            names,
            filters.plain(file.bytes),
            share,
            filters.value(metric, file.value),
            _about(file),
        )
        rows.append(f"| {' | '.join(cells)} |")
    said = f"The original has {filters.plain(whole)} bytes."
    if len(files) > 1:
        enough = next(file.hashes for file in files if file.path == _first_file(report))
        count = "Two files are" if len(enough) > 1 else "One file is"
        said += f" {count} enough: {' with '.join(map(escape, enough))}, unless your tool needs another."
    if any(len(file.hashes) > 1 for file in files):
        said += " A file listed *with* another keeps its large tensors there: both go into one folder, names unchanged."
    return "\n".join(rows) + f"\n\n{said}"


def _about(file: FileResult) -> str:
    """What a file is, for those who choose one; a report may name what this version does not know."""
    graph, encoding = GRAPHS.get(file.graph), ENCODINGS.get(file.encoding)
    if graph is None or encoding is None:
        about = escape(file.name)
    else:
        about = (
            f"as {encoding.name}, {graph.description}"
            if graph.description
            else encoding.description
        )
    return (
        about
        if file.weight_storage == EXACT
        else f"{about}; **values rounded to {escape(file.weight_storage)}**"
    )


def _tensors(report: Report) -> str:
    lines = []
    for kind, tensors in (("input", report.model.inputs), ("output", report.model.outputs)):
        for tensor in tensors:
            lines.append(
                f"- {kind} {code(tensor.name)}: {escape(_dtype(tensor))}, {_shape(tensor.shape)}"
            )
    for tensor in report.model.inputs:
        if _fed(report, tensor).sample_shape is not None:
            of = "" if len(report.model.inputs) == 1 else f" for {code(tensor.name)}"
            lines.append(f"- measured with samples of {_shape(_measured(report, tensor))}{of}")
    return "\n".join(lines) or "The report does not say."


def _measured(report: Report, tensor: ModelTensorInfo) -> list[int | str | None]:
    """The shape of a sample, with the least and the largest length of sequences."""
    part = _fed(report, tensor)
    recipe = part.preprocessing or PreprocessingInfo()
    if recipe.mask_of is not None:
        recipe = (
            report.data.inputs.get(recipe.mask_of) or InputInfo()
        ).preprocessing or PreprocessingInfo()
    lengths = recipe.stored.lengths if recipe.stored else None
    return [
        "–".join(map(str, lengths)) if d is None and lengths else d for d in part.sample_shape or ()
    ]


def _shape(shape: Sequence[int | str | None] | None) -> str:
    return "any shape" if shape is None else code(inputs.shape(shape))


def _preprocessing(report: Report) -> str:
    tensors = _given(report)
    told = [_prepared(_fed(report, tensor)) for tensor in tensors]
    script = f"`preprocess.py` does what follows: {_called(report)}, or from a shell as its first lines say."
    parts = [script] if all(_fed(report, tensor).preprocessing for tensor in tensors) else []
    if len(tensors) > 1:
        told = [
            f"### {code(tensor.name)}\n{one}" for tensor, one in zip(tensors, told, strict=True)
        ]
    return "\n\n".join([*parts, *told])


def _called(report: Report) -> str:
    """How the function of preprocess.py is called; names of inputs are literals of the code in which they stand."""
    samples, alone = {}, len(_given(report)) == 1
    for tensor in _given(report):
        recipe = _fed(report, tensor).preprocessing or PreprocessingInfo()
        if recipe.mask_of is None:
            load = "load_image(file)" if alone else f"load_image(file, {tensor.name!a})"
            of_sequences = recipe.stored is not None and recipe.stored.lengths is not None
            kind = (
                f"[{load}, …]" if recipe.image else "[sequence, …]" if of_sequences else "samples"
            )
            samples[tensor.name] = kind
    given = (
        "".join(samples.values())
        if alone
        else f"{{{', '.join(f'{n!a}: {kind}' for n, kind in samples.items())}}}"
    )
    return code(f"prepare({given})")


def _prepared(part: InputInfo) -> str:
    """From stored samples of one input to what the model takes."""
    stored = inputs.stored(part, code)
    kept = "" if stored is None else f"Samples are stored as {stored}. "
    if part.preprocessing and part.preprocessing.mask_of is not None:
        return f"{filters.capital(stored or '')}. Its type is {code(part.preprocessing.type)}."
    steps = inputs.steps(part)
    steps = ["bring it into the shape of the input above"] if steps is None else steps
    listed = "".join(f"{i}. {escape(step)}\n" for i, step in enumerate(steps, 1))
    formula = inputs.formula(part.preprocessing)
    end = "Nothing else: values go in as they are" if formula == "x" else "As a formula"
    return (
        f"{kept}From a sample as it is stored to the model's input:\n\n"
        f"{listed}{chr(10) if steps else ''}{end}: `input = {formula}`"
    )


def _outputs(report: Report) -> str:
    task = report.task
    if report.metric.is_relative or (task.class_axis is None and task.threshold is None):
        relative = ", beside which the file is measured below" if report.metric.is_relative else ""
        if task.output is not None and len(report.model.outputs) > 1:
            return f"`output` is {code(task.output)}; it means what it means in the original{relative}."
        return f"Outputs mean what they mean in the original{relative}."
    if task.class_axis is not None:
        answer = f"`scores.argmax(axis={task.class_axis})` is the class, counted from zero"
    else:
        is_true = (
            "where a label is there"
            if task.kind == "multilabel"
            else "for class 1 and false for class 0"
        )
        answer = f"`scores > {task.threshold:g}` is true {is_true}"
    each = ", of each pixel" if task.kind == "segmentation" else ""
    count = f" The data have {report.data.classes} classes." if report.data.classes else ""
    names: tuple[str, ...] = report.data.class_names or ()
    if names and len(names) <= MOST_CLASSES:
        count += f" By number: {', '.join(f'{i} {code(name)}' for i, name in enumerate(names))}."
    elif names:
        count += (
            " Their names stand in report.json, in the order of their numbers (`data.class_names`)."
        )
    return f"`scores` has one row per sample; {answer}{each}.{count}"


def _accuracy(report: Report) -> str:
    before, after = (part.accuracy or AccuracyResult() for part in (report.original, report.pruned))
    metric, lost = report.metric, report.pruned.drop
    spread = filters.interval(metric, report.pruned.drop_interval)
    rows = ["| | original | pruned |", "|---|--:|--:|"]
    rows.append(
        f"| {metric.label} | {filters.value(metric, before.value)} | {filters.value(metric, after.value)} |"
    )
    if before.top5 is not None:
        rows.append(f"| top-5 | {filters.percent(before.top5)} | {filters.percent(after.top5)} |")
    rows += [f"| {' | '.join(row)} |" for row in beside_rows(report.original, report.pruned)]
    drop = filters.drop(metric, lost) + (f" (95 % interval {spread})" if spread else "")
    measured = f"{filters.plain(after.samples)} samples of the {escape(after.split)} split"
    return (
        "\n".join(rows)
        + f"\n\nDrop: {drop}. Measured in onnxruntime on {measured}; of several files, the weakest counts."
        + _uncounted(report)
        + _whose(report)
        + "".join(
            f"\n\n{' '.join(told)}"
            for told in [comparison_facts.sentences(report, for_handoff=True)]
            if told
        )
    )


def _uncounted(report: Report) -> str:
    """The label of pixels that the metric leaves out."""
    label = report.settings.get("task", {}).get("ignore_index")
    counts_all = report.task.kind != "segmentation" or not isinstance(label, int)
    return "" if counts_all else f" Pixels labelled {label} were left out."


def _whose(report: Report) -> str:
    """Where samples and metric come from, where that is a task of the user's own."""
    task = report.custom_task
    if task is None:
        return ""
    parts = "Samples" if report.metric.is_relative else "Samples and metric"
    digest = f" (SHA-256 {code(task.sha256)})" if task.sha256 else ""
    return f"\n\n{parts} are those of {code(task.name)}{digest}, which is not in this folder."


def _readers(report: Report) -> str:
    used = {file.encoding for file in report.pruned.files}
    encodings = [encoding for name, encoding in ENCODINGS.items() if name in used]
    rows = [f"| | {' | '.join(e.name for e in encodings)} |", "|---" * (len(encodings) + 1) + "|"]
    for tool in dict.fromkeys(tool for encoding in encodings for tool in encoding.tool_support):
        rows.append(
            f"| {tool} | {' | '.join(e.tool_support.get(tool, 'not tested') for e in encodings)} |"
        )
    unpack = "`ltp-pipeline unpack FILE --out dense.onnx` writes any of them dense."
    others = "Other runtimes (TensorRT, Core ML, browsers) were not tested; try packed, else dense."
    return (
        "\n".join(rows)
        + f"\n\n{others} {unpack} Encode last: transform a dense file, not an encoded one."
    )
