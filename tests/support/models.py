"""Small ONNX models for tests, built by hand so that every trap of real files can be had in a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
    parser,
    shape_inference,
)

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
        self,
        op: str,
        *inputs: str,
        name: str | None = None,
        outputs: Sequence[str] = (),
        **attributes: Any,
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

    def conv(
        self,
        x: str,
        name: str,
        cin: int,
        cout: int,
        size: int = 3,
        bias: bool = False,
        **attributes: Any,
    ) -> str:
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
        weight, bias = (
            self.random(f"{name}.weight", fout, fin),
            self.random(f"{name}.bias", fout, scale=0.1),
        )
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
        known_inputs = [
            helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), s)
            for n, s in inputs.items()
        ]
        results = [
            helper.make_tensor_value_info(n, types.get(n, TensorProto.FLOAT), None) for n in outputs
        ]
        graph = helper.make_graph(
            self.nodes, "test", [*known_inputs, *extra_inputs], results, self.tensors
        )
        model = as_model(graph, opset, **fields)
        inferred = {o.name: o for o in shape_inference.infer_shapes(model).graph.output}
        for output in model.graph.output:
            output.CopyFrom(inferred[output.name])
        return model


def as_model(graph: GraphProto, opset: int = 17, **fields: Any) -> ModelProto:
    """Return a model of a graph, with a producer and a metadata entry."""
    imports = [helper.make_opsetid("", opset), *fields.pop("imports", ())]
    fields = {"producer_name": "tests", "producer_version": "1", "ir_version": 8, **fields}
    model = helper.make_model(graph, opset_imports=imports, **fields)
    helper.set_model_props(model, {"author": "tests"})
    return model


def conv_bn_classifier(
    channels: int = 8, classes: int = 5, size: int = 8, batch: Dim = "N", seed: int = 0
) -> ModelProto:
    """Return a classifier of 1×size×size images: Conv-BN-ReLU, a residual block, pooling and a Gemm."""
    g = Graph(seed)
    x = g.add("Relu", g.batch_norm(g.conv("x", "conv1", 1, channels), "bn1", channels))
    y = g.add("Relu", g.batch_norm(g.conv(x, "conv2", channels, channels), "bn2", channels))
    y = g.add("Add", y, x)
    y = g.add("Flatten", g.add("GlobalAveragePool", y))
    g.gemm(y, "fc", channels, classes)
    g.nodes[-1].output[0] = "logits"
    return g.model({"x": (batch, 1, size, size)}, ["logits"])


def mlp(
    features: int = 6, hidden: int = 16, classes: int = 4, batch: Dim = "N", seed: int = 0
) -> ModelProto:
    """Return a model of two Gemms with a ReLU between them."""
    g = Graph(seed)
    y = g.gemm(g.add("Relu", g.gemm("x", "fc1", features, hidden)), "fc2", hidden, classes)
    g.nodes[-1].output[0] = "logits"
    assert y
    return g.model({"x": (batch, features)}, ["logits"])


def two_inputs(
    vector: str = "vector",
    tokens: str = "tokens",
    vocabulary: int = 12,
    classes: int = 3,
    seed: int = 0,
) -> ModelProto:
    """Return a classifier of four floats and three tokens, which averages the tokens' rows of a table."""
    g = Graph(seed)
    rows = g.add("Gather", g.random("table", vocabulary, 8, scale=1.0), tokens)
    g.random("head.weight", 12, 16, scale=0.3)
    both = g.add("Concat", vector, g.add("ReduceMean", rows, axes=[1], keepdims=0), axis=1)
    hidden = g.add("Relu", g.add("MatMul", both, "head.weight"))
    g.gemm(hidden, "fc", 16, classes)
    g.nodes[-1].output[0] = "logits"
    inputs = {vector: ("N", 4), tokens: ("N", 3)}
    return g.model(inputs, ["logits"], types={tokens: TensorProto.INT64})


def two_outputs(classes: int = 5) -> ModelProto:
    """Return a model of eight floats with two outputs of class scores, "shape" and "colour"."""
    g = Graph()
    for name in ("shape", "colour"):
        g.add("MatMul", "x", g.random(f"of_{name}", 8, classes, scale=1.0))
        g.nodes[-1].output[0] = name
    return g.model({"x": ("N", 8)}, ["shape", "colour"])


def masked_tokens(
    width: Dim = "T", batch: Dim = "N", vocabulary: int = 12, classes: int = 3
) -> ModelProto:
    """Return a classifier of token sequences that averages the rows of a table where the mask is 1."""
    g = Graph()
    rows = g.add("Gather", g.random("table", vocabulary, 8, scale=1.0), "ids")
    mask = g.add(
        "Unsqueeze",
        g.add("Cast", "ids_mask", to=TensorProto.FLOAT),
        g.tensor("last", [2], np.int64),
    )
    axis = g.tensor("axis", [1], np.int64)
    total = g.add("ReduceSum", g.add("Mul", rows, mask), axis, keepdims=0)
    mean = g.add("Div", total, g.add("ReduceSum", mask, axis, keepdims=0))
    g.gemm(g.add("Relu", g.gemm(mean, "fc1", 8, 16)), "fc2", 16, classes)
    g.nodes[-1].output[0] = "logits"
    inputs = {"ids": (batch, width), "ids_mask": (batch, width)}
    return g.model(inputs, ["logits"], types=dict.fromkeys(inputs, TensorProto.INT64))


def random_inputs(
    model: ModelProto, batch: int = 2, open_size: int = 8, seed: int = 0
) -> dict[str, Array]:
    """Return standard normal floats for every input that is not an initializer."""
    rng = np.random.default_rng(seed)
    stored = {t.name for t in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name not in stored:
            tensor = value.type.tensor_type
            dims = [
                d.dim_value or (batch if i == 0 else open_size)
                for i, d in enumerate(tensor.shape.dim)
            ]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            feeds[value.name] = rng.standard_normal(dims).astype(dtype)
    return feeds


def run_onnxruntime(model: ModelProto | str, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a model or model file in onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    source = model if isinstance(model, str) else model.SerializeToString()
    outputs: list[Array] = onnxruntime.InferenceSession(
        source, options, ["CPUExecutionProvider"]
    ).run(None, dict(feeds))
    return outputs


def in_constants(model: ModelProto) -> ModelProto:
    """Return the model with every tensor in a Constant node."""
    nodes = [
        helper.make_node("Constant", [], [t.name], name=f"make_{t.name}", value=t)
        for t in model.graph.initializer
    ]
    rest = list(model.graph.node)
    copy = ModelProto.FromString(model.SerializeToString())
    del copy.graph.node[:]
    del copy.graph.initializer[:]
    copy.graph.node.extend([*nodes, *rest])
    return copy


def with_function(weight_inside: bool) -> ModelProto:
    """Return a model that calls a local function; the weight is in the graph or in the function."""
    g = Graph()
    g.random("w", 6, 6)
    body = [
        helper.make_node("Transpose", ["weight"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["input", "t"], ["product"]),
        helper.make_node("Relu", ["product"], ["result"]),
    ]
    inputs = ["input", "weight"]
    if weight_inside:
        tensor = numpy_helper.from_array(g.rng.standard_normal((6, 6)).astype(np.float32), "v")
        body.insert(0, helper.make_node("Constant", [], ["weight"], value=tensor))
        inputs = ["input"]
    function = helper.make_function(
        "local", "Layer", inputs, ["result"], body, [helper.make_opsetid("", 17)]
    )
    call = ["h"] if weight_inside else ["h", "w"]
    g.add("MatMul", "x", "w", outputs=["h"])
    g.nodes.append(helper.make_node("Layer", call, ["y"], name="layer", domain="local"))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 6]) for n in ("x", "y")]
    graph = helper.make_graph(g.nodes, "g", values[:1], values[1:], g.tensors)
    return as_model(graph, 17, imports=[helper.make_opsetid("local", 1)], functions=[function])


def branch(name: str, weight: str, fill: float) -> onnx.GraphProto:
    """Return one branch of an If: `h` times its own weight."""
    tensor = numpy_helper.from_array(np.full((6, 6), fill, np.float32), weight)
    output = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
    node = helper.make_node("MatMul", ["h", weight], [f"{name}_y"], name=f"{name}_mm")
    return helper.make_graph([node], name, [], [output], [tensor])


def loop_body() -> onnx.GraphProto:
    """Return the body of a Loop: the tanh of the state times `w`."""
    nodes = [
        helper.make_node("Identity", ["going"], ["again"]),
        helper.make_node("MatMul", ["state", "w"], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
    ]
    inputs = [
        ("i", TensorProto.INT64, []),
        ("going", TensorProto.BOOL, []),
        ("state", TensorProto.FLOAT, None),
    ]
    outputs = [("again", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, None)]
    infos = [[helper.make_tensor_value_info(*v) for v in values] for values in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *infos)


def prune(model: ModelProto, share: float = 0.8, seed: int = 0) -> ModelProto:
    """Return the model with a fraction of each layer's weights set to zero."""
    rng = np.random.default_rng(seed)
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1:
            array = numpy_helper.to_array(tensor).copy()
            array[rng.random(array.shape) < share] = 0
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def sparse_array(
    shape: Sequence[int] = (64, 64), density: float = 0.05, seed: int = 0, dtype: Any = np.float32
) -> Array:
    """Return normal values of which a fraction is not zero."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape).astype(dtype)
    array[rng.random(shape) >= density] = 0
    return array


def parsed(body: str, opset: int = 21, **tensors: Any) -> ModelProto:
    """Return a model from ONNX's text form; `tensors` become initializers."""
    text = f'<ir_version: 10, opset_import: ["" : {opset}, "com.example" : 1]> agraph {body}'
    proto = parser.parse_model(text)
    for name, value in tensors.items():
        tensor = (
            value
            if isinstance(value, TensorProto)
            else numpy_helper.from_array(np.asarray(value), name)
        )
        proto.graph.initializer.append(tensor)
    return proto


def one_node_each(*makers: str):
    """Return a graph with one node for each output."""
    nodes = [helper.make_node(op, ["x"], [f"y{i}"]) for i, op in enumerate(makers)]
    outputs = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(makers))]
    return helper.make_graph(nodes, "g", [], outputs)
