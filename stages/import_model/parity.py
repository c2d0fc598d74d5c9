"""Does the torch module compute what onnxruntime computes?"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline import exporters
from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.exporters.tensors import Array
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.stages.import_model import worker
from ltp_pipeline.stages.import_model.graph_module import GraphModule
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.tensors import array_to_torch

TOLERANCE = 1e-4
TOLERANCE_HALF = 2e-2  # fp16 and bf16 files: the module computes in fp32, onnxruntime rounds at every node
BATCH = 2
LARGEST_INPUT = 1 << 24  # elements; beyond it a random input would be a test of the machine
_GUESSES = (64, 224, 32, 299, 512, 16, 8, 1)  # for a dimension the file leaves open, when no data tell
_CHANNELS = (3, 1)
_HALF = ("FLOAT16", "BFLOAT16")
_HALF_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TOO_LARGE = ("beyond reason", "allocate memory", "not enough memory")


def check_parity(
    model: ModelProto, module: GraphModule, inputs: Sequence[TensorInfo], sample_shape: tuple[int, ...] | None = None
) -> tuple[float | None, str | None]:
    """Compare both on random input: the relative difference, or None and the reason why it could not be measured."""
    odd = [i for i in inputs if not _numeric(i)]
    if odd:
        return None, f"no random values can be made for input {odd[0].name!r} of type {odd[0].type}"
    with tempfile.TemporaryDirectory(prefix="ltp-parity-") as folder:
        path = Path(folder, "model.onnx")
        exporters.save(model, path)
        try:
            feeds, ours, theirs, problem = _run_somehow(path, module, inputs, sample_shape)
        except worker.WorkerDied as error:
            raise UnsupportedModel(f"onnxruntime {error} on this model", "export it again") from None
        except worker.LoadFailed as error:
            if "NOT_IMPLEMENTED" in str(error):  # e.g. bf16, which few of its CPU operators have
                return None, str(error)
            remedy = "export it again; a newer opset often helps"
            raise UnsupportedModel(f"onnxruntime cannot load the model: {error}", remedy) from None
    if feeds is None:
        return None, problem
    half = any(i.type in _HALF for i in inputs) or any(t.data_type in _HALF_TYPES for t in model.graph.initializer)
    tolerance = TOLERANCE_HALF if half else TOLERANCE
    names = [o.name for o in model.graph.output]
    worst = max((difference(a, b), name) for a, b, name in zip(ours, theirs, names, strict=True))
    if not worst[0] <= tolerance:
        shapes = ", ".join(f"{i.name} {'×'.join(map(str, f.shape))}" for i, f in zip(inputs, feeds, strict=True))
        raise UnsupportedModel(
            f"torch and onnxruntime disagree on output {worst[1]!r} by {worst[0]:.2g} of its largest value, "
            f"more than {tolerance:.0e} (random input {shapes})",
            "please report the model's operators (ltp-pipeline inspect) as a bug",
        )
    return worst[0], None


Outcome = tuple[list[Array] | None, Sequence[object], Sequence[object], str | None]


def _run_somehow(
    path: Path,
    module: GraphModule,
    inputs: Sequence[TensorInfo],
    sample_shape: tuple[int, ...] | None,
) -> Outcome:
    """Try sizes until both run. torch goes first: it names a node that asks for too much."""
    problem = "the graph has no inputs"
    for shapes in _shapes(inputs, sample_shape):
        if sum(map(math.prod, shapes)) > LARGEST_INPUT:
            problem = "its inputs are too large to try"
            continue
        feeds = [random_values(i, shape) for i, shape in zip(inputs, shapes, strict=True)]
        wrong = None
        try:
            with worker.within_memory():
                ours = _run_module(module, feeds)
        except NodeError as error:
            if any(words in str(error) for words in _TOO_LARGE) or isinstance(error.__cause__, MemoryError):
                raise _unsupported(error) from None
            wrong = error
        try:
            theirs = worker.run(path, {i.name: f for i, f in zip(inputs, feeds, strict=True)})
        except worker.RunFailed as error:
            problem = f"onnxruntime does not run the model on random input: {error}"
            continue
        if wrong is not None:
            raise _unsupported(wrong) from None
        return feeds, ours, theirs, None
    return None, (), (), problem


def _unsupported(error: NodeError) -> UnsupportedModel:
    return UnsupportedModel(
        f"the model cannot be run in torch: {error}",
        "please report this node as a bug, or try a newer opset",
        [str(error)],
    )


def _shapes(inputs: Sequence[TensorInfo], sample_shape: tuple[int, ...] | None) -> Iterator[list[tuple[int, ...]]]:
    """Shapes to try, most likely first; what the file leaves open comes from the data or is guessed."""
    tried = set()
    batches = (BATCH, 1)
    guesses = _GUESSES if any(_open(i) for i in inputs) else _GUESSES[:1]
    for guess in guesses:
        for channels in _CHANNELS:
            for batch in batches:
                shapes = [_shape(i, guess, channels, batch, sample_shape) for i in inputs]
                if tuple(shapes) not in tried:
                    tried.add(tuple(shapes))
                    yield shapes


def _open(info: TensorInfo) -> bool:
    return info.shape is None or any(not isinstance(d, int) or d < 1 for d in info.shape[1:])


def _shape(
    info: TensorInfo, guess: int, channels: int, batch: int, sample_shape: tuple[int, ...] | None
) -> tuple[int, ...]:
    declared = info.shape if info.shape is not None else (None, *(sample_shape or (None, None, None)))
    shape = []
    for i, d in enumerate(declared):
        if isinstance(d, int) and d > 0:
            shape.append(d)
        elif i == 0:
            shape.append(batch)
        else:
            shape.append(channels if i == 1 and len(declared) == 4 else guess)
    if sample_shape is not None and len(sample_shape) == len(shape) - 1:
        shape[1:] = sample_shape
    return tuple(shape)


def _numeric(info: TensorInfo) -> bool:
    return info.type in ("BFLOAT16", "BOOL") or info.type.startswith(("FLOAT", "DOUBLE", "INT", "UINT"))


def random_values(info: TensorInfo, shape: Sequence[int]) -> Array:
    """Values of an input's own type: standard normal, or zeros and ones."""
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(info.type))
    if "FLOAT" in info.type or info.type == "DOUBLE":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def _run_module(module: GraphModule, feeds: Sequence[Array]) -> tuple[object, ...]:
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            outputs: tuple[object, ...] = module(*(array_to_torch(f) for f in feeds))
            return outputs
    finally:
        module.train(was_training)


def difference(ours: object, theirs: object) -> float:
    """Largest difference relative to the largest value; infinite where even the shapes differ."""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(ours) != len(theirs):
            return math.inf
        return max((difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
    if not isinstance(theirs, np.ndarray) or not isinstance(ours, torch.Tensor):
        return 0.0
    mine: Array = (ours.float() if ours.dtype is torch.bfloat16 else ours).detach().cpu().numpy()
    if mine.shape != theirs.shape:
        return math.inf
    if mine.size == 0 or theirs.dtype == object:
        return 0.0
    if not np.issubdtype(mine.dtype, np.floating):
        return float(np.mean(mine != theirs))
    a, b = mine.astype(np.float64), theirs.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf))
    scale = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)) or 1.0
    return float(np.max(gap)) / scale
