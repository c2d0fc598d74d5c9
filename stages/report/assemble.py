"""Assemble the report of a run from the results of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ltp_pipeline.data.generated import describe_inputs
from ltp_pipeline.data.preprocessing import compute_input_shape, describe_steps
from ltp_pipeline.exporters.files.count import iter_float_weights
from ltp_pipeline.graph.layer_weights import get_block_axes
from ltp_pipeline.results.complete import complete
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.schema import (
    CLASSIFIER_EXCLUDED,
    IN_BLOCKS,
    LTP_METHOD,
    MAGNITUDE_METHOD,
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    Report,
)
from ltp_pipeline.results.schema_parts import (
    CustomTaskInfo,
    DataInfo,
    InputInfo,
    LayerResult,
    LearningRateInfo,
    ModelInfo,
    ModelTensorInfo,
    TrailEntry,
    WeightInfo,
)
from ltp_pipeline.stages import baseline as baseline_stage
from ltp_pipeline.stages.measure.network import explain_missing_counts
from ltp_pipeline.stages.report.environment import describe_environment
from ltp_pipeline.stages.report.notes import describe_improvement, list_file_notes
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.evaluator import count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.results.schema_parts import LearnedEntry
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.learn_thresholds.trail import ThresholdLearningResult
    from ltp_pipeline.stages.measure.network import (
        MeasuredBaseline,
        MeasuredNetwork,
        MeasuredOriginal,
        MeasuredPoint,
    )
    from ltp_pipeline.stages.report.weight_samples import WeightSamples
    from ltp_pipeline.stages.train.context import RunContext
    from ltp_pipeline.tasks.protocol import Task

NUM_OTHER_WEIGHTS = 5
TRAINING_FAILED = "its training failed"
ONE_POINT = "one point of the baseline was measured; `--baseline curve` measures more"
ONE_MACS_POINT = "budget.target_macs counts multiply-adds, and a curve compares numbers of weights"
NOT_COUNTED = "the multiply-adds of layer {name!r} cannot be counted"


@dataclass(frozen=True)
class RunFindings:
    """What the stages of a run found out, for its report.

    Attributes:
        context: The run.
        original: The measured original.
        learned: The trail.
        selected: The trail entry that was finished.
        pruned: The measured network of that entry.
        baseline: The measured baseline, if any.
        weights: Samples of weights before and after pruning.
        notes: Notes of the run.
        budget_not_met: Why the network is outside its accuracy budget, if it is.
        baseline_reason: Why there is no baseline, if there is none.
        num_trainings: Number of trail entries that were fine-tuned.
        budget: The accuracy budget that selected the entry, if any.
    """

    context: RunContext
    original: MeasuredOriginal
    learned: ThresholdLearningResult
    selected: LearnedEntry
    pruned: MeasuredNetwork
    baseline: MeasuredBaseline | None
    weights: WeightSamples
    notes: Sequence[str]
    budget_not_met: str | None
    baseline_reason: str | None
    num_trainings: int
    budget: float | None


def build_report(findings: RunFindings) -> Report:
    """Return the report of a run, without gate results."""
    context = findings.context
    metric = context.task.metric
    settings = context.settings
    file = context.network.file
    reasons = {}
    if findings.baseline_reason is not None:
        reasons["baseline"] = findings.baseline_reason
    timings = context.run_directory.manifest.timings
    rates = context.run_directory.manifest.learning_rates
    report = Report(
        metric=metric,
        task=context.task.describe_output(),
        model=_describe_model(context.network),
        data=_describe_data(context),
        custom_task=_describe_custom_task(context.task),
        original=findings.original.result,
        pruned=findings.pruned.result.replace(
            num_trainings=findings.num_trainings, learning_rate=rates.get(LTP_METHOD)
        ),
        baseline=_build_baseline(
            findings.baseline,
            findings.budget,
            settings.budget.target_macs is not None,
            rates.get(baseline_stage.FIRST),
        ),
        difference=_compare_networks(context.task, findings.pruned, findings.baseline),
        layers=_list_layers(findings),
        trail=tuple(_convert_entry(entry, findings.selected) for entry in findings.learned.trail),
        settings=settings.model_dump(mode="json", by_alias=True),
        resolved={section: dict(keys) for section, keys in context.resolved_settings.items()},
        environment=describe_environment(context.device.type, settings.train.seed),
        timings={stage: round(seconds, 3) for stage, seconds in timings.items()},
        budget_not_met=findings.budget_not_met,
        histograms=findings.weights.histograms,
        scatter=findings.weights.scatter,
        reasons=reasons,
    )
    report = _explain_uncounted(complete(report))
    improvement = describe_improvement(report.pruned, metric)
    notes = [*context.network.notes, *findings.notes]
    if report.custom_task is not None:
        source = "samples are" if metric.is_relative else "samples and metric are"
        notes.append(f"{source} those of {report.custom_task.label}")
    if improvement is not None:
        notes.append(improvement)
    notes += list_file_notes(findings.pruned.notes, report.pruned, file.num_bytes)
    return report.replace(suspicious_improvement=improvement, notes=tuple(notes))


def _explain_uncounted(report: Report) -> Report:
    """Return the report with the reason why multiply-adds are null, if they are."""
    uncounted = [layer.name for layer in report.layers if layer.uses is None]
    if not uncounted:
        return report
    reason = {"macs_left": NOT_COUNTED.format(name=uncounted[0])}
    pruned = report.pruned.replace(reasons={**report.pruned.reasons, **reason})
    baseline = report.baseline
    if baseline is not None:
        baseline = baseline.replace(reasons={**baseline.reasons, **reason})
    return report.replace(pruned=pruned, baseline=baseline)


def _describe_model(network: Network) -> ModelInfo:
    file = network.file
    layer_names = {layer.name for layer in network.layer_weights}
    elements = {name: counts.elements for name, counts in iter_float_weights(file.model)}
    others = []
    for name, count in elements.items():
        if name not in layer_names:
            others.append(WeightInfo(name=name, elements=count))
    others.sort(key=lambda weight: -weight.elements)
    model_name = "model"
    path = None
    if file.path:
        model_name = file.path.name
        path = str(file.path)
    return ModelInfo(
        name=model_name,
        path=path,
        sha256=file.sha256,
        opset=file.opset,
        float_elements=sum(elements.values()),
        largest_other_weights=tuple(others[:NUM_OTHER_WEIGHTS]),
        data=file.data_files,
        inputs=tuple(ModelTensorInfo(**asdict(tensor)) for tensor in file.inputs),
        outputs=tuple(ModelTensorInfo(**asdict(tensor)) for tensor in file.outputs),
    )


def _describe_data(context: RunContext) -> DataInfo:
    data = context.data
    path = None
    if context.settings.data.path is not None:
        path = str(context.settings.data.path)
    classes = None
    if context.task.metric.is_accuracy:
        classes = data.num_classes
    class_names = None
    if data.class_names is not None:
        class_names = tuple(data.class_names)
    inputs = {}
    for name, recipe in describe_inputs(data).items():
        stored_shape = data.test.inputs[name].samples.shape
        inputs[name] = InputInfo(
            sample_shape=compute_input_shape(recipe, stored_shape),
            preprocessing_steps=describe_steps(recipe),
            preprocessing=recipe,
        )
    return DataInfo(
        path=path,
        classes=classes,
        splits={"train": len(data.train), "val": len(data.val), "test": len(data.test)},
        inputs=inputs,
        notes=tuple(data.notes),
        class_names=class_names,
    )


def _describe_custom_task(task: Task) -> CustomTaskInfo | None:
    if not isinstance(task, CustomTaskAdapter):
        return None
    custom = task.custom
    return CustomTaskInfo(
        name=custom.origin, sha256=custom.sha256, fingerprint=custom.declared_fingerprint
    )


def _build_baseline(
    baseline: MeasuredBaseline | None,
    budget: float | None,
    has_macs_budget: bool = False,
    learning_rate: LearningRateInfo | None = None,
) -> BaselineResult | None:
    """Return the baseline with its curve, if they were measured."""
    if baseline is None:
        return None
    first = baseline.points[0].measured.result
    method = [MAGNITUDE_METHOD]
    if baseline.in_blocks:
        method.append(IN_BLOCKS)
    if baseline.excludes_classifier:
        method.append(CLASSIFIER_EXCLUDED)
    changes: dict[str, Any] = {
        "method": ", ".join(method),
        "num_trainings": len(baseline.points),
        "learning_rate": learning_rate,
        "reasons": dict(first.reasons),
    }
    if baseline.unstructured is not None:
        changes["unstructured"] = _build_point(baseline.unstructured)
    elif baseline.in_blocks:
        changes["reasons"]["unstructured"] = TRAINING_FAILED
    if baseline.is_curve:
        changes |= {"curve": tuple(map(_build_point, baseline.points)), "budget": budget}
    else:
        keys = ("curve", "compression_at_equal_accuracy", "gain")
        reason = ONE_MACS_POINT if has_macs_budget else ONE_POINT
        changes["reasons"] |= dict.fromkeys(keys, reason)
    return BaselineResult(**{**dict(first), **changes})


def _build_point(point: MeasuredPoint) -> BaselinePoint:
    """Return a point of the baseline, of its file with exact weights."""
    file = point.measured.result.exact
    assert file is not None  # noqa: S101 - a measured network has files
    return BaselinePoint(
        accuracy=file.value,
        validation_accuracy=point.validation_accuracy,
        nonzeros=file.nonzeros,
        path=file.path,
        sha256=file.sha256,
        data_sha256=file.data_sha256,
    )


def _compare_networks(
    task: Task, pruned: MeasuredNetwork, baseline: MeasuredBaseline | None
) -> BaselineDifference | None:
    """Compare the exact files of the pruned network and of the baseline, sample by sample."""
    if baseline is None:
        return None
    scores = (pruned.exact_scores, baseline.points[0].measured.exact_scores)
    interval = task.compute_drop_interval(*scores)
    counts = count_pairs(task, *scores)
    reasons = explain_missing_counts(counts)
    if interval is None:
        reasons["interval"] = UNDEFINED
    return BaselineDifference(interval=interval, paired_counts=counts, reasons=reasons)


def _list_layers(findings: RunFindings) -> tuple[LayerResult, ...]:
    weights = findings.context.network.layer_weights
    block = findings.context.settings.method.block
    names_in_blocks = get_block_axes(weights, block)
    baseline_nonzeros: Mapping[str, int] = {}
    if findings.baseline is not None:
        baseline_nonzeros = findings.baseline.points[0].measured.layer_nonzeros
    layers = []
    for weight in weights:
        layer = LayerResult(
            name=weight.name,
            op=weight.op,
            shape=weight.shape,
            elements=weight.elements,
            nonzeros=findings.pruned.layer_nonzeros[weight.name],
            threshold=findings.selected.thresholds.get(weight.name),
            temperature=findings.selected.temperatures.get(weight.name),
            baseline_nonzeros=baseline_nonzeros.get(weight.name),
            uses=findings.context.uses.get(weight.name),
            reason=weight.reason,
            block=block if weight.name in names_in_blocks else None,
        )
        layers.append(layer)
    return tuple(layers)


def _convert_entry(entry: LearnedEntry, selected: LearnedEntry) -> TrailEntry:
    """Return a trail entry without its thresholds; those of the selected entry are in `layers`."""
    content = entry.model_dump(include=set(TrailEntry.model_fields))
    return TrailEntry(**{**content, "selected": entry.entry == selected.entry})
