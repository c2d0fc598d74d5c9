"""Packed files: every kind of code folds, runs alike, comes back exactly, and no edit goes unnoticed."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ltp_pipeline import exporters
from ltp_pipeline.errors import ExportFailed, InputError, UsageError
from ltp_pipeline.exporters import output_proof
from ltp_pipeline.exporters.encodings import packed, packed_codec
from ltp_pipeline.graph import Model

LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]


def sparse_array(shape, density, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape).astype(dtype)
    array[rng.random(shape) >= density] = 0
    return array


def two_convs(first, second, opset=13, ir_version=8):
    nodes = [
        helper.make_node("Conv", ["x", "a.weight"], ["h"], name="first"),
        helper.make_node("Conv", ["h", "b.weight"], ["y"], name="second"),
    ]
    size = 8 - first.shape[2] + 1 - second.shape[2] + 1
    element = helper.np_dtype_to_tensor_dtype(first.dtype)
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", element, [1, first.shape[1], 8, 8])],
        [helper.make_tensor_value_info("y", element, [1, second.shape[0], size, size])],
        [numpy_helper.from_array(first, "a.weight"), numpy_helper.from_array(second, "b.weight")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def model_and_kernels(density=0.1, opset=13, dtype=np.float32, shape=(33, 17, 3, 3)):
    kernels = {
        "a.weight": sparse_array(shape, density, 1, dtype),
        "b.weight": sparse_array((65, shape[0], 3, 3), density / 2, 2, dtype),
    }
    return two_convs(*kernels.values(), opset=opset), kernels


def run(model, level, tmp_path=None):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    if tmp_path is not None:
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    value = session.get_inputs()[0]
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}[value.type]
    x = np.random.default_rng(5).standard_normal(value.shape).astype(dtype)
    return session.run(None, {"x": x})[0].tobytes()


def encode(model, kernels, **how):
    """A packed model with everything inside."""
    return packed.ENCODING.encode(Model.of(model), kernels, **how).filled()


def verify(model, kernels):
    exporters.verify(Model.of(model), kernels, "packed")


def to_dense(model):
    return exporters.to_dense(Model.of(model)).filled()


def force(monkeypatch, kind):
    column = packed.KINDS.index(kind)
    monkeypatch.setattr(packed, "_choose", lambda costs: np.full(len(costs), column))
    monkeypatch.setattr(packed, "_smaller", lambda *_: True)


@pytest.mark.parametrize("small", [0, 6000, packed.SMALL])  # each tensor by itself, one of two, both together
@pytest.mark.parametrize("opset", [11, 13, 18, 21])
@pytest.mark.parametrize("kind", packed_codec.KINDS)
@pytest.mark.parametrize("density", [0.0, 0.002, 0.1, 1.0])
def test_every_kind_folds_and_runs_alike(monkeypatch, tmp_path, kind, opset, density, small):
    model, kernels = model_and_kernels(density, opset)
    force(monkeypatch, kind)
    monkeypatch.setattr(packed, "SMALL", small)
    encoded = encode(model, kernels)
    assert not {t.name for t in encoded.graph.initializer} & set(kernels)
    verify(encoded, kernels)
    for level in LEVELS:
        assert run(encoded, level) == run(model, level)
    run(encoded, LEVELS[1], tmp_path)
    left = onnx.load(tmp_path / "optimized.onnx").graph
    assert [node.op_type for node in left.node] == ["Conv", "Conv"]
    assert {t.name for t in left.initializer} == set(kernels)


@pytest.mark.parametrize("kind", ["6v", "4f", "m"])
def test_half_precision(monkeypatch, kind):
    model, kernels = model_and_kernels(0.1, dtype=np.float16)
    force(monkeypatch, kind)
    encoded = encode(model, kernels)
    verify(encoded, kernels)
    assert run(encoded, LEVELS[1]) == run(model, LEVELS[1])


@pytest.mark.parametrize("kind", packed_codec.KINDS)
def test_the_reference_evaluator_reads_it(monkeypatch, kind):
    model, kernels = model_and_kernels(0.1)
    force(monkeypatch, kind)
    x = np.random.default_rng(0).standard_normal((1, 17, 8, 8)).astype(np.float32)
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]
    assert (ReferenceEvaluator(encode(model, kernels)).run(None, {"x": x})[0] == expected).all()


def test_the_kinds_each_win_somewhere():
    chosen = {}
    for density in (0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.6, 0.9):
        model, kernels = model_and_kernels(density, shape=(256, 64, 3, 3))
        encoded = encode(model, {"a.weight": 0})
        codes = [t.name.split("/")[-1] for t in encoded.graph.initializer if t.name.startswith("ltp/0/")]
        chosen[density] = next(kind for kind in codes if kind in packed_codec.KINDS)
        verify(encoded, kernels)
    assert {"4v", "6v", "8v", "m"} <= set(chosen.values()), chosen
    assert chosen[0.1] == "6v"
    assert chosen[0.9] == "m"


def test_long_gaps_between_dense_parts_choose_free_codes():
    array = np.zeros((512, 512), np.float32)
    array[::16] = sparse_array((32, 512), 0.25)
    model = two_convs(array.reshape(512, 512, 1, 1), sparse_array((4, 512, 1, 1), 1.0))
    encoded = encode(model, ["a.weight"])
    verify(encoded, {"a.weight": array.reshape(512, 512, 1, 1)})
    assert any(t.name == "ltp/0/8f" for t in encoded.graph.initializer)


def test_small_tensors_are_scattered_as_one_and_keep_what_is_said_of_them():
    model, kernels = model_and_kernels()
    encoded = encode(model, kernels)
    assert [n.op_type for n in encoded.graph.node].count("ScatterElements") == 1
    model.graph.initializer[1].doc_string = "about b"
    encoded = encode(model, kernels)
    assert [n.op_type for n in encoded.graph.node].count("ScatterElements") == 2
    said = {t.name: t.doc_string for t in to_dense(encoded).graph.initializer}
    assert said == {"a.weight": "", "b.weight": "about b"}


def test_pairs_of_codes_fill_both_halves():
    steps = np.random.default_rng(0).geometric(0.1, 4001).astype(np.int32)
    for first in (1, 14, 15, 16, 17, 300, 70000):
        gaps = np.append(np.int32(first), steps)
        for order in (gaps, gaps[::-1]):
            (codes,), _ = packed_codec.encode("4v", [order], [np.ones(order.size, np.float32)], [int(order.sum()) + 1])
            half = -(-codes.size // 2)
            assert codes[:half].max() <= 14
            assert codes[half:].max() <= 16
            assert (packed_codec.unpack("4v", packed_codec.pack("4v", codes))[: codes.size] == codes).all()


def test_dense_weights_stay_as_they_are():
    model, kernels = model_and_kernels(1.0)
    assert to_dense(encode(model, kernels)).SerializeToString() == model.SerializeToString()


def test_to_dense_leaves_a_plain_model_alone():
    model = Model.of(model_and_kernels()[0])
    assert exporters.to_dense(model) is model


def test_nothing_of_packing_is_left_after_unpacking():
    model, kernels = model_and_kernels()
    restored = to_dense(encode(model, kernels))
    assert [n.SerializeToString() for n in restored.graph.node] == [n.SerializeToString() for n in model.graph.node]
    assert {t.name for t in restored.graph.initializer} == set(kernels)


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_old_opsets_stay_dense(opset):
    model, kernels = model_and_kernels(opset=opset)
    assert encode(model, kernels).SerializeToString() == model.SerializeToString()


def test_a_name_with_the_reserved_prefix_keeps_a_model_dense():
    model, kernels = model_and_kernels()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = "ltp/0/p"
    assert encode(model, kernels).SerializeToString() == model.SerializeToString()


def test_inputs_of_old_ir_versions_go():
    model, kernels = model_and_kernels(opset=11)
    model.ir_version = 3
    for name, array in kernels.items():
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape))
    onnx.checker.check_model(model, full_check=True)
    encoded = encode(model, kernels)
    assert [value.name for value in encoded.graph.input] == ["x"]
    assert encoded.ir_version == 4
    verify(encoded, kernels)
    assert run(encoded, LEVELS[1]) == run(model, LEVELS[1])


def test_shared_and_nested_kernels():
    array = sparse_array((64, 64), 0.05)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 64]) for n in ("x", "y"))
    then_ = helper.make_graph(
        [helper.make_node("MatMul", ["x", "inner"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(array, "inner")],
    )
    else_ = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["e"])],
        "else",
        [],
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [1, 64])],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceSum", ["h"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["flag"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=then_, else_branch=else_),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(array, "w"), zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    for format_ in exporters.ENCODINGS.values():
        encoded = format_.encode(Model.of(model), ["w", "inner"]).filled()
        exporters.verify(Model.of(encoded), {"w": array, "inner": array}, format_.name)
        inner = next(a.g for n in encoded.graph.node for a in n.attribute if a.name == "then_branch")
        assert [t.name for t in inner.initializer] == ["inner"]
        assert run(encoded, LEVELS[1]) == run(model, LEVELS[1])


@pytest.mark.parametrize("values", ["fp16", "int8"])
@pytest.mark.parametrize("density", [0.05, 0.6])
def test_rounded_values_fold_and_say_so(tmp_path, values, density):
    model, kernels = model_and_kernels(density, shape=(64, 32, 3, 3))
    encoded = encode(model, kernels, values=values)
    assert exporters.labels(Model.of(encoded))["values"] == values
    assert encoded.ByteSize() < encode(model, kernels).ByteSize()
    onnx.checker.check_model(encoded, full_check=True)
    restored = to_dense(encoded)
    assert run(encoded, LEVELS[1], tmp_path) == run(restored, LEVELS[1])
    assert [n.op_type for n in onnx.load(tmp_path / "optimized.onnx").graph.node] == ["Conv", "Conv"]
    for name, array in exporters.read_tensors(Model.of(encoded), kernels).items():
        wanted = kernels[name]
        assert not array[wanted == 0].any()
        if values == "fp16":
            assert (array == wanted.astype(np.float16)).all()
        else:
            steps = np.abs(wanted).max(axis=(1, 2, 3), keepdims=True) / 127
            assert (np.abs(array - wanted) <= 0.5001 * steps).all()
    with pytest.raises(ExportFailed, match=r"a\.weight"):
        verify(encoded, kernels)


def test_values_that_rounding_would_overflow_stay_exact():
    model, kernels = model_and_kernels(0.05)
    kernels["a.weight"][0, 0, 0, 0] = 1e6
    encoded = encode(Model.of(model).with_weights(kernels).filled(), kernels, values="fp16")
    found = exporters.read_tensors(Model.of(encoded), kernels)
    assert (found["a.weight"] == kernels["a.weight"]).all()
    assert (found["b.weight"] == kernels["b.weight"].astype(np.float16)).all()


def test_unknown_values_are_refused():
    model, kernels = model_and_kernels()
    with pytest.raises(UsageError, match="int4"):
        encode(model, kernels, values="int4")


def part(model, suffix):
    return next(t for t in model.graph.initializer if t.name.endswith(suffix))


def replace(tensor, array):
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def node_of(model, op_type):
    return next(n for n in model.graph.node if n.op_type == op_type)


EDITS = {
    "gaps past the end": lambda m: replace(part(m, "/8v"), np.full(part(m, "/8v").dims, 255, np.uint8)),
    "duplicated positions": lambda m: replace(part(m, "/8v"), np.zeros(part(m, "/8v").dims, np.uint8)),
    "codes of another type": lambda m: replace(part(m, "/8v"), np.zeros(part(m, "/8v").dims, np.uint16)),
    "codes missing": lambda m: replace(part(m, "/8v"), np.ones(3, np.uint8)),
    "values missing": lambda m: replace(part(m, "/v.1"), np.ones(3, np.float32)),
    "values of another type": lambda m: replace(part(m, "/v.1"), np.ones(part(m, "/v.1").dims, np.float64)),
    "values gone": lambda m: m.graph.initializer.remove(part(m, "/v.0")),
    "values truncated": lambda m: setattr(part(m, "/v.0"), "raw_data", b"\0" * 6),
    "split sizes": lambda m: replace(part(m, "/n"), numpy_helper.to_array(part(m, "/n"))[::-1].copy()),
    "negative split size": lambda m: replace(part(m, "/n"), np.array([-5, 9], np.int64)),
    "one split size": lambda m: replace(part(m, "/n"), np.array([5], np.int64)),
    "enormous dims": lambda m: replace(part(m, "/s33.17.3.3"), np.array([2**40, 2**40], np.int64)),
    "negative dims": lambda m: replace(part(m, "/s33.17.3.3"), np.array([-1, 17, 3, 3], np.int64)),
    "dims that are no dims": lambda m: replace(part(m, "/s33.17.3.3"), np.float32([1])),
    "another axis": lambda m: replace(part(m, "/k7/0"), np.array(1)),
    "another op": lambda m: setattr(node_of(m, "CumSum"), "op_type", "Add"),
    "another attribute": lambda m: node_of(m, "CumSum").attribute.append(helper.make_attribute("reverse", 1)),
    "another input": lambda m: node_of(m, "ScatterElements").input.__setitem__(2, "ltp/0/v.1"),
    "a node gone": lambda m: m.graph.node.remove(node_of(m, "CumSum")),
    "the last node gone": lambda m: m.graph.node.remove(node_of(m, "Reshape")),
    "the same name twice": lambda m: node_of(m, "Reshape").output.__setitem__(0, "b.weight"),
    "a constant gone": lambda m: m.graph.initializer.remove(part(m, "/k7/0")),
}


JOINED_EDITS = {
    "sizes of the tensors": lambda m: replace(part(m, "/z.0"), numpy_helper.to_array(part(m, "/z.0"))[::-1].copy()),
    "a tensor less": lambda m: node_of(m, "Split").output.pop(),
    "tensors exchanged": lambda m: node_of(m, "Reshape").input.__setitem__(0, "ltp/0/y.0.1"),
    "dims that do not fill it": lambda m: replace(part(m, "/s33.17.3.3"), np.array([33, 17, 3, 2])),
    "values missing": lambda m: replace(part(m, "/v.0"), np.ones(3, np.float32)),
}


@pytest.mark.parametrize("edit", [*EDITS, *(f"joined: {edit}" for edit in JOINED_EDITS)])
def test_edits_are_found(monkeypatch, edit):
    model, kernels = model_and_kernels()
    force(monkeypatch, "8v")
    if edit in EDITS:
        monkeypatch.setattr(packed, "SMALL", 0)
    encoded = encode(model, kernels)
    (EDITS | {f"joined: {name}": change for name, change in JOINED_EDITS.items()})[edit](encoded)
    with pytest.raises(InputError, match=r"weight|ltp/0"):
        to_dense(encoded)
    with pytest.raises(ExportFailed):
        verify(encoded, kernels)


def test_neutral_changes_by_converters_are_taken():
    model, kernels = model_and_kernels()
    encoded = encode(model, kernels)
    for node in encoded.graph.node:
        node.name = f"renamed {node.output[0]}"
        if node.op_type == "Reshape":
            node.attribute.append(helper.make_attribute("allowzero", 0))
    verify(onnx.version_converter.convert_version(encoded, 14), kernels)


def test_a_constant_that_the_model_shares_with_the_decoder_is_no_node_left_over(tmp_path):
    """onnxruntime keeps equal constants once; here the model reads the decoder's -1 from the start."""
    model, kernels = model_and_kernels(density=0.5)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "all"))
    model.graph.node.append(helper.make_node("Reshape", ["y", "all"], ["flat"], name="flatten"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("flat", TensorProto.FLOAT, [None]))
    path, plain = tmp_path / "packed.onnx", tmp_path / "dense.onnx"
    onnx.save(model, plain)
    encoded = encode(model, kernels)
    (reader,) = (n for n in encoded.graph.node if n.name == "flatten")
    reader.input[1] = "ltp/flat"
    onnx.save(encoded, path)
    feeds = {"x": np.random.default_rng(0).normal(size=(1, kernels["a.weight"].shape[1], 8, 8)).astype(np.float32)}
    output_proof.check_running(path, feeds, output_proof.outputs(plain, feeds))
