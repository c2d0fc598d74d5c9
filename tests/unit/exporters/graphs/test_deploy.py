"""The deploy graph computes the same with fewer nodes, and keeps layer weights and zeros."""

from collections.abc import Collection
from contextlib import nullcontext

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.graphs.graph import GraphContext
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.system.tolerance import max_difference
from tests.support.models import Graph, conv_bn_classifier, prune, random_inputs, run_onnxruntime

KERNELS = ("conv1.weight", "conv2.weight", "fc.weight")


def rewrite(model: ModelProto, kernels: Collection[str]) -> tuple[ModelProto, str]:
    """The deploy graph with everything inside, and the note."""
    built, note = deploy.rewrite_model(OnnxModel.from_proto(model), kernels)
    return built.to_proto(), note


def operators(model: ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def check_same(model: ModelProto, built: ModelProto, limit: float = 1e-5) -> None:
    onnx.checker.check_model(built, full_check=True)
    feeds = random_inputs(model)
    outputs = zip(run_onnxruntime(built, feeds), run_onnxruntime(model, feeds), strict=True)
    assert all(max_difference(new, old).relative <= limit for new, old in outputs)


def weights_of(model: ModelProto) -> list[str]:
    return [t.name for t in model.graph.initializer if len(t.dims) > 1]


def check_fold(g: Graph, inputs: dict[str, tuple], output: str = "y", folds: int = 1) -> ModelProto:
    """Fold a graph whose last node makes `output`; zeros must be where they were."""
    g.nodes[-1].output[0] = output
    model = prune(g.model(inputs, [output]), 0.5)
    kernels = weights_of(model)
    built = rewrite(model, kernels)[0]
    norms = operators(model).count("BatchNormalization")
    assert operators(built).count("BatchNormalization") == norms - folds
    before, after = (read_tensors(OnnxModel.from_proto(m), kernels) for m in (model, built))
    assert all(((before[k] != 0) == (after[k] != 0)).all() for k in kernels)
    check_same(model, built)
    return built


def norm_view_and_shape() -> ModelProto:
    """A norm to fold, a kernel behind a Transpose, and a shape that is made of constants."""
    g = Graph()
    h = g.add("Relu", g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4))
    shape = g.add(
        "Concat", g.constant("first", [-1], np.int64), g.constant("second", [64], np.int64), axis=0
    )
    turned = g.add("Transpose", g.random("w", 5, 64), perm=[1, 0])
    g.add("MatMul", g.add("Reshape", h, shape), turned, outputs=("y",))
    return g.model({"x": ("N", 1, 4, 4)}, ["y"])


def test_rewrite_model_folds_norms_and_constants_and_keeps_weights():
    model = prune(norm_view_and_shape())
    before = model.SerializeToString()
    built, note = rewrite(model, ["conv.weight", "w"])
    assert model.SerializeToString() == before
    assert "1 of 1 BatchNormalization folded" in note
    assert "not folded" not in note
    assert not {"BatchNormalization", "Concat", "Constant"} & set(operators(built))
    assert {"conv.weight", "w"} <= {t.name for t in built.graph.initializer}
    assert built.metadata_props == model.metadata_props
    assert built.graph.output == model.graph.output
    check_same(model, built)


def test_rewrite_model_without_onnxsim_folds_norms_and_notes_it(without_onnxsim: None):
    model = prune(conv_bn_classifier())
    built, note = rewrite(model, KERNELS)
    assert "constants not folded: onnxsim is away" in note
    assert "BatchNormalization" not in operators(built)
    check_same(model, built)


def test_rewrite_model_discards_onnxsim_result_with_other_weights(monkeypatch: pytest.MonkeyPatch):
    def meddling(model: OnnxModel) -> OnnxModel:
        return model.with_weights({"fc.weight": 2 * model.get_array("fc.weight")})

    monkeypatch.setattr(simplify, "simplify_model", meddling)
    model = prune(conv_bn_classifier())
    built, note = rewrite(model, KERNELS)
    assert "onnxsim changed the layer weight" in note
    check_same(model, built)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_rewrite_model_folds_norm_after_conv(without_onnxsim: None, bias: bool, group: int):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 4, 6, bias=bias, group=group), "bn", 6)
    check_fold(g, {"x": ("N", 4, 5, 5)})


@pytest.mark.parametrize("group", [1, 2])
def test_rewrite_model_folds_norm_after_conv_transpose(without_onnxsim: None, group: int):
    g = Graph()
    weight = g.random("w", 4, 6 // group, 3, 3)
    g.batch_norm(g.add("ConvTranspose", "x", weight, group=group, strides=[2, 2]), "bn", 6)
    check_fold(g, {"x": ("N", 4, 5, 5)})


@pytest.mark.parametrize(
    "attributes", [{"transB": 1}, {"transB": 0}, {"alpha": 0.5, "beta": 2.0, "transB": 1}]
)
@pytest.mark.parametrize("bias", [(), (1,), (7,), (1, 7)])
def test_rewrite_model_folds_norm_after_gemm(
    without_onnxsim: None, attributes: dict, bias: tuple[int, ...]
):
    g = Graph()
    weight = g.random("w", *((7, 4) if attributes["transB"] else (4, 7)))
    g.batch_norm(
        g.add("Gemm", "x", weight, g.tensor("b", np.full(bias, 0.3)), **attributes), "bn", 7
    )
    g.nodes[-1].output[0] = "y"
    model = prune(g.model({"x": ("N", 4)}, ["y"]), 0.5)
    built = rewrite(model, ["w"])[0]
    assert operators(built) == ["Gemm"]
    check_same(model, built)


def test_rewrite_model_keeps_norm_of_layer_with_other_readers(without_onnxsim: None):
    g = Graph()
    h = g.conv("x", "conv", 1, 4)
    g.add("Add", g.batch_norm(h, "bn", 4), h)
    check_fold(g, {"x": ("N", 1, 5, 5)}, folds=0)


def test_rewrite_model_keeps_norms_of_shared_weight(without_onnxsim: None):
    g = Graph()
    h = g.batch_norm(g.conv("x", "conv", 4, 4), "bn", 4)
    g.batch_norm(g.add("Conv", h, "conv.weight", pads=[1] * 4), "bn2", 4)
    check_fold(g, {"x": ("N", 4, 5, 5)}, folds=0)


def test_rewrite_model_adds_bias_if_bias_is_shared(without_onnxsim: None):
    g = Graph()
    h = g.batch_norm(g.conv("x", "a", 4, 4, bias=True), "bn", 4)
    g.add("Conv", h, g.random("b.weight", 4, 4, 3, 3), "a.bias", pads=[1] * 4)
    built = check_fold(g, {"x": ("N", 4, 5, 5)})
    assert {"a.bias", "a.weight.folded_bias"} <= {t.name for t in built.graph.initializer}


def test_rewrite_model_keeps_norm_that_would_erase_weights(without_onnxsim: None):
    g = Graph()
    h = g.conv("x", "conv", 1, 2)
    rest = [g.tensor(n, [0.5, 1.0]) for n in ("beta", "mean", "var")]
    g.add("BatchNormalization", h, g.tensor("gamma", [0.0, 1.0]), *rest)
    check_fold(g, {"x": ("N", 1, 5, 5)}, folds=0)


def test_rewrite_model_keeps_norm_in_half_precision(without_onnxsim: None):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4)
    g.nodes[-1].output[0] = "y"
    for tensor in g.tensors:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    model = g.model(
        {"x": ("N", 1, 5, 5)}, ["y"], types={"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16}
    )
    assert "BatchNormalization" in operators(rewrite(model, ["conv.weight"])[0])


def test_rewrite_model_keeps_norm_of_overridable_weight(without_onnxsim: None):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4)
    g.nodes[-1].output[0] = "y"
    extra_inputs = [helper.make_tensor_value_info("conv.weight", TensorProto.FLOAT, [4, 1, 3, 3])]
    model = g.model({"x": ("N", 1, 5, 5)}, ["y"], extra_inputs=extra_inputs)
    assert operators(rewrite(model, ["conv.weight"])[0]) == ["Conv", "BatchNormalization"]


def test_rewrite_model_removes_dropout_and_identity(without_onnxsim: None):
    g = Graph()
    h = g.add("Identity", "x")
    h = g.add("Dropout", g.batch_norm(g.add("Identity", g.conv(h, "conv", 1, 4)), "bn", 4))
    h = g.add("Relu", g.add("Identity", g.add("Dropout", h)))
    g.add("Identity", h, outputs=("y",))
    g.add("Identity", h, outputs=("z",))
    g.add("Identity", "x", outputs=("same",))
    model = prune(g.model({"x": ("N", 1, 5, 5)}, ["y", "z", "same"]))
    built = rewrite(model, ["conv.weight"])[0]
    assert operators(built) == [
        "Conv",
        "Relu",
        "Identity",
        "Identity",
    ]  # two outputs of one value, and an input passed on
    check_same(model, built)


def test_rewrite_model_keeps_dropout_with_mask(without_onnxsim: None):
    g = Graph()
    g.add("Dropout", g.add("Relu", "x"), outputs=("y", "mask"))
    model = g.model({"x": ("N", 4)}, ["y", "mask"], types={"mask": TensorProto.BOOL})
    assert operators(rewrite(model, [])[0]) == ["Relu", "Dropout"]


def test_rewrite_model_renames_values_in_branches(without_onnxsim: None):
    g = Graph()
    h = g.add("Identity", g.add("Relu", "x"))
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(
            [helper.make_node(op, [h], [f"{name}_y"])], name, [], [output]
        )
    g.add("If", "c", outputs=("y",), **branches)
    model = g.model({"x": ("N", 4), "c": ()}, ["y"], types={"c": TensorProto.BOOL})
    built = rewrite(model, [])[0]
    assert operators(built) == ["Relu", "If"]
    feeds = {"x": np.ones((2, 4), np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(
        run_onnxruntime(built, feeds)[0], run_onnxruntime(model, feeds)[0]
    )


@pytest.mark.parametrize(
    ("dtype", "change", "same"),
    [(np.float32, 1e-3, False), (np.float16, 1e-3, True), (np.float16, 1.0, False)],
)
def test_deploy_graph_in_half_precision_has_wider_tolerance(
    monkeypatch, dtype: type, change: float, same: bool
):
    g = Graph()
    g.gemm("x", "fc", 8, 4)
    g.nodes[-1].output[0] = "y"
    for tensor in g.tensors:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name)
        )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = OnnxModel.from_proto(g.model({"x": ("N", 8)}, ["y"], types={"x": kind, "y": kind}))
    weights = read_tensors(model, ["fc.weight"])

    def shifted(model: OnnxModel, kernels: object) -> tuple[OnnxModel, str]:
        return model.with_weights(
            {"fc.bias": model.get_array("fc.bias") + np.dtype(dtype).type(change)}
        ), ""

    monkeypatch.setattr(deploy, "rewrite_model", shifted)
    with nullcontext() if same else pytest.raises(ExportFailed, match=r"deploy.* 0\.\d"):
        deploy.build_graph(
            GraphContext(model, weights, ["fc.weight"], {"x": np.ones((2, 8), dtype)})
        )


def test_deploy_graph_with_other_zeros_raises_export_failed(monkeypatch: pytest.MonkeyPatch):
    model = OnnxModel.from_proto(prune(conv_bn_classifier()))
    weights = read_tensors(model, KERNELS)
    other = model.with_weights({"fc.weight": weights["fc.weight"] + np.float32(1e-30)})
    monkeypatch.setattr(deploy, "rewrite_model", lambda *_: (other, ""))
    with pytest.raises(ExportFailed, match=r"deploy.*'fc\.weight'"):
        deploy.build_graph(GraphContext(model, weights, KERNELS, random_inputs(model.proto)))
