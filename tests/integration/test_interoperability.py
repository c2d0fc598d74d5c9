"""Which tool reads which format: measured here, compared with the table that scripts/write_formats.py wrote.

Tools that are not installed are skipped; the extra `interop` has them. An old onnxruntime gets its
own environment.
"""

import atexit
import functools
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ltp_pipeline.exporters.encodings import ENCODINGS, packed_codec, packed_reader
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex
from ltp_pipeline.graph.model import OnnxModel
from tests.support.models import Graph, prune
from tests.support.paths import ROOT
from tests.support.quantized import make_calibration, quantize_model
from tests.support.runs import skip_slow_parts

PAGE = ROOT / "docs" / "reference" / "file-formats.md"
END = "<!-- end of the table -->"
FORMATS = ("packed", "sparse", "dense")
INT8 = ("int8-packed", "int8-dense", "dynamic int8-packed", "dynamic int8-dense")
# What the docs have between such a line and END.
TABLES = {
    "<!-- table by scripts/write_formats.py -->": FORMATS,
    "<!-- table of int8 files by scripts/write_formats.py -->": INT8,
}
# Densities that take codes of several kinds; the last is too dense for the sparse format to be
# smaller.
KERNELS = {
    "a": ((32, 8, 3, 3), 0.2),
    "b": ((64, 32, 3, 3), 0.1),
    "c": ((64, 64, 1, 1), 0.02),
    "d": ((96, 64), 0.6),
}
OPSET, NEWER_OPSET = 13, 18
LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
OLD = "onnxruntime==1.17.3"


def network() -> tuple[ModelProto, list[str]]:
    """Three convolutions and a matrix product with random zeros, and the names of their kernels."""
    rng = np.random.default_rng(0)
    arrays = {
        f"{n}.weight": rng.standard_normal(s, np.float32) * (rng.random(s) < p)
        for n, (s, p) in KERNELS.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "a.weight"], ["a"], pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "b.weight"], ["b"], pads=[1] * 4),
        helper.make_node("Conv", ["b", "c.weight"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "d.weight"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 96])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
    ), list(arrays)


def products() -> ModelProto:
    """A matrix product, a norm and another product, whose activations get ranges at every run."""
    g = Graph()
    x = g.add("Reshape", "x", g.tensor("shape", [8, 144], np.int64))
    x = g.add("MatMul", x, g.random("a.weight", 144, 64))
    x = g.add(
        "Relu", g.add("LayerNormalization", x, g.positive("scale", 64), g.random("offset", 64))
    )
    x = g.gemm(x, "b", 64, 96)
    g.add("ReduceMean", x, axes=[0], keepdims=1, outputs=("y",))
    return prune(g.model({"x": (1, 8, 12, 12)}, ["y"]), 0.9)


@dataclass(frozen=True)
class Case:
    """A model in an encoding, and the same without one, which it must equal."""

    model: ModelProto
    plain: ModelProto
    near: float = (
        1e-5  # share of the largest output by which tools that compute themselves may differ
    )


@functools.cache
def case(format_: str) -> Case:
    """A file in one of the formats."""
    if format_ in FORMATS:
        plain, kernels = network()
        return Case(
            ENCODINGS[format_].encode(OnnxModel.from_proto(plain), kernels).to_proto(), plain
        )
    is_dynamic, encoding = format_.startswith("dynamic"), format_.rpartition("-")[2]
    float_ = products() if is_dynamic else network()[0]
    with skip_slow_parts():
        made = quantize_model(float_, make_calibration(float_, value=0.9))
    assert ("MatMulInteger" in {node.op_type for node in made.model.graph.node}) is is_dynamic
    encoded = ENCODINGS[encoding].encode(
        made.model, NonzeroIndex(made.model, made.weight_names or ())
    )
    return Case(encoded.to_proto(), made.model.to_proto(), near=0.02)


def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((1, 8, 12, 12)).astype(np.float32)}


def run(model: ModelProto, level: str = "ORT_ENABLE_BASIC") -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {session.get_inputs()[0].name: feeds()["x"]})[0]


def is_near(actual: np.ndarray, of: Case, least: float = 0.0) -> bool:
    expected = run(of.plain)
    return bool(np.abs(actual - expected).max() <= max(of.near, least) * np.abs(expected).max())


def changed(model: ModelProto, of: Case) -> str:
    """What a tool that writes models has left of one."""
    initializers = {t.name for t in model.graph.initializer} | {
        t.values.name for t in model.graph.sparse_initializer
    }
    made = (
        initializers
        | {o for node in model.graph.node for o in node.output}
        | {v.name for v in model.graph.input}
    )
    if any(name and name not in made for node in model.graph.node for name in node.input):
        return "**drops the weights**"
    if not is_near(run(model), of):
        return "**other outputs**"
    if model.graph.sparse_initializer:
        return "works, stays sparse"
    return (
        "works, stays packed"
        if packed_reader.find_encoded_names(OnnxModel.from_proto(model))
        else "works, writes dense"
    )


def by_onnxruntime(of: Case, levels: tuple[str, ...] = LEVELS) -> str:
    pairs = [[run(m, level) for m in (of.model, of.plain)] for level in levels]
    if all(actual.tobytes() == expected.tobytes() for actual, expected in pairs):
        return "bit-equal"
    close = all(
        np.abs(actual - expected).max() < 1e-6 * np.abs(expected).max()
        for actual, expected in pairs
    )
    return "works, 1e-6 relative" if close else "**other outputs**"


def by_onnxruntime_unoptimised(of: Case) -> str:
    return by_onnxruntime(of, ("ORT_DISABLE_ALL",))


@functools.cache
def old_onnxruntime() -> Path | None:
    """A Python with an onnxruntime of two years before the pinned one; None where it cannot be had."""
    folder = tempfile.TemporaryDirectory(prefix="ltp-old-")
    atexit.register(folder.cleanup)
    python = Path(folder.name, "bin", "python")
    try:
        subprocess.run([sys.executable, "-m", "venv", folder.name], check=True, capture_output=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", OLD, "numpy<2"], check=True, capture_output=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return python


def by_old_onnxruntime(of: Case) -> str:
    program = f"""
import sys
import numpy as np, onnxruntime as ort
x, now = (np.load(path) for path in sys.argv[1:3])
for level in {LEVELS}:
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    found, wanted = (
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {{"x": x}})[0]
        for path in sys.argv[3:]
    )
    if found.tobytes() != wanted.tobytes():
        sys.exit("other outputs than from the dense file")
    if np.abs(found - now).max() > {of.near} * np.abs(now).max():
        sys.exit("other outputs than by the onnxruntime of today")
"""
    with tempfile.TemporaryDirectory() as folder:
        names = ("x.npy", "now.npy", "encoded.onnx", "plain.onnx")
        paths = [Path(folder, name) for name in names]
        for path, array in zip(paths, (feeds()["x"], run(of.plain)), strict=False):
            np.save(path, array)
        for path, content in zip(paths[2:], (of.model, of.plain), strict=True):
            path.write_bytes(content.SerializeToString())
        done = subprocess.run(
            [old_onnxruntime(), "-c", program, *paths], capture_output=True, text=True
        )
    if done.returncode:
        raise RuntimeError((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return "bit-equal"


def by_checker(of: Case) -> str:
    onnx.checker.check_model(of.model)
    return "passes"


def by_full_check(of: Case) -> str:
    onnx.checker.check_model(of.model, full_check=True)
    return "passes"


def by_shape_inference(of: Case) -> str:
    onnx.shape_inference.infer_shapes(of.model, check_type=True, strict_mode=True, data_prop=True)
    return "works"


def by_version_converter(of: Case) -> str:
    return changed(onnx.version_converter.convert_version(of.model, NEWER_OPSET), of)


def by_compose(of: Case) -> str:
    value = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 96]) for name in ("in", "out")
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["in"], ["out"])], "after", value[:1], value[1:]
    )
    after = helper.make_model(
        graph, opset_imports=of.model.opset_import, ir_version=of.model.ir_version
    )
    return changed(onnx.compose.merge_models(of.model, after, io_map=[("y", "in")]), of)


def by_reference_evaluator(of: Case) -> str:
    from onnx.reference import ReferenceEvaluator

    actual, expected = (ReferenceEvaluator(m).run(None, feeds())[0] for m in (of.model, of.plain))
    return "bit-equal" if actual.tobytes() == expected.tobytes() else "**other outputs**"


def by_onnxsim(of: Case) -> str:
    import onnxsim

    return changed(onnxsim.simplify(of.model)[0], of)


def by_onnxslim(of: Case) -> str:
    import onnxslim

    return changed(onnxslim.slim(of.model), of)


def by_onnx_ir(of: Case) -> str:
    import onnx_ir

    return changed(onnx_ir.to_proto(onnx_ir.from_proto(of.model)), of)


def by_openvino(of: Case) -> str:
    import io

    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(
        core.read_model(io.BytesIO(of.model.SerializeToString())), "CPU", settings
    )
    return (
        "works"
        if is_near(next(iter(compiled(feeds()).values())), of, 1e-4)
        else "**other outputs**"
    )


TOOLS: dict[str, tuple[str, Callable[[Case], str]]] = {
    "onnxruntime, optimization basic, extended, all": ("onnxruntime", by_onnxruntime),
    "onnxruntime, optimization off": ("onnxruntime", by_onnxruntime_unoptimised),
    "onnxruntime of 2024, optimization basic, extended, all": (OLD, by_old_onnxruntime),
    "onnx.checker": ("onnx", by_checker),
    "onnx.checker with `full_check`": ("onnx", by_full_check),
    "onnx.shape_inference, strict": ("onnx", by_shape_inference),
    f"onnx.version_converter, {OPSET} to {NEWER_OPSET}": ("onnx", by_version_converter),
    "onnx.compose": ("onnx", by_compose),
    "onnx.reference.ReferenceEvaluator": ("onnx", by_reference_evaluator),
    "onnxsim": ("onnxsim", by_onnxsim),
    "onnxslim": ("onnxslim", by_onnxslim),
    "onnx-ir": ("onnx-ir", by_onnx_ir),
    "OpenVINO": ("openvino", by_openvino),
}


def version(package: str) -> str | None:
    """The version of a package, None if it is not there."""
    if package == OLD:
        return OLD.split("==")[1] if old_onnxruntime() else None
    if importlib.util.find_spec(package.replace("-", "_")) is None:
        return None
    return importlib.metadata.version(package)


def measure(tool: str, format_: str) -> str:
    """What comes of a tool and a format, in a few words."""
    of = case(format_)
    try:
        actual = TOOLS[tool][1](of)
        return actual.removesuffix(", writes dense") if format_.endswith("dense") else actual
    except Exception as error:  # noqa: BLE001 (every tool has errors of its own)
        lines = [
            line.strip()
            for line in str(error).splitlines()
            if line.strip() and "Exception from" not in line
        ]
        reason = (lines or [type(error).__name__])[0].replace("|", "/")
        return f"fails: {reason[:70]}{'…' if len(reason) > 70 else ''}"


def rows(begin: str) -> dict[str, dict[str, str]]:
    """A table in the docs: tool, then version and formats."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.split(begin)[1].split(END)[0].strip().splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {
        tool: dict(zip(("version", *TABLES[begin]), others, strict=True)) for tool, *others in cells
    }


def test_packed_network_has_codes_of_several_kinds():
    model, kernels = network()
    encoded = ENCODINGS["packed"].encode(OnnxModel.from_proto(model), kernels)
    kinds = {t.name.split("/")[-1] for t in encoded.graph.initializer} & set(packed_codec.KINDS)
    assert len(kinds) > 1
    assert len(packed_reader.find_encoded_names(encoded)) == len(KERNELS)
    sparse = ENCODINGS["sparse"].encode(OnnxModel.from_proto(model), kernels)
    assert len(sparse.graph.sparse_initializer) == len(KERNELS) - 1


@pytest.mark.parametrize("begin", TABLES)
def test_documentation_table_has_every_tool(begin):
    assert list(rows(begin)) == list(TOOLS)


@pytest.mark.long
@pytest.mark.parametrize("format_", [*FORMATS, *INT8])
@pytest.mark.parametrize("tool", TOOLS)
def test_documentation_table_matches_the_tools(tool, format_):
    if version(TOOLS[tool][0]) is None:
        how = (
            "cannot be installed"
            if TOOLS[tool][0] == OLD
            else "is not installed: pip install 'ltp-pipeline[interop]'"
        )
        pytest.skip(f"{TOOLS[tool][0]} {how}")
    # How a tool fails differs between its versions; that it fails does not.
    begin = next(begin for begin, formats in TABLES.items() if format_ in formats)
    assert measure(tool, format_).split(":")[0] == rows(begin)[tool][format_].split(":")[0]
