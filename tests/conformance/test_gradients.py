"""Gradients reach every float input that an operator computes with."""

import torch

from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.stages.import_model import registry
from tests.conformance import node_cases
from tests.support.imported import compile_model

# Steps and roundings: torch gives them no gradient, or one that is zero everywhere.
FLAT = frozenset({"Bernoulli", "CastLike", "Hardmax", "NonMaxSuppression"})


def _grows(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


def test_gradients_reach_every_float_input() -> None:
    broken, skipped = [], node_cases.expected_failures()
    for case in node_cases.plain_cases():
        node = case.model.graph.node[0]
        op = registry.find_op(node.op_type, get_standard_opset(case.model), node.domain)
        if node_cases.operator_of(case) is None or op is None or node.op_type in FLAT:
            continue
        if case.name in skipped:
            continue
        names = [i.name for i in case.model.graph.input]
        inputs = {n: node_cases.tensor(v) for n, v in zip(names, case.data_sets[0][0], strict=True)}
        fixed = op.constants | op.untrained | op.statistics
        learned = {
            n for i, n in enumerate(node.input) if n and i not in fixed and _grows(inputs[n])
        }
        for name in learned:
            inputs[name].requires_grad_()
        outputs = [y for y in compile_model(case.model)(*inputs.values()) if _grows(y)]
        live = [y.float().sum() for y in outputs if y.requires_grad]
        if not outputs or not learned:
            continue
        if live:
            torch.stack(live).sum().backward()
        broken += [f"{case.name}: {name}" for name in sorted(learned) if inputs[name].grad is None]
    assert not broken
