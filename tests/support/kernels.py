"""Sparse operators in tests: the library, built once for all workers, sessions and networks."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from filelock import FileLock
from onnx import ModelProto, numpy_helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.system.arrays import Array
from tests.support.models import Graph

needs_kernels = pytest.mark.skipif(
    not (library.SOURCE.parent / library.FILE_NAME).is_file(),
    reason="the sparse kernels were not built: there was no compiler",
)


def build_once(root: Path) -> Path:
    """Return the installed library if its sources are current; otherwise build one for the tests."""
    try:
        installed = library.sparse_ops_library()
        library.query_instruction_sets(installed)
        return installed
    except InputError:
        pass
    target = root / library.FILE_NAME
    with FileLock(root / "kernels.lock"):
        return target if target.exists() else library.build_library(target)


def open_session(
    proto: ModelProto, kernels: Path | None = None, threads: int = 1
) -> ort.InferenceSession:
    """Open an onnxruntime session, with the library if one is passed."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if kernels is not None:
        options.register_custom_ops_library(str(kernels))
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def make_sparse(rng: np.random.Generator, shape: tuple[int, ...], sparsity: float) -> Array:
    """Return random weights of which this fraction is zero."""
    values = rng.standard_normal(shape).astype(np.float32)
    values[rng.random(shape) < sparsity] = 0
    return values


def conv_net(share: float, size: int = 28, channels: int = 64) -> ModelProto:
    """Return a model of three Convs and a Gemm that is large enough to time; `share` of each weight is zero."""
    g = Graph()
    x, before = "x", 3
    for name in ("a", "b", "c"):
        x, before = g.add("Relu", g.conv(x, name, before, channels, bias=True)), channels
    g.gemm(g.add("Flatten", g.add("GlobalAveragePool", x)), "fc", channels, 10)
    g.nodes[-1].output[0] = "y"
    return with_zeros(
        g.model({"x": ("N", 3, size, size)}, ["y"]), dict.fromkeys(("a", "b", "c", "fc"), share)
    )


def with_zeros(model: ModelProto, shares: dict[str, float]) -> ModelProto:
    """Set a fraction of the weights of the named layers to zero."""
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        share = shares.get(tensor.name.removesuffix(".weight"))
        if share is not None and len(tensor.dims) > 1:
            array = numpy_helper.to_array(tensor) * (rng.random(tuple(tensor.dims)) >= share)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


def raise_missing() -> None:
    """Raise the error of a library that was not built."""
    raise InputError("the library of sparse operators was not built", "install a C++ compiler")
