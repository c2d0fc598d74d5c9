"""Small recurrent networks and transformers, with the forms in which exporters and optimisers write their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from tests.support.models import Graph

WIDTH, STEPS, HEADS = 8, 6, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def recurrent(
    op: str, direction: str = "forward", features: int = 5, hidden: int = 6, classes: int = 3
) -> ModelProto:
    """Return a classifier of sequences (N, steps, features) by the last states of one recurrent layer."""
    g = Graph()
    count, gates = 2 if direction == "bidirectional" else 1, GATES[op]
    data = g.add("Transpose", "x", perm=[1, 0, 2])
    weights = [
        g.random("rnn.W", count, gates * hidden, features, scale=0.4),
        g.random("rnn.R", count, gates * hidden, hidden, scale=0.4),
        g.random("rnn.B", count, 2 * gates * hidden, scale=0.1),
    ]
    g.add(
        op,
        data,
        *weights,
        name="rnn",
        outputs=["", "last"],
        hidden_size=hidden,
        direction=direction,
    )
    last = g.add(
        "Reshape", g.add("Transpose", "last", perm=[1, 0, 2]), g.tensor("flat", [0, -1], np.int64)
    )
    g.gemm(last, "fc", count * hidden, classes)
    g.nodes[-1].output[0] = "logits"
    return g.model({"x": ("N", STEPS, features)}, ["logits"])


def add_attention(g: Graph, q: str, k: str, v: str, mask: str | None = None) -> str:
    """Add attention of HEADS heads over (N, steps, WIDTH)."""
    split = g.tensor(f"heads{len(g.nodes)}", [0, 0, HEADS, WIDTH // HEADS], np.int64)
    turned = [
        g.add("Transpose", g.add("Reshape", x, split), perm=perm)
        for x, perm in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3]))
    ]
    scores = g.add("MatMul", turned[0], turned[1])
    if mask is not None:
        scores = g.add("Add", scores, mask)
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), turned[2])
    together = g.tensor(f"together{len(g.nodes)}", [0, 0, WIDTH], np.int64)
    return g.add("Reshape", g.add("Transpose", mixed, perm=[0, 2, 1, 3]), together)


def add_norm(g: Graph, x: str, name: str) -> str:
    """Add a LayerNormalization over the last axis."""
    return g.add(
        "LayerNormalization",
        x,
        g.positive(f"{name}.weight", WIDTH),
        g.random(f"{name}.bias", WIDTH),
    )


def add_layer(g: Graph, x: str, name: str, mask: str | None = None) -> str:
    """Add a transformer layer whose query, key and value are one product that is split."""
    fused = g.add(
        "Add",
        g.add("MatMul", x, g.random(f"{name}.qkv", WIDTH, 3 * WIDTH)),
        g.random(f"{name}.b", 3 * WIDTH),
    )
    parts = [f"{name}.{part}" for part in "qkv"]
    g.add("Split", fused, outputs=parts, axis=-1)
    turned = g.add(
        "Transpose", g.random(f"{name}.out", WIDTH, WIDTH), perm=[1, 0]
    )  # stored as torch does
    x = add_norm(
        g,
        g.add("Add", x, g.add("MatMul", add_attention(g, *parts, mask=mask), turned)),
        f"{name}.ln1",
    )
    inner = g.add("Relu", g.add("MatMul", x, g.random(f"{name}.up", WIDTH, 16)))
    return add_norm(
        g,
        g.add("Add", x, g.add("MatMul", inner, g.random(f"{name}.down", 16, WIDTH))),
        f"{name}.ln2",
    )


def language_model(words: int = 11, layers: int = 2) -> ModelProto:
    """Return a language model whose table of words is also the output's weight, transposed."""
    g = Graph()
    embedded = g.add("Gather", g.random("words", words, WIDTH), "ids", name="lookup")
    x = add_norm(g, g.add("Add", embedded, g.random("positions", STEPS, WIDTH)), "ln")
    hidden = g.add("Sub", g.tensor("one", 1.0), g.add("Cast", "mask", to=TensorProto.FLOAT))
    bias = g.add(
        "Mul", g.add("Unsqueeze", hidden, g.tensor("axes", [1, 2], np.int64)), g.tensor("low", -1e4)
    )
    for i in range(layers):
        x = add_layer(g, x, f"layer{i}", bias)
    g.add("MatMul", x, g.add("Transpose", "words", perm=[1, 0]), outputs=["scores"])
    tokens = dict.fromkeys(("ids", "mask"), TensorProto.INT64)
    return g.model({"ids": ("N", STEPS), "mask": ("N", STEPS)}, ["scores"], types=tokens)


def vision_transformer(batch: int | str = "N", classes: int = 3) -> ModelProto:
    """Return a classifier of patches (N, steps, WIDTH) with class token, positions and two layers.

    With a fixed batch the class token is stored once per sample, as exporters fold it.
    """
    g = Graph()
    if isinstance(batch, int):
        token = g.tensor("token", np.repeat(g.rng.standard_normal((1, 1, WIDTH)), batch, 0))
    else:
        first = g.add(
            "Slice",
            g.add("Shape", "x"),
            *(g.tensor(n, [v], np.int64) for n, v in (("from", 0), ("to", 1))),
        )
        shape = g.add("Concat", first, g.tensor("rest", [1, WIDTH], np.int64), axis=0)
        token = g.add("Expand", g.random("token", 1, 1, WIDTH), shape)
    x = g.add("Concat", token, "x", axis=1, name="with_token")
    x = add_layer(g, g.add("Add", x, g.random("positions", STEPS + 1, WIDTH)), "layer0")
    x = add_layer(g, x, "layer1")
    g.gemm(g.add("Gather", x, g.tensor("zero", 0, np.int64), axis=1), "head", WIDTH, classes)
    g.nodes[-1].output[0] = "logits"
    return g.model({"x": (batch, STEPS, WIDTH)}, ["logits"])


def split_weights() -> ModelProto:
    """Return a model whose one stored tensor is split into the weights of three products."""
    g = Graph()
    parts = ["wq", "wk", "wv"]
    g.add("Split", g.random("qkv", WIDTH, 3 * WIDTH), outputs=parts, axis=1)
    mixed = add_attention(g, *(g.add("MatMul", "x", part) for part in parts))
    g.add("MatMul", mixed, g.random("out", WIDTH, 3), outputs=["y"])
    return g.model({"x": ("N", STEPS, WIDTH)}, ["y"])


def fused_attention(classes: int = 3) -> ModelProto:
    """Return a layer as onnxruntime's optimizer writes it: Attention, SkipLayerNormalization, BiasGelu."""
    g = Graph()

    def fused(op: str, *inputs: str, **attributes: Any) -> str:
        g.nodes.append(
            helper.make_node(
                op, inputs, [f"{op}_out"], name=op, domain="com.microsoft", **attributes
            )
        )
        return f"{op}_out"

    qkv = g.random("qkv", WIDTH, 3 * WIDTH)
    attended = fused("Attention", "x", qkv, g.random("qkv.bias", 3 * WIDTH), num_heads=HEADS)
    scale, shift = g.positive("ln.weight", WIDTH), g.random("ln.bias", WIDTH)
    x = fused(
        "SkipLayerNormalization",
        g.add("MatMul", attended, g.random("out", WIDTH, WIDTH)),
        "x",
        scale,
        shift,
    )
    x = fused("BiasGelu", g.add("MatMul", x, g.random("up", WIDTH, 16)), g.random("up.bias", 16))
    pooled = g.add("ReduceMean", x, axes=[1], keepdims=0)
    weight, bias = g.random("head.weight", classes, 16), g.random("head.bias", classes)
    g.nodes.append(
        helper.make_node("Gemm", [pooled, weight, bias], ["logits"], name="head", transB=1)
    )
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", STEPS, WIDTH]),
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", classes]),
    ]
    graph = helper.make_graph(g.nodes, "fused", values[:1], values[1:], g.tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


SEQUENCE_MODELS = {
    **{
        f"{op}-{way}": recurrent(op, way)
        for op in GATES
        for way in ("forward", "reverse", "bidirectional")
    },
    "language": language_model(),
    "vision": vision_transformer(),
    "split": split_weights(),
    "fused": fused_attention(),
}
KERNELS = {
    **{name: ["rnn.W", "rnn.R", "fc.weight"] for name in SEQUENCE_MODELS if "-" in name},
    "language": [
        "words",
        *(f"layer{i}.{part}" for i in (0, 1) for part in ("qkv", "out", "up", "down")),
    ],
    "vision": [
        *(f"layer{i}.{part}" for i in (0, 1) for part in ("qkv", "out", "up", "down")),
        "head.weight",
    ],
    "split": ["qkv", "out"],
    "fused": ["qkv", "out", "up", "head.weight"],
}
