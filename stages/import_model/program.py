"""A graph as straight-line code: each node becomes one step over numbered value slots.

Names are resolved once, here; a forward pass only indexes a list. Everything that depends on constants alone is
computed while compiling, so that shape arithmetic on fixed sizes costs nothing later.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
    get_attribute_value,
    get_constant_value,
    to_single_precision,
    to_torch,
)

ABSENT = 0  # slot 0 always holds None: an optional input that is not there
LARGEST_TOTAL = 2 * MAX_CONSTANT_ELEMENTS  # elements of all folded constants together
_NEVER_FOLDED = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)
_HALF_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)

Values = list[Any]


class NodeError(Exception):
    """A node cannot be built or failed while it ran; the message names it."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One node: which function, on which slots, into which slots."""

    function: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    keywords: dict[str, Any]
    branches: tuple[tuple[str, "Program"], ...]
    uses_training: bool
    settings: frozenset[int]  # positions of inputs that stay on the CPU
    label: str

    def execute(
        self, args: Sequence[Any], outer: Any, training: bool, off_cpu: bool
    ) -> tuple[Any, ...]:
        """Run the node; `outer` holds the values that its subgraphs capture, by slot."""
        keywords = self.keywords
        if self.uses_training:
            keywords = {**keywords, "training": training}
        if self.branches:
            keywords = {
                **keywords,
                **{n: _closure(p, outer, training, off_cpu) for n, p in self.branches},
            }
        try:
            if off_cpu:
                args = _on_one_device(args, self.settings)
            result = self.function(*args, **keywords)
        except NodeError:
            raise
        except Exception as error:  # whatever torch raises, the user needs the node's name
            raise NodeError(f"{self.label}: {error or type(error).__name__}") from error
        return result if isinstance(result, tuple) else (result,)

    def get_read_slots(self) -> list[int]:
        """Slots whose values the step needs, those that its subgraphs capture included."""
        return [
            *self.inputs,
            *(slot for _, program in self.branches for slot, _ in program.captures),
        ]


@dataclass
class Program:
    """The steps of one graph, and the slots where its inputs, outputs and captured outer values live."""

    size: int = 1
    instructions: list[Instruction] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    captures: tuple[tuple[int, int], ...] = ()  # (slot of the outer program, slot here)
    last_use: list[tuple[int, ...]] = field(default_factory=list)

    def run(self, values: Values, training: bool, off_cpu: bool = False) -> tuple[Any, ...]:
        """Execute on `values`, a list of `size` slots with constants, inputs and captures in place."""
        for step, dead in zip(self.instructions, self.last_use, strict=True):
            results = step.execute(
                [values[slot] for slot in step.inputs], values, training, off_cpu
            )
            if len(results) < len(step.outputs):
                raise NodeError(
                    f"{step.label}: {len(results)} results for {len(step.outputs)} outputs"
                )
            for slot, value in zip(step.outputs, results, strict=False):
                if slot != ABSENT:
                    values[slot] = value
            for slot in dead:
                values[slot] = None
        return tuple(values[slot] for slot in self.outputs)

    def make_values(self) -> Values:
        """Value slots with only the constants filled in."""
        values: Values = [None] * self.size
        for slot, value in self.constants.items():
            values[slot] = value
        return values


def _closure(
    program: Program, outer: Any, training: bool, off_cpu: bool
) -> Callable[..., tuple[Any, ...]]:
    """Make a branch callable: its inputs by position, outer values as they are now."""
    captured = [(inner, outer[slot]) for slot, inner in program.captures]

    def call(*inputs: Any) -> tuple[Any, ...]:
        values = program.make_values()
        for slot, value in [*captured, *zip(program.inputs, inputs, strict=True)]:
            values[slot] = value
        return program.run(values, training, off_cpu)

    return call


def _on_one_device(args: Sequence[Any], settings: frozenset[int]) -> Sequence[Any]:
    """Move data to the device of the first argument that is not on the CPU; shapes and axes stay where they are."""
    data = [i for i, a in enumerate(args) if isinstance(a, Tensor) and i not in settings]
    device = next((args[i].device for i in data if args[i].device.type != "cpu"), None)
    if device is None:
        return args
    return [a.to(device) if i in data else a for i, a in enumerate(args)]


class GraphCompiler:
    """Turns one graph into a Program; subgraphs are compiled by nested compilers that see the outer names.

    With `wide`, values that the graph declares half precision are computed in single precision. `weights` are the
    values that tensors of the graph do not have themselves.
    """

    def __init__(
        self,
        opset: int,
        outer: "GraphCompiler | None" = None,
        wide: bool = False,
        weights: Weights | None = None,
    ) -> None:
        self.opset = opset
        self.weights: Weights = weights or {}
        self.program = Program()
        self.slots: dict[str, int] = {"": ABSENT}
        self.outer = outer
        self.wide = wide
        self.captures: dict[str, tuple[int, int]] = {}
        self.folded = 0  # elements of constants made here so far

    def compile(
        self, graph: GraphProto, tensors: Mapping[str, Tensor], trained: Iterable[str] = ()
    ) -> Program:
        """Compile `graph`; `tensors` are its initializers, of which `trained` may change and are not folded."""
        trained = set(trained)
        for name, tensor in tensors.items():
            slot = self.define_slot(name)
            if name not in trained:
                self.program.constants[slot] = to_single_precision(tensor) if self.wide else tensor
        self.program.inputs = tuple(
            self.define_slot(i.name) for i in graph.input if i.name not in tensors
        )
        lifted = set(tensors)
        for node in graph.node:
            if not (is_standard(node, "Constant") and node.output and node.output[0] in lifted):
                self.add_node(node)
        self.program.outputs = tuple(
            self.find_slot(o.name, "the graph's outputs") for o in graph.output
        )
        self.program.captures = tuple(self.captures.values())
        self.program.last_use = _last_uses(self.program)
        _drop_unread(self.program)
        return self.program

    def define_slot(self, name: str) -> int:
        """Give `name` a slot of its own."""
        if name in self.slots:
            raise NodeError(f"the value {name!r} is produced twice")
        slot = self.program.size
        self.program.size += 1
        self.slots[name] = slot
        return slot

    def find_slot(self, name: str, reader: str) -> int:
        """Find the slot of `name`, capturing it from an outer graph if need be."""
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
        """Append one node, or fold it away when all it reads is constant."""
        where = format_node(node)
        problem = find_node_problem(node, self.opset)
        if problem is not None:
            raise NodeError(f"{where}: {problem} (opset {self.opset})")
        if is_standard(node, "Constant"):
            value = read_guarded(partial(get_constant_value, weights=self.weights), node, where)
            self.program.constants[self.define_slot(node.output[0])] = (
                to_single_precision(value) if self.wide else value
            )
            return
        inputs = tuple(self.find_slot(name, where) for name in node.input)
        if is_standard(node, "Identity"):
            if node.output[0] in self.slots:
                raise NodeError(f"{where}: the value {node.output[0]!r} is produced twice")
            self.slots[node.output[0]] = inputs[0]
            return
        step = self._step(node, inputs, where)
        if self._is_constant(node, step):
            self._fold(step)
        else:
            self.program.instructions.append(step)

    def _step(self, node: NodeProto, inputs: tuple[int, ...], where: str) -> Instruction:
        op = registry.find_op(node.op_type, self.opset, node.domain)
        keywords, branches = self._attributes(node, where)
        outputs = tuple(self.define_slot(name) if name else ABSENT for name in node.output)
        if op is None:
            schema = find_schema(node.op_type, self.opset, node.domain)
            body = BodyFunction(node, schema, self.opset, self._compile_body)
            return Instruction(body, inputs, outputs, {}, (), True, frozenset(), where)
        if "n_outputs" in op.context:
            keywords["n_outputs"] = len(node.output)
        return Instruction(
            op.function,
            inputs,
            outputs,
            keywords,
            branches,
            "training" in op.context,
            op.constants,
            where,
        )

    def _compile_body(self, graph: GraphProto, opset: int) -> Program:
        return GraphCompiler(opset, wide=self.wide).compile(graph, {})

    def _attributes(
        self, node: NodeProto, where: str
    ) -> tuple[dict[str, Any], tuple[tuple[str, Program], ...]]:
        keywords: dict[str, Any] = {}
        branches: list[tuple[str, Program]] = []
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                nested = GraphCompiler(self.opset, outer=self, wide=self.wide, weights=self.weights)
                read = partial(to_torch, weights=self.weights)
                tensors = {t.name: read_guarded(read, t, where) for t in attribute.g.initializer}
                branches.append((attribute.name, nested.compile(attribute.g, tensors)))
                continue
            value = read_guarded(get_attribute_value, attribute, where)
            if self.wide:
                is_half = attribute.name in TYPE_ATTRIBUTES and value in _HALF_TYPES
                value = TensorProto.FLOAT if is_half else to_single_precision(value)
            keywords[attribute.name] = value
        return keywords, tuple(branches)

    def _is_constant(self, node: NodeProto, step: Instruction) -> bool:
        if node.op_type in _NEVER_FOLDED or (
            step.uses_training and not isinstance(step.function, BodyFunction)
        ):
            return False
        return all(
            slot == ABSENT or slot in self.program.constants for slot in step.get_read_slots()
        )

    def _fold(self, step: Instruction) -> None:
        constants = self.program.constants
        args = [constants.get(slot) for slot in step.inputs]
        _refuse_huge(step, args)
        for slot, value in zip(
            step.outputs, step.execute(args, constants, False, False), strict=False
        ):
            if slot == ABSENT:
                continue
            self.folded += _size(value)
            if _size(value) > MAX_CONSTANT_ELEMENTS or self.folded > LARGEST_TOTAL:
                raise NodeError(
                    f"{step.label}: constants of {self.folded:,} elements are beyond reason"
                )
            constants[slot] = value


def read_guarded(function: Callable[[Any], Any], argument: Any, where: str) -> Any:
    """Read something from the file; a damaged tensor or attribute can fail in many ways."""
    try:
        return function(argument)
    except Exception as error:
        raise NodeError(f"{where}: {error}") from error


def _size(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes() // max(value.element_size(), 1)
    return sum(_size(v) for v in value) if isinstance(value, list | tuple) else 0


def _refuse_huge(step: Instruction, args: Sequence[Any]) -> None:
    """Stop a product of two large constants before it is computed; what sizes say is checked by the operators."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if step.branches or math.prod(max(t.numel(), 1) for t in tensors) <= MAX_CONSTANT_ELEMENTS:
        return
    shadows = [
        a.to("meta") if isinstance(a, Tensor) and i not in step.settings else a
        for i, a in enumerate(args)
    ]
    try:
        results = step.execute(shadows, {}, False, False)
    except NodeError:
        return  # the shape depends on the values: the real run will tell
    for result in results:
        if isinstance(result, Tensor) and result.numel() > MAX_CONSTANT_ELEMENTS:
            raise NodeError(
                f"{step.label}: a constant of {result.numel():,} elements is beyond reason"
            )


def _last_uses(program: Program) -> list[tuple[int, ...]]:
    """For each step the slots that nobody reads after it, so that activations are freed as early as they can be."""
    kept = {ABSENT, *program.outputs, *program.constants}
    produced = {slot for step in program.instructions for slot in step.outputs}
    last: dict[int, int] = {}
    for index, step in enumerate(program.instructions):
        for slot in (*step.get_read_slots(), *step.outputs):
            last[slot] = index
    dead: list[list[int]] = [[] for _ in program.instructions]
    for slot, index in last.items():
        if slot in produced and slot not in kept:
            dead[index].append(slot)
    return [tuple(slots) for slots in dead]


def _drop_unread(program: Program) -> None:
    """Forget constants that were needed only to fold others."""
    read = {slot for step in program.instructions for slot in step.get_read_slots()} | {
        *program.outputs
    }
    program.constants = {slot: value for slot, value in program.constants.items() if slot in read}
