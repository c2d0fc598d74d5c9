"""The trainable form of a model: its graph, compiled for torch, and what surrounds it.

A network keeps the file's tensors, names, layouts and order of nodes, so that trained values can
be written back by name. It holds no weights itself. They are passed to every call as a state
dict, the tensors by their ONNX names; training, pruning and evaluation can therefore use
different weights with the same network, and one state dict is one version of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from onnx import GraphProto
from torch import Tensor

from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.graph.nodes import format_node, get_attribute, is_standard
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.view import iter_uses
from ltp_pipeline.stages.import_model import ops
from ltp_pipeline.stages.import_model.fixed_batch import relax_batch_size, run_in_chunks
from ltp_pipeline.stages.import_model.ops.normalization import update_fraction
from ltp_pipeline.stages.import_model.program import GraphCompiler, NodeError, Program, name_errors
from ltp_pipeline.stages.import_model.roles import TensorRole, assign_roles
from ltp_pipeline.stages.import_model.values import (
    HALF_TYPES,
    TORCH_TYPES,
    get_constant_value,
    is_number_constant,
    to_single_precision,
    to_torch,
)
from ltp_pipeline.system.arrays import StateDict

__all__ = ["CompiledGraph", "Network", "RestoredNorm", "compile_graph", "compile_observer", "ops"]


@dataclass(frozen=True)
class CompiledGraph:
    """A graph compiled for torch, which can be called with inputs and a state dict.

    Half-precision weights are stored and computed with in single precision; outputs have the
    types that the graph declares.

    Attributes:
        program: The instructions.
        slots: Value slot of each tensor of the state dict.
        roles: Role of every tensor of the graph.
        input_names: Names of the inputs that a call needs.
        output_types: Declared types of the outputs; None for a type that torch does not have.
        is_half: True if weights of the file have half precision.
        update_fractions: For each running statistic of a normalization layer, the fraction of
            the way towards a batch's own statistic by which a training step moves it.
        batch_size: Number of samples to run at a time; None if the graph runs on any number.
    """

    program: Program
    slots: Mapping[str, int]
    roles: Mapping[str, TensorRole]
    input_names: tuple[str, ...]
    output_types: tuple[torch.dtype | None, ...]
    is_half: bool
    update_fractions: Mapping[str, float]
    batch_size: int | None = None

    def __call__(
        self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run the graph and return its outputs in order.

        Args:
            inputs: Input tensors by name.
            state: Weights and running statistics by name.
            training: If True, normalization layers use the statistics of the batch and update
                those of the state dict.

        Raises:
            NodeError: If an input is missing or a node fails; the message names it.
        """
        for name in self.input_names:
            if name not in inputs:
                raise NodeError(f"there is no value for input {name!r}")
        if self.batch_size is None:
            return self._run_once(inputs, state, training)
        run = partial(self._run_once, state=state, training=training)
        try:
            return run_in_chunks(run, inputs, self.batch_size)
        except ValueError as error:
            raise NodeError(str(error)) from None

    def _run_once(
        self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], training: bool
    ) -> tuple[Any, ...]:
        values = self.program.make_values()
        for name, slot in self.slots.items():
            values[slot] = state[name]
        for slot, name in zip(self.program.inputs, self.input_names, strict=True):
            values[slot] = inputs[name]
            if self.is_half:
                values[slot] = to_single_precision(inputs[name])
        # All weights are on one device, so that the first one tells where they are.
        samples = [*inputs.values(), *(state[name] for name in list(self.slots)[:1])]
        off_cpu = any(isinstance(v, Tensor) and v.device.type != "cpu" for v in samples)
        outputs = self.program.run(values, training, off_cpu)
        if not self.is_half:
            return outputs
        narrow_outputs = list(outputs)
        for i, dtype in enumerate(self.output_types):
            if dtype in HALF_TYPES and isinstance(outputs[i], Tensor):
                narrow_outputs[i] = outputs[i].to(dtype)
        return tuple(narrow_outputs)

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the tensors that are trained; the others of a state dict are statistics."""
        return tuple(name for name in self.slots if self.roles[name] is TensorRole.WEIGHT)


@dataclass(frozen=True)
class RestoredNorm:
    """A BatchNormalization after a Conv that only the network has, not the file.

    Its shift is stored under the name of the Conv's bias, which it replaces.

    Attributes:
        layer_weight: Name of the Conv's weight.
        bias: Name of the Conv's bias.
        scale: Name of the scale γ.
        mean: Name of the running mean.
        variance: Name of the running variance.
    """

    layer_weight: str
    bias: str
    scale: str
    mean: str
    variance: str

    @property
    def added_names(self) -> tuple[str, str, str]:
        """Names of the tensors of the state dict that the file does not have."""
        return self.scale, self.mean, self.variance


@dataclass(frozen=True)
class ChannelUnits:
    """Units in which a layer in front of a BatchNormalization is trained.

    Attributes:
        layer_weight: Name of the layer's weight.
        bias: Name of the layer's bias; None if it has none.
        scale: Name of the scale γ.
        mean: Name of the running mean.
        variance: Name of the running variance.
        axis: Axis of the output channels in the weight.
        epsilon: ε of the BatchNormalization.
        factors: Value in training / value in the file, for each output channel.
    """

    layer_weight: str
    bias: str | None
    scale: str
    mean: str
    variance: str
    axis: int
    epsilon: float
    factors: Tensor


@dataclass(frozen=True)
class Network:
    """A model that can be trained: the file it came from, and its graph for torch.

    Attributes:
        file: The model as read, with its original weights. Its graph is written back.
        forward: The compiled graph.
        layer_weights: Weights of the layers, in graph order.
        parity: Largest difference between torch and onnxruntime, relative to the size of the
            output; None if nothing could be compared.
        notes: Sentences about what was done to the graph and what could not be checked.
        restored_norms: BatchNormalizations that were restored, in graph order.
        units: Units of training of layers in front of a BatchNormalization.
        norm_observer: The graph compiled to return, after its outputs, the input of each
            restored BatchNormalization; None if there are none.
    """

    file: ModelFile
    forward: CompiledGraph
    layer_weights: tuple[LayerWeight, ...]
    parity: float | None = None
    notes: tuple[str, ...] = ()
    restored_norms: tuple[RestoredNorm, ...] = ()
    norm_observer: CompiledGraph | None = field(default=None, repr=False)
    units: tuple[ChannelUnits, ...] = field(default=(), repr=False)

    @property
    def prunable_weights(self) -> tuple[LayerWeight, ...]:
        """Layer weights that pruning may change, in graph order."""
        return tuple(weight for weight in self.layer_weights if weight.is_prunable)

    def with_note(self, note: str) -> Network:
        """Return the network with one more note."""
        return replace(self, notes=(*self.notes, note))


def compile_graph(model: OnnxModel) -> tuple[CompiledGraph, StateDict]:
    """Compile a graph, its functions inlined, for torch.

    Returns:
        The compiled graph, and the tensors that training may change by name.

    Raises:
        NodeError: If a tensor cannot be read or a node cannot be built.
    """
    graph = model.graph
    opset = get_standard_opset(model.proto)
    tensors = relax_batch_size(model, read_tensors(model))
    roles = assign_roles(graph, tensors, opset)
    state = {name: t for name, t in tensors.items() if roles[name] is not TensorRole.CONSTANT}
    weights = [tensor for name, tensor in state.items() if roles[name] is TensorRole.WEIGHT]
    is_half = any(tensor.dtype in HALF_TYPES for tensor in weights)
    compiler = GraphCompiler(opset, wide=is_half, weights=model.weights)
    forward = CompiledGraph(
        program=compiler.compile(graph, tensors, trained=state),
        slots={name: compiler.slots[name] for name in state},
        roles=roles,
        input_names=tuple(i.name for i in graph.input if i.name not in tensors),
        output_types=tuple(TORCH_TYPES.get(o.type.tensor_type.elem_type) for o in graph.output),
        is_half=is_half,
        update_fractions=_get_update_fractions(graph, roles),
    )
    return forward, {name: to_single_precision(tensor) for name, tensor in state.items()}


def compile_observer(model: OnnxModel, names: Sequence[str]) -> CompiledGraph:
    """Compile a graph that returns the values of these names after its outputs."""
    proto = copy_proto(model.proto)
    for name in names:
        proto.graph.output.add().name = name
    return compile_graph(replace(model, proto=proto))[0]


def read_tensors(model: OnnxModel) -> dict[str, Tensor]:
    """Return the stored tensors of a graph by name.

    Some exporters store tensors as Constant nodes, so these count as well. Initializers of types
    that torch does not have are left out; a node that reads one reports it.

    Raises:
        NodeError: If a tensor cannot be read.
    """
    tensors: dict[str, Tensor] = {}
    for tensor in model.graph.initializer:
        if tensor.data_type in TORCH_TYPES:
            with name_errors(f"the initializer {tensor.name!r} cannot be read"):
                tensors[tensor.name] = to_torch(tensor, model.weights)
    for node in model.graph.node:
        if is_number_constant(node) and node.output[0] not in tensors:
            with name_errors(format_node(node)):
                tensors[node.output[0]] = get_constant_value(node, model.weights)
    return tensors


def _get_update_fractions(graph: GraphProto, roles: Mapping[str, TensorRole]) -> dict[str, float]:
    fractions: dict[str, float] = {}
    for node, _, name in iter_uses(graph):
        is_statistic = roles.get(name) is TensorRole.STATISTIC
        if is_statistic and is_standard(node, "BatchNormalization"):
            fractions[name] = update_fraction(get_attribute(node, "momentum", 0.9))
    return fractions
