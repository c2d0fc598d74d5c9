"""Train and measure the points of the baseline, one after the other.

The first point has LTP's compression, or LTP's multiply-adds if the budget counts these. A curve
has further points around LTP's accuracy. If LTP prunes in blocks, so does the baseline, and one
more point is unstructured at the compression of the first. With baseline.mode = "gradual", a
network is pruned gradually to the same compression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.gain import WIDE_RATIO, TradeoffPoint, find_compared_value
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import GRADUAL_METHOD, LTP_METHOD, MAGNITUDE_METHOD
from ltp_pipeline.run_directory.names import GRADUAL, point_folder
from ltp_pipeline.runner.networks import (
    export_and_evaluate,
    load_network_info,
    load_saved_network,
    measure_time,
    save_weights,
)
from ltp_pipeline.stages import baseline, rate_search
from ltp_pipeline.stages.baseline_search import MAX_POINTS, NARROW, next_compression
from ltp_pipeline.stages.learn_thresholds.blocks import NO_BLOCKS, BlockAxes
from ltp_pipeline.stages.measure.network import (
    MeasuredBaseline,
    MeasuredNetwork,
    MeasuredOriginal,
    MeasuredPoint,
)
from ltp_pipeline.stages.prune import count_nonzeros
from ltp_pipeline.stages.rate_search import SearchedTraining, find_learning_rate
from ltp_pipeline.stages.train.context import PrunedNetwork, RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.text import round_duration

# Fraction of the nonzeros, or of their multiply-adds, that an excluded classifier may have.
MAX_EXCLUDED_FRACTION = 0.5
MAX_CURVE_SECONDS = 600.0  # time of one training up to which `auto` makes a curve
METHODS: Mapping[int | str, str] = {1: MAGNITUDE_METHOD, GRADUAL: GRADUAL_METHOD}  # of points
# Points that are left out if their training fails, as messages call them.
SKIPPED_POINTS: Mapping[int | str, str] = {
    baseline.UNSTRUCTURED: "unstructured",
    GRADUAL: GRADUAL,
}


@dataclass(frozen=True)
class BaselineTarget:
    """LTP's network, which the baseline is compared with.

    Attributes:
        metric: The metric.
        cost: Nonzeros of all layers, or their multiply-adds if the budget counts these.
        epochs: Total number of epochs.
        accuracy: The metric on the validation split.
        original_accuracy: That of the original.
        budget: Largest drop, if the budget is one of accuracy.
    """

    metric: Metric
    cost: int
    epochs: int
    accuracy: float
    original_accuracy: float
    budget: float | None = None

    @property
    def accuracy_to_match(self) -> float:
        """The accuracy at which the two are compared."""
        return find_compared_value(self.metric, self.accuracy, self.original_accuracy, self.budget)


def train_compared(context: RunContext, original: StateDict, target: BaselineTarget) -> None:
    """Train the baselines that are compared with LTP's network, unless they were trained before.

    Args:
        context: The run.
        original: Tensors of the original network.
        target: LTP's network.
    """
    axes = baseline.block_axes_of(context)
    excluded = _find_excluded(context, original, target)
    for point in (1, GRADUAL) if has_gradual(context) else (1,):
        tuned_context = _choose_learning_rate(context, original, target, excluded, point)
        _try_training(tuned_context, original, target, excluded, point, target.cost, axes)


def run(
    context: RunContext,
    original: StateDict,
    target: BaselineTarget,
    reference: MeasuredOriginal | None,
    delivered: str = LTP_METHOD,
) -> MeasuredBaseline | None:
    """Train, export and measure the points of the baseline.

    Args:
        context: The run.
        original: Tensors of the original network.
        target: LTP's network.
        reference: The measured original; None in all processes but the main one.
        delivered: Method of the network whose files are those of the run.

    Returns:
        The measured points; None in all processes but the main one.

    Raises:
        TrainingFailed: The first point could not be trained.
    """
    elements = sum(layer.elements for layer in context.network.layer_weights)
    axes = baseline.block_axes_of(context)
    excluded = _find_excluded(context, original, target)
    original_nonzeros = sum(count_nonzeros(context.network, original).values())
    start = TradeoffPoint(elements / original_nonzeros, target.original_accuracy)
    fewest = baseline.min_cost(context.network, original, excluded, axes)
    measure_point = partial(
        _measure_point, context, original, target, excluded, reference, delivered
    )
    points: list[TradeoffPoint] = []
    measured: list[MeasuredPoint] = []
    cost: int | None = target.cost
    is_curve = True
    while cost is not None:
        number = len(points) + 1
        point = measure_point(number, cost, axes)
        if point is None:
            break
        point_nonzeros, accuracy, result = point
        points.append(TradeoffPoint(elements / point_nonzeros, accuracy))
        if result is not None:
            measured.append(MeasuredPoint(result, accuracy))
        if number == 1:  # a curve is compared with the delivered network
            is_curve = delivered != MAGNITUDE_METHOD and _makes_curve(context)
        cost = None
        if is_curve:
            cost = _next_nonzeros(context, points, start, target, elements / fewest, elements)
    unstructured = None
    if axes and delivered != MAGNITUDE_METHOD:
        point = measure_point(baseline.UNSTRUCTURED, target.cost, NO_BLOCKS)
        if point is not None:
            _, accuracy, result = point
            unstructured = None if result is None else MeasuredPoint(result, accuracy)
    gradual = None
    if has_gradual(context):
        point = measure_point(GRADUAL, target.cost, axes)
        if point is not None:
            _, accuracy, result = point
            gradual = None if result is None else MeasuredPoint(result, accuracy)
    if reference is None:
        return None
    return MeasuredBaseline(
        tuple(measured), is_curve, bool(excluded), bool(axes), unstructured, gradual
    )


def has_gradual(context: RunContext) -> bool:
    """Return whether a gradually pruned network is measured: if requested, or trained before."""
    name = baseline.point_key(GRADUAL, context.settings.baseline)
    is_trained = load_network_info(context.run_directory, name) is not None
    return context.settings.baseline.mode == "gradual" or is_trained


def describe_searches(context: RunContext, epochs: int) -> list[SearchedTraining]:
    """Return the trainings of the baselines whose learning rates are searched for.

    Args:
        context: The run.
        epochs: Number of epochs of each training.
    """
    points = (1, GRADUAL) if has_gradual(context) else (1,)
    return [_describe_search(context, epochs, point) for point in points]


def _describe_search(context: RunContext, epochs: int, point: int | str) -> SearchedTraining:
    """Return the training of a point whose learning rate is searched for.

    All points but that of gradual pruning have the rate of the first one.
    """
    obstacle = None
    if context.settings.method.lambda_ is not None:
        obstacle = "paper mode has no search"
    title = "Baseline"
    if point == GRADUAL:
        title = "Baseline, gradual"
    else:
        point = 1
    name = baseline.point_key(point, context.settings.baseline)
    total_steps = epochs * context.steps_per_epoch
    return SearchedTraining(name, f"{title}, learning rate", total_steps, obstacle)


def _choose_learning_rate(
    context: RunContext,
    original: StateDict,
    target: BaselineTarget,
    excluded: set[str],
    point: int | str,
) -> RunContext:
    """Return the context with the learning rate of a point.

    The rate is searched for at the compression of LTP.
    """
    context = replace(context, resolved=replace(context.resolved, lr=None))
    axes = baseline.block_axes_of(context)

    @cache
    def prune() -> PrunedNetwork:
        return baseline.prune_in_one_shot(context, original, target.cost, excluded, axes)

    def train_trial(trial: RunContext, epochs: int, name: str) -> StateDict:
        if point == GRADUAL:
            return baseline.train_gradual_trial(
                trial, original, target.cost, epochs, name, excluded, axes
            )
        return baseline.train_trial(trial, prune(), epochs, name)

    training = _describe_search(context, target.epochs, point)
    with measure_time(context.run_directory, rate_search.STAGE):
        lr = find_learning_rate(context, training, train_trial)
    return context.with_learning_rate(lr)


def _measure_point(
    context: RunContext,
    original: StateDict,
    target: BaselineTarget,
    excluded: set[str],
    reference: MeasuredOriginal | None,
    delivered: str,
    point: int | str,
    cost: int,
    axes: BlockAxes,
) -> tuple[int, float, MeasuredNetwork | None] | None:
    """Train, export and measure a point of the baseline.

    `point` is its number, counted from 1, or UNSTRUCTURED or GRADUAL.

    Returns:
        Nonzeros, metric on the validation split, and the measured network, which is None in all
        processes but the main one. None if a further point could not be trained.
    """
    context = _choose_learning_rate(context, original, target, excluded, point)
    trained = _try_training(context, original, target, excluded, point, cost, axes)
    if trained is None:
        return None
    network, weights, accuracy = trained
    settings = context.settings.export
    if point not in METHODS:  # one file is enough
        update = {"formats": (settings.comparison_format,), "weight_storage": ()}
        settings = settings.model_copy(update=update)
    folder = "" if METHODS.get(point) == delivered else point_folder(point)
    result = export_and_evaluate(context, network, weights, reference, folder, settings)
    return network.nonzeros, accuracy, result


def _try_training(
    context: RunContext,
    original: StateDict,
    target: BaselineTarget,
    excluded: set[str],
    point: int | str,
    cost: int,
    axes: BlockAxes,
) -> tuple[PrunedNetwork, Weights, float] | None:
    """Train a point of the baseline, or load it if it was trained before.

    Returns:
        The network, its weights as a file has them, and its metric on the validation split; None
        if a point other than the first could not be trained.
    """
    try:
        return _train_point(context, original, point, cost, target.epochs, excluded, axes)
    except TrainingFailed as error:
        # Other processes may not have failed, and would wait for this one.
        if point == 1 or distributed.is_distributed():
            raise
        consequence = "The curve of the baseline ends here"
        if point in SKIPPED_POINTS:
            consequence = f"The {SKIPPED_POINTS[point]} baseline is skipped"
        context.run_directory.progress.say(f"{consequence}: {error.message}")
        return None


def _find_excluded(context: RunContext, original: StateDict, target: BaselineTarget) -> set[str]:
    """Return the layers that the baseline does not prune although LTP does.

    These are the classifier's, with baseline.exclude_classifier. It is pruned all the same if it
    would make up most of the weights that may stay.
    """
    if not context.settings.baseline.exclude_classifier:
        return set()
    excluded = baseline.find_classifier(context)
    axes = baseline.block_axes_of(context)
    fewest = baseline.min_cost(context.network, original, excluded, axes, context.costs)
    if fewest <= MAX_EXCLUDED_FRACTION * target.cost:
        return excluded
    context.run_directory.progress.say(
        "The baseline prunes the classifier too, because it would make up most of the kept weights"
    )
    return set()


def _train_point(
    context: RunContext,
    original: StateDict,
    point: int | str,
    cost: int,
    epochs: int,
    excluded: set[str],
    axes: BlockAxes,
) -> tuple[PrunedNetwork, Weights, float]:
    """Train a point of the baseline, or load it if it was trained before.

    Returns:
        The network, its weights as a file has them, and its metric on the validation split.
    """
    title = point if isinstance(point, str) else baseline.LATER
    if point == 1:
        title = baseline.FIRST
    name = baseline.point_key(point, context.settings.baseline)
    with measure_time(context.run_directory, title):
        saved = load_saved_network(context, name)
        if saved is not None:
            network, weights, info = saved
            return network, weights, info.validation_accuracy
        if point == GRADUAL:
            network = baseline.run_gradual(context, original, cost, epochs, name, excluded, axes)
        else:
            network = baseline.run(context, original, cost, epochs, title, name, excluded, axes)
        accuracy = evaluate_metric(context, network.state, context.data.val)
        weights = save_weights(context, name, network, validation_accuracy=accuracy)
        return network, weights, accuracy


def _makes_curve(context: RunContext) -> bool:
    """Return whether further points are measured.

    With `auto`, the time of the first training decides once, for all processes and for later calls.
    """
    run_directory = context.run_directory
    mode = context.settings.requested_baseline
    if mode == "curve":
        run_directory.update_manifest(curve=True)  # a later `auto` finds its points trained
    if mode == "gradual":  # a curve that was measured before stays
        return bool(run_directory.manifest.curve)
    if mode != "auto":
        return mode == "curve"
    seconds = run_directory.manifest.timings.get(baseline.FIRST, 0.0)
    if run_directory.parent is not None:  # a picked entry may have inherited the baseline
        inherited = run_directory.parent.manifest.timings.get(baseline.FIRST, 0.0)
        seconds = max(seconds, inherited)
    makes_curve = run_directory.manifest.curve
    if makes_curve is None:
        makes_curve = seconds < MAX_CURVE_SECONDS
    makes_curve = bool(distributed.broadcast_from_main(float(makes_curve)))
    run_directory.update_manifest(curve=makes_curve)
    if not makes_curve:
        further_points = MAX_POINTS - 1
        run_directory.progress.say(
            "The baseline is measured at LTP's compression only, because training it took "
            f"{round_duration(seconds)}; --baseline curve adds up to {further_points} points, "
            f"about {round_duration(further_points * seconds)}"
        )
    return makes_curve


def _next_nonzeros(
    context: RunContext,
    points: list[TradeoffPoint],
    start: TradeoffPoint,
    target: BaselineTarget,
    max_compression: float,
    elements: int,
) -> int | None:
    """Return the number of nonzeros of the next point; None if the curve is done.

    A point that was trained before is taken again. Otherwise the search chooses the next one.
    """
    name = baseline.point_key(len(points) + 1, context.settings.baseline)
    if len(points) < MAX_POINTS:
        info = load_network_info(context.run_directory, name)
        if info is not None:
            return info.nonzeros
    metric = target.metric
    near = WIDE_RATIO if target.budget is None else NARROW
    compression = next_compression(
        metric, points, start, target.accuracy_to_match, max_compression, near
    )
    if compression is None:
        return None
    if len(points) == 1:
        context.run_directory.progress.say(
            f"The baseline has {metric.format_value(points[0].value)} on the validation split, LTP "
            f"{metric.format_value(target.accuracy)}: "
            f"up to {MAX_POINTS - 1} more points are measured "
            "(--baseline quick skips them)"
        )
    return round(elements / compression)
