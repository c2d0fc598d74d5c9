"""The library of sparse kernels, built once for all workers, and sessions with and without it."""

import shutil
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from filelock import FileLock
from onnx import ModelProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.kernels import library
from ltp_pipeline.graph import Array

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


def built(root: Path) -> Path:
    """The installed library if it is of these sources, else one that is built for the tests."""
    newest = max(path.stat().st_mtime for path in library.SOURCE.iterdir())
    try:
        installed = library.kernels_library()
        if installed.stat().st_mtime > newest:
            return installed
    except InputError:
        pass
    target = root / library.FILE
    with FileLock(root / "kernels.lock"):
        return target if target.exists() else library.build(target)


def session(proto: ModelProto, kernels: Path | None = None, threads: int = 1) -> ort.InferenceSession:
    """A session, with the library if it is given."""
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    if kernels is not None:
        options.register_custom_ops_library(str(kernels))
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def sparse(rng: np.random.Generator, shape: tuple[int, ...], sparsity: float) -> Array:
    """Random weights, most of them zero."""
    values = rng.standard_normal(shape).astype(np.float32)
    values[rng.random(shape) < sparsity] = 0
    return values
