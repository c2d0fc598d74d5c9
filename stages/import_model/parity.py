"""Does the torch module compute what onnxruntime computes?"""

from collections.abc import Sequence

import numpy as np
import onnxruntime
import torch
from onnx import ModelProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.exporters.tensors import Array
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.stages.import_model.graph_module import GraphModule
from ltp_pipeline.stages.import_model.program import NodeError

TOLERANCE = 1e-4
TOLERANCE_HALF = 2e-2  # fp16 and bf16 files: the module computes in fp32, onnxruntime rounds at every node
BATCH = 2
_GUESSES = (64, 224, 32, 299, 512, 16, 8, 1)  # for a dimension the file leaves open, when no data tell
_NUMPY = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BOOL": "bool"}


def check_parity(
    model: ModelProto, module: GraphModule, inputs: Sequence[TensorInfo], sample_shape: tuple[int, ...] | None = None
) -> tuple[float | None, str | None]:
    """Compare both on random input: the relative difference, or None and the reason why it could not be measured."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
        raise UnsupportedModel(
            f"onnxruntime cannot load the model: {_first_line(error)}", "export it again; a newer opset often helps"
        ) from None
    feeds, expected, problem = _run_somehow(session, inputs, sample_shape)
    if feeds is None or expected is None:
        return None, problem
    difference = _largest_difference(module, feeds, expected)
    half = any("float16" in i.type for i in (*session.get_inputs(), *session.get_outputs())) or _has_half(model)
    tolerance = TOLERANCE_HALF if half else TOLERANCE
    if not difference <= tolerance:
        raise UnsupportedModel(
            f"torch and onnxruntime disagree on this model by {difference:.2g} relative, more than {tolerance:.0e}",
            "please report the model's operators (ltp-pipeline inspect) as a bug",
        )
    return difference, None


def _has_half(model: ModelProto) -> bool:
    return any(t.data_type in (10, 16) for t in model.graph.initializer)


def _run_somehow(
    session: onnxruntime.InferenceSession, inputs: Sequence[TensorInfo], sample_shape: tuple[int, ...] | None
) -> tuple[list[Array] | None, list[Array] | None, str | None]:
    problem = "the graph has no inputs"
    for guess in _GUESSES:
        feeds = [random_input(i, guess, sample_shape) for i in inputs]
        names = [i.name for i in inputs]
        try:
            return feeds, session.run(None, dict(zip(names, feeds, strict=True))), None
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            problem = f"onnxruntime does not run the model on random input: {_first_line(error)}"
        if sample_shape is not None or not any(_open(i) for i in inputs):
            break
    return None, None, problem


def _open(info: TensorInfo) -> bool:
    return info.shape is None or any(not isinstance(d, int) for d in info.shape[1:])


def random_input(info: TensorInfo, guess: int, sample_shape: tuple[int, ...] | None) -> Array:
    """Values of the input's own type and shape; what the file leaves open comes from the data or is guessed."""
    declared = info.shape if info.shape is not None else (None, *(sample_shape or (3, guess, guess)))
    shape = [d if isinstance(d, int) and d > 0 else (BATCH if i == 0 else guess) for i, d in enumerate(declared)]
    if sample_shape is not None and len(sample_shape) == len(shape) - 1:
        shape[1:] = sample_shape
    rng = np.random.default_rng(0)
    if info.type in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"):
        return rng.standard_normal(shape).astype(_NUMPY.get(info.type, "float32"))
    if info.type == "BOOL":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(0, 2, shape).astype(info.type.lower())


def _largest_difference(module: GraphModule, feeds: list[Array], expected: list[Array]) -> float:
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            outputs = module(*(torch.from_numpy(f) for f in feeds))
    except NodeError as error:
        raise UnsupportedModel(
            f"the model cannot be run in torch: {error}", "please report this node as a bug, or try a newer opset"
        ) from None
    finally:
        module.train(was_training)
    worst = 0.0
    for ours, theirs in zip(outputs, expected, strict=True):
        if not isinstance(theirs, np.ndarray) or not isinstance(ours, torch.Tensor):
            continue
        mine = ours.detach().cpu().numpy()
        if mine.shape != theirs.shape:
            return float("inf")
        if mine.size == 0 or theirs.dtype == object:
            continue
        if not np.issubdtype(theirs.dtype, np.floating):
            worst = max(worst, float(np.mean(mine != theirs)))
            continue
        a, b = mine.astype(np.float64), theirs.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.abs(a - b))
        scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(gap)) / scale)
    return worst


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
