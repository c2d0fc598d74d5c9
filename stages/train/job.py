"""What the stages of a run share, and what follows from it: how long is trained, with which batches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from ltp_pipeline.stages.train.epochs import default_epochs
from ltp_pipeline.stages.train.memory import batch_too_large
from ltp_pipeline.stages.train.optimizer import OptimizerSettings, resolve_optimizer_settings
from ltp_pipeline.system import distributed
from ltp_pipeline.system.arrays import StateDict
from ltp_pipeline.system.memory import is_shortage
from ltp_pipeline.tasks.evaluator import Evaluator
from ltp_pipeline.tasks.protocol import Task

if TYPE_CHECKING:
    from ltp_pipeline.system.arrays import Array


@dataclass(frozen=True)
class ResolvedDefaults:
    """Values that rules chose by measurement for settings that the user left open.

    Attributes:
        accuracy_budget: Largest drop of the metric by default; None if the settings have a budget.
        distillation_weight: Weight of the distillation loss; the loss on labels has the rest.
        aggressiveness: m of (R5), from 0 (fixed masks) to 1; training of thresholds takes longer
            with a higher one.
    """

    accuracy_budget: float | None = None
    distillation_weight: float = 0.0
    aggressiveness: float = 1.0


@dataclass(frozen=True)
class RunContext:
    """Network, task, data and settings of a run, the same in all its stages; weights pass between these as a State."""

    network: Network
    task: Task
    data: DatasetSplits
    settings: Settings
    workspace: RunDirectory
    device: torch.device
    teacher: StateDict | None = None  # the original's, where it is to be learned from
    original: Network | None = None  # of which the teacher is a state, where it is another network
    resolved: ResolvedDefaults = ResolvedDefaults()

    def __post_init__(self) -> None:
        if self.batch_size % distributed.get_world_size():
            raise InputError(
                f"a batch of {self.batch_size} samples cannot be split evenly among {distributed.get_world_size()} processes",
                f"set the batch size to a multiple of {distributed.get_world_size()}",
            )

    @property
    def batch_size(self) -> int:
        """Samples of a step, over all processes."""
        return min(self.settings.train.batch_size, len(self.data.train))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of the training split, at least one."""
        return max(len(self.data.train) // self.batch_size, 1)

    @property
    def epochs(self) -> int:
        """Number of epochs of the threshold-learning phase."""
        return self.settings.train.epochs or self._default_epochs[0]

    @property
    def finetune_epochs(self) -> int:
        """Number of epochs of fine-tuning; half of `train.epochs` if only that is set."""
        given = self.settings.train
        if given.finetune_epochs is not None:
            return given.finetune_epochs
        if given.epochs is not None:
            return math.ceil(given.epochs / 2)
        return self._default_epochs[1]

    @property
    def _default_epochs(self) -> tuple[int, int]:
        """Numbers of epochs by rule, of threshold learning and of fine-tuning."""
        return default_epochs(self.steps_per_epoch, self.resolved.aggressiveness)

    @property
    def int8_epochs(self) -> int:
        """In which it is then trained in 8 bits, where that is asked for: half as many."""
        return math.ceil(self.finetune_epochs / 2)

    @cached_property
    def optimizer(self) -> OptimizerSettings:
        """How weights are moved, by the settings, the network and the loss."""
        return resolve_optimizer_settings(
            self.settings.train, self.network.file.model, self.task.has_unbounded_gradient
        )

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
        """Evaluates states, beside the original where scores are relative to it."""
        if self.teacher is None:
            return Evaluator(self.task.without_interval, None)
        teacher, job = (
            self.teacher,
            self if self.original is None else replace(self, network=self.original),
        )
        return Evaluator(
            self.task.without_interval, lambda inputs: job.compute_outputs(teacher, inputs)
        )

    @property
    def teacher_forward(self) -> CompiledGraph:
        """The network that the teacher is a state of."""
        return (self.original or self.network).forward

    def compute_outputs(self, state: StateDict, inputs: Mapping[str, Array]) -> list[Array]:
        """The judged outputs of a batch, in torch."""
        try:
            with torch.inference_mode():
                found = self.network.forward(to_device(inputs, self.device), state)
        except NodeError as error:
            if is_shortage(error):
                raise batch_too_large(len(next(iter(inputs.values())))) from None
            raise make_sample_error(inputs, "the model does not run", error) from None
        return [found[output.position].float().cpu().numpy() for output in self.task.outputs]


def pick_device(name: str) -> torch.device:
    """Resolve `auto` to the best device there is; with several processes, each has its own."""
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, there in present.items() if there)
    if not present[name]:
        raise InputError(f"there is no {name} device here", "use --device auto or --device cpu")
    return distributed.init_process_group(torch.device(name))


def to_device(arrays: Mapping[str, Array], device: torch.device) -> dict[str, Tensor]:
    """Put arrays on the device; images with channels last, the faster layout for convolutions."""
    tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    return {
        n: t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t
        for n, t in tensors.items()
    }


def targets_to_device(arrays: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """The same for what outputs are compared with; samples that differ in shape stay a list."""
    lists = {
        name: [torch.from_numpy(a).to(device) for a in v]
        for name, v in arrays.items()
        if isinstance(v, list)
    }
    return {
        **to_device({name: v for name, v in arrays.items() if name not in lists}, device),
        **lists,
    }
