"""Models to encode, and how encoded models run."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper

from ltp_pipeline.exporters.encodings import ENCODINGS, packed
from ltp_pipeline.exporters.files import decode
from ltp_pipeline.exporters.files.read_back import verify_weights
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Array, Graph, sparse_array

LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]


def two_convs(first: Array, second: Array, opset: int = 13, ir_version: int = 8) -> ModelProto:
    """Return a model of two Convs in sequence."""
    g = Graph()
    h = g.add("Conv", "x", g.tensor("a.weight", first, first.dtype), name="first")
    g.add("Conv", h, g.tensor("b.weight", second, second.dtype), name="second", outputs=["y"])
    kind = helper.np_dtype_to_tensor_dtype(first.dtype)
    return g.model(
        {"x": (1, first.shape[1], 8, 8)},
        ["y"],
        opset,
        {"x": kind, "y": kind},
        ir_version=ir_version,
    )


def model_and_kernels(
    density: float = 0.1,
    opset: int = 13,
    dtype: Any = np.float32,
    shape: Sequence[int] = (33, 17, 3, 3),
) -> tuple[ModelProto, dict[str, Array]]:
    """Return a model of two sparse Convs, and its weights by name."""
    kernels = {
        "a.weight": sparse_array(shape, density, 1, dtype),
        "b.weight": sparse_array((65, shape[0], 3, 3), density / 2, 2, dtype),
    }
    return two_convs(*kernels.values(), opset=opset), kernels


def run_model(
    model: ModelProto, level: ort.GraphOptimizationLevel, tmp_path: Path | None = None
) -> bytes:
    """Return the output of a model on random input; write the optimized model into a folder."""
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    if tmp_path is not None:
        options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    value = session.get_inputs()[0]
    dtype = {
        "tensor(float)": np.float32,
        "tensor(double)": np.float64,
        "tensor(float16)": np.float16,
    }[value.type]
    x = np.random.default_rng(5).standard_normal(value.shape).astype(dtype)
    output: bytes = session.run(None, {"x": x})[0].tobytes()
    return output


def encode_as(encoding: str, model: ModelProto, kernels: Collection[str], **how: Any) -> ModelProto:
    """Encode the weights of a model and return it with all tensors inside."""
    return ENCODINGS[encoding].encode(OnnxModel.from_proto(model), kernels, **how).to_proto()


def verify_as(encoding: str, model: ModelProto, arrays: Mapping[str, Array]) -> None:
    """Check an encoded model against its source weights."""
    verify_weights(OnnxModel.from_proto(model), arrays, encoding)


def to_dense(model: ModelProto) -> ModelProto:
    """Decode an encoded model and return it with all tensors inside."""
    return decode.to_dense(OnnxModel.from_proto(model)).to_proto()


def force_code(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Pack every layer weight with one kind of code."""
    column = packed.KINDS.index(kind)
    monkeypatch.setattr(packed, "_choose_kinds", lambda costs: np.full(len(costs), column))
    monkeypatch.setattr(packed, "_is_smaller", lambda *_: True)


def matmul(
    array: Array,
    ir_version: int = 8,
    opset: int = 13,
    as_constant: bool = False,
    as_input: bool = False,
) -> ModelProto:
    """Return a model of one MatMul, whose weight `w` may be the value of a Constant node or also an input."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    g = Graph()
    g.tensor("w", array, array.dtype)
    g.tensors[0].doc_string = "the weight"
    if as_constant:
        g.add("Constant", outputs=["w"], value=g.tensors.pop())
    g.add("MatMul", "x", "w", outputs=["y"])
    inputs = {"x": (1, array.shape[0])} | ({"w": array.shape} if as_input else {})
    return g.model(
        inputs, ["y"], opset, dict.fromkeys(("x", "w", "y"), kind), ir_version=ir_version
    )


def identities(arrays: Mapping[str, Array], constant: str | None = None) -> ModelProto:
    """Return a model with an output for each array; one array may be the value of a Constant node."""
    g = Graph()
    for name, array in arrays.items():
        put = g.constant if name == constant else g.tensor
        g.add("Identity", put(name, array, array.dtype), outputs=[f"{name}.out"])
    types = {
        f"{name}.out": helper.np_dtype_to_tensor_dtype(array.dtype)
        for name, array in arrays.items()
    }
    return g.model({"x": (1,)}, list(types), 13, types)


def make_described(array: Array, name: str = "w") -> ModelProto:
    """Return a model of one MatMul that has all optional descriptions."""
    g = Graph()
    g.add(
        "MatMul",
        "x",
        g.tensor(name, array, array.dtype),
        name="multiply",
        outputs=["y"],
        doc_string="node",
    )
    g.tensor("other", [1])
    model = g.model({"x": (1, array.shape[0])}, ["y"], 13, producer_name="me")
    model.graph.doc_string = "graph"
    helper.set_model_props(model, {"key": "value"})
    return model


def model_of(array: Array) -> OnnxModel:
    """Return the model of `make_described` with graph and weights separated."""
    return OnnxModel.from_proto(make_described(array))
