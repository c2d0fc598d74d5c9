"""Train a pruned network on in 8 bits: the int8 graph itself, rounded as the file rounds, masks held.

The graph is the deploy graph with the places at which its int8 form rounds. Norms are part of its weights, and those
that are not keep their statistics, so what is trained is what the file computes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ltp_pipeline.exporters.int8.dynamic import LARGEST_STEPS
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX, QuantizableLayer
from ltp_pipeline.exporters.int8.training_graph import (
    MARK_OPERATOR,
    FakeQuantGraph,
    FakeQuantPoint,
    QatResult,
)
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.import_model.network import Network, compile_graph
from ltp_pipeline.stages.import_model.program import Instruction, Program
from ltp_pipeline.stages.import_model.roles import TensorRole
from ltp_pipeline.stages.train import fake_quantize as fake
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.job import RunContext
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.system.arrays import Array, StateDict

NAME = "int8"  # what people and the log call it


@dataclass(frozen=True)
class QatRounding:
    """The tensors of a state as the file rounds them."""

    training: FakeQuantGraph
    axes: Mapping[str, int]  # of output channels, by kernel
    largest: int  # weight in steps

    def compute_scales(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Scales of kernels, shaped to divide them; large enough for biases to be counted in 32 bits."""
        found = {
            name: fake.compute_weight_scale(state[name], axis, self.largest)
            for name, axis in self.axes.items()
        }
        for bias in self.training.biases:
            scale = found[bias.weight_name]
            least = state[bias.name].detach().abs() / (
                self._get_input_scale(state, bias.input_scale) * fake.LARGEST_BIAS
            )
            found[bias.weight_name] = torch.maximum(scale, least.reshape(scale.shape))
        return found

    def round_weights(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Kernels and biases for a forward pass, differentiable."""
        scales = self.compute_scales(state)
        found = {
            name: fake.round_weight(state[name], scale, self.largest)
            for name, scale in scales.items()
        }
        for bias in self.training.biases:
            b = state[bias.name]
            step = (
                scales[bias.weight_name].reshape(-1)
                * self._get_input_scale(state, bias.input_scale)
            ).reshape(b.shape)
            most = 2 * fake.LARGEST_BIAS
            found[bias.name] = fake.round_to_scale(b, step, torch.zeros_like(step), -most, most)
        return found

    @torch.no_grad()
    def compute_int8_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Array]:
        """What the tensors of the int8 graph hold."""
        scales, found = (
            self.compute_scales(state),
            {name: t for name, t in state.items() if name not in self.training.ranges},
        )
        for name, scale in scales.items():
            found[f"{name}_scale"] = scale
            found[name + QUANTIZED_SUFFIX] = torch.round(state[name] / scale).clamp(
                -self.largest, self.largest
            )
        for bias in self.training.biases:
            step = scales[bias.weight_name].reshape(-1) * self._get_input_scale(
                state, bias.input_scale
            )
            found[bias.scale], found[bias.quantized_name] = (
                step,
                torch.round(state[bias.name].reshape(-1) / step),
            )
        for place in self.training.points:
            if not place.is_dynamic:
                found[place.scale], found[place.zero_point] = fake.compute_scale_and_zero(
                    *state[place.scale]
                )
        return {name: t.detach().cpu().numpy() for name, t in found.items()}

    def _get_input_scale(self, state: Mapping[str, Tensor], scale: str) -> Tensor:
        return fake.compute_scale_and_zero(*state[scale].detach().clone())[0]


class QatPhase(MaskedTrainingPhase):
    """Training of a hard-pruned network as it is in 8 bits."""

    def __init__(
        self,
        live: Mapping[str, Tensor],
        job: RunContext,
        masks: Mapping[str, Tensor],
        key: str,
        rounding: QatRounding,
    ) -> None:
        super().__init__(live, job, masks, NAME, key)
        self.rounding = rounding

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Rounded ones."""
        return self.rounding.round_weights(self.tensors)

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - the shape of a Phase
        """Accuracy on the validation split, in 8 bits."""
        with torch.no_grad():
            state_dict = {**self.tensors, **self.effective_weights()}
        return {"val_accuracy": evaluate_metric(self.context, state_dict, self.context.data.val)}


def run(
    job: RunContext, title: str, training: FakeQuantGraph, layers: Sequence[QuantizableLayer]
) -> QatResult:
    """Train a network whose kernels are those of the graph; one that was trained before is taken up again."""
    epochs, bits = job.int8_epochs, job.settings.export.int8_weight_bits
    network, state = build_network(job.network, training)
    rounding = QatRounding(
        training, {layer.weight_name: layer.axis for layer in layers}, LARGEST_STEPS[bits]
    )
    key = f"{title}-{NAME}-{_hash_inputs(rounding, epochs)}"
    kept = job.workspace.load_weights(key)
    if kept is None:
        masks = {
            kernel.name: state[kernel.name] != 0
            for kernel in network.prunable_weights
            if kernel.name in state
        }
        new = replace(job, network=network, original=job.network)
        begin = partial(QatPhase, job=new, masks=masks, key=key, rounding=rounding)
        state = train(new, state, begin, epochs, before=job.epochs + job.finetune_epochs)
        job.workspace.save_weights(key, state, {"epochs": epochs})
    else:
        state = kept[0]
    state = {name: tensor.cpu() for name, tensor in state.items()}
    return QatResult(
        rounding.compute_int8_tensors(state),
        {name: tensor.numpy() for name, tensor in state.items()},
        epochs,
    )


def build_network(network: Network, training: FakeQuantGraph) -> tuple[Network, StateDict]:
    """The network over the graph with its places, and the state that it begins with."""
    walked, _ = flatten_model(training.model)
    forward, state = compile_graph(walked)
    for name in training.frozen_names:
        forward.program.constants[forward.slots[name]] = state.pop(name)
    slots = {name: slot for name, slot in forward.slots.items() if name in state}
    for number, (name, held) in enumerate(training.ranges.items()):
        slots[name] = forward.program.size + number
        state[name] = torch.tensor(held, dtype=torch.float32)
    program = _insert_rounding(forward.program, training.points, slots)
    added = {
        **dict.fromkeys(training.frozen_names, TensorRole.CONSTANT),
        **dict.fromkeys(training.ranges, TensorRole.STATISTIC),
    }
    roles = {**forward.roles, **added}
    made = replace(
        forward,
        program=program,
        slots=slots,
        roles=roles,
        update_fractions={},
        batch_size=network.forward.batch_size,
    )
    file = replace(network.file, model=walked)
    return replace(network, file=file, forward=made, restored_norms=(), norm_observer=None), state


def _insert_rounding(
    program: Program, places: Sequence[FakeQuantPoint], slots: Mapping[str, int]
) -> Program:
    """Round at the marks; norms and all else compute as in the file, also in training."""
    known = {f"{MARK_OPERATOR} {place.node_name!r}": place for place in places}
    steps = []
    for step in program.instructions:
        place = known.get(step.label)
        steps.append(
            _disable_training_mode(step) if place is None else _round_step(step, place, slots)
        )
    return replace(
        program, instructions=steps, size=max(program.size, *(slot + 1 for slot in slots.values()))
    )


def _round_step(step: Instruction, place: FakeQuantPoint, slots: Mapping[str, int]) -> Instruction:
    if place.is_dynamic:
        return replace(
            step, function=fake.round_dynamic_activation, keywords={}, uses_training=True
        )
    inputs, keywords = (step.inputs[0], slots[place.scale]), {"share": place.extremes_fraction}
    return replace(
        step, function=fake.round_activation, inputs=inputs, keywords=keywords, uses_training=True
    )


def _disable_training_mode(step: Instruction) -> Instruction:
    if not step.uses_training:
        return step
    return replace(step, uses_training=False, keywords={**step.keywords, "training": False})


def _hash_inputs(rounding: QatRounding, epochs: int) -> str:
    """Of what the result depends on beside the run: graph, weights, places, epochs."""
    training, model = rounding.training, rounding.training.model
    told = (
        training.points,
        training.biases,
        dict(training.ranges),
        dict(rounding.axes),
        rounding.largest,
        epochs,
    )
    found = hashlib.sha256(repr(told).encode())
    found.update(model.proto.SerializeToString(deterministic=True))
    for name in sorted(model.weights):
        found.update(name.encode() + np.ascontiguousarray(model.weights[name]).tobytes())
    return found.hexdigest()[:12]
