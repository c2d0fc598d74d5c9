"""Adapter from the user's own loss and metric to the interface of a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.data.dataset import Batch, Split
from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import mean_interval, replicate_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema_parts import AccuracyResult, TaskSummary
from ltp_pipeline.system import random_state
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.tasks.custom import CustomTask, describe_value, is_numeric, to_array
from ltp_pipeline.tasks.distillation import DistillationTask
from ltp_pipeline.tasks.protocol import EvaluatedBatch, TaskOutput

if TYPE_CHECKING:
    from torch import Tensor

NUM_REPLICATES = 50  # bootstrap replicates for the interval of a metric that is no mean
LOSS_HINT = (
    "avoid detach(), item(), argmax() and numpy; if nothing is to be learned, return "
    "outputs[NAME].sum() * 0"
)


@dataclass(frozen=True)
class CustomTaskAdapter:
    """The user's task; distillation replaces the parts that it does not have.

    Attributes:
        custom: The user's task.
        distillation: Distillation from the original.
        num_replicates: Number of bootstrap replicates of `measure`.
    """

    custom: CustomTask
    distillation: DistillationTask
    num_replicates: int = NUM_REPLICATES

    has_unbounded_gradient = True  # nothing is known about the user's loss

    @property
    def metric(self) -> Metric:
        """The user's metric; without `score` and `measure`, that of distillation."""
        return self.distillation.metric if self.is_relative else self.custom.metric

    @property
    def outputs(self) -> tuple[TaskOutput, ...]:
        """All floating-point outputs with a row per sample."""
        return self.distillation.outputs

    @property
    def is_distilled(self) -> bool:
        """Whether the task has no loss, so that the network is distilled from the original."""
        return not self.custom.has_function("loss")

    @property
    def is_relative(self) -> bool:
        """Whether the task has neither `score` nor `measure`."""
        return not self._has_score and not self._has_measure

    @property
    def is_per_sample(self) -> bool:
        """Whether each sample has a score of its own."""
        return not self._has_measure

    @property
    def without_interval(self) -> CustomTaskAdapter:
        """The task without bootstrap replicates."""
        return replace(self, num_replicates=0)

    @property
    def _has_score(self) -> bool:
        return self.custom.has_function("score")

    @property
    def _has_measure(self) -> bool:
        return self.custom.has_function("measure") and not self._has_score

    def describe_output(self) -> TaskSummary:
        """Return the summary of the task for the report."""
        return TaskSummary("custom")

    def check_functions(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        """Call loss and metric once, before anything is trained.

        Args:
            outputs: Outputs of the original for the batch.
            batch: Some training samples.

        Raises:
            InputError: A function returns something unexpected.
            TaskFailed: A function fails.
        """
        if not self.is_distilled:
            self._check_loss(outputs, batch)
        arrays = [output.float().cpu().numpy() for output in outputs]
        batches = [EvaluatedBatch(arrays, batch, arrays)]
        task = self.without_interval
        if self._has_measure:
            task._measure_replicates(batches, may_be_undefined=True)
        else:
            scales = [1.0] * len(arrays)
            task.compute_metric(task.sample_statistics(batches, scales), "train")

    def _check_loss(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        """Raise InputError if the loss of a batch is not finite or has no gradient."""
        import torch

        with torch.inference_mode(False), torch.enable_grad():
            leaves = [output.detach().clone().requires_grad_() for output in outputs]
            loss = self._call_loss([leaf.clone() for leaf in leaves], _to_tensors(batch.targets))
            value = float(loss.detach())
            if not np.isfinite(value):
                raise InputError(
                    f"loss of {self.custom.origin} is {value} on the first samples",
                    "return a finite number",
                )
            if not loss.requires_grad:
                raise self._missing_gradient_error()
            with self.custom.report_errors("gradient of loss"):
                gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        if all(gradient is None for gradient in gradients):
            raise self._missing_gradient_error()

    def compute_loss(
        self,
        outputs: Sequence[Tensor],
        targets: Mapping[str, Any],
        teacher_outputs: Sequence[Tensor] | None,
    ) -> Tensor:
        """Return the user's loss, or that of distillation; see `Task.compute_loss`."""
        import torch

        if self.is_distilled:
            return self.distillation.compute_loss(outputs, targets, teacher_outputs)
        loss = self._call_loss(outputs, targets)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise self._missing_gradient_error()
        return loss

    def _call_loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Any]) -> Tensor:
        """Return the user's loss; raise InputError if it is not one number."""
        import torch

        arguments = (self._name_outputs(outputs), dict(targets))
        seed_parts = ("loss", torch.initial_seed())
        loss = self.custom.call_function("loss", *arguments, seed_parts=seed_parts)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            return loss.reshape(())
        returned = describe_value(loss)
        if isinstance(loss, torch.Tensor):
            returned = f"a tensor of shape {tuple(loss.shape)}"
        raise InputError(
            f"loss of {self.custom.origin} returns {returned}, not one number",
            "return a tensor with one value, such as the mean over the batch",
        )

    def _missing_gradient_error(self) -> InputError:
        """Return the error of a loss without a gradient."""
        return InputError(
            f"loss of {self.custom.origin} has no gradient: it is not computed from the outputs by "
            "operations of torch",
            LOSS_HINT,
        )

    def compute_scales(self, originals: Iterable[EvaluatedBatch], samples: int) -> Sequence[float]:
        """Return the scales of distillation; see `Task.compute_scales`."""
        return self.distillation.compute_scales(originals, samples)

    def sample_statistics(
        self, batches: Iterable[EvaluatedBatch], scales: Sequence[float]
    ) -> Array:
        """Return scores of samples, or the metric of all samples and of bootstrap replicates."""
        if self._has_score:
            scores = [self._score_batch(i, batch) for i, batch in enumerate(batches)]
            return np.concatenate(scores)
        if self._has_measure:
            return self._measure_replicates(batches)
        return self.distillation.sample_statistics(batches, scales)

    def _score_batch(self, number: int, evaluated: EvaluatedBatch) -> Array:
        """Return the score of each sample of a batch, which is the `number`th of its split."""
        outputs, batch, _ = evaluated
        arguments = (self._name_outputs(_to_tensors(outputs)), _to_tensors(batch.targets))
        scores = self.custom.call_function("score", *arguments, seed_parts=("score", number))
        hint = "return one number for each sample"
        array = self._to_numbers("score", scores, hint)
        if array.shape != (len(batch),):
            raise InputError(
                f"score of {self.custom.origin} returns shape {array.shape} for {len(batch)} "
                "samples",
                hint,
            )
        return array

    def _to_numbers(
        self, function: str, value: Any, hint: str, may_be_undefined: bool = False
    ) -> Array:
        """Return what a function of the user returns as float64; `hint` is for other types.

        NaN and infinity are errors unless `may_be_undefined`.
        """
        try:
            array = to_array(value)
        except (TypeError, ValueError):  # lists of uneven length
            array = np.array(None)
        if not is_numeric(array):
            raise InputError(
                f"{function} of {self.custom.origin} returns {describe_value(value)}, not numbers",
                hint,
            )
        undefined = array[~np.isfinite(array)]
        if undefined.size and not may_be_undefined:
            raise InputError(
                f"{function} of {self.custom.origin} returns {undefined[0]}",
                "return finite numbers",
            )
        return array.astype(np.float64)

    def _measure_replicates(
        self, batches: Iterable[EvaluatedBatch], may_be_undefined: bool = False
    ) -> Array:
        """Return the metric of all samples and of bootstrap replicates, each with their number.

        In a replicate, a sample counts as often as a Poisson random number says. So outputs need
        not be stored, and two networks have the same replicates. Replicates may be undefined, the
        metric of all samples only if `may_be_undefined`.

        Returns:
            Rows of (metric, number of samples).
        """
        rng = np.random.default_rng(0)
        metrics = [self._make_metric() for _ in range(1 + self.num_replicates)]
        num_samples = 0
        for number, (outputs, batch, _) in enumerate(batches):
            num_samples += len(batch)
            named_outputs = self._name_outputs(_to_tensors(outputs))
            targets = _to_tensors(batch.targets)
            all_rows = np.arange(len(batch))
            counts = rng.poisson(1.0, (self.num_replicates, len(batch)))
            samples = [all_rows, *(np.repeat(all_rows, repeats) for repeats in counts)]
            for metric, rows in zip(metrics, samples, strict=True):
                if not len(rows):
                    continue
                chosen = (_select_rows(named_outputs, rows), _select_rows(targets, rows))
                with (
                    self.custom.report_errors("update"),
                    random_state.isolate_rng("update", number),
                ):
                    metric.update(*chosen)
        values = [self._compute_value(metrics[0], may_be_undefined)]
        values += [self._compute_value(metric, may_be_undefined=True) for metric in metrics[1:]]
        return np.array([(value, num_samples) for value in values])

    def _make_metric(self) -> Any:
        """Return a new metric of the user; raise InputError if it lacks a method."""
        metric = self.custom.call_function("measure", seed_parts=("measure",))
        returned = f"measure of {self.custom.origin} returns {describe_value(metric)}"
        if isinstance(metric, type):
            raise InputError(
                f"{returned}, not an object", f"return {metric.__name__}(), a new one each time"
            )
        for method in ("update", "compute"):
            if not callable(getattr(metric, method, None)):
                raise InputError(
                    f"{returned}, which has no method {method}",
                    "return an object with update(outputs, batch) and compute()",
                )
        return metric

    def _compute_value(self, metric: Any, may_be_undefined: bool) -> float:
        """Return the value of a metric; NaN if it is undefined and may be so."""
        with self.custom.report_errors("compute"), random_state.isolate_rng("compute"):
            try:
                value = metric.compute()
            except (ArithmeticError, ValueError):  # usual errors of metrics of too few samples
                if not may_be_undefined:
                    raise
                return np.nan
        array = self._to_numbers("compute", value, "return one number", may_be_undefined)
        if array.size != 1:
            raise InputError(
                f"compute of {self.custom.origin} returns shape {array.shape}", "return one number"
            )
        return float(array.item()) if np.isfinite(array).all() else np.nan

    def compute_metric(self, statistics: Array, split: str) -> AccuracyResult:
        """Return the user's metric, or that of distillation."""
        if self._has_score:
            value = float(statistics.mean())
            return AccuracyResult(value=value, samples=len(statistics), split=split)
        if self._has_measure:
            value, num_samples = statistics[0].tolist()
            return AccuracyResult(value=value, samples=int(num_samples), split=split)
        return self.distillation.compute_metric(statistics, split)

    def correct_samples(self, statistics: Array) -> Array | None:
        """Return which samples are correct; None for a score, which may be any number."""
        return self.distillation.correct_samples(statistics) if self.is_relative else None

    def compute_drop_interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
        """Return the interval of the drop; see `Task.compute_drop_interval`."""
        if self.is_relative:
            return self.distillation.compute_drop_interval(before, after, confidence)
        sign = 1 if self.metric.higher_is_better else -1
        if self._has_score:
            return mean_interval(sign * before, sign * after, confidence)
        return replicate_interval(sign * before[:, 0], sign * after[:, 0], confidence)

    def get_original_result(self, samples: int, split: str) -> tuple[AccuracyResult, Array] | None:
        """Return metric and statistics of the original if it is compared with itself."""
        if not self.is_relative:
            return None
        return self.distillation.get_original_result(samples, split)

    def chance_level(self, split: Split) -> None:
        """Return None: constant predictions of a custom task are unknown."""

    def _name_outputs(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Return outputs by name."""
        return {spec.name: output for spec, output in zip(self.outputs, outputs, strict=True)}


def _to_tensors(values: Any) -> Any:
    """Return arrays, or lists or dicts of them, as tensors."""
    import torch

    if isinstance(values, Mapping):
        return {name: _to_tensors(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_to_tensors(value) for value in values]
    return torch.as_tensor(values)


def _select_rows(values: Mapping[str, Any], rows: Array) -> dict[str, Any]:
    """Return some samples of a batch; values of uneven shape are lists."""
    selected: dict[str, Any] = {}
    for name, value in values.items():
        selected[name] = [value[i] for i in rows] if isinstance(value, list) else value[rows]
    return selected
