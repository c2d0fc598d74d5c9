"""Models as graph and weights: what is separated, and that no rewrite copies it."""

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, InputError
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files.decode import read_tensors
from ltp_pipeline.exporters.files.labels import write_metadata
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.rewrites.normalize import normalize_model
from ltp_pipeline.graph.storage import read_model, write_model
from ltp_pipeline.graph.tensors import iter_tensors
from tests.support.encoded import make_described, model_of
from tests.support.models import Graph, conv_bn_classifier, sparse_array
from tests.support.round_trip import check_round_trip

FLOATS = {"float": np.float32, "double": np.float64, "half": np.float16}


def branch(name: str, weight: str, values: list[float]) -> onnx.GraphProto:
    """Return a branch that multiplies by a weight and a constant of its own."""
    nodes = [
        helper.make_node(
            "Constant", [], [f"{name}_c"], value=numpy_helper.from_array(np.float32(values))
        ),
        helper.make_node("Mul", ["x", weight], [f"{name}_p"]),
        helper.make_node("Mul", [f"{name}_p", f"{name}_c"], [f"{name}_y"]),
    ]
    output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["N", 2])
    return helper.make_graph(
        nodes, name, [], [output], [numpy_helper.from_array(np.float32(values), weight)]
    )


def mixed_tensors(then_weight: str = "w_then", else_weight: str = "w_else") -> ModelProto:
    """Return a model with tensors in every place and form that a file may have them."""
    g = Graph()
    for name, dtype in FLOATS.items():
        g.tensor(name, [1, 2], dtype)
    g.tensors.append(
        helper.make_tensor("bfloat", TensorProto.BFLOAT16, [2], b"\x80\x3f\x00\x40", raw=True)
    )
    g.tensors.append(helper.make_tensor("numbers", TensorProto.FLOAT, [2], [1.0, 2.0]))
    g.tensor("axes", [0, 1], np.int64)
    g.tensor("empty", np.zeros((0, 3)))
    g.tensor("scalar", 3.0)
    g.constant("in_constant", [1.0, 2.0])
    g.tensor("yes", True, np.bool_)
    branches = {
        "then_branch": branch("t", then_weight, [1, 2]),
        "else_branch": branch("e", else_weight, [3, 4]),
    }
    g.add("If", "yes", outputs=["h"], **branches)
    g.add("Mul", "h", "in_constant", outputs=["y"])
    return g.model({"x": ("N", 2)}, ["y"])


def test_from_proto_separates_floats_and_leaves_all_else() -> None:
    proto = mixed_tensors()
    before = proto.SerializeToString()
    model = OnnxModel.from_proto(proto)
    separated = {
        *FLOATS,
        "bfloat",
        "empty",
        "scalar",
        "in_constant",
        "w_then",
        "w_else",
        "t_c",
        "e_c",
    }
    assert model.weights.keys() == separated
    assert {name for name in separated if model.tensors[name].HasField("raw_data")} == set()
    assert model.get_array("numbers").tolist() == [1, 2]
    assert model.get_array("axes").tolist() == [0, 1]
    assert model.get_array("w_else").tolist() == [3, 4]
    assert model.get_array("bfloat").astype(np.float32).tolist() == [1, 2]
    assert model.get_array("scalar").shape == ()
    assert proto.SerializeToString() == before


def test_to_proto_and_write_model_restore_the_same_bytes(tmp_path) -> None:
    proto = mixed_tensors()
    model = OnnxModel.from_proto(proto)
    assert model.to_proto().SerializeToString() == proto.SerializeToString()
    write_model(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == proto.SerializeToString(deterministic=True)
    assert read_model(tmp_path / "m.onnx").weights.keys() == model.weights.keys()


def test_tensors_that_share_a_name_stay_in_the_graph(tmp_path) -> None:
    proto = mixed_tensors("w", "w")
    model = OnnxModel.from_proto(proto)
    assert "w" not in model.weights
    write_model(model, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").read_bytes() == proto.SerializeToString(deterministic=True)


def test_external_data_are_read_like_values_in_the_file(tmp_path) -> None:
    proto = conv_bn_classifier(channels=24)
    nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in proto.graph.initializer]
    constants = helper.make_graph(
        [*nodes, *proto.graph.node], "c", proto.graph.input, proto.graph.output
    )
    for source in (proto, helper.make_model(constants)):
        write_model(OnnxModel.from_proto(source), tmp_path / "m.onnx", external=True)
        outside = onnx.load(tmp_path / "m.onnx", load_external_data=False)
        assert any(t.data_location == TensorProto.EXTERNAL for t in iter_tensors(outside))
        model_read = read_model(tmp_path / "m.onnx")
        assert model_read.to_proto().SerializeToString() == source.SerializeToString()


def test_with_weights_replaces_values_in_the_graph(tmp_path) -> None:
    model = OnnxModel.from_proto(mixed_tensors()).with_weights(
        {"numbers": np.float64([5, 6]), "t_c": np.float32([7, 8])}
    )
    assert model.get_array("numbers").dtype == np.float32
    write_model(model, tmp_path / "m.onnx")
    tensor = next(
        t for t in onnx.load(tmp_path / "m.onnx").graph.initializer if t.name == "numbers"
    )
    assert not tensor.float_data
    assert read_model(tmp_path / "m.onnx").get_array("numbers").tolist() == [5, 6]
    assert read_model(tmp_path / "m.onnx").get_array("t_c").tolist() == [7, 8]
    with pytest.raises(ExportFailed, match="'other'"):
        model.with_weights({"other": np.float32([1])})
    with pytest.raises(ExportFailed, match=r"'numbers'.*\(1,\).*\(2,\)"):
        model.with_weights({"numbers": np.float32([1])})


def test_rewrites_share_the_weights(monkeypatch) -> None:
    def failing(*_: object) -> OnnxModel:
        raise simplify.SimplifyFailed("onnxsim is away")

    monkeypatch.setattr(simplify, "simplify_model", failing)
    proto = conv_bn_classifier()
    norm = next(n for n in proto.graph.node if n.op_type == "BatchNormalization")
    norm.input[3] = norm.input[1]  # the scale is the mean too
    model = OnnxModel.from_proto(proto)
    normalised, notes = normalize_model(model)
    assert notes
    separate = next(n for n in normalised.graph.node if n.output == norm.output).input[3]
    assert separate != norm.input[3]
    assert normalised.weights[separate] is model.weights[norm.input[3]]
    others = [
        normalised,
        flatten_model(normalised)[0],
        normalised.with_weights({"fc.bias": np.zeros(5)}),
        *(encoding.encode(model, ["conv1.weight"]) for encoding in ENCODINGS.values()),
        write_metadata(model, format="dense"),
        deploy.rewrite_model(model, ["conv1.weight", "fc.weight"])[0],
    ]
    assert all(other.weights["fc.weight"] is model.weights["fc.weight"] for other in others)
    assert model.to_proto().SerializeToString() == proto.SerializeToString()


def test_weights_in_branches_are_trained_and_written_back() -> None:
    g = Graph()
    g.gemm("x", "fc", 2, 2)
    g.nodes[-1].output[0] = "h"
    g.tensor("limit", 0.0)
    total = g.add("ReduceSum", g.tensor("three", [1.0, 2.0]), keepdims=0)
    g.add("Greater", total, "limit", outputs=["positive"])
    branches = {"then_branch": branch("t", "w", [1, 2]), "else_branch": branch("e", "w", [3, 4])}
    g.add("If", "positive", outputs=["p"], **branches)
    g.add("Mul", "h", "p", outputs=["y"])
    check_round_trip(g.model({"x": ("N", 2)}, ["y"]))


def test_with_weights_changes_nothing_else():
    model = model_of(sparse_array())
    new = np.ones((64, 64))
    copy = model.with_weights({"w": new})
    assert copy.graph.initializer[0].data_type == TensorProto.FLOAT
    assert (copy.get_array("w") == 1).all()
    back = copy.with_weights({"w": sparse_array()})
    assert back.to_proto().SerializeToString() == make_described(sparse_array()).SerializeToString()


def test_with_weights_replaces_number_fields_and_constants():
    proto = make_described(sparse_array())
    proto.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.FLOAT, [64, 64], sparse_array().reshape(-1))
    )
    copy = OnnxModel.from_proto(proto).with_weights({"w": sparse_array() * 2})
    assert not copy.to_proto().graph.initializer[0].float_data
    assert (copy.get_array("w") == sparse_array() * 2).all()
    constant = helper.make_node(
        "Constant", [], ["c"], value=numpy_helper.from_array(np.zeros(3, np.float32))
    )
    proto.graph.node.insert(0, constant)
    model = OnnxModel.from_proto(proto)
    copy = model.with_weights({"c": np.arange(3)})
    assert OnnxModel.from_proto(copy.to_proto()).get_array("c").tolist() == [0, 1, 2]
    assert model.get_array("c").tolist() == [0, 0, 0]


def test_with_weights_converts_to_half_precision():
    copy = model_of(sparse_array().astype(np.float16)).with_weights({"w": sparse_array()})
    assert copy.get_array("w").dtype == np.float16


def test_unknown_names_and_wrong_shapes_are_rejected():
    with pytest.raises(ExportFailed, match="'v'"):
        model_of(sparse_array()).with_weights({"v": sparse_array()})
    with pytest.raises(ExportFailed, match=r"'w'.*\(4, 4\).*\(64, 64\)"):
        model_of(sparse_array()).with_weights({"w": sparse_array((4, 4))})
    with pytest.raises(InputError, match="'v'"):
        read_tensors(model_of(sparse_array()), ["v"])
