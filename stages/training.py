"""The one training loop: learning thresholds, fine-tuning and the baseline differ only in their Phase.

Everything random is a function of (seed, phase, epoch, step), so a run that stops and goes on takes the same steps as
one that was never interrupted.
"""

import hashlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ltp_pipeline.config import TrainSettings
from ltp_pipeline.data import Data, Split, batches
from ltp_pipeline.errors import InputError, TrainingFailed
from ltp_pipeline.records import ImportedModel
from ltp_pipeline.stages.import_model import restore_bn
from ltp_pipeline.stages.import_model.ops.normalization import update_share
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.roles import Role
from ltp_pipeline.stages.prune import load_tensors
from ltp_pipeline.workspace import Workspace

SAVE_EVERY_SECONDS = 120.0
BN_REFRESH_SAMPLES = 4096
SOFTNESS = 4.0  # temperature of distillation


class Phase(Protocol):
    """What one kind of training does beyond the plain loop."""

    name: str  # what people and the log call it
    key: str  # of its checkpoint; two phases of one run never share one

    def weights(self) -> Mapping[str, Tensor] | None:
        """Tensors to use in the forward pass instead of the module's own."""

    def after_backward(self, progress: "Progress") -> None:
        """Look at, or change, the gradients before the optimizer steps."""

    def after_step(self, optimizer: torch.optim.SGD) -> None:
        """Look at, or change, what the optimizer did."""

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Judge the network as it stands; what is returned is shown and logged."""

    def state(self) -> dict[str, Tensor]:
        """Whatever else must survive an interruption."""

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def log(self) -> dict[str, object]:
        """Values for the log line of this step."""


@dataclass
class Progress:
    """Where training is."""

    epoch: int
    step: int  # of the whole phase
    steps: int
    lr: float = math.nan
    loss: float = math.nan


def pick_device(name: str) -> torch.device:
    """Resolve `auto` to the best device there is."""
    present = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if not present[name]:
        raise InputError(f"there is no {name} device here", "use --device auto or --device cpu")
    return torch.device(name)


def class_scores(outputs: Tensor, probabilities: bool) -> Tensor:
    """Scores of the classes; a graph that ends in Softmax gives probabilities, whose logarithm serves."""
    scores = outputs.flatten(1)
    return scores.clamp_min(1e-12).log() if probabilities else scores


def distilled_loss(scores: Tensor, labels: Tensor, taught: Tensor, share: float) -> Tensor:
    """Cross-entropy with the labels, and the divergence from a teacher's softened outputs (Hinton et al., 2015)."""
    soft, wanted = (F.log_softmax(s / SOFTNESS, 1) for s in (scores, taught))
    divergence = F.kl_div(soft, wanted, reduction="batchmean", log_target=True) * SOFTNESS**2
    return (1 - share) * F.cross_entropy(scores, labels) + share * divergence


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

    @cached_property
    def probabilities(self) -> bool:
        """Whether the graph ends in Softmax, so that its output is probabilities and not scores."""
        name = self.imported.proto.graph.output[0].name
        return any(n.op_type == "Softmax" and name in n.output for n in self.imported.proto.graph.node)

    def classes(self) -> int:
        """How many classes the first output scores; an error when it is no class score."""
        if len(self.data.train) < 2:
            raise InputError("the training split has one sample", "give at least two; BatchNormalization needs them")
        count = min(2, len(self.data.test))
        x = self.tensor(self.data.test.read(np.arange(count)))
        module = self.imported.module.to(self.device).eval()
        try:
            with torch.inference_mode():
                output = module(x)[0]
        except NodeError as error:
            raise InputError(
                f"the model does not run on a batch of {count} samples: {error}",
                "export it with a dynamic batch size, and check the shape of the data",
            ) from None
        shape = tuple(output.shape)
        scores = output.is_floating_point() and output.dim() >= 2 and shape[0] == count
        if not scores or shape[1] < 2 or output[0].numel() != shape[1]:
            raise InputError(
                f"output {self.imported.file.outputs[0].name!r} of shape {shape} for {count} samples is no class score",
                "give a classifier whose first output is (batch, classes)",
            )
        return int(shape[1])

    def run(self, phase: Phase, epochs: int, before: int = 0, after: int = 0) -> None:
        """Train for `epochs`, going on from the checkpoint of this phase if there is one.

        The learning rate is one cosine over `before` + `epochs` + `after`, the phases that belong together.
        """
        module = self.imported.module.to(self.device)
        tensors = module.tensors()
        parameters = {n: tensors[n] for n, role in module.roles.items() if role is Role.WEIGHT}
        optimizer = torch.optim.SGD(
            parameters.values(),
            lr=self.settings.lr,
            momentum=self.settings.momentum,
            weight_decay=self.settings.weight_decay,
        )
        batch = min(self.settings.batch_size, len(self.data.train))
        per_epoch = max(len(self.data.train) // batch, 1)
        total = per_epoch * epochs
        start = self._resume(phase, optimizer, parameters)
        saved = time.monotonic()
        with self.workspace.progress.task(phase.name, total, start) as bar:
            for progress, x, y in self._steps(phase.key, start, per_epoch, total, batch):
                passed, whole = before * per_epoch + progress.step, (before + epochs + after) * per_epoch
                progress.lr = cosine(passed, whole, self.settings.lr)
                self._step(phase, optimizer, progress, x, y)
                if progress.step % max(per_epoch // 10, 1) == 0:
                    self._log(phase, progress, phase.log())
                shown: dict[str, float] = {"loss": progress.loss}
                done = progress.step + 1
                if done % per_epoch == 0:
                    shown |= phase.end_epoch(progress.epoch)
                    self._log(phase, progress, shown)
                if done % per_epoch == 0 or time.monotonic() - saved > SAVE_EVERY_SECONDS:
                    self._save(phase, optimizer, parameters, done)
                    saved = time.monotonic()
                bar.advance(epoch=progress.epoch + 1, epochs=epochs, end_of_epoch=done % per_epoch == 0, **shown)

    def _steps(
        self, key: str, start: int, per_epoch: int, total: int, batch: int
    ) -> Iterator[tuple[Progress, Tensor, Tensor]]:
        train = self.data.train
        for epoch in range(start // per_epoch, total // per_epoch):
            order = np.random.default_rng(_seed(self.settings.seed, key, epoch)).permutation(len(train))
            first = max(start - epoch * per_epoch, 0)
            order = order[first * batch : per_epoch * batch]
            for i, (x, y) in enumerate(batches(train, batch, order)):
                step = epoch * per_epoch + first + i
                torch.manual_seed(_seed(self.settings.seed, key, step))  # for Dropout
                yield Progress(epoch, step, total), self.tensor(x), self.tensor(y)

    def _step(self, phase: Phase, optimizer: torch.optim.SGD, progress: Progress, x: Tensor, y: Tensor) -> None:
        optimizer.param_groups[0]["lr"] = progress.lr
        optimizer.zero_grad(set_to_none=True)
        loss = self._loss(x, y, phase.weights())
        progress.loss = float(loss.detach())
        if not math.isfinite(progress.loss):
            raise self._not_finite(phase.name, progress)
        loss.backward()  # type: ignore[no-untyped-call]
        phase.after_backward(progress)
        optimizer.step()
        phase.after_step(optimizer)

    def _loss(self, x: Tensor, y: Tensor, weights: Mapping[str, Tensor] | None) -> Tensor:
        module = self.imported.module
        if self.teacher is None:
            return F.cross_entropy(class_scores(module.train()(x, weights=weights)[0], self.probabilities), y)
        with torch.no_grad():
            taught = class_scores(module.eval()(x, weights=self.teacher)[0], self.probabilities)
        scores = class_scores(module.train()(x, weights=weights)[0], self.probabilities)
        return distilled_loss(scores, y, taught, self.settings.distill)

    def _not_finite(self, name: str, progress: Progress) -> TrainingFailed:
        where = next((n for n, t in self.imported.module.tensors().items() if not t.isfinite().all()), None)
        layer = f"tensor {where!r} is not finite" if where else "every weight is still finite: the activations overflow"
        return TrainingFailed(
            f"the loss is not finite in {name}, epoch {progress.epoch + 1}, step {progress.step}; {layer}",
            f"lower the learning rate (now {self.settings.lr:g}) or check the scale of the data; what is done is kept",
        )

    def tensor(self, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Tensor:
        """Put a batch on the device."""
        return torch.from_numpy(array).to(self.device)

    def accuracy(self, split: Split, weights: Mapping[str, Tensor] | None = None) -> float:
        """Top-1 of the module as it stands, in torch; used for choosing, never reported as the result."""
        module = self.imported.module.eval()
        correct = 0
        with torch.inference_mode():
            for x, y in batches(split, self.settings.batch_size):
                scores = module(self.tensor(x), weights=weights)[0].flatten(1)
                correct += int((scores.argmax(1) == self.tensor(y)).sum())
        return correct / len(split)

    def refresh_statistics(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Measure BatchNormalization's mean and variance anew for the weights as they are now.

        A forward pass in training mode moves a statistic a share of the way to the batch's own; undone and divided by
        that share, the moves average to the statistic of all batches.
        """
        module = self.imported.module.train()
        tensors = module.tensors()
        shares = update_shares(self.imported)
        statistics = {n: tensors[n] for n in shares if n in tensors}
        if not statistics:
            return
        before = {n: t.clone() for n, t in statistics.items()}
        moves = {n: torch.zeros_like(t) for n, t in statistics.items()}
        count = 0
        with torch.no_grad():
            rng = np.random.default_rng(
                _seed(self.settings.seed, "statistics")
            )  # stored samples may be sorted by class
            sample = rng.permutation(len(self.data.train))[:BN_REFRESH_SAMPLES]
            for x, _ in batches(self.data.train, min(self.settings.batch_size, len(sample)), sample, drop_last=True):
                module(self.tensor(x), weights=weights)
                for name, t in statistics.items():
                    moves[name] += t - before[name]
                    t.copy_(before[name])
                count += 1
            for name, t in statistics.items():
                t += moves[name] / (count * shares[name])

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


def update_shares(imported: ImportedModel) -> dict[str, float]:
    """How far a batch moves each running statistic, by its name."""
    module = imported.module
    shares: dict[str, float] = {}
    for node in imported.proto.graph.node:
        if node.op_type == "BatchNormalization":
            momentum = next((a.f for a in node.attribute if a.name == "momentum"), 0.9)
            share = update_share(momentum)
            shares |= {n: share for n in node.input[3:5] if module.roles.get(n) is Role.STATISTIC}
    restored = imported.restored.norms
    share = update_share(restore_bn.MOMENTUM)
    return shares | {n: share for norm in restored for n in (norm.mean, norm.variance)}


def _part(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)}


def _seed(*parts: int | str) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")
