"""A user's own task as training and measuring see it; the original stands in for what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import mean_interval, replicate_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import AccuracyResult
from ltp_pipeline.results.schema_parts import TaskSummary
from ltp_pipeline.system import random_state
from ltp_pipeline.tasks.custom import describe_value, is_numeric, to_array
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.custom import CustomTask
    from ltp_pipeline.tasks.distillation import DistillationTask
    from ltp_pipeline.tasks.protocol import SplitLabels

REPLICATES = 50  # of a metric that is no mean, by which its interval is told


@dataclass(frozen=True)
class CustomTaskAdapter:
    """Their loss and metric; `imitation` stands in for what they did not write."""

    custom: CustomTask
    distillation: DistillationTask
    replicates: int = REPLICATES

    has_unbounded_gradient = True  # nobody knows

    @property
    def metric(self) -> Metric:
        """Theirs, or how near the original is."""
        return (
            self.custom.metric if self._has_score or self._has_measure else self.distillation.metric
        )

    def describe_output(self) -> TaskSummary:
        """What nobody but the user knows."""
        return TaskSummary("own")

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """All that have a row per sample."""
        return self.distillation.outputs

    @property
    def is_distilled(self) -> bool:
        """Whether there is no loss but the distance from the original."""
        return not self.custom.has_function("loss")

    @property
    def is_relative(self) -> bool:
        """Whether nearness to the original is what is measured."""
        return not self._has_score and not self._has_measure

    @property
    def is_per_sample(self) -> bool:
        """Whether each sample has a score of its own."""
        return not self._has_measure

    @property
    def without_interval(self) -> CustomTaskAdapter:
        """Without what only an interval needs."""
        return replace(self, replicates=0)

    @property
    def _has_score(self) -> bool:
        return self.custom.has_function("score")

    @property
    def _has_measure(self) -> bool:
        return self.custom.has_function("measure") and not self._has_score

    def compute_loss(
        self, outputs: Sequence[Tensor], targets: Mapping[str, Any], taught: Sequence[Tensor] | None
    ) -> Tensor:
        """Theirs; it must be one number, and have a gradient where one is asked for."""
        import torch

        if self.is_distilled:
            return self.distillation.compute_loss(outputs, targets, taught)
        loss = self._call_loss(outputs, targets)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise self._missing_gradient_error()
        return loss

    def _call_loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Any]) -> Tensor:
        import torch

        loss = self.custom.call_function(
            "loss", self._name_outputs(outputs), dict(targets), drawn=("loss", torch.initial_seed())
        )
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            told = (
                f"a tensor of shape {tuple(loss.shape)}"
                if isinstance(loss, torch.Tensor)
                else describe_value(loss)
            )
            raise InputError(
                f"loss of {self.custom.origin} returns {told}, not one number",
                "return its mean, a tensor",
            )
        return loss.reshape(())

    def _missing_gradient_error(self) -> InputError:
        return InputError(
            f"loss of {self.custom.origin} has no gradient: it does not follow from the outputs by operations of torch",
            "no detach(), item(), argmax() or numpy on the way; if nothing is to be learned, outputs[NAME].sum() * 0",
        )

    def check_functions(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        """Call their loss and metric once, before anything is trained."""
        if not self.is_distilled:
            self._check_loss(outputs, batch)
        arrays = [y.float().cpu().numpy() for y in outputs]
        judged = [EvaluatedBatch(arrays, batch, arrays)]
        if self._has_measure:
            self.without_interval._measure_replicates(judged, on_few=True)
        else:
            self.without_interval.compute_metric(
                self.without_interval.sample_statistics(judged, [1.0] * len(arrays)), "train"
            )

    def _check_loss(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        import torch

        with torch.inference_mode(False), torch.enable_grad():
            leaves = [y.detach().clone().requires_grad_() for y in outputs]
            loss = self._call_loss([y.clone() for y in leaves], _to_tensors(batch.targets))
            value = float(loss.detach())
            if not np.isfinite(value):
                raise InputError(
                    f"loss of {self.custom.origin} is {value} on the first samples",
                    "return a finite number",
                )
            with self.custom.report_errors("gradient of loss"):
                found = (
                    torch.autograd.grad(loss, leaves, allow_unused=True)
                    if loss.requires_grad
                    else [None]
                )
        if all(gradient is None for gradient in found):
            raise self._missing_gradient_error()

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """For nearness to the original."""
        return self.distillation.compute_scales(originals, samples)

    def sample_statistics(self, judged: Iterable[EvaluatedBatch], scale: Sequence[float]) -> Array:
        """A score for each sample; or the metric of all, and of samples drawn anew."""
        if self._has_score:
            return np.concatenate(
                [
                    self._score_batch(i, outputs, batch)
                    for i, (outputs, batch, _) in enumerate(judged)
                ]
            )
        if self._has_measure:
            return self._measure_replicates(judged)
        return self.distillation.sample_statistics(judged, scale)

    def _score_batch(self, number: int, outputs: Sequence[Array], batch: Batch) -> Array:
        given = self._name_outputs(_to_tensors(outputs)), _to_tensors(batch.targets)
        scores = self.custom.call_function("score", *given, drawn=("score", number))
        each = self._to_finite_array("score", scores, "return one number for each sample")
        if each.shape != (len(batch),):
            what = (
                f"score of {self.custom.origin} returns shape {each.shape} for {len(batch)} samples"
            )
            raise InputError(what, "return one number for each sample")
        return each

    def _to_finite_array(
        self, part: str, given: Any, remedy: str, may_be_undefined: bool = False
    ) -> Array:
        """What a part of theirs returns; it must be numbers, finite ones where they may not be undefined."""
        try:
            found = to_array(given)
        except (TypeError, ValueError):  # lists of uneven length
            found = np.array(None)
        if not is_numeric(found):
            raise InputError(
                f"{part} of {self.custom.origin} returns {describe_value(given)}, not numbers",
                remedy,
            )
        if not (may_be_undefined or np.isfinite(found).all()):
            what = f"{part} of {self.custom.origin} returns {found[~np.isfinite(found)].flat[0]}"
            raise InputError(what, "return finite numbers")
        return found.astype(np.float64)

    def _measure_replicates(self, batches: Iterable[EvaluatedBatch], on_few: bool = False) -> Array:
        """The metric, and that of each replicate: there a sample counts as often as a Poisson number says.

        So the outputs need not be kept, and two networks have the same replicates. These may be undefined, and so may
        be the metric of a few samples.
        """
        rng, samples = np.random.default_rng(0), 0
        meters = [self._make_metric() for _ in range(1 + self.replicates)]
        for number, (outputs, batch, _) in enumerate(batches):
            samples += len(batch)
            found, whole = self._name_outputs(_to_tensors(outputs)), _to_tensors(batch.targets)
            counts = rng.poisson(1.0, (self.replicates, len(batch)))
            drawn = [
                np.arange(len(batch)),
                *(np.repeat(np.arange(len(batch)), times) for times in counts),
            ]
            for meter, rows in zip(meters, drawn, strict=True):
                if len(rows):
                    with (
                        self.custom.report_errors("update"),
                        random_state.isolate_rng("update", number),
                    ):
                        meter.update(_select_rows(found, rows), _select_rows(whole, rows))
        may_be_undefined = [on_few] + [True] * self.replicates
        return np.array(
            [
                (self._compute_value(*each), samples)
                for each in zip(meters, may_be_undefined, strict=True)
            ]
        )

    def _make_metric(self) -> Any:
        found = self.custom.call_function("measure", drawn=("measure",))
        if isinstance(found, type):
            what = (
                f"measure of {self.custom.origin} returns {describe_value(found)}, no object of it"
            )
            raise InputError(what, f"return {found.__name__}(), a new one each time")
        for part in ("update", "compute"):
            if not callable(getattr(found, part, None)):
                what = f"measure of {self.custom.origin} returns {describe_value(found)}, which has no {part}"
                raise InputError(what, "return an object with update(outputs, batch) and compute()")
        return found

    def _compute_value(self, meter: Any, may_be_undefined: bool) -> float:
        """Their metric; NaN where it may be undefined, and is no number or fails as such metrics do."""
        with self.custom.report_errors("compute"), random_state.isolate_rng("compute"):
            try:
                value = meter.compute()
            except (ArithmeticError, ValueError):
                if not may_be_undefined:
                    raise
                return np.nan
        found = self._to_finite_array("compute", value, "return one number", may_be_undefined)
        if found.size != 1:
            raise InputError(
                f"compute of {self.custom.origin} returns shape {found.shape}", "return one number"
            )
        return float(found.item()) if np.isfinite(found).all() else np.nan

    def compute_metric(self, evidence: Array, split: str) -> AccuracyResult:
        """Their metric."""
        if self._has_score:
            return AccuracyResult(float(evidence.mean()), None, None, len(evidence), split)
        if self._has_measure:
            value, samples = evidence[0].tolist()
            return AccuracyResult(value, None, None, int(samples), split)
        return self.distillation.compute_metric(evidence, split)

    def correct_samples(self, evidence: Array) -> Array | None:
        """Known where nearness to the original is measured; a score of theirs may be any number."""
        return self.distillation.correct_samples(evidence) if self.is_relative else None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """Of the drop, which is positive where the second is worse."""
        if self.is_relative:
            return self.distillation.compute_drop_interval(before, after, confidence)
        better = 1 if self.metric.higher_is_better else -1
        if self._has_score:
            return mean_interval(better * before, better * after, confidence)
        return replicate_interval(better * before[:, 0], better * after[:, 0], confidence)

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """Known only where nearness to it is measured."""
        return self.distillation.get_original_result(samples, split) if self.is_relative else None

    def chance_level(self, split: SplitLabels) -> None:
        """Nobody knows."""

    def _name_outputs(self, outputs: Sequence[Any]) -> dict[str, Any]:
        return {output.name: y for output, y in zip(self.outputs, outputs, strict=True)}


def _to_tensors(values: Any) -> Any:
    """Arrays, or lists or dicts of them, as tensors."""
    import torch

    if isinstance(values, Mapping):
        return {name: _to_tensors(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_to_tensors(value) for value in values]
    return torch.as_tensor(values)


def _select_rows(values: Mapping[str, Any], rows: Array) -> dict[str, Any]:
    """These samples of a batch."""
    return {
        name: [v[i] for i in rows] if isinstance(v, list) else v[rows] for name, v in values.items()
    }
