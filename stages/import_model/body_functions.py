"""Run operators that the standard defines by a function of other operators.

Such a node needs no implementation of its own: the body of its schema is compiled like any other
graph. Some bodies depend on the types of the inputs, which are known only when the node runs, so
a body is compiled when the first inputs of a combination of types arrive, and then kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from onnx import (
    IR_VERSION,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
    helper,
    inliner,
)
from torch import Tensor

from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.stages.import_model.values import TORCH_TYPES

if TYPE_CHECKING:
    from ltp_pipeline.stages.import_model.program import Program

_BODY_DOMAIN = "body"  # of the function while it is inlined, so that it is not the operator itself
_ONNX_TYPES = {dtype: data_type for data_type, dtype in TORCH_TYPES.items()}


@dataclass(eq=False)
class BodyFunction:
    """One node, executed through the body of its operator's schema.

    Args:
        node: The node.
        schema: Schema of its operator.
        opset: Version of the operator set that the model imports.
        compile_body: Compiles a graph of a given opset into a program.
    """

    node: NodeProto
    schema: Any
    opset: int
    compile_body: Callable[[GraphProto, int], Program]
    programs: dict[tuple[torch.dtype | None, ...], Program] = field(
        default_factory=dict, init=False
    )

    def __call__(self, *inputs: Tensor | None, training: bool = False) -> tuple[Any, ...]:
        """Run the node as an operator function does, with None for an absent input."""
        types = tuple(getattr(x, "dtype", None) for x in inputs)
        if types not in self.programs:
            self.programs[types] = self._compile(inputs)
        present = [x for x in inputs if x is not None]
        off_cpu = any(x.device.type != "cpu" for x in present)
        results = list(self.programs[types].call(present, training, off_cpu))
        for i, name in enumerate(self.node.output):
            if not name:
                results.insert(i, None)
        return tuple(results)

    def _compile(self, inputs: Sequence[Tensor | None]) -> Program:
        """Compile the body for inputs of these types, without outputs that the node leaves out."""
        function = self._make_body(inputs)
        function.domain = _BODY_DOMAIN
        model = ModelProto(ir_version=IR_VERSION, functions=[function])
        model.opset_import.extend(function.opset_import)
        model.opset_import.add(domain=_BODY_DOMAIN, version=1)
        node = model.graph.node.add()
        node.CopyFrom(self.node)
        node.domain = _BODY_DOMAIN
        node.op_type = function.name
        own_attributes = collect_names(node.attribute)
        for name, attribute in self.schema.attributes.items():
            if attribute.default_value.name and name not in own_attributes:
                node.attribute.append(attribute.default_value)
        for i, x in enumerate(inputs):
            node.input[i] = ""
            if x is not None:
                node.input[i] = f"input_{i}"
                model.graph.input.add(name=node.input[i])
        for name in filter(None, node.output):
            model.graph.output.add(name=name)
        flat = inliner.inline_local_functions(model)
        return self.compile_body(flat.graph, get_standard_opset(function, self.opset))

    def _make_body(self, inputs: Sequence[Tensor | None]) -> FunctionProto:
        """Return the schema's function for inputs of these types."""
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


def _make_type(x: Tensor | None) -> TypeProto:
    """Return the ONNX type of an input, empty for an absent one."""
    if x is None:
        return TypeProto()
    return helper.make_tensor_type_proto(_ONNX_TYPES[x.dtype], [None] * x.dim())
