"""Operators that the standard defines by other operators: a node becomes the body of its schema."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, helper
from torch import Tensor

from ltp_pipeline.graph.schemas import get_opset
from ltp_pipeline.stages.import_model.values import TORCH_TYPES

if TYPE_CHECKING:
    from ltp_pipeline.stages.import_model.program import Program

_ONNX_TYPES = {dtype: data_type for data_type, dtype in TORCH_TYPES.items()}


class BodyFunction:
    """Runs one node through its schema's body, compiled once for each combination of input types.

    Some bodies depend on the types of the inputs, which are known only when the node runs.
    """

    def __init__(
        self,
        node: NodeProto,
        schema: Any,
        opset: int,
        builder: Callable[[GraphProto, int], "Program"],
    ) -> None:
        self.node = node
        self.schema = schema
        self.opset = opset
        self.builder = builder
        self.programs: dict[tuple[torch.dtype | None, ...], Program] = {}

    def __call__(self, *inputs: Tensor | None, training: bool = False) -> tuple[Any, ...]:
        """Run the body as an operator function is run."""
        key = tuple(None if x is None else x.dtype for x in inputs)
        if key not in self.programs:
            self.programs[key] = self._build(inputs)
        program = self.programs[key]
        values = program.make_values()
        for slot, value in zip(program.inputs, (x for x in inputs if x is not None), strict=True):
            values[slot] = value
        off_cpu = any(x is not None and x.device.type != "cpu" for x in inputs)
        results = iter(program.run(values, training, off_cpu))
        return tuple(next(results) if name else None for name in self.node.output)

    def _build(self, inputs: Sequence[Tensor | None]) -> "Program":
        function = self._body(inputs)
        given = {name: x for name, x in zip(function.input, inputs, strict=False) if x is not None}
        graph = to_graph(function, self._attributes(function), given)
        for i in reversed(range(len(graph.output))):
            if i >= len(self.node.output) or not self.node.output[i]:
                del graph.output[i]
        return self.builder(graph, get_opset(function, "", self.opset))

    def _body(self, inputs: Sequence[Tensor | None]) -> FunctionProto:
        version = max(
            (v for v in self.schema.all_function_opset_versions if v <= self.opset), default=None
        )
        if version is None:
            raise ValueError(f"the standard's definition needs a newer opset than {self.opset}")
        if not self.schema.has_context_dependent_function:
            plain: FunctionProto = FunctionProto.FromString(
                self.schema.get_function_with_opset_version(version)
            )
            return plain
        types = [TypeProto() if x is None else _type_of(x) for x in inputs]
        content = self.schema.get_context_dependent_function_with_opset_version(
            version, self.node.SerializeToString(), [t.SerializeToString() for t in types]
        )
        function: FunctionProto = FunctionProto.FromString(content)
        if not function.node:
            raise ValueError("the standard defines no function for these inputs")
        return function

    def _attributes(self, function: FunctionProto) -> dict[str, AttributeProto]:
        defaults = {
            name: a.default_value
            for name, a in self.schema.attributes.items()
            if a.default_value.name
        }
        given = {a.name: a for a in self.node.attribute}
        return {**defaults, **{a.name: a for a in function.attribute_proto}, **given}


def _type_of(x: Tensor) -> TypeProto:
    return helper.make_tensor_type_proto(_ONNX_TYPES[x.dtype], [None] * x.dim())


def to_graph(
    function: FunctionProto, attributes: Mapping[str, AttributeProto], given: Mapping[str, Any]
) -> GraphProto:
    """The body as a graph over the inputs that are there, references to attributes replaced by their values."""
    absent = set(function.input) - given.keys()
    graph = GraphProto(name=function.name)
    for name in function.input:
        if name in given:
            graph.input.add().name = name
    for name in function.output:
        graph.output.add().name = name
    for node in function.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        _substitute(copy, attributes, absent)
    return graph


def _substitute(
    node: NodeProto, attributes: Mapping[str, AttributeProto], absent: set[str]
) -> None:
    for i, name in enumerate(node.input):
        if name in absent:
            node.input[i] = ""
    resolved = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in attributes:
                continue
            value = AttributeProto()
            value.CopyFrom(attributes[attribute.ref_attr_name])
            value.name = attribute.name
            resolved.append(value)
        else:
            for inner in attribute.g.node:
                _substitute(inner, attributes, absent)
            resolved.append(attribute)
    copies = [AttributeProto.FromString(a.SerializeToString()) for a in resolved]
    del node.attribute[:]
    node.attribute.extend(copies)
