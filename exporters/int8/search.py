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
from ltp_pipeline.exporters.int8.calibration import Calibration, Judgement
from ltp_pipeline.exporters.int8.dynamic import quantize_dynamic
from ltp_pipeline.exporters.int8.layers import Layers, QuantizableLayer, no_layer
from ltp_pipeline.exporters.int8.ranges import METHODS, HistogramObserver, Range, observe
from ltp_pipeline.exporters.int8.static import between, quantize_static, watched
from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.scratch import scratch_folder
from ltp_pipeline.system.text import pluralize

DYNAMIC = "dynamic"
SHARE_OF_BUDGET = 0.3  # of what pruning may lose by default: 0.3 points of a share
INFINITE = "its activations are not finite on the calibration samples"
NOT_DYNAMIC = "it has no form whose ranges are found at every run"
SENSITIVE = "in 8 bits it costs too much accuracy"


@dataclass(frozen=True)
class QuantizedVariant:
    """A quantised graph with what it loses against the float one on the validation split."""

    model: OnnxModel
    method: str  # DYNAMIC, or how ranges were chosen
    layers: tuple[QuantizableLayer, ...]  # that are quantised
    drop: float
    distance: float  # of its outputs from those of the float graph, relative
    reasons: Mapping[str, str]  # why other kernels stay float

    @property
    def loss(self) -> tuple[float, float]:
        """By which candidates are ordered: the drop, and where that is the same, how far outputs have moved."""
        return self.drop, self.distance


@dataclass
class QuantizationSearch:
    """The search for a quantised graph."""

    model: OnnxModel  # the float one, whose nodes have names
    found: Layers
    calibration: Calibration
    _known: dict[str, dict[str, Range]] = field(default_factory=dict)  # ranges by method

    def run(self) -> QuantizedVariant:
        """Find it."""
        best = self._best_way(self.found.found)
        if best.drop > self._limit and self.calibration.settings.int8_trials > 0:
            best = self._leave_out(best, self._limit)
        return replace(best, reasons={**self.found.reasons, **best.reasons})

    @property
    def extremes(self) -> dict[str, Range]:
        """The smallest and largest values of activations on samples of the training split."""
        return {
            name: Range(seen.low, seen.high) for name, seen in self._seen.items() if seen.finite
        }

    def again(self, candidate: QuantizedVariant, model: OnnxModel) -> QuantizedVariant:
        """The same candidate after training, judged anew."""
        judged = self._judged(model)
        drop = self.calibration.metric.drop(self._float.value, judged.value)
        distance = _distance(judged.outputs, self._float.outputs)
        candidate = replace(candidate, model=model, drop=drop, distance=distance)
        self._tell(candidate, ", trained")
        return candidate

    @property
    def _limit(self) -> float:
        given, metric = self.calibration.settings.int8_max_drop, self.calibration.metric
        return (
            SHARE_OF_BUDGET * metric.default_budget(self._float.value) if given is None else given
        )

    @cached_property
    def _float(self) -> Judgement:
        return self._judged(self.model)

    @cached_property
    def _between(self) -> list[NodeProto]:
        return between(self.model)

    @cached_property
    def _seen(self) -> dict[str, HistogramObserver]:
        """What activations are on samples of the training split."""
        names = watched(self.model, self.found.found, self._between)
        return observe(
            self.model, names, self.calibration.feeds(self.calibration.settings.int8_samples)
        )

    def _best_way(self, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """The best of all ways; a transformer's ranges are found at every run unless others are better."""
        ways: list[str] = [DYNAMIC] if has_layer_norm_or_attention(self.model) else []
        found = [self._made(way, layers) for way in (*ways, *METHODS)]
        candidates = [candidate for candidate in found if candidate.layers]
        if not candidates:
            raise no_layer({**self.found.reasons, **found[-1].reasons})
        best = candidates[0]
        for other in candidates[1:]:
            better = other.drop < best.drop if best.method == DYNAMIC else other.loss < best.loss
            best = other if better else best
        for candidate in candidates:
            self._tell(candidate)
        return best

    def _made(self, method: str, layers: Sequence[QuantizableLayer]) -> QuantizedVariant:
        """A candidate; one without layers, worse than all others, where none can be quantised so."""
        build = self._dynamic if method == DYNAMIC else partial(self._static, method, set[str]())
        if method == DYNAMIC:
            reasons = {layer.kernel: NOT_DYNAMIC for layer in layers if not layer.is_dynamic}
        else:
            reasons = {
                layer.kernel: INFINITE for layer in layers if not all(map(self._knows, layer.nodes))
            }
        kept = tuple(layer for layer in layers if layer.kernel not in reasons)
        made = build(kept) if kept else self.model
        slow = not_fused.find_unfused_layers(
            made, kept
        )  # these would compute in float, from weights made float at every run
        for rounded in (
            (slow, kept) if method != DYNAMIC else ()
        ):  # with products in 8 bits they may not
            if slow:
                build = partial(self._static, method, {layer.kernel for layer in rounded})
                made = build(kept)
                slow = not_fused.find_unfused_layers(made, kept)
        if slow:
            reasons.update((layer.kernel, not_fused.REASON) for layer in slow)
            kept = tuple(layer for layer in kept if layer.kernel not in reasons)
            made = build(kept) if kept else self.model
        if not kept:
            return QuantizedVariant(made, method, (), math.inf, math.inf, reasons)
        judged = self._judged(made)
        drop = self.calibration.metric.drop(self._float.value, judged.value)
        return QuantizedVariant(
            made, method, kept, drop, _distance(judged.outputs, self._float.outputs), reasons
        )

    def _dynamic(self, layers: Sequence[QuantizableLayer]) -> OnnxModel:
        return quantize_dynamic(self.model, layers, self.calibration.settings.int8_weights)

    def _static(
        self, method: str, rounded: Collection[str], layers: Sequence[QuantizableLayer]
    ) -> OnnxModel:
        others = [node for node in self._between if self._knows(node)]
        bits = self.calibration.settings.int8_weights
        return quantize_static(self.model, layers, others, self._ranges(method), bits, rounded)

    def _ranges(self, method: str) -> dict[str, Range]:
        if method not in self._known:
            self._known[method] = {
                name: METHODS[method](seen) for name, seen in self._seen.items() if seen.finite
            }
        return self._known[method]

    def _knows(self, node: NodeProto) -> bool:
        """Whether the ranges of what a node reads and makes are known, as far as they were watched."""
        seen = self._seen
        return all(seen[name].finite for name in (*node.input, *node.output) if name in seen)

    def _leave_out(self, start: QuantizedVariant, limit: float) -> QuantizedVariant:
        """Leave layers float until the drop is within the limit; never worse than it was."""
        most = self.calibration.settings.int8_trials
        cheapest = sorted(start.layers, key=lambda layer: layer.elements)
        alone: list[tuple[tuple[float, float], QuantizableLayer]] = []
        best, trials = start, 0
        for layer in cheapest[: max(most // 2, 1)]:
            candidate = self._without(start, {layer.kernel})
            trials += 1
            alone.append((candidate.loss, layer))
            best = min(best, candidate, key=lambda c: c.loss)
            if best.drop <= limit:
                break
        out = set[str]()
        for _, layer in sorted(alone, key=lambda item: item[0]):
            if best.drop <= limit or trials >= most:
                break
            out.add(layer.kernel)
            if len(out) == 1:
                continue  # tried already
            candidate = self._without(start, out)
            trials += 1
            best = min(best, candidate, key=lambda c: c.loss)
        self._tell(best)
        quantised = {layer.kernel for layer in best.layers}
        left = (layer.kernel for layer in start.layers if layer.kernel not in quantised)
        return replace(
            best, reasons={**dict.fromkeys(left, SENSITIVE), **start.reasons, **best.reasons}
        )

    def _without(self, start: QuantizedVariant, out: Collection[str]) -> QuantizedVariant:
        return self._made(
            start.method, [layer for layer in start.layers if layer.kernel not in out]
        )

    def _judged(self, model: OnnxModel) -> Judgement:
        with scratch_folder("quantize") as folder:
            path = folder / "model.onnx"
            write(model, path)
            try:
                return self.calibration.judge(path)
            except InputError as error:
                raise ExportFailed(
                    f"the quantised model does not run: {error.message}", error.hint
                ) from None

    def _tell(self, candidate: QuantizedVariant, more: str = "") -> None:
        metric = self.calibration.metric
        what = f"int8, {candidate.method}, {pluralize(len(candidate.layers), 'layer')}{more}"
        self.calibration.say(
            f"{what}: drop of {metric.shown_drop(candidate.drop)} on the validation split"
        )


def _distance(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """How far outputs are apart, relative to what they are."""
    with np.errstate(invalid="ignore"):  # infinities
        apart = sum(
            float(np.square(a.astype(np.float64) - b).sum())
            for a, b in zip(found, expected, strict=True)
        )
    size = sum(float(np.square(b.astype(np.float64)).sum()) for b in expected)
    value = (apart / size) ** 0.5 if size > 0 else apart
    return value if np.isfinite(value) else float("inf")
