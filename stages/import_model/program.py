"""A graph as straight-line code: each node becomes one instruction over numbered value slots.

Names are resolved once, when a graph is compiled; a forward pass only indexes a list. What
depends on constants alone is computed while compiling. A value is dropped after the last
instruction that reads it. Nested graphs, such as the body of a Loop, become programs of their own,
which capture the outer values that they read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto
from torch import Tensor

from ltp_pipeline.graph.nodes import format_node, is_standard
from ltp_pipeline.graph.schemas import find_schema
from ltp_pipeline.graph.tensors import MAX_CONSTANT_ELEMENTS, TYPE_ATTRIBUTES, Weights
from ltp_pipeline.stages.import_model import registry
from ltp_pipeline.stages.import_model.body_functions import BodyFunction
from ltp_pipeline.stages.import_model.unsupported import find_node_problem
from ltp_pipeline.stages.import_model.values import (
    HALF_DATA_TYPES,
    get_attribute_value,
    get_constant_value,
    to_single_precision,
    to_torch,
)

ABSENT = 0  # this slot always holds None, for optional inputs that are absent
MAX_FOLDED_ELEMENTS = 2 * MAX_CONSTANT_ELEMENTS  # elements of all computed constants together
_RANDOM_OPERATORS = (
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
)

Values = list[Any]  # one value for each slot


class NodeError(Exception):
    """A node cannot be built or failed while it ran; the message names the node."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One node: a function, and the slots that it reads and writes.

    Attributes:
        function: Function that runs the operator.
        inputs: Slots of its inputs.
        outputs: Slots of its outputs.
        keywords: Attributes of the node.
        branches: Programs of its nested graphs, by attribute name.
        uses_training: True if the function takes the keyword `training`.
        settings: Positions of inputs that stay on the CPU, such as shapes.
        label: Operator and name of the node, for messages.
    """

    function: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    keywords: dict[str, Any]
    branches: tuple[tuple[str, Program], ...]
    uses_training: bool
    settings: frozenset[int]
    label: str

    def execute(
        self, arguments: Sequence[Any], outer: Any, training: bool, off_cpu: bool
    ) -> tuple[Any, ...]:
        """Run the node on arguments and return its results.

        Nested graphs take what they capture from `outer`, the values by slot. See `Program.run`.
        """
        keywords = self.keywords
        if self.uses_training or self.branches:
            keywords = dict(keywords)
        if self.uses_training:
            keywords["training"] = training
        for name, program in self.branches:
            keywords[name] = _bind_branch(program, outer, training, off_cpu)
        try:
            if off_cpu:
                arguments = _move_to_device(arguments, self.settings)
            result = self.function(*arguments, **keywords)
        except NodeError:
            raise
        except Exception as error:  # whatever torch raises, the user needs the node's name
            raise NodeError(f"{self.label}: {error or type(error).__name__}") from error
        if isinstance(result, tuple):
            return result
        return (result,)

    def get_read_slots(self) -> list[int]:
        """Return the slots that the instruction reads, those that nested graphs capture too."""
        slots = list(self.inputs)
        for _, program in self.branches:
            slots += (slot for slot, _ in program.captures)
        return slots


@dataclass
class Program:
    """The instructions of one graph.

    Attributes:
        size: Number of value slots.
        instructions: Instructions in order.
        constants: Constants by slot.
        inputs: Slots of the inputs.
        outputs: Slots of the outputs.
        captures: Pairs of a slot of the outer program and the slot here that takes its value.
        last_use: For each instruction, the slots that no later one reads.
    """

    size: int = 1
    instructions: list[Instruction] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    captures: tuple[tuple[int, int], ...] = ()
    last_use: list[tuple[int, ...]] = field(default_factory=list)

    def run(self, values: Values, training: bool, off_cpu: bool = False) -> tuple[Any, ...]:
        """Execute the instructions and return the outputs.

        Args:
            values: Values by slot, with constants, inputs and captures in place; changed.
            training: True while the network is trained.
            off_cpu: True if some values are on another device than the CPU.

        Raises:
            NodeError: If a node fails.
        """
        for instruction, unused in zip(self.instructions, self.last_use, strict=True):
            arguments = [values[slot] for slot in instruction.inputs]
            results = instruction.execute(arguments, values, training, off_cpu)
            if len(results) < len(instruction.outputs):
                raise NodeError(
                    f"{instruction.label}: {len(results)} results for "
                    f"{len(instruction.outputs)} outputs"
                )
            for slot, value in zip(instruction.outputs, results, strict=False):
                if slot != ABSENT:
                    values[slot] = value
            for slot in unused:
                values[slot] = None
        return tuple(values[slot] for slot in self.outputs)

    def call(
        self,
        inputs: Sequence[Any],
        training: bool,
        off_cpu: bool,
        captured: Sequence[tuple[int, Any]] = (),
    ) -> tuple[Any, ...]:
        """Run the program as a function of its inputs; `captured` are outer values by slot."""
        values = self.make_values()
        for slot, value in [*captured, *zip(self.inputs, inputs, strict=True)]:
            values[slot] = value
        return self.run(values, training, off_cpu)

    def make_values(self) -> Values:
        """Return value slots that hold only the constants."""
        values: Values = [None] * self.size
        for slot, value in self.constants.items():
            values[slot] = value
        return values


def _bind_branch(
    program: Program, outer: Any, training: bool, off_cpu: bool
) -> Callable[..., tuple[Any, ...]]:
    """Return a nested graph as a function of its inputs, with outer values as they are now."""
    captured = [(inner, outer[slot]) for slot, inner in program.captures]

    def run_branch(*inputs: Any) -> tuple[Any, ...]:
        return program.call(inputs, training, off_cpu, captured)

    return run_branch


def _move_to_device(arguments: Sequence[Any], settings: frozenset[int]) -> Sequence[Any]:
    """Move tensors to the device of the first one that is not on the CPU, except settings."""
    positions = [i for i, a in enumerate(arguments) if isinstance(a, Tensor) and i not in settings]
    devices = [arguments[i].device for i in positions if arguments[i].device.type != "cpu"]
    if not devices:
        return arguments
    moved = list(arguments)
    for i in positions:
        moved[i] = moved[i].to(devices[0])
    return moved


@dataclass
class GraphCompiler:
    """Compiles one graph into a program.

    Nested graphs are compiled by compilers of their own, which look up names in the outer one.

    Args:
        opset: Version of the standard operator set.
        outer: Compiler of the graph around this one.
        wide: If True, values that the graph declares in half precision are computed in single
            precision.
        weights: Values by name, which replace those of the graph's tensors.
    """

    opset: int
    outer: GraphCompiler | None = None
    wide: bool = False
    weights: Weights = field(default_factory=dict)
    program: Program = field(default_factory=Program, init=False)
    slots: dict[str, int] = field(default_factory=lambda: {"": ABSENT}, init=False)
    captures: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    folded_elements: int = field(default=0, init=False)

    def compile(
        self, graph: GraphProto, tensors: Mapping[str, Tensor], trained: Iterable[str] = ()
    ) -> Program:
        """Compile a graph with stored tensors.

        The values of `trained` tensors may change, so nothing computed from them is a constant.

        Raises:
            NodeError: If a node cannot be built.
        """
        trained = set(trained)
        for name, tensor in tensors.items():
            slot = self.define_slot(name)
            if name not in trained:
                self.program.constants[slot] = self._widen(tensor)
        inputs = []
        for value in graph.input:
            if value.name not in tensors:
                inputs.append(self.define_slot(value.name))
        self.program.inputs = tuple(inputs)
        for node in graph.node:
            is_stored = is_standard(node, "Constant") and node.output and node.output[0] in tensors
            if not is_stored:
                self.add_node(node)
        outputs = [output.name for output in graph.output]
        self.program.outputs = tuple(self.find_slot(n, "the graph's outputs") for n in outputs)
        self.program.captures = tuple(self.captures.values())
        self.program.last_use = _find_last_uses(self.program)
        _drop_unread_constants(self.program)
        return self.program

    def define_slot(self, name: str) -> int:
        """Give a value a slot of its own, and return it."""
        if name in self.slots:
            raise NodeError(f"the value {name!r} is produced twice")
        slot = self.program.size
        self.program.size += 1
        self.slots[name] = slot
        return slot

    def find_slot(self, name: str, reader: str) -> int:
        """Return the slot of a value; a value of an outer graph is captured for the reader."""
        if name in self.slots:
            return self.slots[name]
        if self.outer is None:
            raise NodeError(f"{reader}: nothing before it produces the value {name!r}")
        outer_slot = self.outer.find_slot(name, reader)
        slot = self.define_slot(name)
        if outer_slot in self.outer.program.constants:
            self.program.constants[slot] = self.outer.program.constants[outer_slot]
        elif outer_slot != ABSENT:
            self.captures[name] = (outer_slot, slot)
        return slot

    def add_node(self, node: NodeProto) -> None:
        """Append the instruction of a node, or its results if all that it reads is constant."""
        label = format_node(node)
        problem = find_node_problem(node, self.opset)
        if problem is not None:
            raise NodeError(f"{label}: {problem} (opset {self.opset})")
        if is_standard(node, "Constant"):
            with name_errors(label):
                value = get_constant_value(node, self.weights)
            self.program.constants[self.define_slot(node.output[0])] = self._widen(value)
            return
        inputs = tuple(self.find_slot(name, label) for name in node.input)
        if is_standard(node, "Identity"):
            self.define_slot(node.output[0])
            self.slots[node.output[0]] = inputs[0]
            return
        instruction = self._make_instruction(node, inputs, label)
        if self._is_constant(node, instruction):
            self._fold(instruction)
        else:
            self.program.instructions.append(instruction)

    def _widen(self, value: Any) -> Any:
        if self.wide:
            return to_single_precision(value)
        return value

    def _make_instruction(
        self, node: NodeProto, inputs: tuple[int, ...], label: str
    ) -> Instruction:
        op = registry.find_op(node.op_type, self.opset, node.domain)
        keywords, branches = self._read_attributes(node, label)
        output_slots = []
        for name in node.output:
            if name:
                output_slots.append(self.define_slot(name))
            else:
                output_slots.append(ABSENT)
        outputs = tuple(output_slots)
        if op is None:
            schema = find_schema(node.op_type, self.opset, node.domain)
            body = BodyFunction(node, schema, self.opset, self._compile_body)
            return Instruction(body, inputs, outputs, {}, (), True, frozenset(), label)
        if "n_outputs" in op.context:
            keywords["n_outputs"] = len(node.output)
        uses_training = "training" in op.context
        return Instruction(
            op.function, inputs, outputs, keywords, branches, uses_training, op.constants, label
        )

    def _compile_body(self, graph: GraphProto, opset: int) -> Program:
        return GraphCompiler(opset, wide=self.wide).compile(graph, {})

    def _read_attributes(
        self, node: NodeProto, label: str
    ) -> tuple[dict[str, Any], tuple[tuple[str, Program], ...]]:
        """Return the attributes of a node, and its nested graphs as programs."""
        keywords: dict[str, Any] = {}
        branches: list[tuple[str, Program]] = []
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                branches.append((attribute.name, self._compile_branch(attribute.g, label)))
                continue
            with name_errors(label):
                value = get_attribute_value(attribute)
            names_type = attribute.name in TYPE_ATTRIBUTES
            if self.wide and names_type and value in HALF_DATA_TYPES:
                value = TensorProto.FLOAT
            keywords[attribute.name] = self._widen(value)
        return keywords, tuple(branches)

    def _compile_branch(self, graph: GraphProto, label: str) -> Program:
        nested = GraphCompiler(self.opset, outer=self, wide=self.wide, weights=self.weights)
        with name_errors(label):
            tensors = {tensor.name: to_torch(tensor, self.weights) for tensor in graph.initializer}
        return nested.compile(graph, tensors)

    def _is_constant(self, node: NodeProto, instruction: Instruction) -> bool:
        """Return True if the results of a node are the same in every forward pass."""
        is_body = isinstance(instruction.function, BodyFunction)
        depends_on_mode = instruction.uses_training and not is_body
        if node.op_type in _RANDOM_OPERATORS or depends_on_mode:
            return False
        constants = self.program.constants
        return all(slot == ABSENT or slot in constants for slot in instruction.get_read_slots())

    def _fold(self, instruction: Instruction) -> None:
        """Execute an instruction now and store its results as constants."""
        constants = self.program.constants
        arguments = [constants.get(slot) for slot in instruction.inputs]
        _check_result_size(instruction, arguments)
        results = instruction.execute(arguments, constants, False, False)
        for slot, value in zip(instruction.outputs, results, strict=False):
            if slot == ABSENT:
                continue
            size = _count_stored_elements(value)
            self.folded_elements += size
            if size > MAX_CONSTANT_ELEMENTS or self.folded_elements > MAX_FOLDED_ELEMENTS:
                raise NodeError(
                    f"{instruction.label}: constants of {self.folded_elements:,} elements are "
                    "beyond reason"
                )
            constants[slot] = value


@contextmanager
def name_errors(label: str) -> Iterator[None]:
    """Raise any error as a NodeError with a label.

    Reading a tensor or attribute of a damaged file may fail in many ways.
    """
    try:
        yield
    except Exception as error:
        raise NodeError(f"{label}: {error}") from error


def _count_stored_elements(value: Any) -> int:
    """Return the number of elements that a value keeps in memory, lists included."""
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes() // max(value.element_size(), 1)
    if isinstance(value, list | tuple):
        return sum(map(_count_stored_elements, value))
    return 0


def _check_result_size(instruction: Instruction, arguments: Sequence[Any]) -> None:
    """Raise NodeError if an operation on large constants would have a result that is too large.

    The operation is tried on tensors without values. Sizes that are spelled out in an input are
    checked by the operators themselves.
    """
    sizes = [max(a.numel(), 1) for a in arguments if isinstance(a, Tensor)]
    if instruction.branches or math.prod(sizes) <= MAX_CONSTANT_ELEMENTS:
        return
    shadows = list(arguments)
    for i, argument in enumerate(arguments):
        if isinstance(argument, Tensor) and i not in instruction.settings:
            shadows[i] = argument.to("meta")
    try:
        results = instruction.execute(shadows, {}, False, False)
    except NodeError:
        return  # the shape depends on the values, so only the real execution can tell
    for result in results:
        if isinstance(result, Tensor) and result.numel() > MAX_CONSTANT_ELEMENTS:
            raise NodeError(
                f"{instruction.label}: a constant of {result.numel():,} elements is beyond reason"
            )


def _find_last_uses(program: Program) -> list[tuple[int, ...]]:
    """Return, for each instruction, the slots that nothing reads after it."""
    used_later = {ABSENT, *program.outputs, *program.constants}
    last_uses: list[tuple[int, ...]] = []
    for instruction in reversed(program.instructions):
        slots = {*instruction.get_read_slots(), *instruction.outputs} - used_later
        last_uses.append(tuple(slots))
        used_later |= slots
    return last_uses[::-1]


def _drop_unread_constants(program: Program) -> None:
    """Remove the constants that were only needed to compute others."""
    read = set(program.outputs)
    for instruction in program.instructions:
        read.update(instruction.get_read_slots())
    constants = program.constants.items()
    program.constants = {slot: value for slot, value in constants if slot in read}
