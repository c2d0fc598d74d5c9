"""The baseline beside LTP: a point at its compression, and as a curve further points around its accuracy.

Where LTP prunes in blocks, so does the baseline; one more point tells what single weights have at LTP's compression.
"""

from __future__ import annotations

from dataclasses import dataclass

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.gain import WIDE, TradeoffPoint, compared_at
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import MeasuredBaseline, MeasuredPoint, PrunedNetwork
from ltp_pipeline.run_directory.names import point_folder
from ltp_pipeline.runner.networks import (
    export_and_evaluate,
    load_network_info,
    load_saved_network,
    measure_time,
    save_weights,
)
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.stages import baseline
from ltp_pipeline.stages.baseline_search import MAX_POINTS, NARROW, next_compression
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes
from ltp_pipeline.stages.measure.network import Reference
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import round_duration

MAX_EXCLUDED_FRACTION = 0.5  # of the nonzeros
MAX_CURVE_SECONDS = 600.0  # seconds of one training up to which `auto` makes a curve


@dataclass(frozen=True)
class BaselineTarget:
    """What the baseline is measured beside: LTP's network. Accuracies are of the validation split."""

    metric: Metric
    nonzeros: int
    epochs: int
    accuracy: float
    original_accuracy: float
    budget: float | None = None  # largest drop, where that and not a compression was asked for

    @property
    def accuracy_to_match(self) -> float:
        """The accuracy at which the two are compared."""
        return compared_at(self.metric, self.accuracy, self.original_accuracy, self.budget)


def run(
    job: RunContext, original: StateDict, rival: BaselineTarget, reference: Reference | None
) -> MeasuredBaseline | None:
    """Train, export and measure the points one after the other; the leader has the measurements."""
    elements = sum(k.elements for k in job.network.layer_weights)
    axes, spared = baseline.block_axes_of(job), _find_excluded(job, original, rival)
    start = TradeoffPoint(
        elements / sum(count_nonzeros(job.network, original).values()), rival.original_accuracy
    )
    most = elements / baseline.min_nonzeros(job.network, original, spared, axes)
    seen: list[TradeoffPoint] = []
    measured: list[MeasuredPoint] = []
    nonzeros: int | None = rival.nonzeros
    is_curve = True
    while nonzeros is not None:
        number = len(seen) + 1
        try:
            title = baseline.FIRST if number == 1 else baseline.LATER
            plain, weights, value = _train_point(
                job, original, number, title, nonzeros, rival.epochs, spared, axes
            )
        except TrainingFailed as error:
            if (
                number == 1 or distributed.is_distributed()
            ):  # others may not have failed, and would wait for this one
                raise
            job.workspace.progress.say(f"The curve of the baseline ends here: {error.message}")
            break
        settings = job.settings.export if number == 1 else _single_file(job.settings.export)
        found = export_and_evaluate(job, plain, weights, reference, point_folder(number), settings)
        measured += [MeasuredPoint(found, value)] if found else []
        seen.append(TradeoffPoint(elements / plain.nonzeros, value))
        del plain, weights  # the next point needs the memory
        is_curve = is_curve if seen[1:] else _makes_curve(job)
        nonzeros = _next_nonzeros(job, seen, start, rival, most, elements) if is_curve else None
    single = _measure_unstructured(job, original, rival, spared, reference) if axes else None
    return (
        MeasuredBaseline(tuple(measured), is_curve, bool(spared), bool(axes), single)
        if measured
        else None
    )


def _measure_unstructured(
    job: RunContext,
    original: StateDict,
    rival: BaselineTarget,
    spared: set[str],
    reference: Reference | None,
) -> MeasuredPoint | None:
    """What single weights have at LTP's compression, which no blocks bind."""
    name, epochs = baseline.UNSTRUCTURED, rival.epochs
    try:
        plain, weights, value = _train_point(
            job, original, name, name, rival.nonzeros, epochs, spared, NO_BLOCKS
        )
    except TrainingFailed as error:
        if distributed.is_distributed():
            raise
        job.workspace.progress.say(f"The baseline of single weights is left out: {error.message}")
        return None
    found = export_and_evaluate(
        job, plain, weights, reference, point_folder(name), _single_file(job.settings.export)
    )
    return MeasuredPoint(found, value) if found else None


def _find_excluded(job: RunContext, original: StateDict, rival: BaselineTarget) -> set[str]:
    """The kernels that are not pruned although they could be; none where they take up most of what may be kept."""
    if not job.settings.baseline.exclude_classifier:
        return set()
    spared = baseline.find_classifier(job)
    if (
        baseline.min_nonzeros(job.network, original, spared, baseline.block_axes_of(job))
        <= MAX_EXCLUDED_FRACTION * rival.nonzeros
    ):
        return spared
    job.workspace.progress.say(
        "The baseline prunes the classifier too: spared, it would be most of what may be kept"
    )
    return set()


def _train_point(
    job: RunContext,
    original: StateDict,
    point: int | str,
    title: str,
    nonzeros: int,
    epochs: int,
    spared: set[str],
    axes: BlockAxes,
) -> tuple[PrunedNetwork, Weights, float]:
    """A point with its accuracy on the validation split; what was trained before is taken from the run directory."""
    name = baseline.point_key(point, job.settings.baseline.exclude_classifier)
    with measure_time(job.workspace, title):
        if known := load_saved_network(job, name):
            plain, weights, kept = known
            return plain, weights, kept.validation_accuracy
        plain = baseline.run(job, original, nonzeros, epochs, title, name, spared, axes)
        value = evaluate_metric(job, plain.state, job.data.val)
        return plain, save_weights(job, name, plain, validation_accuracy=value), value


def _single_file(settings: ExportSettings) -> ExportSettings:
    """Of a further point, one file is enough to measure it by."""
    return settings.model_copy(
        update={"formats": (settings.comparison_format,), "weight_storage": ()}
    )


def _makes_curve(job: RunContext) -> bool:
    """Whether further points are wanted; `auto` chooses once, by the time of the first training, for all processes."""
    workspace, wanted = job.workspace, job.settings.requested_baseline
    if wanted == "curve":
        workspace.update_manifest(curve=True)  # for a later `auto`, which finds its points trained
    if wanted != "auto":
        return wanted == "curve"
    runs = [workspace, *([workspace.parent] if workspace.parent else [])]  # who trained it
    seconds = distributed.broadcast_from_main(
        max(run.manifest.timings.get(baseline.FIRST, 0.0) for run in runs), job.device
    )
    known = -1.0 if workspace.manifest.curve is None else float(workspace.manifest.curve)
    chosen = distributed.broadcast_from_main(known, job.device)
    makes = seconds < MAX_CURVE_SECONDS if chosen < 0 else bool(chosen)
    workspace.update_manifest(curve=makes)
    if not makes:
        workspace.progress.say(
            f"The baseline is measured at LTP's compression only, because training it took {round_duration(seconds)}; "
            f"--baseline curve adds up to {MAX_POINTS - 1} points, about {round_duration((MAX_POINTS - 1) * seconds)}"
        )
    return makes


def _next_nonzeros(
    job: RunContext,
    seen: list[TradeoffPoint],
    start: TradeoffPoint,
    rival: BaselineTarget,
    most: float,
    elements: int,
) -> int | None:
    """Nonzeros of the next point: one that is kept already, or the one that tells most."""
    name = baseline.point_key(len(seen) + 1, job.settings.baseline.exclude_classifier)
    if len(seen) < MAX_POINTS and (kept := load_network_info(job.workspace, name)):
        return kept.nonzeros
    metric, near = rival.metric, WIDE if rival.budget is None else NARROW
    found = next_compression(metric, seen, start, rival.accuracy_to_match, most, near)
    if found is None:
        return None
    if len(seen) == 1:
        job.workspace.progress.say(
            f"The baseline has {metric.shown(seen[0].accuracy)} on the validation split, LTP "
            f"{metric.shown(rival.accuracy)}: up to {MAX_POINTS - 1} more points are measured "
            "(--baseline quick leaves them out)"
        )
    return round(elements / found)
