"""The report from what the stages measured; nothing is computed here that could be measured elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ltp_pipeline.data import recipe
from ltp_pipeline.exporters.files.count import iter_float_weights
from ltp_pipeline.graph.layer_weights import get_block_axes
from ltp_pipeline.results import schema
from ltp_pipeline.results import schema_parts as parts
from ltp_pipeline.results.complete import bound_size
from ltp_pipeline.results.gain import Gain, TradeoffPoint, compare
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.stages.measure.file_parts import (
    accuracy_part,
    file_part,
    why_no_outcomes,
    why_null,
)
from ltp_pipeline.stages.report import environment
from ltp_pipeline.stages.report.notes import describe_improvement, list_file_notes
from ltp_pipeline.tasks.classification import TOP1
from ltp_pipeline.tasks.custom_task import CustomTaskAdapter
from ltp_pipeline.tasks.evaluator import count_pairs

if TYPE_CHECKING:
    from ltp_pipeline.data.dataset import DatasetSplits
    from ltp_pipeline.results.records import (
        MeasuredBaseline,
        MeasuredNetwork,
        MeasuredOriginal,
        MeasuredPoint,
        ThresholdLearningResult,
        TrailEntry,
    )
    from ltp_pipeline.settings.schema import Settings
    from ltp_pipeline.stages.import_model.network import Network
    from ltp_pipeline.stages.report.weight_samples import WeightSamples
    from ltp_pipeline.tasks.protocol import Task

OTHERS = 5
NO_SINGLE = "its training failed"
ONE_POINT = "one point of the baseline was measured; `--baseline curve` measures more"


@dataclass(frozen=True)
class Findings:
    """Everything a report is made of."""

    network: Network
    data: DatasetSplits
    settings: Settings
    resolved: Mapping[str, Mapping[str, Any]]  # values used for settings left open, by section
    original: MeasuredOriginal
    learned: ThresholdLearningResult
    chosen: TrailEntry
    pruned: MeasuredNetwork
    baseline: MeasuredBaseline | None
    weights: WeightSamples
    device: str
    task: Task
    timings: Mapping[str, float]
    notes: Sequence[str]
    budget_missed: str | None = None
    no_baseline: str | None = None  # why there is none
    fine_tuned: int = 1  # networks of the trail, to find the chosen one
    budget: float | None = None  # the accuracy budget that chose it


def build(f: Findings) -> schema.Report:
    """The report without its gates."""
    model = f.network.file
    pruned = _pruned(f, f.pruned, f.fine_tuned)
    unlikely = describe_improvement(pruned, f.task.metric)
    return schema.Report(
        metric=f.task.metric,
        task=f.task.describe_output(),
        model=_model(f),
        data=_data(f),
        custom_task=_user_task(f),
        original=schema.OriginalResult(
            accuracy=accuracy_part(f.original.accuracy),
            reasons=why_null(f.original.accuracy),
            path=str(model.path) if model.path else None,
            bytes=model.num_bytes,
            load_ms=f.original.load_ms,
            latency=tuple(
                schema.LatencyResult(batch=x.batch, threads=x.threads, ms=x.ms)
                for x in f.original.latency
            ),
        ),
        pruned=pruned,
        baseline=_baseline(f),
        difference=_difference(f),
        layers=_layers(f),
        trail=tuple(_entry(e, chosen=e.entry == f.chosen.entry) for e in f.learned.trail),
        settings=f.settings.model_dump(mode="json", by_alias=True),
        resolved={section: dict(values) for section, values in f.resolved.items()},
        environment=environment.describe(f.device, f.settings.train.seed),
        timings={stage: round(seconds, 3) for stage, seconds in f.timings.items()},
        notes=(
            *f.network.notes,
            *f.notes,
            *_task_notes(f),
            *([unlikely] if unlikely else []),
            *list_file_notes(f.pruned, pruned, model.num_bytes),
        ),
        budget_not_met=f.budget_missed,
        suspicious_improvement=unlikely,
        histograms=f.weights.histograms,
        scatter=f.weights.scatter,
        sizes=_sizes(f, pruned),
        reasons={} if f.no_baseline is None else {"baseline": f.no_baseline},
    )


def _model(f: Findings) -> parts.ModelInfo:
    model = f.network.file
    kernels = {k.name for k in f.network.layer_weights}
    others = [
        (name, c.elements)
        for name, c in iter_float_weights(f.network.file.model)
        if name not in kernels
    ]
    return parts.ModelInfo(
        name=model.path.name if model.path else "model",
        path=str(model.path) if model.path else None,
        sha256=model.sha256,
        opset=model.opset,
        num_layers=len(f.network.layer_weights),
        layer_elements=sum(k.elements for k in f.network.layer_weights),
        float_elements=f.pruned.most_nonzeros.whole.elements,
        largest_other_weights=tuple(
            parts.WeightInfo(name=name, elements=elements)
            for name, elements in sorted(others, key=lambda other: -other[1])[:OTHERS]
        ),
        data=model.data_files,
        inputs=tuple(parts.ModelTensorInfo(**asdict(i)) for i in model.inputs),
        outputs=tuple(parts.ModelTensorInfo(**asdict(o)) for o in model.outputs),
    )


def _data(f: Findings) -> parts.DataInfo:
    data = f.data
    return parts.DataInfo(
        path=None if f.settings.data.path is None else str(f.settings.data.path),
        classes=data.num_classes if f.task.metric.name == TOP1.name else None,
        splits={"train": len(data.train), "val": len(data.val), "test": len(data.test)},
        inputs={
            name: _input(data.steps[name], found)
            for name, found in recipe.describe_inputs(data).items()
        },
        notes=tuple(data.notes),
        class_names=None if data.class_names is None else tuple(data.class_names),
    )


def _user_task(f: Findings) -> parts.CustomTaskInfo | None:
    if not isinstance(f.task, CustomTaskAdapter):
        return None
    own = f.task.custom
    return parts.CustomTaskInfo(
        name=own.origin, sha256=own.sha256, fingerprint=own.declared_fingerprint
    )


def _input(steps: tuple[str, ...], found: recipe.Recipe) -> parts.InputInfo:
    plain = parts.PreprocessingInfo.model_validate(found.plain(), strict=False)
    return parts.InputInfo(
        sample_shape=found.input_shape, preprocessing_steps=steps, preprocessing=plain
    )


def _pruned(f: Findings, m: MeasuredNetwork, trainings: int) -> schema.NetworkResult:
    accuracy, counted = m.least_accurate.accuracy, m.most_nonzeros
    interval = f.task.compute_drop_interval(f.original.scores, m.scores)
    return schema.NetworkResult(
        accuracy=accuracy_part(accuracy),
        reasons=why_null(accuracy)
        | ({} if interval else {"drop_interval": UNDEFINED})
        | {parts.FILE_REASON_PREFIX + name: why for name, why in m.skipped.items()},
        drop=f.task.metric.drop(f.original.accuracy.value, accuracy.value),
        drop_interval=interval,
        compression=counted.counted.compression,
        model_compression=counted.whole.compression,
        sparsity=counted.counted.sparsity,
        nonzeros=counted.counted.nonzeros,
        model_nonzeros=counted.whole.nonzeros,
        epochs=schema.EpochCounts(**m.epochs),
        num_trainings=trainings,
        files=tuple(file_part(v) for v in m.validations),
    )


def _baseline(f: Findings) -> schema.BaselineResult | None:
    if f.baseline is None:
        return None
    points = f.baseline.points
    found = dict(_pruned(f, points[0].measured, len(points)))
    added = {
        schema.IN_BLOCKS: f.baseline.in_blocks,
        schema.CLASSIFIER_EXCLUDED: f.baseline.excludes_classifier,
    }
    found["method"] = ", ".join(
        [schema.MAGNITUDE_METHOD, *(what for what, is_so in added.items() if is_so)]
    )
    if f.baseline.unstructured is not None:
        found["unstructured"] = _point(f.baseline.unstructured)
    elif f.baseline.in_blocks:
        found["reasons"] = {**found["reasons"], "unstructured": NO_SINGLE}
    if not f.baseline.is_curve:
        unmeasured = dict.fromkeys(("curve", "compression_at_equal_accuracy", "gain"), ONE_POINT)
        return schema.BaselineResult(**{**found, "reasons": {**found["reasons"], **unmeasured}})
    curve = tuple(_point(point) for point in points)
    over = _gain(
        f,
        [
            TradeoffPoint(p.compression, p.accuracy)
            for p in curve
            if p.compression and p.accuracy is not None
        ],
    )
    why = {} if over.reason is None else {"compression_at_equal_accuracy": over.reason}
    return schema.BaselineResult(
        **{**found, "reasons": {**found["reasons"], **why}},
        curve=curve,
        budget=f.budget,
        compression_at_equal_accuracy=over.compression_at_equal_accuracy,
        gain=over.value,
        gain_bound=over.bound,
    )


def _point(point: MeasuredPoint) -> schema.BaselinePoint:
    """A point of the curve, by its file with exact weights."""
    v = point.measured.exact
    return schema.BaselinePoint(
        compression=v.counted.compression,
        accuracy=v.accuracy.value,
        validation_accuracy=point.validation_accuracy,
        nonzeros=v.counted.nonzeros,
        path=v.file.name,
        sha256=v.file.sha256,
        data_sha256=v.file.data_sha256,
    )


def _gain(f: Findings, points: Sequence[TradeoffPoint]) -> Gain:
    """Over the baseline, of files with exact weights."""
    compression, accuracy = (
        f.pruned.most_nonzeros.counted.compression,
        f.pruned.exact.accuracy.value,
    )
    return compare(
        f.task.metric,
        compression or math.inf,
        accuracy,
        f.original.accuracy.value,
        f.budget,
        points,
    )


def _task_notes(f: Findings) -> list[str]:
    task = _user_task(f)
    whose = "samples are" if f.task.metric.is_relative else "samples and metric are"
    return [] if task is None else [f"{whose} those of {task.label}"]


def _difference(f: Findings) -> schema.BaselineDifference | None:
    if f.baseline is None:
        return None
    pruned, baseline = f.pruned, f.baseline.points[0].measured
    # what is worse in the baseline: a drop from the learned network to it
    value = f.task.metric.drop(pruned.exact.accuracy.value, baseline.exact.accuracy.value)
    ours, theirs = (
        m.scores if m.exact_scores is None else m.exact_scores for m in (pruned, baseline)
    )
    interval, counts = f.task.compute_drop_interval(ours, theirs), count_pairs(f.task, ours, theirs)
    why = ({} if interval else {"interval": UNDEFINED}) | why_no_outcomes(counts)
    return schema.BaselineDifference(
        value=value, interval=interval, paired_counts=counts, reasons=why
    )


def _layers(f: Findings) -> tuple[parts.LayerResult, ...]:
    pruned = f.pruned.most_nonzeros.nonzeros
    baseline = f.baseline.points[0].measured.most_nonzeros.nonzeros if f.baseline else {}
    blocks = get_block_axes(f.network.layer_weights, f.settings.method.block)
    return tuple(
        parts.LayerResult(
            name=k.name,
            op=k.op,
            shape=k.shape,
            elements=k.elements,
            nonzeros=pruned[k.name],
            threshold=f.chosen.thresholds.get(k.name),
            temperature=f.chosen.temperatures.get(k.name),
            baseline_nonzeros=baseline.get(k.name),
            prunable=k.is_prunable,
            reason=k.reason,
            block=f.settings.method.block if k.name in blocks else None,
        )
        for k in f.network.layer_weights
    )


def _entry(entry: TrailEntry, chosen: bool) -> parts.TrailEntryResult:
    row = asdict(entry)
    del row["thresholds"], row["temperatures"]  # those of the chosen entry stand with the layers
    return parts.TrailEntryResult(**row, selected=chosen)


def _sizes(f: Findings, pruned: schema.NetworkResult) -> dict[str, int | None]:
    counted, original = f.pruned.most_nonzeros.counted, f.network.file.num_bytes
    files = {file.label: file.bytes for file in pruned.files}
    return {
        "original": original,
        **files,
        "entropy_bound": bound_size(original, counted.elements, counted.nonzeros),
    }
