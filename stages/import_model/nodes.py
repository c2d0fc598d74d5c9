"""Attributes and constants of single nodes as Python values and torch tensors."""

from collections.abc import Sequence
from typing import Any

import torch
from onnx import AttributeProto, NodeProto, helper
from torch import Tensor

from ltp_pipeline.graph.nodes import is_standard
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.stages.import_model.node_problems import find_constant_problem
from ltp_pipeline.stages.import_model.values import array_to_torch, to_torch


def is_tensor_constant(node: NodeProto) -> bool:
    """Whether a node is a Constant that holds a numeric tensor."""
    return (
        is_standard(node, "Constant")
        and len(node.output) == 1
        and find_constant_problem(node) is None
    )


def attribute_value(attribute: AttributeProto) -> Any:
    """Attribute as a Python value: text decoded, tensors as torch tensors, lists as lists."""
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if attribute.type == AttributeProto.TENSOR:
        return to_torch(value)
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in value]
    if isinstance(value, Sequence):
        return list(value)
    return value


def constant_value(node: NodeProto, weights: Weights) -> Tensor:
    """The tensor that a Constant node stands for; its values may be among the weights."""
    if node.output[0] in weights:
        return array_to_torch(weights[node.output[0]])
    problem = find_constant_problem(node)
    if problem is not None:
        raise ValueError(problem)
    attribute = node.attribute[0]
    value = attribute_value(attribute)
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float32 if "float" in attribute.name else torch.int64)
