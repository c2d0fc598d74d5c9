"""Sparse kernels in tests: skipped where the library was not built, as on a machine without a compiler."""

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.kernels.library import FILE, SOURCE
from tests.support.models import Graph

needs_kernels = pytest.mark.skipif(
    not (SOURCE.parent / FILE).is_file(), reason="the sparse kernels were not built: there was no compiler"
)


def conv_net(share: float, size: int = 28, channels: int = 64) -> ModelProto:
    """Three Convs and a Gemm, large enough to time; this share of each kernel is zero."""
    g = Graph()
    x, before = "x", 3
    for name in ("a", "b", "c"):
        x, before = g.add("Relu", g.conv(x, name, before, channels, bias=True)), channels
    g.gemm(g.add("Flatten", g.add("GlobalAveragePool", x)), "fc", channels, 10)
    g.nodes[-1].output[0] = "y"
    return with_zeros(g.model({"x": ("N", 3, size, size)}, ["y"]), dict.fromkeys(("a", "b", "c", "fc"), share))


def with_zeros(model: ModelProto, shares: dict[str, float]) -> ModelProto:
    """The same model with so many zeros in the weights of these layers."""
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        share = shares.get(tensor.name.removesuffix(".weight"))
        if share is not None and len(tensor.dims) > 1:
            array = numpy_helper.to_array(tensor) * (rng.random(tuple(tensor.dims)) >= share)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


def missing() -> None:
    """Stands for the library where it was not built."""
    raise InputError("the library of sparse kernels was not built", "install a C++ compiler")
