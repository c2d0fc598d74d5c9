"""The deploy graph computes the same with fewer nodes, and every kernel keeps its name and its zeros."""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline import exporters
from ltp_pipeline.closeness import gap
from ltp_pipeline.config import ExportSettings, Settings
from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.graph import Model, read, storage
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.stages import export, import_model
from ltp_pipeline.stages.lower import lower
from ltp_pipeline.stages.validate import count_in_file
from ltp_pipeline.workspace import Workspace
from tests.support.models import Graph, conv_bn_classifier, random_inputs, run_onnxruntime

ENCODINGS = ("sparse", "packed", "dense")
KERNELS = ("conv1.weight", "conv2.weight", "fc.weight")


@pytest.fixture
def without_onnxsim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part that is ours alone, without waiting for a process to start."""

    def failing(*_: object) -> Model:
        raise simplify.SimplifyFailed("onnxsim is away")

    monkeypatch.setattr(simplify, "simplified", failing)


def prune(model: ModelProto, share: float = 0.8, seed: int = 0) -> ModelProto:
    rng = np.random.default_rng(seed)
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1:
            array = numpy_helper.to_array(tensor).copy()
            array[rng.random(array.shape) < share] = 0
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def rewrite(model: ModelProto, kernels: Collection[str]) -> tuple[ModelProto, str]:
    """The deploy graph with everything inside, and the note."""
    made, note = deploy.rewrite(Model.of(model), kernels)
    return made.filled(), note


def operators(model: ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def check_same(model: ModelProto, made: ModelProto, limit: float = 1e-5) -> None:
    onnx.checker.check_model(made, full_check=True)
    feeds = random_inputs(model)
    outputs = zip(run_onnxruntime(made, feeds), run_onnxruntime(model, feeds), strict=True)
    assert all(gap(new, old).relative <= limit for new, old in outputs)


def weights_of(model: ModelProto) -> list[str]:
    return [t.name for t in model.graph.initializer if len(t.dims) > 1]


def check_fold(g: Graph, inputs: dict[str, tuple], output: str = "y", folds: int = 1) -> ModelProto:
    """Fold a graph whose last node makes `output`; zeros must be where they were."""
    g.nodes[-1].output[0] = output
    model = prune(g.model(inputs, [output]), 0.5)
    kernels = weights_of(model)
    made = rewrite(model, kernels)[0]
    norms = operators(model).count("BatchNormalization")
    assert operators(made).count("BatchNormalization") == norms - folds
    before, after = (exporters.read_tensors(Model.of(m), kernels) for m in (model, made))
    assert all(((before[k] != 0) == (after[k] != 0)).all() for k in kernels)
    check_same(model, made)
    return made


def norm_view_and_shape() -> ModelProto:
    """A norm to fold, a kernel behind a Transpose, and a shape that is made of constants."""
    g = Graph()
    h = g.add("Relu", g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4))
    shape = g.add("Concat", g.constant("first", [-1], np.int64), g.constant("second", [64], np.int64), axis=0)
    turned = g.add("Transpose", g.random("w", 5, 64), perm=[1, 0])
    g.add("MatMul", g.add("Reshape", h, shape), turned, outputs=("y",))
    return g.model({"x": ("N", 1, 4, 4)}, ["y"])


def test_norms_and_constants_fold_and_kernels_keep_names_and_zeros():
    model = prune(norm_view_and_shape())
    before = model.SerializeToString()
    made, note = rewrite(model, ["conv.weight", "w"])
    assert model.SerializeToString() == before
    assert "1 of 1 BatchNormalization folded" in note
    assert "not folded" not in note
    assert not {"BatchNormalization", "Concat", "Constant"} & set(operators(made))
    assert {"conv.weight", "w"} <= {t.name for t in made.graph.initializer}
    assert made.metadata_props == model.metadata_props
    assert made.graph.output == model.graph.output
    check_same(model, made)


def test_when_onnxsim_fails_the_rest_is_done_and_said(without_onnxsim: None):
    model = prune(conv_bn_classifier())
    made, note = rewrite(model, KERNELS)
    assert "constants not folded: onnxsim is away" in note
    assert "BatchNormalization" not in operators(made)
    check_same(model, made)


def test_a_simplifier_that_touches_kernels_is_not_used(monkeypatch: pytest.MonkeyPatch):
    def meddling(model: Model) -> Model:
        return model.with_weights({"fc.weight": 2 * model.array("fc.weight")})

    monkeypatch.setattr(simplify, "simplified", meddling)
    model = prune(conv_bn_classifier())
    made, note = rewrite(model, KERNELS)
    assert "onnxsim changed kernels" in note
    check_same(model, made)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_a_norm_after_a_convolution_folds(without_onnxsim: None, bias: bool, group: int):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 4, 6, bias=bias, group=group), "bn", 6)
    check_fold(g, {"x": ("N", 4, 5, 5)})


@pytest.mark.parametrize("group", [1, 2])
def test_a_norm_after_a_transposed_convolution_folds(without_onnxsim: None, group: int):
    g = Graph()
    weight = g.random("w", 4, 6 // group, 3, 3)
    g.batch_norm(g.add("ConvTranspose", "x", weight, group=group, strides=[2, 2]), "bn", 6)
    check_fold(g, {"x": ("N", 4, 5, 5)})


@pytest.mark.parametrize("attributes", [{"transB": 1}, {"transB": 0}, {"alpha": 0.5, "beta": 2.0, "transB": 1}])
@pytest.mark.parametrize("bias", [(), (1,), (7,), (1, 7)])
def test_a_norm_after_a_gemm_folds(without_onnxsim: None, attributes: dict, bias: tuple[int, ...]):
    g = Graph()
    weight = g.random("w", *((7, 4) if attributes["transB"] else (4, 7)))
    g.batch_norm(g.add("Gemm", "x", weight, g.tensor("b", np.full(bias, 0.3)), **attributes), "bn", 7)
    g.nodes[-1].output[0] = "y"
    model = prune(g.model({"x": ("N", 4)}, ["y"]), 0.5)
    made = rewrite(model, ["w"])[0]
    assert operators(made) == ["Gemm"]
    check_same(model, made)


def test_a_layer_that_something_else_reads_keeps_its_norm(without_onnxsim: None):
    g = Graph()
    h = g.conv("x", "conv", 1, 4)
    g.add("Add", g.batch_norm(h, "bn", 4), h)
    check_fold(g, {"x": ("N", 1, 5, 5)}, folds=0)


def test_a_shared_weight_keeps_its_norms(without_onnxsim: None):
    g = Graph()
    h = g.batch_norm(g.conv("x", "conv", 4, 4), "bn", 4)
    g.batch_norm(g.add("Conv", h, "conv.weight", pads=[1] * 4), "bn2", 4)
    check_fold(g, {"x": ("N", 4, 5, 5)}, folds=0)


def test_a_shared_bias_is_left_to_the_others(without_onnxsim: None):
    g = Graph()
    h = g.batch_norm(g.conv("x", "a", 4, 4, bias=True), "bn", 4)
    g.add("Conv", h, g.random("b.weight", 4, 4, 3, 3), "a.bias", pads=[1] * 4)
    made = check_fold(g, {"x": ("N", 4, 5, 5)})
    assert {"a.bias", "a.weight.folded_bias"} <= {t.name for t in made.graph.initializer}


def test_a_norm_that_would_erase_weights_stays(without_onnxsim: None):
    g = Graph()
    h = g.conv("x", "conv", 1, 2)
    rest = [g.tensor(n, [0.5, 1.0]) for n in ("beta", "mean", "var")]
    g.add("BatchNormalization", h, g.tensor("gamma", [0.0, 1.0]), *rest)
    check_fold(g, {"x": ("N", 1, 5, 5)}, folds=0)


def test_half_precision_norms_stay_because_rounding_would_show(without_onnxsim: None):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4)
    g.nodes[-1].output[0] = "y"
    for tensor in g.tensors:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    model = g.model({"x": ("N", 1, 5, 5)}, ["y"], types={"x": TensorProto.FLOAT16, "y": TensorProto.FLOAT16})
    assert "BatchNormalization" in operators(rewrite(model, ["conv.weight"])[0])


def test_weights_that_a_caller_may_override_are_not_folded(without_onnxsim: None):
    g = Graph()
    g.batch_norm(g.conv("x", "conv", 1, 4), "bn", 4)
    g.nodes[-1].output[0] = "y"
    given = [helper.make_tensor_value_info("conv.weight", TensorProto.FLOAT, [4, 1, 3, 3])]
    model = g.model({"x": ("N", 1, 5, 5)}, ["y"], extra_inputs=given)
    assert operators(rewrite(model, ["conv.weight"])[0]) == ["Conv", "BatchNormalization"]


def test_dropout_and_identity_go_wherever_they_stand(without_onnxsim: None):
    g = Graph()
    h = g.add("Identity", "x")
    h = g.add("Dropout", g.batch_norm(g.add("Identity", g.conv(h, "conv", 1, 4)), "bn", 4))
    h = g.add("Relu", g.add("Identity", g.add("Dropout", h)))
    g.add("Identity", h, outputs=("y",))
    g.add("Identity", h, outputs=("z",))
    g.add("Identity", "x", outputs=("same",))
    model = prune(g.model({"x": ("N", 1, 5, 5)}, ["y", "z", "same"]))
    made = rewrite(model, ["conv.weight"])[0]
    assert operators(made) == [
        "Conv",
        "Relu",
        "Identity",
        "Identity",
    ]  # two outputs of one value, and an input passed on
    check_same(model, made)


def test_a_dropout_whose_mask_is_read_stays(without_onnxsim: None):
    g = Graph()
    g.add("Dropout", g.add("Relu", "x"), outputs=("y", "mask"))
    model = g.model({"x": ("N", 4)}, ["y", "mask"], types={"mask": TensorProto.BOOL})
    assert operators(rewrite(model, [])[0]) == ["Relu", "Dropout"]


def test_names_read_inside_a_branch_are_renamed_there_too(without_onnxsim: None):
    g = Graph()
    h = g.add("Identity", g.add("Relu", "x"))
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([helper.make_node(op, [h], [f"{name}_y"])], name, [], [output])
    g.add("If", "c", outputs=("y",), **branches)
    model = g.model({"x": ("N", 4), "c": ()}, ["y"], types={"c": TensorProto.BOOL})
    made = rewrite(model, [])[0]
    assert operators(made) == ["Relu", "If"]
    feeds = {"x": np.ones((2, 4), np.float32), "c": np.array(False)}
    np.testing.assert_array_equal(run_onnxruntime(made, feeds)[0], run_onnxruntime(model, feeds)[0])


def exported(tmp_path: Path, settings: ExportSettings, model: ModelProto | None = None) -> list:
    network, state = import_model.import_model(prune(model or conv_bn_classifier(channels=24)))
    kernels = [k.name for k in network.kernels]
    feeds = random_inputs(network.file.model.proto, batch=4)
    return export.run(network.file, lower(network, state), kernels, settings, Workspace(tmp_path), feeds)


def test_deploy_files_lie_beside_the_others_and_count_the_same(tmp_path: Path, without_onnxsim: None):
    files = exported(tmp_path, ExportSettings(formats=(*ENCODINGS, *(f"deploy-{e}" for e in ENCODINGS))))
    assert [f.format for f in files[3:]] == ["deploy-sparse", "deploy-packed", "deploy-dense"]
    assert [(f.graph, f.encoding) for f in files[3:]] == [("deploy", encoding) for encoding in ENCODINGS]
    assert [f.name for f in files[3:]] == [f"model.deploy.{f}.onnx" for f in ENCODINGS]
    counts = [count_in_file(f.path, KERNELS) for f in files]
    assert all((c.kernels, c.nonzeros) == (counts[0].kernels, counts[0].nonzeros) for c in counts)
    assert [c.whole for c in counts] == [counts[0].whole] * 3 + [counts[3].whole] * 3
    assert counts[3].whole.nonzeros < counts[0].whole.nonzeros  # the norms are gone
    assert exporters.labels(read(files[4].path))["graph"] == "deploy"
    assert "nodes became" in files[4].notes[0]


@pytest.mark.parametrize("values", ["fp16", "int8"])
def test_rounded_values_are_labelled_and_proven_as_what_they_are(tmp_path: Path, without_onnxsim: None, values: str):
    files = exported(tmp_path, ExportSettings(formats=("sparse", "packed", "deploy-sparse", "deploy"), values=values))
    assert [f.values for f in files] == 2 * ["exact", "exact", values]
    names = ("sparse", "packed", f"packed.rounded-{values}")
    assert [f.name for f in files] == [f"model.{graph}{n}.onnx" for graph in ("", "deploy.") for n in names]
    for exact, rounded in (files[1:3], files[4:]):
        a, b = (exporters.read_tensors(read(f.path), KERNELS) for f in (exact, rounded))
        assert (a["conv2.weight"] != b["conv2.weight"]).any()
        np.testing.assert_allclose(a["conv2.weight"], b["conv2.weight"], atol=0.01 * np.abs(a["conv2.weight"]).max())
        model = read(rounded.path)
        assert exporters.labels(model)["values"] == values
        exporters.check_labels(model, KERNELS)
        assert rounded.bytes < 1.05 * exact.bytes


def test_every_kind_of_rounding_leaves_the_exact_file_as_it_is(tmp_path: Path, without_onnxsim: None):
    (plain,) = exported(tmp_path / "plain", ExportSettings(formats=("packed",)))
    exact, *rounded = exported(tmp_path / "both", ExportSettings(formats=("packed",), values=("int8", "fp16")))
    assert (exact.sha256, exact.values) == (plain.sha256, "exact")
    assert [f.values for f in rounded] == ["int8", "fp16"]
    assert len({f.sha256 for f in (exact, *rounded)}) == 3


def test_where_nothing_can_be_packed_nothing_is_called_rounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    packed = exporters.ENCODINGS["packed"]
    monkeypatch.setitem(exporters.ENCODINGS, "packed", replace(packed, encoded_names=lambda _: []))
    files = exported(tmp_path, ExportSettings(formats=("packed",), values="int8"))
    assert [(f.name, f.values) for f in files] == [("model.packed.onnx", "exact")]
    assert [path.name for path in tmp_path.iterdir()] == ["model.packed.onnx"]


def changed(monkeypatch: pytest.MonkeyPatch, change: Callable[[ModelProto], None]) -> None:
    """Let the packed format do something that its weights do not show."""
    packed = exporters.ENCODINGS["packed"]

    def wrong(model: Model, kernels: Collection[str]) -> Model:
        made = packed.encode(model, kernels).filled()
        change(made)
        return Model.of(made)

    monkeypatch.setitem(exporters.ENCODINGS, "packed", replace(packed, encode=wrong))


def another_activation(model: ModelProto) -> None:
    next(n for n in model.graph.node if n.op_type == "Relu").op_type = "Softplus"


def test_a_file_that_runs_differently_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    changed(monkeypatch, another_activation)
    with pytest.raises(ExportFailed, match="other outputs") as caught:
        exported(tmp_path, ExportSettings(formats=("packed",)))
    assert caught.value.exit_code == 6
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write = storage.write

    def full_disk(model: Model, path: Path, external: bool) -> None:
        if path.name == "model.dense.onnx":
            raise InputError("no space left", "free some")
        write(model, path, external)

    monkeypatch.setattr(storage, "write", full_disk)
    with pytest.raises(InputError, match="no space left"):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.packed.onnx", "model.sparse.onnx"]


def test_an_interruption_of_the_proof_leaves_no_file_that_is_not_proven(tmp_path: Path, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ltp_pipeline.exporters.output_proof.check_running", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_takes_those_after_it_along_which_are_not_proven(tmp_path: Path, monkeypatch):
    changed(monkeypatch, another_activation)
    with pytest.raises(ExportFailed, match="other outputs"):
        exported(tmp_path, ExportSettings(formats=("sparse", "packed", "dense")))
    assert [path.name for path in tmp_path.iterdir()] == ["model.sparse.onnx"]


def test_decoding_that_outlives_loading_is_refused_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def late_node(model: ModelProto) -> None:
        first = next(i for i, n in enumerate(model.graph.node) if n.op_type == "Relu")
        name = model.graph.node[first].output[0]
        for node in model.graph.node[first + 1 :]:
            node.input[:] = ["ltp/late" if n == name else n for n in node.input]
        model.graph.node.insert(first + 1, helper.make_node("Abs", [name], ["ltp/late"]))

    changed(monkeypatch, late_node)
    with pytest.raises(ExportFailed, match="not folded at load"):
        exported(tmp_path, ExportSettings(formats=("packed",)))
    assert list(tmp_path.iterdir()) == []


def test_a_deploy_graph_that_computes_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def wrong(model: Model, kernels: object) -> tuple[Model, str]:
        return model.with_weights({"fc.bias": model.array("fc.bias") + np.float32(1e-3)}), ""

    monkeypatch.setattr(deploy, "rewrite", wrong)
    with pytest.raises(ExportFailed, match="something else"):
        exported(tmp_path, ExportSettings(formats=("dense", "deploy-dense")))
    assert [p.name for p in tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("dtype", "change", "same"),
    [(np.float32, 1e-3, False), (np.float16, 1e-3, True), (np.float16, 1.0, False)],
)
def test_half_precision_may_differ_by_what_its_nodes_round(monkeypatch, dtype: type, change: float, same: bool):
    g = Graph()
    g.gemm("x", "fc", 8, 4)
    g.nodes[-1].output[0] = "y"
    for tensor in g.tensors:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = Model.of(g.model({"x": ("N", 8)}, ["y"], types={"x": kind, "y": kind}))
    weights = exporters.read_tensors(model, ["fc.weight"])

    def shifted(model: Model, kernels: object) -> tuple[Model, str]:
        return model.with_weights({"fc.bias": model.array("fc.bias") + np.dtype(dtype).type(change)}), ""

    monkeypatch.setattr(deploy, "rewrite", shifted)
    told = nullcontext() if same else pytest.raises(ExportFailed, match="something else")
    with told:
        deploy.make(model, weights, ["fc.weight"], {"x": np.ones((2, 8), dtype)})


def test_a_deploy_graph_with_other_zeros_is_refused(monkeypatch: pytest.MonkeyPatch):
    model = Model.of(prune(conv_bn_classifier()))
    weights = exporters.read_tensors(model, KERNELS)
    other = model.with_weights({"fc.weight": weights["fc.weight"] + np.float32(1e-30)})
    monkeypatch.setattr(deploy, "rewrite", lambda *_: (other, ""))
    with pytest.raises(ExportFailed, match="other zeros"):
        deploy.make(model, weights, KERNELS, random_inputs(model.proto))


def test_a_graph_alone_is_written_without_the_original(tmp_path: Path, without_onnxsim: None):
    (file,) = exported(tmp_path, ExportSettings(formats=("deploy",)))
    assert (file.graph, file.encoding, file.format, file.name) == (
        "deploy",
        "packed",
        "deploy-packed",
        "model.deploy.packed.onnx",
    )
    labels = exporters.labels(read(file.path))
    assert (labels["format"], labels["graph"]) == ("packed", "deploy")
    assert [path.name for path in tmp_path.iterdir()] == ["model.deploy.packed.onnx"]


def test_values_are_given_as_a_word_or_several_and_exact_is_always_there():
    given = ("exact", "int8", ["fp16", "int8"], ["exact", "fp16"])
    kept = ((), ("int8",), ("fp16", "int8"), ("fp16",))
    assert tuple(ExportSettings(values=v).values for v in given) == kept


def test_rounding_without_a_packed_file_is_refused():
    with pytest.raises(ValueError, match="packed"):
        Settings(export={"formats": ["sparse"], "values": "int8"})
