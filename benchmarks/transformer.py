"""Build a text classifier of BERT's shape as an ONNX graph with random weights."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.small_networks import OPSET, Graph

VOCABULARY = 30_522


def encoder(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    length: int = 128,
    vocabulary: int = VOCABULARY,
    classes: int = 10,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a model from `tokens` to `scores`: embeddings, attention layers and a classifier.

    Args:
        layers: Number of layers.
        hidden: Features of a token.
        heads: Number of attention heads.
        length: Number of tokens in a sample.
        vocabulary: Number of different tokens.
        classes: Number of classes.
        seed: Seed of the weights.
    """
    g = _Transformer(seed, hidden, heads)
    words = g.tensor("embedding.words", g.rng.normal(0, 0.02, (vocabulary, hidden)))
    places = g.tensor("embedding.places", g.rng.normal(0, 0.02, (length, hidden)))
    x = g.norm(
        g.node("Add", [g.node("Gather", [words, "tokens"], "words"), places], "embedded"),
        "embedding.norm",
    )
    for i in range(layers):
        name = f"layer{i}"
        x = g.norm(
            g.node("Add", [x, g.attention(x, f"{name}.attention")], f"{name}.sum1"), f"{name}.norm1"
        )
        y = g.linear(
            g.gelu(g.linear(x, f"{name}.up", 4 * hidden), f"{name}.gelu"),
            f"{name}.down",
            hidden,
            4 * hidden,
        )
        x = g.norm(g.node("Add", [x, y], f"{name}.sum2"), f"{name}.norm2")
    first = g.node("Gather", [x, g.integers("first", 0)], "pooled", axis=1)
    g.linear(g.node("Tanh", [g.linear(first, "pooler", hidden)], "pooler.tanh"), "scores", classes)
    inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["batch", length])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", classes])]
    graph = helper.make_graph(g.nodes, "encoder", inputs, outputs, g.tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


class _Transformer(Graph):
    """Adds layers of a transformer with `hidden` features of a token."""

    def __init__(self, seed: int, hidden: int, heads: int) -> None:
        super().__init__(seed)
        self.hidden = hidden
        self.integers("split", [0, 0, heads, hidden // heads])
        self.integers("joined", [0, 0, hidden])
        self.tensor("scale", np.array((hidden // heads) ** -0.5))
        for name, value in (("root", np.sqrt(2)), ("one", 1.0), ("half", 0.5)):
            self.tensor(name, np.array(value))

    def integers(self, name: str, values: object) -> str:
        """Add an initializer of integers."""
        self.tensors.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def linear(self, x: str, name: str, units: int, features: int | None = None) -> str:
        """Add MatMul and a bias, whose sum has the name of the layer."""
        shape = (features or self.hidden, units)
        weight = self.tensor(f"{name}.weight", self.rng.normal(0, 0.02, shape))
        product = self.node("MatMul", [x, weight], f"{name}.product")
        return self.node("Add", [product, self.tensor(f"{name}.bias", np.zeros(units))], name)

    def norm(self, x: str, name: str) -> str:
        """Add LayerNormalization over the last axis."""
        parts = [
            self.tensor(f"{name}.{key}", make(self.hidden))
            for key, make in (("scale", np.ones), ("bias", np.zeros))
        ]
        return self.node("LayerNormalization", [x, *parts], name, axis=-1, epsilon=1e-12)

    def gelu(self, x: str, name: str) -> str:
        """Add x (1 + erf(x / √2)) / 2."""
        error = self.node("Erf", [self.node("Div", [x, "root"], f"{name}.scaled")], f"{name}.erf")
        product = self.node(
            "Mul", [x, self.node("Add", [error, "one"], f"{name}.plus")], f"{name}.product"
        )
        return self.node("Mul", [product, "half"], name)

    def attention(self, x: str, name: str) -> str:
        """Add softmax(Q K / √d) V with linear layers before and after."""
        q, k, v = (
            self.node(
                "Transpose",
                [
                    self.node(
                        "Reshape",
                        [self.linear(x, f"{name}.{part}", self.hidden), "split"],
                        f"{name}.{part}.split",
                    )
                ],
                f"{name}.{part}.heads",
                perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3],
            )
            for part in ("query", "key", "value")
        )
        scores = self.node(
            "Mul", [self.node("MatMul", [q, k], f"{name}.product"), "scale"], f"{name}.scores"
        )
        mixed = self.node(
            "MatMul",
            [self.node("Softmax", [scores], f"{name}.shares", axis=-1), v],
            f"{name}.mixed",
        )
        transposed = self.node("Transpose", [mixed], f"{name}.turned", perm=[0, 2, 1, 3])
        joined = self.node("Reshape", [transposed, "joined"], f"{name}.joined")
        return self.linear(joined, f"{name}.output", self.hidden)
