"""Run operators that the standard defines by a function of other operators.

Such a node needs no implementation of its own: the body of its schema is compiled like any other
graph. Some bodies depend on the types of the inputs, which are known only when the node runs, so
a body is compiled when the first inputs of a combination of types arrive, and then kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
    """One node, executed through the body of its operator's schema.

    Args:
        node: The node.
        schema: Schema of its operator.
        opset: Version of the operator set that the model imports.
        compile_body: Compiles a graph of a given opset into a program.
    """

    def __init__(
        self,
        node: NodeProto,
        schema: Any,
        opset: int,
        compile_body: Callable[[GraphProto, int], Program],
    ) -> None:
        self.node = node
        self.schema = schema
        self.opset = opset
        self.compile_body = compile_body
        self.programs: dict[tuple[torch.dtype | None, ...], Program] = {}

    def __call__(self, *inputs: Tensor | None, training: bool = False) -> tuple[Any, ...]:
        """Run the node as an operator function does, with None for an absent input."""
        types = tuple(getattr(x, "dtype", None) for x in inputs)
        if types not in self.programs:
            self.programs[types] = self._compile(inputs)
        program = self.programs[types]
        values = program.make_values()
        present = [x for x in inputs if x is not None]
        for slot, value in zip(program.inputs, present, strict=True):
            values[slot] = value
        off_cpu = any(x.device.type != "cpu" for x in present)
        results = list(program.run(values, training, off_cpu))
        for i, name in enumerate(self.node.output):
            if not name:
                results.insert(i, None)
        return tuple(results)

    def _compile(self, inputs: Sequence[Tensor | None]) -> Program:
        """Compile the body for inputs of these types, without outputs that the node leaves out."""
        function = self._make_body(inputs)
        present = {name for name, x in zip(function.input, inputs, strict=False) if x is not None}
        graph = make_graph(function, self._collect_attributes(function), present)
        for i in reversed(range(len(graph.output))):
            if i >= len(self.node.output) or not self.node.output[i]:
                del graph.output[i]
        return self.compile_body(graph, get_opset(function, "", self.opset))

    def _make_body(self, inputs: Sequence[Tensor | None]) -> FunctionProto:
        """Return the schema's function for inputs of these types.

        Raises:
            ValueError: If the standard has no function for them in the model's opset.
        """
        versions = [v for v in self.schema.all_function_opset_versions if v <= self.opset]
        if not versions:
            raise ValueError(f"the standard's definition needs a newer opset than {self.opset}")
        version = max(versions)
        function: FunctionProto
        if not self.schema.has_context_dependent_function:
            content = self.schema.get_function_with_opset_version(version)
            function = FunctionProto.FromString(content)
            return function
        types = [_make_type(x).SerializeToString() for x in inputs]
        content = self.schema.get_context_dependent_function_with_opset_version(
            version, self.node.SerializeToString(), types
        )
        function = FunctionProto.FromString(content)
        if not function.node:
            raise ValueError("the standard defines no function for these inputs")
        return function

    def _collect_attributes(self, function: FunctionProto) -> dict[str, AttributeProto]:
        """Return the values of the attributes: the node's own, else the defaults."""
        attributes: dict[str, AttributeProto] = {}
        for name, attribute in self.schema.attributes.items():
            if attribute.default_value.name:
                attributes[name] = attribute.default_value
        attributes |= {a.name: a for a in function.attribute_proto}
        return attributes | {a.name: a for a in self.node.attribute}


def _make_type(x: Tensor | None) -> TypeProto:
    """Return the ONNX type of an input, empty for an absent one."""
    if x is None:
        return TypeProto()
    return helper.make_tensor_type_proto(_ONNX_TYPES[x.dtype], [None] * x.dim())


def make_graph(
    function: FunctionProto, attributes: Mapping[str, AttributeProto], present: Collection[str]
) -> GraphProto:
    """Return the body of a function as a graph.

    Args:
        function: The function.
        attributes: Values of its attributes, which replace the references to them.
        present: Names of the inputs that the caller has; the others are left out.
    """
    absent = set(function.input).difference(present)
    graph = GraphProto(name=function.name)
    for name in function.input:
        if name in present:
            graph.input.add().name = name
    for name in function.output:
        graph.output.add().name = name
    for node in function.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        _resolve_references(copy, attributes, absent)
    return graph


def _resolve_references(
    node: NodeProto, attributes: Mapping[str, AttributeProto], absent: Collection[str]
) -> None:
    """Replace references to attributes, and absent inputs, in a node and its nested graphs.

    An attribute that refers to one without a value is removed.
    """
    for i, name in enumerate(node.input):
        if name in absent:
            node.input[i] = ""
    resolved: list[AttributeProto] = []
    for attribute in node.attribute:
        reference = attribute.ref_attr_name
        if reference and reference not in attributes:
            continue
        if not reference:
            for inner in attribute.g.node:
                _resolve_references(inner, attributes, absent)
        copy = AttributeProto()
        copy.CopyFrom(attributes[reference] if reference else attribute)
        copy.name = attribute.name
        resolved.append(copy)
    del node.attribute[:]
    node.attribute.extend(resolved)
