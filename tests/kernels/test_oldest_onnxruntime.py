"""The library in the oldest onnxruntime that it is for, in an environment of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from ltp_pipeline.exporters.sparse_ops.replace import convert_to_sparse_ops
from ltp_pipeline.graph.model import OnnxModel
from tests.support.kernels import make_sparse, open_session
from tests.support.models import Graph

OLDEST = ["onnxruntime==1.17.3", "numpy<2"]
RUN = """
import sys, numpy, onnxruntime
x, model, library = sys.argv[1:4]
options = onnxruntime.SessionOptions()
if library:
    options.register_custom_ops_library(library)
made = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
numpy.save(sys.argv[4], made.run(None, {"x": numpy.load(x)})[0])
"""


@pytest.mark.long
def test_sparse_ops_work_in_onnxruntime_1_17(kernels: Path, tmp_path: Path):
    python = tmp_path / "old" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "old"], check=True)
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", *OLDEST],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"onnxruntime 1.17 cannot be installed here: {done.stderr.strip()[-200:]}")
    g, rng = Graph(), np.random.default_rng(0)
    y = g.add(
        "Conv",
        "x",
        g.tensor("w", make_sparse(rng, (32, 16, 3, 3), 0.9)),
        g.random("b", 32),
        pads=[1, 1, 1, 1],
    )
    y = g.add(
        "Add",
        g.add("Relu", y),
        g.add("Conv", "x", g.tensor("v", make_sparse(rng, (32, 16, 1, 1), 0.8))),
    )
    y = g.add("MatMul", y, g.tensor("m", make_sparse(rng, (9, 20), 0.8)))
    plain = g.model({"x": ("n", 16, 9, 9)}, [y])
    x = rng.standard_normal((2, 16, 9, 9)).astype(np.float32)
    (expected,) = open_session(plain).run(None, {"x": x})
    turned, chains = convert_to_sparse_ops(OnnxModel.from_proto(plain), ["w", "v", "m"])
    assert len(chains) == 3
    np.save(tmp_path / "x.npy", x)
    onnx.save(turned.to_proto(), tmp_path / "fast.onnx")
    for library in (str(kernels), ""):
        words = [
            python,
            "-c",
            RUN,
            tmp_path / "x.npy",
            tmp_path / "fast.onnx",
            library,
            tmp_path / "y.npy",
        ]
        subprocess.run(words, check=True)
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-5, atol=1e-5)
