"""Shapes of values, inferred where a damaged graph cannot end this process."""

import pytest
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline.graph.infer_shapes import infer_shapes
from ltp_pipeline.system.child_process import ChildCrashed


def make_model(pads: list[int], function: bool = False) -> ModelProto:
    """Return a model that pads (1, 8) and takes a slice, in the graph or in a function."""
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Slice", ["padded", "from", "to", "axis"], ["y"]),
    ]
    tensors = {"pads": pads, "from": [0], "to": [4], "axis": [1]}
    initializers = [
        helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        for name, values in tensors.items()
    ]
    opsets = [helper.make_opsetid("", 17)]
    functions = []
    if function:
        names = ["x", *tensors]
        functions = [helper.make_function("own", "cut", names, ["y"], nodes, opsets)]
        nodes = [helper.make_node("cut", names, ["y"], domain="own")]
        opsets = [*opsets, helper.make_opsetid("own", 1)]
    graph = helper.make_graph(
        nodes,
        "cut",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=8)


def get_sizes(model: ModelProto) -> list[int]:
    return [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim]


def test_a_slice_of_a_negative_size_is_an_error_and_not_the_end_of_the_process():
    with pytest.raises(ChildCrashed):
        infer_shapes(make_model([0, -20, 0, 0]), data_prop=True)


def test_a_slice_inside_a_function_is_inferred_in_a_child_too():
    with pytest.raises(ChildCrashed):
        infer_shapes(make_model([0, -20, 0, 0], function=True), data_prop=True)


def test_a_valid_slice_has_its_shape():
    assert get_sizes(infer_shapes(make_model([0, -2, 0, 0]))) == [1, 4]


def test_strict_inference_rejects_a_contradiction():
    model = make_model([0, 0, 0, 0])
    output = model.graph.output[0].type.tensor_type
    output.shape.dim.add().dim_value = 1
    output.shape.dim.add().dim_value = 5
    infer_shapes(model)
    with pytest.raises(Exception, match=r"differ|mismatch|[Ii]nfer"):
        infer_shapes(model, strict=True)
