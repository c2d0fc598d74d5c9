"""Which quantised graph is taken: the way that is best on the validation split, with the layers float that it needs.

First the ways: ranges that are part of the file, chosen by each of the methods, and for transformers ranges found at
every run. Where the best one loses more than it may against the float graph, layers stay float: each is left out once,
cheapest first, and those that help most are left out together until the loss is small enough or the trials are used up.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from onnx import NodeProto

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.int8 import not_fused
from ltp_pipeline.exporters.int8.calibration import Calibration, FileEvaluation
from ltp_pipeline.exporters.int8.dynamic import quantize_dynamic
from ltp_pipeline.exporters.int8.layers import LayerSelection, QuantizableLayer, make_no_layer_error
from ltp_pipeline.exporters.int8.ranges import (
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
from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.text import pluralize

DYNAMIC = "dynamic"
BUDGET_FRACTION = 0.3  # of what pruning may lose by default: 0.3 points of a share
NOT_FINITE = "its activations are not finite on the calibration samples"
NOT_DYNAMIC = "it has no form whose ranges are found at every run"
SENSITIVE = "in 8 bits it costs too much accuracy"


@dataclass(frozen=True)
class QuantizedVariant:
    """A quantised graph with what it loses against the float one on the validation split."""

    model: OnnxModel
    method: str  # DYNAMIC, or how ranges were chosen
    layers: tuple[QuantizableLayer, ...]  # that are quantised
    drop: float
    output_distance: float  # of its outputs from those of the float graph, relative
    reasons: Mapping[str, str]  # why other kernels stay float

    @property
    def loss(self) -> tuple[float, float]:
        """By which candidates are ordered: the drop, and where that is the same, how far outputs have moved."""
        return self.drop, self.output_distance


@dataclass
class QuantizationSearch:
    """The search for a quantised graph."""

    model: OnnxModel  # the float one, whose nodes have names
    selection: LayerSelection
    calibration: Calibration
    _range_cache: dict[str, dict[str, ValueRange]] = field(default_factory=dict)  # ranges by method

    def run(self) -> QuantizedVariant:
        """Find it."""
        best = self._find_best_method(self.selection.layers)
        if best.drop > self._max_drop and self.calibration.settings.int8_trials > 0:
            best = self._exclude_layers(best, self._max_drop)
        return replace(best, reasons={**self.selection.reasons, **best.reasons})

    @property
    def extremes(self) -> dict[str, ValueRange]:
        """The smallest and largest values of activations on samples of the training split."""
        return {
            name: ValueRange(seen.low, seen.high)
            for name, seen in self._observers.items()
            if seen.is_finite
        }

    def evaluate_trained(self, candidate: QuantizedVariant, model: OnnxModel) -> QuantizedVariant:
        """The same candidate after training, judged anew."""
        judged = self._evaluate_model(model)
        drop = self.calibration.metric.drop(self._float_evaluation.value, judged.value)
        distance = _measure_distance(judged.outputs, self._float_evaluation.outputs)
        candidate = replace(candidate, model=model, drop=drop, output_distance=distance)
        self._report_variant(candidate, ", trained")
        return candidate

    @property
    def _max_drop(self) -> float:
        given, metric = self.calibration.settings.int8_max_drop, self.calibration.metric
        return (
            BUDGET_FRACTION * metric.default_budget(self._float_evaluation.value)
            if given is None
            else given
        )

    @cached_property
    def _float_evaluation(self) -> FileEvaluation:
        return self._evaluate_model(self.model)

    @cached_property
    def _intermediate_nodes(self) -> list[NodeProto]:
        return find_intermediate_nodes(self.model)

    @cached_property
    def _observers(self) -> dict[str, HistogramObserver]:
        """What activations are on samples of the training split."""
        names = list_observed_values(self.model, self.selection.layers, self._intermediate_nodes)
        return observe_values(
            self.model, names, self.calibration.read_samples(self.calibration.settings.int8_samples)
        )

    def _find_best_method(self, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """The best of all ways; a transformer's ranges are found at every run unless others are better."""
        ways: list[str] = [DYNAMIC] if has_layer_norm_or_attention(self.model) else []
        found = [self._build_variant(way, layers) for way in (*ways, *RANGE_METHODS)]
        candidates = [candidate for candidate in found if candidate.layers]
        if not candidates:
            raise make_no_layer_error({**self.selection.reasons, **found[-1].reasons})
        best = candidates[0]
        for other in candidates[1:]:
            better = other.drop < best.drop if best.method == DYNAMIC else other.loss < best.loss
            best = other if better else best
        for candidate in candidates:
            self._report_variant(candidate)
        return best

    def _build_variant(self, method: str, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """A candidate; one without layers, worse than all others, where none can be quantised so."""
        build = (
            self._build_dynamic
            if method == DYNAMIC
            else partial(self._build_static, method, set[str]())
        )
        if method == DYNAMIC:
            reasons = {
                layer.weight_name: NOT_DYNAMIC for layer in layers if not layer.supports_dynamic
            }
        else:
            reasons = {
                layer.weight_name: NOT_FINITE
                for layer in layers
                if not all(map(self._has_finite_ranges, layer.nodes))
            }
        kept = tuple(layer for layer in layers if layer.weight_name not in reasons)
        made = build(kept) if kept else self.model
        slow = not_fused.find_unfused_layers(
            made, kept
        )  # these would compute in float, from weights made float at every run
        for rounded in (
            (slow, kept) if method != DYNAMIC else ()
        ):  # with products in 8 bits they may not
            if slow:
                build = partial(
                    self._build_static, method, {layer.weight_name for layer in rounded}
                )
                made = build(kept)
                slow = not_fused.find_unfused_layers(made, kept)
        if slow:
            reasons.update((layer.weight_name, not_fused.REASON) for layer in slow)
            kept = tuple(layer for layer in kept if layer.weight_name not in reasons)
            made = build(kept) if kept else self.model
        if not kept:
            return QuantizedVariant(made, method, (), math.inf, math.inf, reasons)
        judged = self._evaluate_model(made)
        drop = self.calibration.metric.drop(self._float_evaluation.value, judged.value)
        return QuantizedVariant(
            made,
            method,
            kept,
            drop,
            _measure_distance(judged.outputs, self._float_evaluation.outputs),
            reasons,
        )

    def _build_dynamic(self, layers: Sequence[QuantizableLayer]) -> OnnxModel:
        return quantize_dynamic(self.model, layers, self.calibration.settings.int8_weight_bits)

    def _build_static(
        self, method: str, rounded: Collection[str], layers: Sequence[QuantizableLayer]
    ) -> OnnxModel:
        others = [node for node in self._intermediate_nodes if self._has_finite_ranges(node)]
        bits = self.calibration.settings.int8_weight_bits
        return quantize_static(self.model, layers, others, self._get_ranges(method), bits, rounded)

    def _get_ranges(self, method: str) -> dict[str, ValueRange]:
        if method not in self._range_cache:
            self._range_cache[method] = {
                name: RANGE_METHODS[method](seen)
                for name, seen in self._observers.items()
                if seen.is_finite
            }
        return self._range_cache[method]

    def _has_finite_ranges(self, node: NodeProto) -> bool:
        """Whether the ranges of what a node reads and makes are known, as far as they were watched."""
        seen = self._observers
        return all(seen[name].is_finite for name in (*node.input, *node.output) if name in seen)

    def _exclude_layers(self, start: QuantizedVariant, limit: float) -> QuantizedVariant:
        """Leave layers float until the drop is within the limit; never worse than it was."""
        most = self.calibration.settings.int8_trials
        cheapest = sorted(start.layers, key=lambda layer: layer.elements)
        alone: list[tuple[tuple[float, float], QuantizableLayer]] = []
        best, trials = start, 0
        for layer in cheapest[: max(most // 2, 1)]:
            candidate = self._build_without(start, {layer.weight_name})
            trials += 1
            alone.append((candidate.loss, layer))
            best = min(best, candidate, key=lambda c: c.loss)
            if best.drop <= limit:
                break
        out = set[str]()
        for _, layer in sorted(alone, key=lambda item: item[0]):
            if best.drop <= limit or trials >= most:
                break
            out.add(layer.weight_name)
            if len(out) == 1:
                continue  # tried already
            candidate = self._build_without(start, out)
            trials += 1
            best = min(best, candidate, key=lambda c: c.loss)
        self._report_variant(best)
        quantised = {layer.weight_name for layer in best.layers}
        left = (layer.weight_name for layer in start.layers if layer.weight_name not in quantised)
        return replace(
            best, reasons={**dict.fromkeys(left, SENSITIVE), **start.reasons, **best.reasons}
        )

    def _build_without(self, start: QuantizedVariant, out: Collection[str]) -> QuantizedVariant:
        return self._build_variant(
            start.method, [layer for layer in start.layers if layer.weight_name not in out]
        )

    def _evaluate_model(self, model: OnnxModel) -> FileEvaluation:
        with temporary_folder("quantize") as folder:
            path = folder / "model.onnx"
            write_model(model, path)
            try:
                return self.calibration.evaluate(path)
            except InputError as error:
                raise ExportFailed(
                    f"the quantised model does not run: {error.message}", error.hint
                ) from None

    def _report_variant(self, candidate: QuantizedVariant, more: str = "") -> None:
        metric = self.calibration.metric
        what = f"int8, {candidate.method}, {pluralize(len(candidate.layers), 'layer')}{more}"
        self.calibration.say(
            f"{what}: drop of {metric.shown_drop(candidate.drop)} on the validation split"
        )


def _measure_distance(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """How far outputs are apart, relative to what they are."""
    with np.errstate(invalid="ignore"):  # infinities
        apart = sum(
            float(np.square(a.astype(np.float64) - b).sum())
            for a, b in zip(found, expected, strict=True)
        )
    size = sum(float(np.square(b.astype(np.float64)).sum()) for b in expected)
    value = (apart / size) ** 0.5 if size > 0 else apart
    return value if np.isfinite(value) else float("inf")
