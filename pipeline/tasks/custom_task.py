"""A user's own task as training and measuring see it; the original stands in for what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.intervals import mean_interval, replicate_interval
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.records import Accuracy
from ltp_pipeline.results.schema_parts import Asked
from ltp_pipeline.system import random_state
from ltp_pipeline.tasks.custom import as_array, called, is_numbers
from ltp_pipeline.tasks.protocol import Judged, Output

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.data.dataset import Batch
    from ltp_pipeline.system.arrays import Array
    from ltp_pipeline.tasks.custom import CustomTask
    from ltp_pipeline.tasks.imitation import Imitation
    from ltp_pipeline.tasks.protocol import Labels

REPLICATES = 50  # of a metric that is no mean, by which its interval is told


@dataclass(frozen=True)
class CustomTaskAdapter:
    """Their loss and metric; `imitation` stands in for what they did not write."""

    own: CustomTask
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
    def quick(self) -> CustomTaskAdapter:
        """Without what only an interval needs."""
        return replace(self, replicates=0)

    @property
    def _scores(self) -> bool:
        return self.own.has("score")

    @property
    def _measures(self) -> bool:
        return self.own.has("measure") and not self._scores

    def loss(
        self, outputs: Sequence[Tensor], targets: Mapping[str, Any], taught: Sequence[Tensor] | None
    ) -> Tensor:
        """Theirs; it must be one number, and have a gradient where one is asked for."""
        import torch

        if self.is_taught:
            return self.imitation.loss(outputs, targets, taught)
        loss = self._loss(outputs, targets)
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise self._no_gradient()
        return loss

    def _loss(self, outputs: Sequence[Tensor], targets: Mapping[str, Any]) -> Tensor:
        import torch

        loss = self.own.call(
            "loss", self._named(outputs), dict(targets), drawn=("loss", torch.initial_seed())
        )
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            told = (
                f"a tensor of shape {tuple(loss.shape)}"
                if isinstance(loss, torch.Tensor)
                else called(loss)
            )
            raise InputError(
                f"loss of {self.own.origin} returns {told}, not one number",
                "return its mean, a tensor",
            )
        return loss.reshape(())

    def _no_gradient(self) -> InputError:
        return InputError(
            f"loss of {self.own.origin} has no gradient: it does not follow from the outputs by operations of torch",
            "no detach(), item(), argmax() or numpy on the way; if nothing is to be learned, outputs[NAME].sum() * 0",
        )

    def check(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        """Call their loss and metric once, before anything is trained."""
        if not self.is_taught:
            self._check_loss(outputs, batch)
        arrays = [y.float().cpu().numpy() for y in outputs]
        judged = [Judged(arrays, batch, arrays)]
        if self._measures:
            self.quick._measured(judged, on_few=True)
        else:
            self.quick.accuracy(self.quick.evidence(judged, [1.0] * len(arrays)), "train")

    def _check_loss(self, outputs: Sequence[Tensor], batch: Batch) -> None:
        import torch

        with torch.inference_mode(False), torch.enable_grad():
            leaves = [y.detach().clone().requires_grad_() for y in outputs]
            loss = self._loss([y.clone() for y in leaves], _tensors(batch.targets))
            value = float(loss.detach())
            if not np.isfinite(value):
                raise InputError(
                    f"loss of {self.own.origin} is {value} on the first samples",
                    "return a finite number",
                )
            with self.own.theirs("gradient of loss"):
                found = (
                    torch.autograd.grad(loss, leaves, allow_unused=True)
                    if loss.requires_grad
                    else [None]
                )
        if all(gradient is None for gradient in found):
            raise self._no_gradient()

    def scale(self, originals: Iterable[Judged], samples: int) -> Sequence[float]:
        """For nearness to the original."""
        return self.imitation.scale(originals, samples)

    def evidence(self, judged: Iterable[Judged], scale: Sequence[float]) -> Array:
        """A score for each sample; or the metric of all, and of samples drawn anew."""
        if self._scores:
            return np.concatenate(
                [self._each(i, outputs, batch) for i, (outputs, batch, _) in enumerate(judged)]
            )
        if self._measures:
            return self._measured(judged)
        return self.imitation.evidence(judged, scale)

    def _each(self, number: int, outputs: Sequence[Array], batch: Batch) -> Array:
        given = self._named(_tensors(outputs)), _tensors(batch.targets)
        scores = self.own.call("score", *given, drawn=("score", number))
        each = self._numbers("score", scores, "return one number for each sample")
        if each.shape != (len(batch),):
            what = f"score of {self.own.origin} returns shape {each.shape} for {len(batch)} samples"
            raise InputError(what, "return one number for each sample")
        return each

    def _numbers(self, part: str, given: Any, remedy: str, may_be_undefined: bool = False) -> Array:
        """What a part of theirs returns; it must be numbers, finite ones where they may not be undefined."""
        try:
            found = as_array(given)
        except (TypeError, ValueError):  # lists of uneven length
            found = np.array(None)
        if not is_numbers(found):
            raise InputError(
                f"{part} of {self.own.origin} returns {called(given)}, not numbers", remedy
            )
        if not (may_be_undefined or np.isfinite(found).all()):
            what = f"{part} of {self.own.origin} returns {found[~np.isfinite(found)].flat[0]}"
            raise InputError(what, "return finite numbers")
        return found.astype(np.float64)

    def _measured(self, judged: Iterable[Judged], on_few: bool = False) -> Array:
        """The metric, and that of each replicate: there a sample counts as often as a Poisson number says.

        So the outputs need not be kept, and two networks have the same replicates. These may be undefined, and so may
        be the metric of a few samples.
        """
        rng, samples = np.random.default_rng(0), 0
        meters = [self._meter() for _ in range(1 + self.replicates)]
        for number, (outputs, batch, _) in enumerate(judged):
            samples += len(batch)
            found, whole = self._named(_tensors(outputs)), _tensors(batch.targets)
            counts = rng.poisson(1.0, (self.replicates, len(batch)))
            drawn = [
                np.arange(len(batch)),
                *(np.repeat(np.arange(len(batch)), times) for times in counts),
            ]
            for meter, rows in zip(meters, drawn, strict=True):
                if len(rows):
                    with self.own.theirs("update"), random_state.isolate_rng("update", number):
                        meter.update(_rows(found, rows), _rows(whole, rows))
        may_be_undefined = [on_few] + [True] * self.replicates
        return np.array(
            [
                (self._computed(*each), samples)
                for each in zip(meters, may_be_undefined, strict=True)
            ]
        )

    def _meter(self) -> Any:
        found = self.own.call("measure", drawn=("measure",))
        if isinstance(found, type):
            what = f"measure of {self.own.origin} returns {called(found)}, no object of it"
            raise InputError(what, f"return {found.__name__}(), a new one each time")
        for part in ("update", "compute"):
            if not callable(getattr(found, part, None)):
                what = f"measure of {self.own.origin} returns {called(found)}, which has no {part}"
                raise InputError(what, "return an object with update(outputs, batch) and compute()")
        return found

    def _computed(self, meter: Any, may_be_undefined: bool) -> float:
        """Their metric; NaN where it may be undefined, and is no number or fails as such metrics do."""
        with self.own.theirs("compute"), random_state.isolate_rng("compute"):
            try:
                value = meter.compute()
            except (ArithmeticError, ValueError):
                if not may_be_undefined:
                    raise
                return np.nan
        found = self._numbers("compute", value, "return one number", may_be_undefined)
        if found.size != 1:
            raise InputError(
                f"compute of {self.own.origin} returns shape {found.shape}", "return one number"
            )
        return float(found.item()) if np.isfinite(found).all() else np.nan

    def accuracy(self, evidence: Array, split: str) -> Accuracy:
        """Their metric."""
        if self._scores:
            return Accuracy(float(evidence.mean()), None, None, len(evidence), split)
        if self._measures:
            value, samples = evidence[0].tolist()
            return Accuracy(value, None, None, int(samples), split)
        return self.imitation.accuracy(evidence, split)

    def right(self, evidence: Array) -> Array | None:
        """Known where nearness to the original is measured; a score of theirs may be any number."""
        return self.imitation.right(evidence) if self.is_relative else None

    def interval(
        self, before: Array, after: Array, confidence: float = 0.95
    ) -> tuple[float, float] | None:
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
    return {
        name: [v[i] for i in rows] if isinstance(v, list) else v[rows] for name, v in values.items()
    }
