"""Assemble the report of a run from the results of its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ltp_pipeline.data.generated import describe_inputs
from ltp_pipeline.data.preprocessing import compute_input_shape, describe_steps
from ltp_pipeline.exporters.files.count import iter_float_weights
from ltp_pipeline.graph.layer_weights import get_block_axes
from ltp_pipeline.results.complete import NONZEROS_KEYS, complete
from ltp_pipeline.results.intervals import UNDEFINED
from ltp_pipeline.results.schema import (
    CLASSIFIER_EXCLUDED,
    GRADUAL_METHOD,
    IN_BLOCKS,
    IS_BASELINE,
    IS_PRUNED,
    LAMP_SCORES,
    LTP_METHOD,
    MAGNITUDE_METHOD,
    NETWORK_KEYS,
    BaselineDifference,
    BaselinePoint,
    BaselineResult,
    CostBudgetResult,
    NetworkComparison,
    NetworkResult,
    OtherResult,
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
from ltp_pipeline.settings.schema import COST_KINDS
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
ONE_COST_POINT = "budget.{key} counts {cost}, and a curve compares numbers of weights"
NO_GRADUAL = "`--baseline gradual` measures gradual magnitude pruning"
NOT_COUNTED = "the multiply-adds of layer {name!r} cannot be counted"


@dataclass(frozen=True)
class ComparedNetworks:
    """Networks on the validation split: their metric by method, and the leads of the baselines."""

    values: Mapping[str, float]
    comparison: NetworkComparison = field(default_factory=NetworkComparison)


@dataclass(frozen=True)
class RunFindings:
    """What the stages of a run found out, for its report.

    Attributes:
        context: The run.
        original: The measured original.
        learned: The trail.
        selected: The trail entry that was finished.
        ltp: The measured network of that entry.
        baseline: The measured baseline, if any.
        validation: The networks on the validation split.
        delivered: Method of the network whose files are those of the run.
        weights: Samples of weights before and after pruning.
        notes: Notes of the run.
        budget_not_met: Why the network is outside its accuracy budget, if it is.
        baseline_reason: Why there is no baseline, if there is none.
        num_trainings: Number of trail entries that were fine-tuned.
        budget: The accuracy budget that selected the entry, if any.
        learning_rates: Learning rates by name of the training.
    """

    context: RunContext
    original: MeasuredOriginal
    learned: ThresholdLearningResult
    selected: LearnedEntry
    ltp: MeasuredNetwork
    baseline: MeasuredBaseline | None
    validation: ComparedNetworks
    delivered: str
    weights: WeightSamples
    notes: Sequence[str]
    budget_not_met: str | None
    baseline_reason: str | None
    num_trainings: int
    budget: float | None
    learning_rates: Mapping[str, LearningRateInfo] = field(default_factory=dict)

    @property
    def networks(self) -> dict[str, MeasuredNetwork]:
        """The measured networks at the compression of LTP, by method."""
        networks = {LTP_METHOD: self.ltp}
        if self.baseline is not None:
            networks[MAGNITUDE_METHOD] = self.baseline.points[0].measured
            if self.baseline.gradual is not None:
                networks[GRADUAL_METHOD] = self.baseline.gradual.measured
        return networks

    @property
    def pruned(self) -> MeasuredNetwork:
        """The measured network whose files are those of the run."""
        return self.networks[self.delivered]


def build_report(findings: RunFindings) -> Report:
    """Return the report of a run, without gate results."""
    context = findings.context
    metric = context.task.metric
    settings = context.settings
    file = context.network.file
    timings = context.run_directory.manifest.timings
    report = Report(
        metric=metric,
        task=context.task.describe_output(),
        model=_describe_model(context.network),
        data=_describe_data(context),
        custom_task=_describe_custom_task(context.task),
        original=findings.original.result,
        pruned=NetworkResult(**_describe_network(findings, findings.delivered)),
        baseline=_build_baseline(findings),
        gradual_baseline=_build_other(findings, GRADUAL_METHOD),
        ltp=_build_other(findings, LTP_METHOD),
        difference=_compare_with(findings, MAGNITUDE_METHOD),
        comparison=_explain_comparison(findings),
        cost_budget=_build_cost_budget(findings),
        layers=_list_layers(findings),
        trail=tuple(_convert_entry(entry, findings.selected) for entry in findings.learned.trail),
        settings=settings.model_dump(mode="json", by_alias=True),
        resolved={section: dict(keys) for section, keys in context.resolved_settings.items()},
        environment=describe_environment(context.device.type, settings.train.seed),
        timings={stage: round(seconds, 3) for stage, seconds in timings.items()},
        budget_not_met=findings.budget_not_met,
        histograms=findings.weights.histograms,
        scatter=findings.weights.scatter,
        reasons=_explain_missing_networks(findings),
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
    for key, network in {"pruned": report.pruned, **report.other_networks}.items():
        explained = network.replace(reasons={**network.reasons, **reason})
        report = report.replace(**{key: explained})
    return report


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
        augmentation=context.run_directory.manifest.augmentation,
        class_names=class_names,
    )


def _describe_custom_task(task: Task) -> CustomTaskInfo | None:
    if not isinstance(task, CustomTaskAdapter):
        return None
    custom = task.custom
    return CustomTaskInfo(
        name=custom.origin, sha256=custom.sha256, fingerprint=custom.declared_fingerprint
    )


def _describe_network(findings: RunFindings, method: str) -> dict[str, Any]:
    """Return the content of a network, with its method and its metric on the validation split."""
    variants = [method]
    num_trainings = findings.num_trainings
    baseline = findings.baseline
    if method != LTP_METHOD and baseline is not None:
        num_trainings = 1
        if baseline.in_blocks:
            variants.append(IN_BLOCKS)
        if findings.context.settings.baseline.score == "lamp":
            variants.append(LAMP_SCORES)
        if baseline.excludes_classifier:
            variants.append(CLASSIFIER_EXCLUDED)
    content = dict(findings.networks[method].result)
    content["method"] = ", ".join(variants)
    content["validation_accuracy"] = findings.validation.values.get(method)
    content["num_trainings"] = num_trainings
    name = baseline_stage.name_trainings(findings.context.settings.baseline)[method]
    content["learning_rate"] = findings.learning_rates.get(name)
    return content


def _build_baseline(findings: RunFindings) -> BaselineResult | None:
    """Return the baseline with its curve, if they were measured."""
    baseline = findings.baseline
    if baseline is None or findings.delivered == MAGNITUDE_METHOD:
        return None
    content = _describe_network(findings, MAGNITUDE_METHOD)
    content["num_trainings"] = len(baseline.points)
    reasons = dict(content["reasons"])
    if baseline.unstructured is not None:
        content["unstructured"] = _build_point(baseline.unstructured)
    elif baseline.in_blocks:
        reasons["unstructured"] = TRAINING_FAILED
    if baseline.is_curve:
        content["curve"] = tuple(map(_build_point, baseline.points))
        content["budget"] = findings.budget
    else:
        keys = ("curve", "compression_at_equal_accuracy", "gain")
        cost_key = findings.context.settings.budget.cost_key
        reason = ONE_POINT
        if cost_key is not None:
            reason = ONE_COST_POINT.format(key=cost_key, cost=COST_KINDS[cost_key])
        reasons |= dict.fromkeys(keys, reason)
    return BaselineResult(**{**content, "reasons": reasons})


def _build_other(findings: RunFindings, method: str) -> OtherResult | None:
    """Return a network that is compared with the pruned one, if it was measured."""
    if method == findings.delivered or method not in findings.networks:
        return None
    content = _describe_network(findings, method)
    return OtherResult(**content, difference=_compare_with(findings, method))


def _explain_missing_networks(findings: RunFindings) -> dict[str, str]:
    """Return the reasons why networks are null, by their keys."""
    reasons = {}
    if findings.baseline_reason is not None:
        reasons["baseline"] = reasons["gradual_baseline"] = findings.baseline_reason
    elif GRADUAL_METHOD not in findings.networks:
        is_requested = findings.context.settings.baseline.mode == "gradual"
        reasons["gradual_baseline"] = TRAINING_FAILED if is_requested else NO_GRADUAL
    reasons[NETWORK_KEYS[findings.delivered]] = IS_PRUNED
    if findings.delivered == MAGNITUDE_METHOD:
        reasons["baseline"] = reasons["difference"] = IS_BASELINE
    return reasons


def _explain_comparison(findings: RunFindings) -> NetworkComparison:
    """Return the comparison on the validation split, or why there is none."""
    comparison = findings.validation.comparison
    if findings.baseline_reason is None:
        return comparison
    return comparison.replace(reasons={"better": findings.baseline_reason})


def _build_cost_budget(findings: RunFindings) -> CostBudgetResult | None:
    """Return the budget of a cost with its prediction; `complete` adds the other numbers."""
    context = findings.context
    costs = context.weight_costs
    if costs is None or context.run_directory.parent is not None:  # a picked entry has no budget
        return None
    budget = CostBudgetResult(kind=costs.kind)
    if costs.predict is not None:
        return budget.replace(
            predicted=max(costs.predict(findings.networks[findings.delivered].layer_nonzeros), 0.0)
        )
    return budget.replace(reasons={"predicted": "the cost is counted, not predicted"})


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


def _compare_with(findings: RunFindings, method: str) -> BaselineDifference | None:
    """Compare the exact files of the pruned network and of another one, sample by sample."""
    networks = findings.networks
    if method == findings.delivered or method not in networks:
        return None
    task = findings.context.task
    scores = (findings.pruned.exact_scores, networks[method].exact_scores)
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
    counts: dict[str, Mapping[str, int]] = {}  # of the other networks, by key
    for method, network in findings.networks.items():
        if method != findings.delivered:
            counts[NONZEROS_KEYS[NETWORK_KEYS[method]]] = network.layer_nonzeros
    is_learned = findings.delivered == LTP_METHOD
    thresholds = findings.selected.thresholds if is_learned else {}
    temperatures = findings.selected.temperatures if is_learned else {}
    layers = []
    for weight in weights:
        layer = LayerResult(
            name=weight.name,
            op=weight.op,
            shape=weight.shape,
            elements=weight.elements,
            nonzeros=findings.pruned.layer_nonzeros[weight.name],
            threshold=thresholds.get(weight.name),
            temperature=temperatures.get(weight.name),
            uses=findings.context.uses.get(weight.name),
            reason=weight.reason,
            block=block if weight.name in names_in_blocks else None,
        )
        others = {key: nonzeros[weight.name] for key, nonzeros in counts.items()}
        layers.append(layer.replace(**others))
    return tuple(layers)


def _convert_entry(entry: LearnedEntry, selected: LearnedEntry) -> TrailEntry:
    """Return a trail entry without its thresholds; those of the selected entry are in `layers`."""
    content = entry.model_dump(include=set(TrailEntry.model_fields))
    return TrailEntry(**{**content, "selected": entry.entry == selected.entry})
