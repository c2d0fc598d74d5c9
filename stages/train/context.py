"""RunContext: what the stages of a run share, and what follows from it.

That includes the number of epochs and the size of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ltp_pipeline.data.checks import make_sample_error
from ltp_pipeline.data.dataset import DatasetSplits
from ltp_pipeline.errors import InputError
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.import_model.network import CompiledGraph, Network
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.train.memory import batch_too_large
from ltp_pipeline.stages.train.optimizer import OptimizerSettings, resolve_optimizer_settings
from ltp_pipeline.stages.weight_costs import WeightCosts
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import is_shortage
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.protocol import Task

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array

# Defaults of the number of epochs and of steps, over both phases of training. Few samples get more
# epochs, so that there are enough steps; accuracy grows little beyond this number of steps.
DEFAULT_MIN_EPOCHS = 18
DEFAULT_MIN_STEPS = 750
DEFAULT_MAX_EPOCHS = 500  # for less than two batches of samples, which more epochs only repeat


@dataclass(frozen=True)
class ResolvedDefaults:
    """Values that rules chose by measurement for settings that the user left open.

    Attributes:
        accuracy_budget: Largest drop of the metric by default; None if the settings have a budget.
        distillation_weight: Weight of the distillation loss; the loss on labels has the rest.
        aggressiveness: m of (R5), from 0 (fixed masks) to 1; training of thresholds takes longer
            with a higher one.
        lr: Learning rate of the training; None for that of the settings.
    """

    accuracy_budget: float | None = None
    distillation_weight: float = 0.0
    aggressiveness: float = 1.0
    lr: float | None = None


@dataclass(frozen=True)
class PrunedNetwork:
    """A hard-pruned network and the masks that hold during its training."""

    state: StateDict = field(repr=False)
    masks: Mapping[str, Tensor] = field(repr=False)  # True for a weight that is not pruned
    nonzeros: int  # of all layer weights
    epochs: Mapping[str, int]  # epochs of training by phase: {"prune": …, "finetune": …}


@dataclass(frozen=True)
class RunContext:
    """Network, task, data and settings of a run, the same in all its stages.

    Weights are not a part of it. They pass from stage to stage as a StateDict.

    Attributes:
        network: The network being pruned.
        task: What the network is trained and evaluated for.
        data: The samples.
        settings: The settings as the user gave them.
        run_directory: The run directory.
        device: Where training computes.
        teacher: Weights of the original network; None without distillation.
        original: The network of the teacher's weights; None if it is `network`.
        resolved: Values that rules chose for settings left open.
        uses: How often a weight of each layer is multiplied in one sample; layers for which this
            could not be counted are left out.
        weight_costs: What a weight of each layer costs; None if the budget counts weights.
    """

    network: Network
    task: Task
    data: DatasetSplits
    settings: Settings
    run_directory: RunDirectory
    device: torch.device
    teacher: StateDict | None = None
    original: Network | None = None
    resolved: ResolvedDefaults = ResolvedDefaults()
    uses: Mapping[str, int] = field(default_factory=dict, repr=False)
    weight_costs: WeightCosts | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise InputError if a batch cannot be split evenly among processes."""
        processes = distributed.get_world_size()
        if self.batch_size % processes:
            raise InputError(
                f"a batch of {self.batch_size} samples cannot be split evenly among "
                f"{processes} processes",
                f"set train.batch_size to a multiple of {processes}",
            )

    @property
    def costs(self) -> Mapping[str, int] | None:
        """Cost of one weight of each layer; None if the budget counts weights."""
        return None if self.weight_costs is None else self.weight_costs.per_weight

    @property
    def requested_reduction(self) -> float | None:
        """Cost of all weights / cost of the weights to keep; None without a target."""
        if self.weight_costs is not None:
            return self.weight_costs.reduction
        return self.settings.budget.requested_compression

    @property
    def batch_size(self) -> int:
        """Number of samples in a step, over all processes."""
        return min(self.settings.train.batch_size, len(self.data.train))

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches in the training split, at least one."""
        return max(len(self.data.train) // self.batch_size, 1)

    @property
    def epochs(self) -> int:
        """Number of epochs of the threshold-learning phase."""
        return self.settings.train.epochs or self.default_epochs[0]

    @property
    def finetune_epochs(self) -> int:
        """Number of epochs of fine-tuning; half of `train.epochs` if only that is set."""
        train = self.settings.train
        if train.finetune_epochs is not None:
            return train.finetune_epochs
        if train.epochs is not None:
            return math.ceil(train.epochs / 2)
        return self.default_epochs[1]

    @property
    def default_epochs(self) -> tuple[int, int]:
        """Numbers of epochs by rule, of threshold learning and of fine-tuning. (R5).

        Threshold learning has the fraction (1 + 3m) / 6 of all epochs. If m is 0 the masks are
        fixed and nothing is learned; then its single epoch is there for the trail.
        """
        m = self.resolved.aggressiveness
        epochs = max(DEFAULT_MIN_EPOCHS, math.ceil(DEFAULT_MIN_STEPS / self.steps_per_epoch))
        epochs = min(epochs, DEFAULT_MAX_EPOCHS)
        learning = round(epochs * (1 + 3 * m) / 6) if m > 0 else 1
        return learning, epochs - learning

    @property
    def int8_epochs(self) -> int:
        """Number of epochs of quantization-aware training: half of those of fine-tuning."""
        return math.ceil(self.finetune_epochs / 2)

    @cached_property
    def optimizer(self) -> OptimizerSettings:
        """Settings of the optimizer, by settings, network, loss and the search for the rate."""
        optimizer = resolve_optimizer_settings(
            self.settings.train, self.network.file.model, self.task.has_unbounded_gradient
        )
        return optimizer if self.resolved.lr is None else optimizer._replace(lr=self.resolved.lr)

    def with_learning_rate(self, lr: float) -> RunContext:
        """Return the context with another learning rate."""
        return replace(self, resolved=replace(self.resolved, lr=lr))

    def with_training_samples(self, indices: Array) -> RunContext:
        """Return the context with some of the training samples."""
        train = self.data.train.select(indices)
        return replace(self, data=replace(self.data, train=train))

    @property
    def accuracy_budget(self) -> float | None:
        """Largest drop of the metric that the budget allows; None for another kind of budget."""
        budget = self.settings.budget.accuracy_budget
        return self.resolved.accuracy_budget if budget is None else budget

    @property
    def resolved_settings(self) -> dict[str, dict[str, Any]]:
        """Values that are used for settings left open, by section and key as in ltp.toml."""
        used = {
            **self.optimizer._asdict(),
            "epochs": self.epochs,
            "finetune_epochs": self.finetune_epochs,
            "distillation_weight": self.resolved.distillation_weight,
        }
        train = self.settings.train
        sections = {"train": {key: used[key] for key in used if getattr(train, key) is None}}
        if self.resolved.accuracy_budget is not None:
            sections["budget"] = {"accuracy_budget": self.resolved.accuracy_budget}
        return sections

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates networks in torch, relative to the original if the task needs it."""
        return self.make_evaluator(self.task.without_interval)

    def make_evaluator(self, task: Task) -> Evaluator:
        """Return an evaluator by a task: the task of the run, with or without intervals."""
        teacher = self.teacher
        if teacher is None:
            return Evaluator(task, None)
        context = self
        if self.original is not None:
            context = replace(self, network=self.original)
        return Evaluator(task, lambda inputs: context.compute_outputs(teacher, inputs))

    @property
    def teacher_forward(self) -> CompiledGraph:
        """Forward pass of the network that the teacher's weights belong to."""
        return (self.original or self.network).forward

    def compute_outputs(self, state: StateDict, inputs: Mapping[str, Array]) -> list[Array]:
        """Return the evaluated outputs of a batch.

        Args:
            state: Weights of the network.
            inputs: Arrays by name of the input.

        Raises:
            TrainingFailed: The batch does not fit into memory.
            InputError: The model does not run on these samples.
        """
        try:
            with torch.inference_mode():
                outputs = self.network.forward(to_device(inputs, self.device), state)
        except NodeError as error:
            if is_shortage(error):
                raise batch_too_large(len(next(iter(inputs.values())))) from None
            raise make_sample_error(inputs, "the model does not run", error) from None
        return [outputs[output.position].float().cpu().numpy() for output in self.task.outputs]


def pick_device(name: str) -> torch.device:
    """Return the device with a name, and connect to the other processes.

    Args:
        name: "cpu", "cuda", "mps", or "auto" for the best device that is present.

    Raises:
        InputError: There is no such device.
    """
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, is_present in present.items() if is_present)
    if not present[name]:
        raise InputError(f"there is no {name} device here", "use --device auto or --device cpu")
    return distributed.init_process_group(torch.device(name))


def to_device(arrays: Mapping[str, Array], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to the device; images with channels last, the faster layout for convolutions."""
    tensors: dict[str, Tensor] = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(array).to(device)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        tensors[name] = tensor
    return tensors


def targets_to_device(arrays: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Copy targets to the device; samples that differ in shape stay a list."""
    targets: dict[str, Any] = {}
    for name, values in arrays.items():
        if isinstance(values, list):
            targets[name] = [torch.from_numpy(array).to(device) for array in values]
        else:
            targets.update(to_device({name: values}, device))
    return targets
