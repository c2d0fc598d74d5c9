"""Models that between them hold most of what can be spoiled."""

import numpy as np
from onnx import ModelProto, TensorProto

from tests.support.models import (
    Graph,
    branch,
    conv_bn_classifier,
    in_constants,
    loop_body,
    mlp,
    with_function,
)


def shapes_and_views() -> ModelProto:
    """Return a model with shape arithmetic, padding, resizing, slicing, pooling and constants that fold."""
    g = Graph()
    y = g.conv("x", "conv", 3, 4)
    y = g.add(
        "Pad", y, g.tensor("pads", [0, 0, 1, 1, 0, 0, 1, 1], np.int64), g.tensor("value", 0.5)
    )
    y = g.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = g.add("Resize", y, "", g.tensor("scales", [1, 1, 2, 2]), mode="nearest")
    y = g.add(
        "Slice", y, *(g.tensor(n, [v], np.int64) for n, v in (("from", 0), ("to", 4), ("axis", 2)))
    )
    y = g.add("Tile", y, g.tensor("repeats", [1, 1, 1, 2], np.int64))
    batch = g.add("Gather", g.add("Shape", y), g.tensor("first", [0], np.int64))
    shape = g.add("Concat", batch, g.tensor("rest", [-1], np.int64), axis=0)
    y = g.add("Reshape", y, shape)
    y = g.add("Add", y, g.add("ConstantOfShape", g.tensor("one", [1], np.int64)))
    g.add("ReduceMean", y, outputs=["y"], axes=[1])
    return g.model({"x": ("N", 3, 8, 8)}, ["y"])


def control_flow() -> ModelProto:
    """Return a model with an If, a Loop and a sequence."""
    g = Graph()
    g.random("w", 6, 6)
    g.constant("yes", True, np.bool_)
    g.add("Loop", g.tensor("count", 3, np.int64), "yes", "x", outputs=["h"], body=loop_body())
    g.add(
        "If",
        "yes",
        outputs=["k"],
        then_branch=branch("t", "wt", 1),
        else_branch=branch("e", "we", 2),
    )
    parts = g.add("SplitToSequence", "k", g.tensor("sizes", [2, 4], np.int64), axis=1)
    g.add("SequenceAt", parts, g.tensor("position", 1, np.int64), outputs=["y"])
    return g.model({"x": ("N", 6)}, ["y"], types={"y": TensorProto.FLOAT})


VICTIMS = {
    "conv": conv_bn_classifier(4),
    "mlp": mlp(),
    "constants": in_constants(conv_bn_classifier(4)),
    "shapes": shapes_and_views(),
    "control": control_flow(),
    "function": with_function(weight_inside=False),
}
