"""A trainable torch module over an ONNX graph: same tensors, same names, same layouts, same order of nodes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from onnx import ModelProto, NodeProto, shape_inference
from torch import Tensor, nn

from ltp_pipeline.graph import label, reads, standard_opset
from ltp_pipeline.stages.import_model import ops
from ltp_pipeline.stages.import_model.nodes import constant_value
from ltp_pipeline.stages.import_model.nodes import is_tensor_constant as is_tensor_constant
from ltp_pipeline.stages.import_model.program import Compiler, NodeError, guarded
from ltp_pipeline.stages.import_model.roles import Role, assign_roles
from ltp_pipeline.stages.import_model.tensors import HALF_TYPES, TORCH_TYPES, to_torch, widened

__all__ = ["GraphModule", "attribute_name", "is_tensor_constant", "observer", "ops", "read_tensors"]


class GraphModule(nn.Module):
    """Walks the nodes of a model's graph; `tensors` maps ONNX names to the live parameters and buffers.

    Half-precision weights are held and computed with in single precision; outputs have the types the graph declares.
    """

    def __init__(self, model: ModelProto) -> None:
        super().__init__()
        graph = model.graph
        opset = standard_opset(model)
        initial = any_batch(model, read_tensors(model))
        self.roles = assign_roles(graph, initial, opset)
        self.input_names = tuple(i.name for i in graph.input if i.name not in initial)
        self.output_names = tuple(o.name for o in graph.output)
        kept = {name: tensor for name, tensor in initial.items() if self.roles[name] is not Role.CONSTANT}
        self.wide = any(t.dtype in HALF_TYPES for name, t in kept.items() if self.roles[name] is Role.WEIGHT)
        self._output_types = [TORCH_TYPES.get(o.type.tensor_type.elem_type) for o in graph.output]
        compiler = Compiler(opset, wide=self.wide)
        self.program = compiler.compile(graph, initial, trained=kept)
        self._slots = [(name, attribute_name(name), compiler.slots[name]) for name in kept]
        for name, tensor in kept.items():
            if self.roles[name] is Role.WEIGHT:
                self.register_parameter(attribute_name(name), nn.Parameter(widened(tensor)))
            else:
                self.register_buffer(attribute_name(name), widened(tensor))

    def forward(self, *inputs: Tensor, weights: Mapping[str, Tensor] | None = None) -> tuple[Any, ...]:
        """Run the graph; `weights` stand in for the module's own tensors of the same name."""
        program = self.program
        if len(inputs) != len(program.inputs):
            raise NodeError(f"{len(inputs)} inputs given, the graph has {', '.join(self.input_names) or 'none'}")
        values = program.blank()
        for name, attribute, slot in self._slots:
            replaced = weights.get(name) if weights else None
            values[slot] = getattr(self, attribute) if replaced is None else replaced
        for slot, value in zip(program.inputs, inputs, strict=True):
            values[slot] = widened(value) if self.wide else value
        probes = (*inputs, values[self._slots[0][2]]) if self._slots else inputs
        off_cpu = any(isinstance(v, Tensor) and v.device.type != "cpu" for v in probes)
        outputs = program.run(values, self.training, off_cpu)
        if not self.wide:
            return outputs
        return tuple(
            y.to(dtype) if isinstance(y, Tensor) and dtype in HALF_TYPES else y
            for y, dtype in zip(outputs, self._output_types, strict=True)
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every trained or updated tensor under its ONNX name."""
        return {name: getattr(self, attribute) for name, attribute, _ in self._slots}


def observer(model: ModelProto, names: Sequence[str]) -> GraphModule:
    """A module over the same graph that also returns these values, last; without weights of its own."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for name in names:
        copy.graph.output.add().name = name
    return GraphModule(copy).to("meta").eval()


# A tensor may be called like something that every module already has, e.g. "training".
_TAKEN = frozenset(dir(nn.Module())) | {"roles", "input_names", "output_names", "wide", "program", "tensors"}


def attribute_name(name: str) -> str:
    """Attribute under which a tensor is registered: torch allows every character but the dot."""
    escaped = name.replace("%", "%25").replace(".", "%2E") or "%"
    return f"{escaped}%" if escaped in _TAKEN else escaped


def any_batch(model: ModelProto, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let Reshapes that spell out a fixed batch size infer or copy it, so that training can use another.

    For the size the file fixes nothing changes: -1, or 0 where -1 is taken, then stands for the same number.
    """
    sizes = [i.type.tensor_type.shape.dim for i in model.graph.input if i.name not in tensors]
    batch = sizes[0][0].dim_value if sizes and sizes[0] else 0
    uses: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    for node, slot, name in reads(model.graph):
        uses[name].append((node, slot))
    first: dict[str, int] | None = None
    for name, shape in tensors.items():
        only = uses[name] and all((node.op_type, slot) == ("Reshape", 1) for node, slot in uses[name])
        if batch <= 0 or not only or shape.dim() != 1 or shape.numel() < 2 or int(shape[0]) != batch:
            continue
        if bool((shape > 0).all()):
            tensors[name] = torch.cat([shape.new_tensor([-1]), shape[1:]])
        elif bool((shape != 0).all()):
            first = _first_dims(model) if first is None else first
            if all(first.get(node.input[0]) == batch and not _zero_is_zero(node) for node, _ in uses[name]):
                tensors[name] = torch.cat([shape.new_tensor([0]), shape[1:]])
    return tensors


def _zero_is_zero(reshape: NodeProto) -> bool:
    return any(a.name == "allowzero" and a.i for a in reshape.attribute)


def _first_dims(model: ModelProto) -> dict[str, int]:
    """First dimensions of the graph's values, as far as they can be inferred."""
    try:
        graph = shape_inference.infer_shapes(model).graph
    except Exception:  # noqa: BLE001 - it is over 2 GB, or the graph has a flaw that is told elsewhere
        return {}
    values = [*graph.input, *graph.value_info, *graph.output]
    return {v.name: v.type.tensor_type.shape.dim[0].dim_value for v in values if v.type.tensor_type.shape.dim}


def read_tensors(model: ModelProto) -> dict[str, Tensor]:
    """Initializers, and the tensors that some exporters write as Constant nodes instead."""
    tensors: dict[str, Tensor] = {}
    for tensor in model.graph.initializer:
        if tensor.name in tensors:
            raise NodeError(f"the initializer {tensor.name!r} is there twice")
        if tensor.data_type in TORCH_TYPES:  # a node that reads one of another type says so by itself
            tensors[tensor.name] = guarded(to_torch, tensor, f"the initializer {tensor.name!r} cannot be read")
    for node in model.graph.node:
        if is_tensor_constant(node) and node.output[0] not in tensors:
            tensors[node.output[0]] = guarded(constant_value, node, label(node))
    return tensors
