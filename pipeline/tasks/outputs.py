"""What the outputs of a graph can be: class scores, probabilities, or values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ltp_pipeline.graph.nodes import VIEW_OPERATORS
from ltp_pipeline.graph.view import GraphView

if TYPE_CHECKING:
    from onnx import GraphProto

# Only these say that an output scores classes: the shape of scores is that of any vector of values
SCORING = ("Softmax", "LogSoftmax")
SOFTMAX, SIGMOID = ("Softmax",), ("Sigmoid", "HardSigmoid")
# An output of these nodes is no score among others, whatever its shape
SQUASHED = ("Sigmoid", "Tanh", "HardSigmoid")


def has_score_shape(shape: Sequence[int], samples: int) -> bool:
    """Whether an output of this shape can be class scores: one row per sample, two classes at least."""
    return (
        len(shape) >= 2 and shape[0] == samples and shape[1] >= 2 and all(d == 1 for d in shape[2:])
    )


def decision_threshold(is_probability: bool) -> float:
    """Above which a single score says yes: one that comes out of a Sigmoid, or one that would go into it."""
    return 0.5 if is_probability else 0.0


def find_producers(graph: GraphProto) -> list[str]:
    """For each output, the kind of node that computes it; nodes that only move values are looked through."""
    nodes = GraphView(graph).producers
    found = []
    for output in graph.output:
        node = nodes.get(output.name)
        while node is not None and node.op_type in VIEW_OPERATORS:
            node = nodes.get(node.input[0])
        found.append(node.op_type if node is not None else "")
    return found


def softmax_outputs(graph: GraphProto) -> frozenset[int]:
    """Outputs of the graph that a Softmax makes."""
    return frozenset(i for i, maker in enumerate(find_producers(graph)) if maker == "Softmax")
