"""Search for the quantized graph that is best on the validation split.

First the methods are compared: ranges stored in the file, chosen by each of RANGE_METHODS, and for
transformers also ranges that are computed at every run. If the best variant loses more accuracy
than allowed, layers are excluded from quantization: each alone at first, small ones before large
ones, then those that help most together, until the loss is small enough or all trials are used.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.files.run_proof import EXTENDED_OPTIMIZATIONS, Feeds, optimize_model
from ltp_pipeline.exporters.int8.dynamic import quantize_dynamic
from ltp_pipeline.exporters.int8.layers import (
    QUANTIZED_SUFFIX,
    SKIP_HINT,
    LayerSelection,
    QuantizableLayer,
    make_no_layer_error,
)
from ltp_pipeline.exporters.int8.ranges import (
    MIN_MAX,
    RANGE_METHODS,
    HistogramObserver,
    ValueRange,
    observe_values,
)
from ltp_pipeline.exporters.int8.static import (
    find_intermediate_nodes,
    list_observed_values,
    quantize_static,
)
from ltp_pipeline.exporters.int8.training_graph import FakeQuantGraph, QatResult
from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.text import pluralize

DYNAMIC = "dynamic"
BUDGET_FRACTION = 0.3  # default loss, as a fraction of the default accuracy budget of pruning
NOT_FINITE = "has activations that are not finite on the calibration samples"
NOT_DYNAMIC = "has no form that computes ranges at every run"
UNFUSED = "is not run in 8 bits by onnxruntime"
SENSITIVE = "loses too much accuracy in 8 bits"


class FileEvaluation(NamedTuple):
    """Result of a file on the validation split."""

    value: float  # of the metric
    outputs: Sequence[Array]  # for some samples, those outputs that the metric uses


@dataclass(frozen=True)
class Calibration:
    """Samples of the training split, and the evaluation of files on the validation split."""

    read_samples: Callable[[int], Iterator[Feeds]]  # yields this number of samples, in batches
    evaluate: Callable[[Path], FileEvaluation]
    metric: Metric
    settings: ExportSettings
    say: Callable[[str], None] = lambda _: None  # shows a line of progress
    # Quantization-aware training; None without.
    train: Callable[[FakeQuantGraph, Sequence[QuantizableLayer]], QatResult] | None = None


@dataclass(frozen=True)
class QuantizedVariant:
    """A quantized graph and how much worse it is than the float graph on the validation split."""

    model: OnnxModel
    method: str  # DYNAMIC or a key of RANGE_METHODS
    layers: tuple[QuantizableLayer, ...]  # those that are quantized
    drop: float  # of the metric
    output_distance: float  # of its outputs from those of the float graph, relative
    reasons: Mapping[str, str]  # why other layer weights stay float, by name

    @property
    def loss(self) -> tuple[float, float]:
        """Order of variants: the drop, then the distance of outputs."""
        return self.drop, self.output_distance


@dataclass
class QuantizationSearch:
    """The search for a quantized graph."""

    model: OnnxModel  # the float graph; its nodes have unique names
    selection: LayerSelection
    calibration: Calibration
    _range_cache: dict[str, dict[str, ValueRange]] = field(default_factory=dict)  # by method

    def run(self) -> QuantizedVariant:
        """Return the best variant, with the reasons of all layer weights that stay float.

        Raises:
            UnsupportedModel: If no method can quantize a layer.
            ExportFailed: If a quantized graph does not run.
        """
        best = self._find_best_method(self.selection.layers)
        if best.drop > self._max_drop and self.calibration.settings.int8_trials > 0:
            best = self._exclude_layers(best)
        return replace(best, reasons={**self.selection.reasons, **best.reasons})

    @property
    def extremes(self) -> dict[str, ValueRange]:
        """Smallest and largest values of activations on samples of the training split."""
        return self._get_ranges(MIN_MAX)

    def evaluate_trained(self, variant: QuantizedVariant, model: OnnxModel) -> QuantizedVariant:
        """Return a variant with the graph that training has made of it, evaluated again."""
        drop, distance = self._compare_with_float(model)
        trained = replace(variant, model=model, drop=drop, output_distance=distance)
        self._report_variant(trained, ", trained")
        return trained

    @property
    def _max_drop(self) -> float:
        """Largest drop that is accepted without a search for layers to exclude."""
        max_drop = self.calibration.settings.int8_max_drop
        if max_drop is not None:
            return max_drop
        metric = self.calibration.metric
        return BUDGET_FRACTION * metric.default_budget(self._float_evaluation.value)

    @cached_property
    def _float_evaluation(self) -> FileEvaluation:
        return self._evaluate_model(self.model)

    @cached_property
    def _intermediate_nodes(self) -> list[NodeProto]:
        return find_intermediate_nodes(self.model)

    @cached_property
    def _observers(self) -> dict[str, HistogramObserver]:
        """Observers of activations on samples of the training split, by name."""
        names = list_observed_values(self.model, self.selection.layers, self._intermediate_nodes)
        samples = self.calibration.read_samples(self.calibration.settings.int8_samples)
        return observe_values(self.model, names, samples)

    def _find_best_method(self, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """Return the best variant over all methods.

        The dynamic variant of a transformer is only replaced by one with a smaller drop.
        """
        methods = list(RANGE_METHODS)
        if has_layer_norm_or_attention(self.model):
            methods.insert(0, DYNAMIC)
        all_variants = [self._build_variant(method, layers) for method in methods]
        variants = [variant for variant in all_variants if variant.layers]
        if not variants:
            raise make_no_layer_error({**self.selection.reasons, **all_variants[-1].reasons})
        best = variants[0]
        for variant in variants:
            self._report_variant(variant)
            if best.method == DYNAMIC:
                is_better = variant.drop < best.drop
            else:
                is_better = variant.loss < best.loss
            if is_better:
                best = variant
        return best

    def _build_variant(self, method: str, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """Quantize the layers that a method can quantize, and evaluate the graph.

        Returns:
            The variant. Without any layer its drop is infinite.
        """
        reasons: dict[str, str] = {}
        for layer in layers:
            if method == DYNAMIC and not layer.supports_dynamic:
                reasons[layer.weight_name] = NOT_DYNAMIC
            elif method != DYNAMIC and not all(map(self._has_finite_ranges, layer.nodes)):
                reasons[layer.weight_name] = NOT_FINITE
        selected = [layer for layer in layers if layer.weight_name not in reasons]
        rounded: set[str] = set()
        model = self._quantize(method, selected, rounded)
        unfused = _find_unfused_layers(model, selected)
        if method != DYNAMIC:
            # onnxruntime may run a layer in 8 bits if its product is rounded too: first those
            # of the layers that it does not fuse, then all.
            for candidates in (unfused, selected):
                if unfused:
                    rounded = {layer.weight_name for layer in candidates}
                    model = self._quantize(method, selected, rounded)
                    unfused = _find_unfused_layers(model, selected)
        if unfused:
            # These would compute in float, from weights converted to float at every run.
            reasons.update((layer.weight_name, UNFUSED) for layer in unfused)
            selected = [layer for layer in selected if layer.weight_name not in reasons]
            model = self._quantize(method, selected, rounded)
        if not selected:
            return QuantizedVariant(model, method, (), math.inf, math.inf, reasons)
        drop, distance = self._compare_with_float(model)
        return QuantizedVariant(model, method, tuple(selected), drop, distance, reasons)

    def _quantize(
        self, method: str, layers: Sequence[QuantizableLayer], rounded: Collection[str]
    ) -> OnnxModel:
        """Return the graph with layers in 8 bits; the float graph without layers."""
        bits = self.calibration.settings.int8_weight_bits
        if not layers:
            return self.model
        if method == DYNAMIC:
            return quantize_dynamic(self.model, layers, bits)
        nodes = [node for node in self._intermediate_nodes if self._has_finite_ranges(node)]
        return quantize_static(self.model, layers, nodes, self._get_ranges(method), bits, rounded)

    def _get_ranges(self, method: str) -> dict[str, ValueRange]:
        """Return the ranges of activations by a method; compute them only once."""
        if method not in self._range_cache:
            choose_range = RANGE_METHODS[method]
            self._range_cache[method] = {
                name: choose_range(observer)
                for name, observer in self._observers.items()
                if observer.is_finite
            }
        return self._range_cache[method]

    def _has_finite_ranges(self, node: NodeProto) -> bool:
        """Return true if all observed inputs and outputs of a node are finite."""
        observers = map(self._observers.get, [*node.input, *node.output])
        return all(observer is None or observer.is_finite for observer in observers)

    def _exclude_layers(self, start: QuantizedVariant) -> QuantizedVariant:
        """Exclude layers from quantization until the drop is accepted.

        Returns:
            The best variant that was found, which may be the first one.
        """
        max_trials = self.calibration.settings.int8_trials
        smallest_first = sorted(start.layers, key=lambda layer: layer.elements)
        losses: list[tuple[tuple[float, float], QuantizableLayer]] = []  # of each layer alone
        best = start
        for layer in smallest_first[: max(max_trials // 2, 1)]:
            variant = self._build_without(start, {layer.weight_name})
            losses.append((variant.loss, layer))
            best = min(best, variant, key=lambda v: v.loss)
            if best.drop <= self._max_drop:
                break
        num_trials = len(losses)
        excluded = set[str]()
        for _, layer in sorted(losses, key=lambda item: item[0]):
            if best.drop <= self._max_drop or num_trials >= max_trials:
                break
            excluded.add(layer.weight_name)
            if len(excluded) == 1:
                continue  # was tried alone
            variant = self._build_without(start, excluded)
            num_trials += 1
            best = min(best, variant, key=lambda v: v.loss)
        self._report_variant(best)
        quantized_names = {layer.weight_name for layer in best.layers}
        reasons = {}
        for layer in start.layers:
            if layer.weight_name not in quantized_names:
                reasons[layer.weight_name] = SENSITIVE
        return replace(best, reasons={**reasons, **start.reasons, **best.reasons})

    def _build_without(
        self, start: QuantizedVariant, excluded: Collection[str]
    ) -> QuantizedVariant:
        """Return a variant without some layers, by the names of their weights."""
        layers = [layer for layer in start.layers if layer.weight_name not in excluded]
        return self._build_variant(start.method, layers)

    def _compare_with_float(self, model: OnnxModel) -> tuple[float, float]:
        """Return the drop of the metric against the float graph, and the distance of outputs."""
        evaluation = self._evaluate_model(model)
        drop = self.calibration.metric.compute_drop(self._float_evaluation.value, evaluation.value)
        return drop, _measure_distance(evaluation.outputs, self._float_evaluation.outputs)

    def _evaluate_model(self, model: OnnxModel) -> FileEvaluation:
        """Evaluate a graph on the validation split."""
        with temporary_folder("quantize") as folder:
            path = folder / "model.onnx"
            write_model(model, path)
            try:
                return self.calibration.evaluate(path)
            except InputError as error:
                raise ExportFailed(
                    f"the quantized model does not run: {error.message}", error.hint
                ) from None

    def _report_variant(self, variant: QuantizedVariant, remark: str = "") -> None:
        """Show a line of progress."""
        layers = pluralize(len(variant.layers), "layer")
        drop = self.calibration.metric.format_drop(variant.drop)
        self.calibration.say(
            f"int8, {variant.method}, {layers}{remark}: drop of {drop} on the validation split"
        )


def _find_unfused_layers(
    model: OnnxModel, layers: Sequence[QuantizableLayer]
) -> list[QuantizableLayer]:
    """Return the layers whose weights onnxruntime would convert to float at every run."""
    graph = optimize_model(model, EXTENDED_OPTIMIZATIONS, SKIP_HINT)
    dequantized = {node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    return [layer for layer in layers if layer.weight_name + QUANTIZED_SUFFIX in dequantized]


def _measure_distance(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the distance of outputs, relative to their norm; infinite if it is not finite."""
    squared_distance = 0.0
    squared_norm = 0.0
    with np.errstate(invalid="ignore"):  # differences of infinities
        for a, b in zip(actual, expected, strict=True):
            squared_distance += float(np.square(a.astype(np.float64) - b).sum())
            squared_norm += float(np.square(b.astype(np.float64)).sum())
    distance = squared_distance
    if squared_norm > 0:
        distance = (squared_distance / squared_norm) ** 0.5
    return distance if np.isfinite(distance) else math.inf
