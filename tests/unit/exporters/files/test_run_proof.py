"""Outputs of every type are compared: sequences, maps, text and tensors."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.files.run_proof import run_file, verify_outputs
from ltp_pipeline.system.arrays import Array
from tests.support.models import Graph, as_model

FEEDS = {"x": np.array([[1, 2], [3, 5]], np.float32)}


def of(node: onnx.NodeProto, output: onnx.ValueInfoProto) -> ModelProto:
    g = Graph()
    g.tensor("w", np.eye(2))
    g.add("MatMul", "x", "w", outputs=("h",))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])]
    graph = helper.make_graph([*g.nodes, node], "test", inputs, [output], g.tensors)
    return as_model(graph, imports=[helper.make_opsetid("ai.onnx.ml", 3)])


def sequence() -> ModelProto:
    output = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    return of(helper.make_node("SequenceConstruct", ["h", "x"], ["y"]), output)


def maps() -> ModelProto:
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, element))
    node = helper.make_node(
        "ZipMap", ["h"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b"]
    )
    return of(node, helper.make_value_info("y", kind))


def text() -> ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.STRING, ["N", 2])
    return of(helper.make_node("Cast", ["h"], ["y"], to=TensorProto.STRING), output)


def result(model: ModelProto, folder: Path) -> list[Array]:
    onnx.save(model, folder / "model.onnx")
    return run_file(folder / "model.onnx", FEEDS)


def test_run_file_returns_arrays_of_sequence(tmp_path: Path) -> None:
    assert [a.tolist() for a in result(sequence(), tmp_path)] == [FEEDS["x"].tolist()] * 2


def test_run_file_returns_keys_and_values_of_maps(tmp_path: Path) -> None:
    assert [a.tolist() for a in result(maps(), tmp_path)] == [
        ["a", "b"],
        [1, 2],
        ["a", "b"],
        [3, 5],
    ]


@pytest.mark.parametrize("make", [sequence, maps, text])
def test_verify_outputs_rejects_other_outputs(make: object, tmp_path: Path) -> None:
    expected = result(make(), tmp_path)  # type: ignore[operator]
    verify_outputs(tmp_path / "model.onnx", FEEDS, expected)
    other = np.array(["z"] * expected[0].size, object).reshape(expected[0].shape)
    with pytest.raises(ExportFailed, match=r"^model\.onnx "):
        verify_outputs(
            tmp_path / "model.onnx",
            FEEDS,
            [other.astype(expected[0].dtype, copy=False), *expected[1:]]
            if make is text
            else [*expected[:-1], expected[-1] + 1],
        )
