"""Layer normalization and attention, recognized by structure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, helper

from ltp_pipeline.graph.layer_kinds import has_layer_norm_or_attention
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, as_model, conv_bn_classifier, mlp, with_function


def model_of(g: Graph, y: str, opset: int = 17, domain: str = "") -> OnnxModel:
    """Return a model whose output is `y`."""
    values = [helper.make_tensor_value_info(n, 1, None) for n in ("x", y)]
    graph = helper.make_graph(g.nodes, "g", values[:1], values[1:], g.tensors)
    return OnnxModel.from_proto(
        as_model(graph, opset, imports=[helper.make_opsetid(domain, 1)] if domain else [])
    )


def single_node(op: str, domain: str = "") -> OnnxModel:
    g = Graph()
    return model_of(g, g.add(op, "x", g.positive("scale", 4), domain=domain), domain=domain)


@pytest.mark.parametrize(
    ("op", "domain"),
    [
        ("LayerNormalization", ""),
        ("RMSNormalization", "ai.onnx"),
        ("Attention", ""),
        ("SkipLayerNormalization", "com.microsoft"),
        ("SimplifiedLayerNormalization", "com.microsoft"),
        ("Attention", "com.microsoft"),
        ("MultiHeadAttention", "com.microsoft"),
    ],
)
def test_fused_operator_is_recognized(op: str, domain: str):
    assert has_layer_norm_or_attention(single_node(op, domain))


@pytest.mark.parametrize(
    ("op", "domain"),
    [
        ("BatchNormalization", ""),
        ("GroupNormalization", ""),
        ("Attention", "my.own"),
        ("Softmax", ""),
    ],
)
def test_other_operator_is_not_recognized(op: str, domain: str):
    assert not has_layer_norm_or_attention(single_node(op, domain))


@pytest.mark.parametrize("model", [mlp(), conv_bn_classifier(), with_function(weight_inside=True)])
def test_networks_without_either_are_not_recognized(model: ModelProto):
    assert not has_layer_norm_or_attention(OnnxModel.from_proto(model))


def decomposed_norm(
    axes: list[int], as_input: bool, centered: bool, square: str, division: str
) -> OnnxModel:
    """Return layer normalization in several operators, or a graph that resembles it."""
    g = Graph()

    def mean(x: str) -> str:
        if as_input:
            return g.add("ReduceMean", x, g.tensor(f"axes{len(g.nodes)}", axes, "int64"))
        return g.add("ReduceMean", x, axes=axes)

    x = g.add("Sub", "x", mean("x")) if centered else "x"
    two = g.tensor("two", 2.0)
    squares = g.add("Pow", x, two) if square == "Pow" else g.add("Mul", x, x)
    sums = g.add("Add", mean(squares), g.tensor("epsilon", 1e-5))
    one, minus_half = g.tensor("one", 1.0), g.tensor("minus_half", -0.5)
    y = {
        "divided": lambda: g.add("Div", x, g.add("Sqrt", sums)),
        "by the reciprocal": lambda: g.add("Mul", g.add("Reciprocal", g.add("Sqrt", sums)), x),
        "by one over it": lambda: g.add("Mul", x, g.add("Div", one, g.add("Sqrt", sums))),
        "by a power": lambda: g.add("Mul", x, g.add("Pow", sums, minus_half)),
        "not divided": lambda: g.add("Concat", x, g.add("Sqrt", sums)),
    }[division]()
    return model_of(g, y, 18 if as_input else 17)


@given(
    st.booleans(),
    st.booleans(),
    st.sampled_from(["Pow", "Mul"]),
    st.sampled_from(["divided", "by the reciprocal", "by one over it", "by a power"]),
    st.sampled_from([[-1], [2], [1]]),
)
def test_decomposed_layer_norm_is_recognized_in_every_form(
    as_input, centered, square, division, axes
):
    assert has_layer_norm_or_attention(decomposed_norm(axes, as_input, centered, square, division))


@pytest.mark.parametrize(("axes", "division"), [([2, 3], "divided"), ([1], "not divided")])
def test_norm_over_two_axes_or_without_division_is_not_recognized(axes: list[int], division: str):
    assert not has_layer_norm_or_attention(decomposed_norm(axes, False, True, "Pow", division))


def attention(
    q: str = "a",
    k: str = "b",
    v: str = "c",
    between: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
) -> Graph:
    g = Graph()
    for name in "abc":
        g.add("MatMul", "x", g.random(f"to_{name}", 4, 4), outputs=(name,))
    g.random("fixed", 4, 4)
    g.tensor("half", 0.5)
    y = g.add("MatMul", q, g.add("Transpose", k))
    for op in between:
        y = g.add(op, y, "half")
    y = g.add("Softmax", y)
    for op in after:
        y = g.add(op, y)
    g.add("MatMul", y, v, outputs=("y",))
    return g


@given(
    st.lists(st.sampled_from(["Mul", "Div", "Add", "Where", "Reshape"]), max_size=4),
    st.lists(st.sampled_from(["Dropout", "Cast", "Transpose"]), max_size=3),
)
def test_softmax_between_products_is_attention_whatever_lies_between(between, after):
    assert has_layer_norm_or_attention(
        model_of(attention(between=tuple(between), after=tuple(after)), "y")
    )


@pytest.mark.parametrize(
    "changed",
    [{"k": "fixed"}, {"v": "fixed"}, {"between": ("Relu",)}, {"after": ("Exp",)}],
    ids=str,
)
def test_product_with_a_weight_is_not_attention(changed: dict[str, object]):
    assert not has_layer_norm_or_attention(model_of(attention(**changed), "y"))


def test_attention_in_a_branch_or_a_function_is_recognized():
    inner = attention()
    output = [helper.make_tensor_value_info("y", 1, None)]
    branch = helper.make_graph(inner.nodes, "branch", [], output, inner.tensors)
    g = Graph()
    assert has_layer_norm_or_attention(
        model_of(g, g.add("If", "x", then_branch=branch, else_branch=branch))
    )
    model = with_function(weight_inside=False)
    model.functions[0].node.add(
        op_type="LayerNormalization", input=["result", "scale"], output=["z"]
    )
    assert has_layer_norm_or_attention(OnnxModel.from_proto(model))
