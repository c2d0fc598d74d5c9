"""Layer weights of a model, the reasons why some are not pruned, and the other weights."""

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto

from ltp_pipeline.graph.layer_weights import (
    LayerWeight,
    describe_other_weights,
    find_layer_weights,
    find_normalized_weights,
    find_other_weights,
    find_output_layers,
    get_block_axes,
)
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.settings.schema import PruneSettings
from tests.support.imported import compile_model, import_network
from tests.support.models import Graph, conv_bn_classifier, mlp
from tests.support.round_trip import check_round_trip
from tests.support.sequence_models import GATES, KERNELS, SEQUENCE_MODELS, language_model, recurrent
from tests.support.victims import VICTIMS

ANY = PruneSettings()


def description_of_others(model: OnnxModel) -> str | None:
    weights = find_layer_weights(model)
    return describe_other_weights(weights, find_other_weights(model, weights))


def test_find_layer_weights_returns_name_operator_and_shape_in_graph_order() -> None:
    kernels = find_layer_weights(OnnxModel.from_proto(conv_bn_classifier(8, 5)))
    assert [(k.name, k.op, k.shape) for k in kernels] == [
        ("conv1.weight", "Conv", (8, 1, 3, 3)),
        ("conv2.weight", "Conv", (8, 8, 3, 3)),
        ("fc.weight", "Gemm", (5, 8)),
    ]
    assert all(k.is_prunable for k in kernels)


def block_axes(g: Graph, shape: tuple[int, ...]) -> list[int | None]:
    return [
        k.block_axis for k in find_layer_weights(OnnxModel.from_proto(g.model({"x": shape}, ["y"])))
    ]


@pytest.mark.parametrize(
    ("channels", "group", "axis"),
    [(8, 1, 0), (6, 1, None), (16, 2, 0), (16, 4, 0), (12, 2, None), (8, 8, None)],
)
def test_block_axis_of_conv_needs_a_multiple_of_four_channels_per_group(
    channels, group, axis
) -> None:
    g = Graph()
    g.add("Identity", g.conv("x", "conv", 8, channels, group=group), outputs=["y"])
    assert block_axes(g, (1, 8, 5, 5)) == [axis]


@pytest.mark.parametrize(
    ("op", "slot", "shape", "attributes", "axis"),
    [
        ("MatMul", 1, (6, 8), {}, 1),
        ("MatMul", 0, (8, 6), {}, 0),
        ("MatMul", 1, (6, 5), {}, None),
        ("MatMul", 1, (3, 6, 8), {}, 2),
        ("Gemm", 1, (8, 6), {"transB": 1}, 0),
        ("Gemm", 1, (6, 8), {}, 1),
        ("Gemm", 0, (8, 6), {}, 0),
        ("Gemm", 0, (6, 8), {"transA": 1}, 1),
    ],
)
def test_block_axis_of_product_follows_side_and_transposition(
    op, slot, shape, attributes, axis
) -> None:
    g = Graph()
    inputs = ["x", g.random("w", *shape)]
    g.add(op, *(inputs if slot else inputs[::-1]), outputs=["y"], **attributes)
    assert block_axes(g, (6, 6)) == [axis]


def test_block_axis_of_vector_is_none() -> None:
    g = Graph()
    g.add("MatMul", "x", g.random("w", 8), outputs=["y"])
    assert block_axes(g, (2, 8)) == [None]


def test_block_axis_is_none_behind_a_transpose() -> None:
    g = Graph()
    g.add("MatMul", "x", g.add("Transpose", g.random("w", 8, 8), perm=[1, 0]), outputs=["y"])
    assert block_axes(g, (2, 8)) == [None]


def test_block_axis_is_none_if_readers_disagree() -> None:
    g = Graph()
    w = g.random("w", 8, 8)
    g.add("Gemm", g.add("Gemm", "x", w, transB=1), w, outputs=["y"])
    assert block_axes(g, (2, 8)) == [None]


def test_block_axis_is_kept_if_readers_agree() -> None:
    g = Graph()
    w = g.random("w", 8, 8)
    g.add("Gemm", g.add("MatMul", "x", w), w, outputs=["y"])
    assert block_axes(g, (2, 8)) == [1]


def test_block_axis_of_recurrent_weights_is_none() -> None:
    assert {
        k.block_axis
        for k in find_layer_weights(OnnxModel.from_proto(recurrent("LSTM")))
        if k.op == "LSTM"
    } == {None}


@pytest.mark.parametrize(("block", "weights"), [(None, {}), ("4x1", {"a": 0})])
def test_get_block_axes_returns_prunable_weights_if_blocks_are_requested(block, weights) -> None:
    kernels = [
        LayerWeight("a", "Conv", (4, 2), None, 0),
        LayerWeight("b", "Conv", (3, 2)),
        LayerWeight("c", "Conv", (4, 2), "no", 0),
    ]
    assert get_block_axes(kernels, block) == weights


def test_patterns_exclude_layer_weights_with_a_reason() -> None:
    weights = find_layer_weights(
        OnnxModel.from_proto(conv_bn_classifier()), include=("conv*",), exclude=("conv1*",)
    )
    assert [k.reason for k in weights] == [
        "excluded by 'conv1*'",
        None,
        "matches no --include pattern",
    ]


def test_weight_that_is_also_an_embedding_is_not_prunable() -> None:
    g = Graph()
    g.random("table", 6, 6)
    rows = g.add("Gather", "table", g.tensor("ids", [0, 2], np.int64), name="lookup")
    g.add("MatMul", rows, "table", outputs=["y"])
    (kernel,) = find_layer_weights(OnnxModel.from_proto(g.model({}, ["y"])))
    assert kernel.reason == "also read by Gather 'lookup'"


def test_describe_other_weights_reports_them_only_if_they_are_many() -> None:
    g = Graph()
    rows = g.add("Gather", g.random("table", 100, 6), g.tensor("ids", [0, 2], np.int64))
    g.add("MatMul", rows, g.random("w", 6, 5), outputs=["y"])
    model = OnnxModel.from_proto(g.model({}, ["y"]))
    description = description_of_others(model)
    assert description is not None
    assert "4.8%" in description
    assert "600 of Gather" in description
    model = OnnxModel.from_proto(conv_bn_classifier())
    assert description_of_others(model) is None


def test_describe_other_weights_counts_biases() -> None:
    model = OnnxModel.from_proto(mlp())
    description = description_of_others(model)
    assert description is not None
    assert "88.9%" in description
    assert "20 of Gemm" in description


def test_weight_that_is_a_graph_output_is_not_prunable() -> None:
    model = mlp()
    model.graph.output.add().name = "fc1.weight"
    assert (
        find_layer_weights(OnnxModel.from_proto(model))[0].reason
        == "also read by output 'fc1.weight'"
    )


def test_masks_and_scales_are_not_layer_weights() -> None:
    g = Graph()
    g.tensor("mask", np.full((6, 6), -np.inf))
    y = g.add("MatMul", "x", "mask")
    y = g.add("MatMul", y, g.tensor("integers", np.ones((6, 6)), np.float64))
    g.add("Mul", y, g.random("scale", 6, 6), outputs=["y"])
    assert [
        k.name for k in find_layer_weights(OnnxModel.from_proto(g.model({"x": (2, 6)}, ["y"])))
    ] == ["integers"]


def test_layer_weights_are_trained() -> None:
    for name, model in VICTIMS.items():
        result = import_network(model)
        assert result.layer_weights, name
        assert {k.name for k in result.layer_weights} <= set(result.state), name


def test_import_notes_zeros_of_the_original() -> None:
    model = mlp(hidden=64)
    assert import_network(model).notes == ()
    tensor = model.graph.initializer[0]
    tensor.raw_data = bytes(len(tensor.raw_data))
    result = import_network(model)
    (note,) = result.notes
    assert "384 of the 640" in note
    assert int(result.state["fc1.weight"].count_nonzero()) == 0


def test_find_normalized_weights_returns_weights_that_only_norms_read() -> None:
    g = Graph()
    norm = [g.random(f"norm{i}", 6) for i in range(4)]
    bare = g.add("MatMul", "x", g.random("bare", 6, 6))
    biased = g.add("Add", g.add("MatMul", bare, g.random("biased", 6, 6)), g.random("bias", 6))
    y = g.add("BatchNormalization", biased, *norm)
    layer = g.add(
        "LayerNormalization", g.add("MatMul", y, g.random("layer", 6, 6)), g.random("scale", 6)
    )
    both = g.add("MatMul", layer, g.random("both", 6, 6))
    y = g.add("Add", g.add("BatchNormalization", both, *norm), both)  # the sum sees its scale
    g.add("MatMul", y, g.random("last", 6, 6), outputs=["y"])
    model = OnnxModel.from_proto(g.model({"x": (2, 6)}, ["y"]))
    assert find_normalized_weights(model.graph, find_layer_weights(model)) == {"biased", "layer"}


def output_layers(graph: Graph, *outputs: str) -> set[str]:
    model = OnnxModel.from_proto(graph.model({"x": ("N", 8)}, ["a", "b"]))
    return find_output_layers(model.graph, outputs, find_layer_weights(model))


def test_find_output_layers_returns_the_last_weights_before_an_output() -> None:
    """They lie behind an activation, a bias, a transposed weight, and on both sides of a sum."""
    g = Graph()
    hidden = g.add("Relu", g.gemm("x", "first", 8, 8))
    turned = g.add("Transpose", g.random("turned.weight", 4, 8))
    biased = g.add("Add", g.add("MatMul", hidden, turned), g.random("bias", 4))
    g.add("Softmax", biased, outputs=("a",))
    g.add("Add", g.gemm(hidden, "left", 8, 8), g.gemm("x", "right", 8, 8), outputs=("b",))
    assert output_layers(g, "a") == {"turned.weight"}
    assert output_layers(g, "b") == {"left.weight", "right.weight"}
    assert output_layers(g, "a", "b") == {"turned.weight", "left.weight", "right.weight"}


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_layer_weights_of_sequence_networks(name: str) -> None:
    weights = find_layer_weights(OnnxModel.from_proto(SEQUENCE_MODELS[name]))
    assert [k.name for k in weights] == KERNELS[name]
    assert [k.name for k in weights if not k.is_prunable] == (
        ["words"] if name == "language" else []
    )


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_layer_weights_of_sequence_networks_are_trained_and_written_back(name: str) -> None:
    model = SEQUENCE_MODELS[name]
    result = check_round_trip(model, tokens(model) if name == "language" else None)
    assert [k.name for k in result.layer_weights] == KERNELS[name]
    for kernel in result.layer_weights:
        gradient = result.state[kernel.name].grad
        assert gradient is not None
        assert bool(gradient.count_nonzero() > 0), kernel.name


def tokens(model: ModelProto) -> dict[str, np.ndarray]:
    shape = (2, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value)
    ids = np.random.default_rng(0).integers(0, 11, shape)
    return {"ids": ids, "mask": np.ones(shape, np.int64)}


@pytest.mark.parametrize("op", GATES)
def test_recurrent_weights_have_operator_and_shape(op: str) -> None:
    weights = find_layer_weights(OnnxModel.from_proto(recurrent(op, "bidirectional")))
    assert [(k.op, k.shape) for k in weights[:2]] == [
        (op, (2, GATES[op] * 6, 5)),
        (op, (2, GATES[op] * 6, 6)),
    ]


def test_tied_embedding_names_the_lookup() -> None:
    words, *_ = find_layer_weights(OnnxModel.from_proto(language_model()))
    assert (words.name, words.op, words.reason) == (
        "words",
        "MatMul",
        "also read by Gather 'lookup'",
    )


def test_find_other_weights_groups_by_operator() -> None:
    model = OnnxModel.from_proto(SEQUENCE_MODELS["vision"])
    groups = {
        group.operator: (group.num_tensors, group.elements, group.largest)
        for group in find_other_weights(model, find_layer_weights(model))
    }
    assert groups == {
        "Add": (3, 56 + 2 * 24, "positions"),
        "LayerNormalization": (8, 64, "layer0.ln1.weight"),
        "Expand": (1, 8, "token"),
        "Gemm": (1, 3, "head.bias"),
    }


def test_states_and_biases_of_recurrent_operators_are_other_weights() -> None:
    g = Graph()
    shapes = {
        "w": (1, 16, 3),
        "r": (1, 16, 4),
        "b": (1, 32),
        "h": (1, 2, 4),
        "c": (1, 2, 4),
        "p": (1, 12),
    }
    w, r, b, h, c, p = (g.random(name, *shape) for name, shape in shapes.items())
    g.add("LSTM", "x", w, r, b, "", h, c, p, outputs=["y"], hidden_size=4)
    model = OnnxModel.from_proto(g.model({"x": (5, 2, 3)}, ["y"]))
    kernels = find_layer_weights(model)
    assert [k.name for k in kernels] == ["w", "r"]
    groups = find_other_weights(model, kernels)
    assert [(group.num_tensors, group.largest) for group in groups] == [(1, "b"), (3, "p")]


def test_recurrent_weights_are_never_normalized() -> None:
    g = Graph()
    y = g.add("LSTM", "x", g.random("w", 1, 16, 3), g.random("r", 1, 16, 4), hidden_size=4)
    g.add("LayerNormalization", y, g.random("scale", 4), outputs=["y"])
    model = OnnxModel.from_proto(g.model({"x": (5, 2, 3)}, ["y"]))
    assert find_normalized_weights(model.graph, find_layer_weights(model)) == set()


def test_find_output_layers_returns_the_last_recurrent_layer() -> None:
    g = Graph()
    y = g.add("LSTM", "x", g.random("w0", 1, 16, 3), g.random("r0", 1, 16, 4), hidden_size=4)
    y = g.add("Squeeze", y, g.tensor("axis", [1], np.int64))
    g.add(
        "GRU",
        y,
        g.random("w1", 1, 12, 4),
        g.random("r1", 1, 12, 4),
        outputs=["", "y"],
        hidden_size=4,
    )
    model = OnnxModel.from_proto(g.model({"x": (5, 2, 3)}, ["y"]))
    assert find_output_layers(model.graph, ["y"], find_layer_weights(model)) == {"w1", "r1"}


def test_masks_of_large_numbers_are_not_trained() -> None:
    g = Graph()
    scores = g.add("Add", "x", g.tensor("mask", np.triu(np.full((6, 6), -1e4), 1)))
    g.add("MatMul", g.add("Softmax", scores), g.random("w", 6, 4), outputs=["y"])
    result = import_network(g.model({"x": (2, 6, 6)}, ["y"]))
    assert set(result.state) == {"w"}
    assert result.notes == ()


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize(
    ("direction", "layout", "ends"), [("reverse", 1, False), ("bidirectional", 0, True)]
)
def test_gradients_of_recurrent_weights_are_correct(
    op: str, direction: str, layout: int, ends: bool
) -> None:
    """Compare with finite differences, also for sequences that end early."""
    g = Graph()
    count = 2 if direction == "bidirectional" else 1
    shapes = ((count, GATES[op] * 2, 3), (count, GATES[op] * 2, 2))
    w, r = (
        g.tensor(name, g.rng.standard_normal(shape), np.float64)
        for name, shape in zip("wr", shapes, strict=True)
    )
    steps = g.tensor("lengths", [3, 1], np.int32) if ends else ""
    g.add(
        op,
        "x",
        w,
        r,
        "",
        steps,
        outputs=["y", "last"],
        hidden_size=2,
        direction=direction,
        layout=layout,
    )
    types = dict.fromkeys(("x", "y", "last"), TensorProto.DOUBLE)
    result = compile_model(
        g.model({"x": (2, 3, 3) if layout else (3, 2, 3)}, ["y", "last"], types=types)
    )
    x = torch.from_numpy(
        np.random.default_rng(1).standard_normal((2, 3, 3) if layout else (3, 2, 3))
    )
    weights = [result.state[name] for name in "wr"]
    assert torch.autograd.gradcheck(lambda w, r: result(x, weights={"w": w, "r": r}), weights)
