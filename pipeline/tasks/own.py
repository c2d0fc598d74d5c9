"""A user's own task as training and measuring see it; the original stands in for what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.intervals import mean_interval, replicate_interval
from ltp_pipeline.records import Accuracy
from ltp_pipeline.report_parts import Asked
from ltp_pipeline.task import Judged, Metric, Output

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.own_task import OwnTask
    from ltp_pipeline.records import Array
    from ltp_pipeline.task import Batch, Labels
    from ltp_pipeline.tasks.imitation import Imitation

REPLICATES = 50  # of a metric that is no mean, by which its interval is told


@dataclass(frozen=True)
class Own:
    """Their loss and metric; `imitation` stands in for what they did not write."""

    own: OwnTask
    imitation: Imitation
    replicates: int = REPLICATES

    is_steep = True  # nobody knows

    @property
    def metric(self) -> Metric:
        """Theirs, or how near the original is."""
        return self.own.metric if self._scores or self._measures else self.imitation.metric

    @property
    def asked(self) -> Asked:
        """What nobody but the user knows."""
        return Asked("own")

    @property
    def outputs(self) -> tuple[Output, ...]:
        """All that have a row per sample."""
        return self.imitation.outputs

    @property
    def is_taught(self) -> bool:
        """Whether there is no loss but the distance from the original."""
        return not self.own.has("loss")

    @property
    def is_relative(self) -> bool:
        """Whether nearness to the original is what is measured."""
        return not self._scores and not self._measures

    @property
    def is_by_sample(self) -> bool:
        """Whether each sample has a score of its own."""
        return not self._measures

    @property
    def quick(self) -> Own:
        """Without what only an interval needs."""
        return replace(self, replicates=0)

    @property
    def _scores(self) -> bool:
        return self.own.has("score")

    @property
    def _measures(self) -> bool:
        return self.own.has("measure") and not self._scores

    def loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Any], taught: Sequence[Tensor] | None) -> Tensor:
        """Theirs; it must be one number."""
        import torch

        if self.is_taught:
            return self.imitation.loss(outputs, targets, taught)
        loss = self.own.call("loss", self._named(outputs), dict(targets))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            told = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise InputError(f"loss of {self.own.origin} returns {told}, not one number", "return its mean")
        return loss.reshape(())

    def check(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        """Call their loss and metric once, before anything is trained."""
        loss = float(self.loss(outputs, _tensors(batch.targets), outputs))
        if not np.isfinite(loss):
            raise InputError(f"loss of {self.own.origin} is {loss} on the first samples", "return a finite number")
        arrays = [y.float().cpu().numpy() for y in outputs]
        judged = [Judged(arrays, batch, arrays)]
        if self._measures:
            self.quick._measured(judged, on_few=True)
        else:
            self.quick.accuracy(self.quick.evidence(judged, [1.0] * len(arrays)), "train")

    def scale(self, originals: Iterable[Judged], samples: int) -> Sequence[float]:
        """For nearness to the original."""
        return self.imitation.scale(originals, samples)

    def evidence(self, judged: Iterable[Judged], scale: Sequence[float]) -> Array:
        """A score for each sample; or the metric of all, and of samples drawn anew."""
        if self._scores:
            return np.concatenate([self._each(outputs, batch) for outputs, batch, _ in judged])
        if self._measures:
            return self._measured(judged)
        return self.imitation.evidence(judged, scale)

    def _each(self, outputs: Sequence[Array], batch: Batch) -> Array:
        scores = self.own.call("score", self._named(_tensors(outputs)), _tensors(batch.targets))
        each = np.asarray(scores, np.float64)
        if each.shape != (len(batch),):
            what = f"score of {self.own.origin} returns shape {each.shape} for {len(batch)} samples"
            raise InputError(what, "return one number for each sample")
        if not np.isfinite(each).all():
            raise InputError(
                f"score of {self.own.origin} returns {each[~np.isfinite(each)][0]}", "return finite numbers"
            )
        return each

    def _measured(self, judged: Iterable[Judged], on_few: bool = False) -> Array:
        """The metric, and that of each replicate: there a sample counts as often as a Poisson number says.

        So the outputs need not be kept, and two networks have the same replicates. These may be undefined, and so may
        be the metric of a few samples.
        """
        rng, samples = np.random.default_rng(0), 0
        meters = [self.own.call("measure") for _ in range(1 + self.replicates)]
        for outputs, batch, _ in judged:
            samples += len(batch)
            found, whole = self._named(_tensors(outputs)), _tensors(batch.targets)
            counts = rng.poisson(1.0, (self.replicates, len(batch)))
            drawn = [np.arange(len(batch)), *(np.repeat(np.arange(len(batch)), times) for times in counts)]
            for meter, rows in zip(meters, drawn, strict=True):
                if len(rows):
                    with self.own.theirs("update"):
                        meter.update(_rows(found, rows), _rows(whole, rows))
        may_be_undefined = [on_few] + [True] * self.replicates
        return np.array([(self._computed(*each), samples) for each in zip(meters, may_be_undefined, strict=True)])

    def _computed(self, meter: Any, may_be_undefined: bool) -> float:
        """Their metric; NaN where it may be undefined, and is no number or fails as such metrics do."""
        with self.own.theirs("compute"):
            try:
                value = float(meter.compute())
            except (ArithmeticError, ValueError):
                if not may_be_undefined:
                    raise
                value = np.nan
        if not np.isfinite(value) and not may_be_undefined:
            raise InputError(f"compute of {self.own.origin} returns {value}", "return a finite number")
        return value if np.isfinite(value) else np.nan

    def accuracy(self, evidence: Array, split: str) -> Accuracy:
        """Their metric."""
        if self._scores:
            return Accuracy(float(evidence.mean()), None, None, len(evidence), split)
        if self._measures:
            value, samples = evidence[0].tolist()
            return Accuracy(value, None, None, int(samples), split)
        return self.imitation.accuracy(evidence, split)

    def interval(self, before: Array, after: Array, confidence: float = 0.95) -> tuple[float, float] | None:
        """Of the drop, which is positive where the second is worse."""
        if self.is_relative:
            return self.imitation.interval(before, after, confidence)
        better = 1 if self.metric.higher_is_better else -1
        if self._scores:
            return mean_interval(better * before, better * after, confidence)
        return replicate_interval(better * before[:, 0], better * after[:, 0], confidence)

    def of_the_original(self, samples: int, split: str) -> tuple[Accuracy, Array] | None:
        """Known only where nearness to it is measured."""
        return self.imitation.of_the_original(samples, split) if self.is_relative else None

    def guess(self, split: Labels) -> None:
        """Nobody knows."""

    def _named(self, outputs: Sequence[Any]) -> dict[str, Any]:
        return {output.name: y for output, y in zip(self.outputs, outputs, strict=True)}


def _tensors(values: Any) -> Any:
    """Arrays, or lists or dicts of them, as tensors."""
    import torch

    if isinstance(values, Mapping):
        return {name: _tensors(value) for name, value in values.items()}
    if isinstance(values, list | tuple):
        return [_tensors(value) for value in values]
    return torch.as_tensor(values)


def _rows(values: Mapping[str, Any], rows: Array) -> dict[str, Any]:
    """These samples of a batch."""
    return {name: [v[i] for i in rows] if isinstance(v, list) else v[rows] for name, v in values.items()}
