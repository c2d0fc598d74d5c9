"""Small ONNX models for tests, built by hand so that every trap of real files can be had in a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

Array = np.ndarray[Any, Any]
Dim = int | str | None


class Graph:
    """Collects nodes and initializers; every method that adds a node returns the name of its output."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def tensor(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """Add an initializer."""
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def random(self, name: str, *shape: int, scale: float | None = None) -> str:
        """Add a float initializer of random values, scaled as a layer's weights are."""
        fan_in = float(np.prod(shape[1:])) if len(shape) > 1 else 1.0
        size = scale if scale is not None else 1 / np.sqrt(fan_in)
        return self.tensor(name, self.rng.standard_normal(shape) * size)

    def positive(self, name: str, *shape: int) -> str:
        """Add a float initializer of values around one."""
        return self.tensor(name, self.rng.uniform(0.5, 1.5, shape))

    def add(
        self, op: str, *inputs: str, name: str | None = None, outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add a node and return its first output."""
        name = name or f"{op.lower()}_{len(self.nodes)}"
        outputs = tuple(outputs) or (f"{name}_out",)
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """Add a Constant node whose output is `name`."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype), f"{name}_value")
        return self.add("Constant", name=f"constant_{name}", outputs=(name,), value=tensor)

    def conv(self, x: str, name: str, cin: int, cout: int, size: int = 3, bias: bool = False, **attributes: Any) -> str:
        """Add a Conv that keeps the map's size, with weight `name.weight` (and `name.bias`)."""
        group = attributes.get("group", 1)
        inputs = [x, self.random(f"{name}.weight", cout, cin // group, size, size)]
        if bias:
            inputs.append(self.random(f"{name}.bias", cout, scale=0.1))
        attributes = {"kernel_shape": [size, size], "pads": [size // 2] * 4, **attributes}
        return self.add("Conv", *inputs, name=name, **attributes)

    def batch_norm(self, x: str, name: str, channels: int) -> str:
        """Add a BatchNormalization with its four tensors under `name`."""
        parameters = [
            self.positive(f"{name}.weight", channels),
            self.random(f"{name}.bias", channels, scale=0.1),
            self.random(f"{name}.running_mean", channels, scale=0.1),
            self.positive(f"{name}.running_var", channels),
        ]
        return self.add("BatchNormalization", x, *parameters, name=name)

    def gemm(self, x: str, name: str, fin: int, fout: int) -> str:
        """Add a Gemm with a torch-style (out, in) weight."""
        weight, bias = self.random(f"{name}.weight", fout, fin), self.random(f"{name}.bias", fout, scale=0.1)
        return self.add("Gemm", x, weight, bias, name=name, transB=1)

    def model(
        self,
        inputs: Mapping[str, Sequence[Dim]],
        outputs: Sequence[str],
        opset: int = 17,
        types: Mapping[str, int] | None = None,
        extra_inputs: Sequence[ValueInfoProto] = (),
        **fields: Any,
    ) -> ModelProto:
        """Wrap everything up; shapes of outputs are inferred, types are float unless `types` says otherwise."""
        types = types or {}
        given = [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s) for n, s in inputs.items()]
        results = [helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), None) for n in outputs]
        graph = helper.make_graph(self.nodes, "test", [*given, *extra_inputs], results, self.tensors)
        model = as_model(graph, opset, **fields)
        inferred = {o.name: o for o in shape_inference.infer_shapes(model).graph.output}
        for output in model.graph.output:
            output.CopyFrom(inferred[output.name])
        return model


def as_model(graph: GraphProto, opset: int = 17, **fields: Any) -> ModelProto:
    """A model of a graph, with a producer and a metadata entry that must survive."""
    imports = [helper.make_opsetid("", opset), *fields.pop("imports", ())]
    model = helper.make_model(
        graph, opset_imports=imports, producer_name="tests", producer_version="1", ir_version=8, **fields
    )
    helper.set_model_props(model, {"author": "tests"})
    return model


def conv_bn_classifier(
    channels: int = 8, classes: int = 5, size: int = 8, batch: Dim = "N", seed: int = 0
) -> ModelProto:
    """Conv-BN-ReLU, a residual block, pooling and a Gemm: 1×size×size images to class scores."""
    g = Graph(seed)
    x = g.add("Relu", g.batch_norm(g.conv("x", "conv1", 1, channels), "bn1", channels))
    y = g.add("Relu", g.batch_norm(g.conv(x, "conv2", channels, channels), "bn2", channels))
    y = g.add("Add", y, x)
    y = g.add("Flatten", g.add("GlobalAveragePool", y))
    g.gemm(y, "fc", channels, classes)
    g.nodes[-1].output[0] = "logits"
    return g.model({"x": (batch, 1, size, size)}, ["logits"])


def mlp(features: int = 6, hidden: int = 16, classes: int = 4, batch: Dim = "N", seed: int = 0) -> ModelProto:
    """Two Gemms with a ReLU between."""
    g = Graph(seed)
    y = g.gemm(g.add("Relu", g.gemm("x", "fc1", features, hidden)), "fc2", hidden, classes)
    g.nodes[-1].output[0] = "logits"
    assert y
    return g.model({"x": (batch, features)}, ["logits"])


def random_inputs(model: ModelProto, batch: int = 2, open_size: int = 8, seed: int = 0) -> dict[str, Array]:
    """Standard normal floats for every input that is no initializer."""
    rng = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name not in stored:
            tensor = value.type.tensor_type
            dims = [d.dim_value or (batch if i == 0 else open_size) for i, d in enumerate(tensor.shape.dim)]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            feeds[value.name] = rng.standard_normal(dims).astype(dtype)
    return feeds


def run_onnxruntime(model: ModelProto | str, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs of a model, or of the file at a path, in onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = model if isinstance(model, str) else model.SerializeToString()
    outputs: list[Array] = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"]).run(
        None, dict(feeds)
    )
    return outputs
