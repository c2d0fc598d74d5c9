"""Functions that never end, or make a small file large, are refused."""

import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.import_model import function_calls
from ltp_pipeline.stages.import_model.function_calls import require_bounded
from tests.support.models import mlp


def call(name: str, source: str = "a", target: str = "b") -> NodeProto:
    return helper.make_node(
        name, [source], [target], domain="local" if name.startswith("f") else ""
    )


def model(bodies: dict[str, list[NodeProto]]) -> ModelProto:
    made = mlp()
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for name, nodes in bodies.items():
        made.functions.append(helper.make_function("local", name, ["a"], ["b"], nodes, opsets))
    made.graph.node.append(call("f0", "x", "called"))
    made.opset_import.add(domain="local", version=1)
    return made


def grown(depth: int) -> ModelProto:
    """Each function calls the next one twice."""
    bodies = {
        f"f{i}": [call(f"f{i + 1}", "a", "c"), call(f"f{i + 1}", "c", "b")] for i in range(depth)
    }
    return model({**bodies, f"f{depth}": [call("Relu")]})


def within_a_branch(name: str) -> NodeProto:
    output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    branch = helper.make_graph([call(name, "a", "inner")], "branch", [], [output])
    return helper.make_node("If", ["a"], ["b"], then_branch=branch, else_branch=branch)


@pytest.mark.parametrize(
    "bodies",
    [
        {"f0": [call("f0")]},
        {"f0": [call("f1")], "f1": [call("f0")]},
        {"f0": [within_a_branch("f0")]},
    ],
    ids=["itself", "in a circle", "in a branch"],
)
def test_a_function_that_calls_itself_is_refused(bodies: dict[str, list[NodeProto]]) -> None:
    with pytest.raises(InputError, match="calls itself"):
        require_bounded(model(bodies))


def test_growth_is_bounded_by_nodes_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    require_bounded(grown(10))
    with pytest.raises(InputError, match="once they are written out"):
        require_bounded(grown(20))
    monkeypatch.setattr(function_calls, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="bytes once they are written out"):
        require_bounded(grown(10))


def test_a_long_chain_of_calls_is_told_as_one() -> None:
    bodies = {f"f{i}": [call(f"f{i + 1}")] for i in range(150)}
    with pytest.raises(InputError, match="through more than 100 others"):
        require_bounded(model({**bodies, "f150": [call("Relu")]}))
