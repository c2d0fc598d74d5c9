"""A model's graph as torch runs it: same tensors, same names, same layouts, same order of nodes.

A network holds no weights. They come as a `State`, the tensors by their ONNX names, with every call.
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
from ltp_pipeline.stages.import_model.nodes import constant_value, is_tensor_constant
from ltp_pipeline.stages.import_model.ops.normalization import update_share
from ltp_pipeline.stages.import_model.program import GraphCompiler, NodeError, Program, read_guarded
from ltp_pipeline.stages.import_model.roles import TensorRole, assign_roles
from ltp_pipeline.stages.import_model.values import (
    HALF_TYPES,
    TORCH_TYPES,
    to_single_precision,
    to_torch,
)
from ltp_pipeline.system.arrays import StateDict

__all__ = ["CompiledGraph", "Network", "RestoredNorm", "compile_graph", "compile_observer", "ops"]


@dataclass(frozen=True)
class CompiledGraph:
    """A compiled graph.

    Half-precision weights are held and computed with in single precision; outputs have the types the graph declares.
    """

    program: Program
    slots: Mapping[str, int]  # of the tensors of a state
    roles: Mapping[str, TensorRole]  # of every tensor of the graph
    input_names: tuple[str, ...]
    output_types: tuple[torch.dtype | None, ...]
    is_half: bool
    update_fractions: Mapping[
        str, float
    ]  # running statistics of norms, and how far a batch moves each
    batch_size: int | None = (
        None  # how many samples it is run on at a time, where it does not run on any number
    )

    def __call__(
        self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], training: bool = False
    ) -> tuple[Any, ...]:
        """Run the graph; in training, norms compute with the batch's own statistics and move those of the state."""
        if missing := [name for name in self.input_names if name not in inputs]:
            raise NodeError(f"no value is given for input {missing[0]!r}")
        if self.batch_size is None:
            return self._run(inputs, state, training)
        try:
            return run_in_chunks(
                partial(self._run, state=state, training=training), inputs, self.batch_size
            )
        except ValueError as error:
            raise NodeError(str(error)) from None

    def _run(
        self, inputs: Mapping[str, Tensor], state: Mapping[str, Tensor], training: bool
    ) -> tuple[Any, ...]:
        values = self.program.make_values()
        for name, slot in self.slots.items():
            values[slot] = state[name]
        for slot, name in zip(self.program.inputs, self.input_names, strict=True):
            values[slot] = to_single_precision(inputs[name]) if self.is_half else inputs[name]
        probes = (*inputs.values(), *(state[name] for name in [*self.slots][:1]))
        off_cpu = any(isinstance(v, Tensor) and v.device.type != "cpu" for v in probes)
        outputs = self.program.run(values, training, off_cpu)
        if not self.is_half:
            return outputs
        return tuple(
            y.to(dtype) if isinstance(y, Tensor) and dtype in HALF_TYPES else y
            for y, dtype in zip(outputs, self.output_types, strict=True)
        )

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Tensors of a state that are trained; the others are running statistics."""
        return tuple(name for name in self.slots if self.roles[name] is TensorRole.WEIGHT)


def compile_graph(model: OnnxModel) -> tuple[CompiledGraph, StateDict]:
    """Compile a graph; also its tensors that training changes."""
    graph = model.graph
    opset = get_standard_opset(model.proto)
    initial = relax_batch_size(model, read_tensors(model))
    roles = assign_roles(graph, initial, opset)
    state = {
        name: tensor for name, tensor in initial.items() if roles[name] is not TensorRole.CONSTANT
    }
    is_half = any(
        t.dtype in HALF_TYPES for name, t in state.items() if roles[name] is TensorRole.WEIGHT
    )
    compiler = GraphCompiler(opset, wide=is_half, weights=model.weights)
    program = compiler.compile(graph, initial, trained=state)
    forward = CompiledGraph(
        program,
        {name: compiler.slots[name] for name in state},
        roles,
        tuple(i.name for i in graph.input if i.name not in initial),
        tuple(TORCH_TYPES.get(o.type.tensor_type.elem_type) for o in graph.output),
        is_half,
        _update_shares(graph, roles),
    )
    return forward, {name: to_single_precision(tensor) for name, tensor in state.items()}


def _update_shares(graph: GraphProto, roles: Mapping[str, TensorRole]) -> dict[str, float]:
    """For each running statistic, the share of the way to a batch's own that the batch moves it."""
    return {
        name: update_share(get_attribute(node, "momentum", 0.9))
        for node, _, name in iter_uses(graph)
        if is_standard(node, "BatchNormalization") and roles.get(name) is TensorRole.STATISTIC
    }


@dataclass(frozen=True)
class RestoredNorm:
    """A BatchNormalization that only the network has, after a Conv of the file; its bias goes by the Conv's name."""

    layer_weight: str
    bias: str
    scale: str
    mean: str
    variance: str

    @property
    def added_names(self) -> tuple[str, str, str]:
        """Tensors of the state that the file does not have."""
        return self.scale, self.mean, self.variance


@dataclass(frozen=True)
class Network:
    """A model that can be trained: the file it came from, and its graph for torch."""

    file: ModelFile  # with the original weights; its graph is the one that is written back
    forward: CompiledGraph
    layer_weights: tuple[LayerWeight, ...]
    parity: float | None = (
        None  # largest difference between torch and onnxruntime, relative to the output's size
    )
    notes: tuple[str, ...] = ()  # what was done to the graph, what could not be checked
    restored_norms: tuple[RestoredNorm, ...] = ()  # in graph order
    norm_observer: CompiledGraph | None = field(
        default=None, repr=False
    )  # returns, last, what each restored norm reads

    @property
    def prunable_weights(self) -> tuple[LayerWeight, ...]:
        """The kernels that pruning may touch, in graph order."""
        return tuple(k for k in self.layer_weights if k.is_prunable)


def compile_observer(model: OnnxModel, names: Sequence[str]) -> CompiledGraph:
    """The same graph, compiled to return these values too, last."""
    proto = copy_proto(model.proto)
    for name in names:
        proto.graph.output.add().name = name
    return compile_graph(replace(model, proto=proto))[0]


def read_tensors(model: OnnxModel) -> dict[str, Tensor]:
    """Initializers, and the tensors that some exporters write as Constant nodes instead."""
    tensors: dict[str, Tensor] = {}
    for tensor in model.graph.initializer:
        if tensor.name in tensors:
            raise NodeError(f"the initializer {tensor.name!r} is there twice")
        if (
            tensor.data_type in TORCH_TYPES
        ):  # a node that reads one of another type says so by itself
            what = f"the initializer {tensor.name!r} cannot be read"
            tensors[tensor.name] = read_guarded(
                partial(to_torch, weights=model.weights), tensor, what
            )
    for node in model.graph.node:
        if is_tensor_constant(node) and node.output[0] not in tensors:
            tensors[node.output[0]] = read_guarded(
                partial(constant_value, weights=model.weights), node, format_node(node)
            )
    return tensors
