"""Fine-tune a pruned network with the rounding of its int8 file (quantization-aware training).

The network is trained on the deploy graph, in which every value is rounded that the int8 file
rounds. Norms are folded into its weights, and other norms keep their statistics, so that training
computes what the file computes. Masks stay fixed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Any

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
    QuantizedBias,
)
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.import_model.network import Network, compile_graph
from ltp_pipeline.stages.import_model.program import Program
from ltp_pipeline.stages.import_model.roles import TensorRole
from ltp_pipeline.stages.train import fake_quantize as fake
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.evaluate import evaluate_metric
from ltp_pipeline.stages.train.loop import train
from ltp_pipeline.system.arrays import Array, StateDict

NAME = "int8"  # of the phase in progress and logs


@dataclass(frozen=True)
class QatRounding:
    """How the int8 file rounds the tensors of a training graph."""

    graph: FakeQuantGraph
    axes: Mapping[str, int]  # of output channels, by name of the layer weight
    largest: int  # largest absolute value of a weight in steps

    def compute_scales(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the scale of each layer weight, in a shape that divides the weight.

        A scale is large enough for the bias of its layer, in steps of it, to fit into 32 bits.
        """
        scales = {}
        for name, axis in self.axes.items():
            scales[name] = fake.compute_weight_scale(state[name], axis, self.largest)
        for bias in self.graph.biases:
            scale = scales[bias.weight_name]
            input_scale = _get_input_scale(state, bias)
            min_scale = state[bias.name].detach().abs() / (input_scale * fake.LARGEST_BIAS)
            scales[bias.weight_name] = torch.maximum(scale, min_scale.reshape(scale.shape))
        return scales

    def round_weights(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rounded layer weights and biases, with gradients of those in the state."""
        scales = self.compute_scales(state)
        rounded = {}
        for name, scale in scales.items():
            rounded[name] = fake.round_weight(state[name], scale, self.largest)
        for bias in self.graph.biases:
            value = state[bias.name]
            step = _compute_bias_step(state, bias, scales).reshape(value.shape)
            rounded[bias.name] = fake.round_weight(value, step, 2 * fake.LARGEST_BIAS)
        return rounded

    @torch.no_grad()
    def compute_int8_tensors(self, state: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return the tensors of the int8 graph by name."""
        scales = self.compute_scales(state)
        tensors = {name: t for name, t in state.items() if name not in self.graph.ranges}
        for name, scale in scales.items():
            steps = torch.round(state[name] / scale).clamp(-self.largest, self.largest)
            tensors[f"{name}_scale"] = scale
            tensors[name + QUANTIZED_SUFFIX] = steps
        for bias in self.graph.biases:
            step = _compute_bias_step(state, bias, scales)
            tensors[bias.scale] = step
            tensors[bias.quantized_name] = torch.round(state[bias.name].reshape(-1) / step)
        for point in self.graph.points:
            if not point.is_dynamic:
                scale, zero_point = fake.compute_scale_and_zero(*state[point.scale])
                tensors[point.scale] = scale
                tensors[point.zero_point] = zero_point
        return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


def _get_input_scale(state: Mapping[str, Tensor], bias: QuantizedBias) -> Tensor:
    """Return the scale of the activation that the layer of a bias reads."""
    scale, _ = fake.compute_scale_and_zero(*state[bias.input_scale].detach().clone())
    return scale


def _compute_bias_step(
    state: Mapping[str, Tensor], bias: QuantizedBias, scales: Mapping[str, Tensor]
) -> Tensor:
    """Return the step of a bias for each output channel, from the scales of layer weights."""
    return scales[bias.weight_name].reshape(-1) * _get_input_scale(state, bias)


class QatPhase(MaskedTrainingPhase):
    """Training of a hard-pruned network with rounded weights and activations."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        context: RunContext,
        masks: Mapping[str, Tensor],
        key: str,
        rounding: QatRounding,
    ) -> None:
        """Begin the phase.

        Args:
            tensors: The tensors being trained, by name.
            context: The run, with the network of the training graph.
            masks: True for each weight that is kept, by layer.
            key: Name of its checkpoint.
            rounding: How tensors are rounded.
        """
        super().__init__(tensors, context, masks, NAME, key)
        self.rounding = rounding

    def effective_weights(self) -> Mapping[str, Tensor]:
        """Return the rounded layer weights and biases."""
        return self.rounding.round_weights(self.tensors)

    def end_epoch(self, epoch: int) -> dict[str, float]:  # noqa: ARG002 - protocol of a phase
        """Return the metric on the validation split, with rounding."""
        with torch.no_grad():
            state = {**self.tensors, **self.effective_weights()}
        return {"val_accuracy": evaluate_metric(self.context, state, self.context.data.val)}


def run(
    context: RunContext,
    title: str,
    graph: FakeQuantGraph,
    layers: Sequence[QuantizableLayer],
) -> QatResult:
    """Train the network of a training graph, or load its weights if it was trained before.

    `title` is the name of the network in its checkpoint.
    """
    epochs = context.int8_epochs
    network, state = build_network(context.network, graph)
    axes = {layer.weight_name: layer.axis for layer in layers}
    largest = LARGEST_STEPS[context.settings.export.int8_weight_bits]
    rounding = QatRounding(graph, axes, largest)
    key = f"{title}-{NAME}-{_hash_inputs(rounding, epochs)}"
    saved = context.run_directory.load_weights(key)
    if saved is None:
        masks = {}
        for weight in network.prunable_weights:
            if weight.name in state:
                masks[weight.name] = state[weight.name] != 0
        qat_context = replace(context, network=network, original=context.network)
        begin = partial(QatPhase, context=qat_context, masks=masks, key=key, rounding=rounding)
        epochs_before = context.epochs + context.finetune_epochs
        state = train(qat_context, state, begin, epochs, before=epochs_before)
        context.run_directory.save_weights(key, state, {"epochs": epochs})
    else:
        state = saved[0]
    state = {name: tensor.cpu() for name, tensor in state.items()}
    float_tensors = {name: tensor.numpy() for name, tensor in state.items()}
    return QatResult(rounding.compute_int8_tensors(state), float_tensors, epochs)


def build_network(network: Network, graph: FakeQuantGraph) -> tuple[Network, StateDict]:
    """Compile a training graph.

    Returns:
        The network with rounding at the marks, and its initial state.
    """
    model, _ = flatten_model(graph.model)
    forward, state = compile_graph(model)
    for name in graph.frozen_names:
        forward.program.constants[forward.slots[name]] = state.pop(name)
    slots = {name: slot for name, slot in forward.slots.items() if name in state}
    for number, (name, value_range) in enumerate(graph.ranges.items()):
        slots[name] = forward.program.size + number
        state[name] = torch.tensor(value_range, dtype=torch.float32)
    roles = dict(forward.roles)
    roles.update(dict.fromkeys(graph.frozen_names, TensorRole.CONSTANT))
    roles.update(dict.fromkeys(graph.ranges, TensorRole.STATISTIC))
    forward = replace(
        forward,
        program=_insert_rounding(forward.program, graph.points, slots),
        slots=slots,
        roles=roles,
        update_fractions={},
        batch_size=network.forward.batch_size,
    )
    network = replace(
        network,
        file=replace(network.file, model=model),
        forward=forward,
        restored_norms=(),
        norm_observer=None,
        units=(),
    )
    return network, state


def _insert_rounding(
    program: Program, points: Sequence[FakeQuantPoint], slots: Mapping[str, int]
) -> Program:
    """Return a program that rounds at its marks, with norms in inference mode as in the file."""
    point_of = {f"{MARK_OPERATOR} {point.node_name!r}": point for point in points}
    instructions = []
    for instruction in program.instructions:
        point = point_of.get(instruction.label)
        changes: dict[str, Any] = {}
        if point is not None and point.is_dynamic:
            changes = {"function": fake.round_dynamic_activation, "keywords": {}}
        elif point is not None:
            changes = {
                "function": fake.round_activation,
                "inputs": (instruction.inputs[0], slots[point.scale]),
                "keywords": {"fraction": point.extremes_fraction},
            }
        elif instruction.uses_training:
            changes = {"keywords": {**instruction.keywords, "training": False}}
        uses_training = point is not None
        instructions.append(replace(instruction, uses_training=uses_training, **changes))
    size = max(program.size, *(slot + 1 for slot in slots.values()))
    return replace(program, instructions=instructions, size=size)


def _hash_inputs(rounding: QatRounding, epochs: int) -> str:
    """Return a hash of everything in addition to the run that the trained weights depend on."""
    graph = rounding.graph
    content = {
        "points": [astuple(point) for point in graph.points],
        "biases": [astuple(bias) for bias in graph.biases],
        "ranges": dict(graph.ranges),
        "axes": dict(rounding.axes),
        "largest": rounding.largest,
        "epochs": epochs,
    }
    digest = hashlib.sha256(json.dumps(content).encode())
    digest.update(graph.model.proto.SerializeToString(deterministic=True))
    for name in sorted(graph.model.weights):
        digest.update(name.encode() + np.ascontiguousarray(graph.model.weights[name]).tobytes())
    return digest.hexdigest()[:12]
