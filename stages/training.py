"""The one training loop: learning thresholds, fine-tuning and the baseline differ only in their Phase.

Everything random is a function of (seed, phase, epoch, step), so a run that stops and goes on takes the same steps as
one that was never interrupted.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline import ranks
from ltp_pipeline.config import TrainSettings
from ltp_pipeline.data import Data, Split, batches, check_labels
from ltp_pipeline.data.samples import Array
from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.progress import on_validation
from ltp_pipeline.records import ImportedModel
from ltp_pipeline.stages import allocation, metric, statistics
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.roles import Role
from ltp_pipeline.stages.metric import Judge, Metric
from ltp_pipeline.stages.objective import LONGEST, Objective, from_softmax
from ltp_pipeline.stages.pace import Pace
from ltp_pipeline.stages.phase import Phase, Progress, epochs_between_entries
from ltp_pipeline.stages.prune import load_tensors
from ltp_pipeline.stages.schedule import default_epochs
from ltp_pipeline.workspace import Workspace

SAVE_EVERY_SECONDS = 120.0
BN_REFRESH_SAMPLES = 4096


def pick_device(name: str) -> torch.device:
    """Resolve `auto` to the best device there is; with several ranks, each has its own."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if not present[name]:
        raise InputError(f"there is no {name} device here", "use --device auto or --device cpu")
    return ranks.join(torch.device(name))


def cosine(step: int, steps: int, lr: float) -> float:
    """Learning rate that falls from `lr` to zero over `steps`."""
    return lr * 0.5 * (1 + math.cos(math.pi * step / steps))


@dataclass(frozen=True)
class Training:
    """Model, data and settings that stay the same through all phases of a run."""

    imported: ImportedModel
    data: Data
    settings: TrainSettings
    workspace: Workspace
    device: torch.device
    teacher: Mapping[str, Tensor] | None = None  # the original's tensors, when it is to be learned from
    strength: float = 1.0  # m of (R5), on which it depends how long thresholds are learned
    pace: Pace = field(default_factory=Pace)

    @cached_property
    def metric(self) -> Metric:
        """What is asked of the outputs, by the data; an error when the model cannot give it."""
        self._batch()
        if len(self.data.train) < 2:
            raise InputError("the training split has one sample", "give at least two; BatchNormalization needs them")
        count = 2
        x = self.tensor(self.data.train.read(np.arange(count)))
        module = self.imported.module.to(self.device).eval()
        try:
            with torch.inference_mode():
                outputs = module(x)
        except NodeError as error:
            raise InputError(
                f"the model does not run on a batch of {count} samples: {error}",
                "export it with a dynamic batch size, and check the shape of the data",
            ) from None
        floating = [isinstance(y, Tensor) and y.is_floating_point() for y in outputs]
        shapes = [tuple(y.shape) if f else None for y, f in zip(outputs, floating, strict=True)]
        graph = self.imported.proto.graph
        if self.data.classes is None:
            return metric.without_labels(graph, shapes, count, self.settings.imitate)
        found, classes = metric.top1(graph, shapes, count)
        check_labels(self.data, classes)
        return found

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of the training split, at least one."""
        return max(len(self.data.train) // self._batch(), 1)

    @property
    def epochs(self) -> int:
        """In which thresholds are learned."""
        return self.settings.epochs or default_epochs(self.steps_per_epoch, self.strength)[0]

    @property
    def finetune_epochs(self) -> int:
        """In which the pruned network is trained further: half as many, where only the others are given."""
        given = self.settings
        if given.finetune_epochs is not None:
            return given.finetune_epochs
        if given.epochs is not None:
            return math.ceil(given.epochs / 2)
        return default_epochs(self.steps_per_epoch, self.strength)[1]

    @cached_property
    def objective(self) -> Objective:
        """The loss."""
        return Objective(self.metric, from_softmax(self.imported.proto.graph), self.settings.distill)

    @cached_property
    def judge(self) -> Judge:
        """Judges the live module, beside the original where there are no labels."""
        return Judge(self.metric, lambda x: self.outputs(x, self.teacher))

    @cached_property
    def _kept_zeros(self) -> list[tuple[Tensor, Tensor]]:
        """Kernels that are not pruned and have zeros, and where they have none: every budget counts on those."""
        tensors = self.imported.module.tensors()
        whole = [tensors[k.name] for k in self.imported.kernels if not k.prunable]
        return [(w, w.detach() != 0) for w in whole if not bool(w.detach().all())]

    def run(self, phase: Phase, epochs: int, before: int = 0, after: int = 0) -> None:
        """Train for `epochs`, going on from the checkpoint of this phase if there is one.

        The learning rate is one cosine over `before` + `epochs` + `after`, the phases that belong together.
        """
        allocation.keep_freed_memory()
        module = self.imported.module.to(self.device)
        tensors = module.tensors()
        parameters = {n: tensors[n] for n, role in module.roles.items() if role is Role.WEIGHT}
        optimizer = torch.optim.SGD(
            parameters.values(),
            lr=self.settings.lr,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
            fused=True,
        )
        batch = self._batch()
        per_epoch = self.steps_per_epoch
        every = epochs_between_entries(epochs)
        total = per_epoch * epochs
        start = self._resume(phase, optimizer, parameters)
        network = ranks.shared(module)
        saved = time.monotonic()
        self.pace.begin()
        with allocation.enough_for(batch), self.workspace.progress.task(phase.name, total, start) as bar:
            for progress, x, y in self._steps(phase.key, start, per_epoch, total, batch):
                passed, whole = before * per_epoch + progress.step, (before + epochs + after) * per_epoch
                progress.lr = cosine(passed, whole, self.settings.lr)
                begun = time.monotonic()
                self._step(network, phase, optimizer, progress, x, y)
                if self.device.type == "cpu":
                    self.pace.step(time.monotonic() - begun, self.workspace.progress.say)
                if progress.step % max(per_epoch // 10, 1) == 0:
                    self._log(phase, progress, phase.log(progress))
                shown: dict[str, float] = {"loss": progress.loss}
                done = progress.step + 1
                if done % per_epoch == 0:
                    if not all(bool(p.isfinite().all()) for p in parameters.values()):
                        raise self._not_finite(phase.name, progress)
                    if (progress.epoch + 1) % every == 0 or done == total:
                        shown |= phase.end_epoch(progress.epoch)
                    self._log(phase, progress, shown)
                if done % per_epoch == 0 or time.monotonic() - saved > SAVE_EVERY_SECONDS:
                    self._save(phase, optimizer, parameters, done)
                    saved = time.monotonic()
                if "val_accuracy" in shown:
                    shown[on_validation(self.metric.name)] = shown.pop("val_accuracy")
                bar.advance(epoch=progress.epoch + 1, epochs=epochs, end_of_epoch=done % per_epoch == 0, **shown)
        ranks.wait()  # until the leader has written the last checkpoint

    def _batch(self) -> int:
        """Samples of a step, over all ranks."""
        batch = min(self.settings.batch_size, len(self.data.train))
        each = batch // ranks.world()
        if ranks.together() and (each < 1 or batch % ranks.world()):
            raise InputError(
                f"a batch of {batch} samples cannot be split evenly among {ranks.world()} processes",
                f"set the batch size to a multiple of {ranks.world()}",
            )
        return batch

    def _steps(
        self, key: str, start: int, per_epoch: int, total: int, batch: int
    ) -> Iterator[tuple[Progress, Tensor, Tensor | None]]:
        train = self.data.train
        for epoch in range(start // per_epoch, total // per_epoch):
            order = np.random.default_rng(_seed(self.settings.seed, key, epoch)).permutation(len(train))
            first = max(start - epoch * per_epoch, 0)
            order = order[first * batch : per_epoch * batch]
            for i, (x, y) in enumerate(self._share(train, batch, order, _seed(self.settings.seed, key, epoch))):
                step = epoch * per_epoch + first + i
                parts = (ranks.rank(),) if ranks.rank() else ()
                torch.manual_seed(_seed(self.settings.seed, key, step, *parts))  # for Dropout
                yield Progress(epoch, step, total), x, y

    def _share(
        self, split: Split, batch: int, order: Array, augment_seed: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Whole batches in this order, of each the part that belongs to this rank."""
        whole = order[: len(order) - len(order) % batch].reshape(-1, ranks.world(), batch // ranks.world())
        rows = whole[:, ranks.rank()].ravel()
        for x, y in batches(split, batch // ranks.world(), rows, augment_seed=augment_seed):
            yield self.tensor(x), None if y is None else self.tensor(y)

    def _step(
        self,
        network: torch.nn.Module,
        phase: Phase,
        optimizer: torch.optim.SGD,
        progress: Progress,
        x: Tensor,
        y: Tensor | None,
    ) -> None:
        optimizer.param_groups[0]["lr"] = progress.lr
        optimizer.zero_grad(set_to_none=True)
        loss = self._loss(network, x, y, phase.weights())
        progress.loss = float(ranks.average(loss.detach().clone()))
        if not math.isfinite(progress.loss):
            raise self._not_finite(phase.name, progress)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.objective.steep:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], LONGEST)
        phase.after_backward(progress)
        for w, mask in self._kept_zeros:
            if w.grad is not None:
                w.grad.mul_(mask)
        optimizer.step()
        phase.after_step(optimizer)

    def _loss(
        self, network: torch.nn.Module, x: Tensor, y: Tensor | None, weights: Mapping[str, Tensor] | None
    ) -> Tensor:
        """Weights come in single precision, whatever the forward pass computes in."""
        taught = None
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            if self.objective.taught:
                with torch.no_grad():
                    taught = self._judged(self.imported.module.eval()(x, weights=self.teacher))
            try:
                outputs = self._judged(network.train()(x, weights=weights))
            except NodeError as error:
                if isinstance(error.__cause__, torch.OutOfMemoryError):
                    raise
                raise TrainingFailed(f"the model does not run in training: {error}", self._other_precision()) from None
        return self.objective(outputs, y, taught)

    def _other_precision(self) -> str:
        return "use --precision fp32" if self.settings.precision != "fp32" else "please report this as a bug"

    def _judged(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        return [outputs[position] for position in self.metric.positions]

    def _not_finite(self, name: str, progress: Progress) -> TrainingFailed:
        where = next((n for n, t in self.imported.module.tensors().items() if not t.isfinite().all()), None)
        layer = f"tensor {where!r} is not finite" if where else "every weight is still finite: the activations overflow"
        what = "training diverged" if math.isfinite(progress.loss) else "the loss is not finite"
        return TrainingFailed(
            f"{what} in {name}, epoch {progress.epoch + 1}, step {progress.step}; {layer}",
            f"lower the learning rate (now {self.settings.lr:g}) or check the scale of the data; what is done is kept",
        )

    def tensor(self, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Tensor:
        """Put a batch on the device; images with channels last, the faster layout for convolutions."""
        batch = torch.from_numpy(array).to(self.device)
        return batch.contiguous(memory_format=torch.channels_last) if batch.dim() == 4 else batch

    def accuracy(self, split: Split, weights: Mapping[str, Tensor] | None = None) -> float:
        """Accuracy of the module as it stands, in torch; used for choosing, never reported as the result."""
        rows = np.arange(ranks.rank(), len(split), ranks.world())
        total = 0.0
        if len(rows):
            _, each = self.judge(lambda x: self.outputs(x, weights), split, rows)
            total = float(each.sum())
        return max(ranks.total(total, self.device) / len(split), 0.0)

    def outputs(self, x: Array, weights: Mapping[str, Tensor] | None = None) -> list[Array]:
        """The judged outputs of the module, or of other weights in its place."""
        module = self.imported.module.eval()
        with torch.inference_mode():
            return [y.float().cpu().numpy() for y in self._judged(module(self.tensor(x), weights=weights))]

    @contextmanager
    def statistics_of(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Meanwhile, BatchNormalization has the mean and variance that belong to these weights."""
        tensors, roles = self.imported.module.tensors(), self.imported.module.roles
        before = {n: t.clone() for n, t in tensors.items() if roles[n] is Role.STATISTIC}
        self.refresh_statistics(weights)
        yield
        load_tensors(self.imported, before)

    def refresh_statistics(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Measure BatchNormalization's mean and variance anew for the weights as they are now."""
        rng = np.random.default_rng(_seed(self.settings.seed, "statistics"))  # stored samples may be sorted by class
        torch.manual_seed(_seed(self.settings.seed, "statistics", ranks.rank()))  # for Dropout
        sample = rng.permutation(len(self.data.train))[: max(BN_REFRESH_SAMPLES, self._batch())]
        statistics.refresh(self.imported, (x for x, _ in self._share(self.data.train, self._batch(), sample)), weights)

    def _save(self, phase: Phase, optimizer: torch.optim.SGD, parameters: Mapping[str, Tensor], done: int) -> None:
        momenta = {n: optimizer.state[p].get("momentum_buffer") for n, p in parameters.items()}
        self.workspace.save_state(
            phase.key,
            {
                **{f"tensor/{n}": t for n, t in self.imported.module.tensors().items()},
                **{f"momentum/{n}": m for n, m in momenta.items() if m is not None},
                **{f"phase/{n}": t for n, t in phase.state().items()},
            },
            {"steps": done},
        )

    def _resume(self, phase: Phase, optimizer: torch.optim.SGD, parameters: Mapping[str, Tensor]) -> int:
        found = self.workspace.load_state(phase.key)
        if found is None:
            return 0
        state, meta = found
        load_tensors(self.imported, _part(state, "tensor/"))
        for name, buffer in _part(state, "momentum/").items():
            optimizer.state[parameters[name]]["momentum_buffer"] = buffer.to(self.device)
        phase.restore(_part(state, "phase/"))
        return int(meta["steps"])

    def _log(self, phase: Phase, at: Progress, values: Mapping[str, object]) -> None:
        line = {"stage": phase.name, "key": phase.key, "epoch": at.epoch, "step": at.step, "loss": at.loss, "lr": at.lr}
        self.workspace.log({**line, **values})


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}


def _seed(*parts: int | str) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")
