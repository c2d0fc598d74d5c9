"""example.npz of a handoff: samples, the inputs that are made of them, and what each file computes from these."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from ltp_pipeline.data.recipe import Recipe
from ltp_pipeline.data.samples import Array
from ltp_pipeline.exporters import output_proof
from ltp_pipeline.exporters.encodings.packed_graph import PREFIX
from ltp_pipeline.report_parts import Tensor

SEED = 0
SAMPLES = 4
MOST_BYTES = 16 << 20  # of an example with more than one sample
TOLERANCE = 1e-3  # of an output's largest value: what other processors and versions may differ by
HALF_TOLERANCE = 2e-2  # the same where nodes round to half precision
HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Example:
    """What the file holds, how far outputs may be from it, and how many of its samples are real ones."""

    content: bytes
    tolerance: float = TOLERANCE
    real: int = 0


def make(recipe: Recipe, model_input: Tensor, models: Sequence[Path], real: Array | None) -> Example:
    """Run the models on real samples if there are any, else on a few generated ones, few enough to be a small file."""
    shape = model_input.shape or [None]
    batch = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else None
    limit = HALF_TOLERANCE if any(map(_rounds_to_half, models)) else TOLERANCE
    counts = [batch or SAMPLES, batch or 1] if real is None else [batch or len(real)]
    arrays = dict[str, Array]()
    for count in counts:
        samples = recipe.generate(count, SEED) if real is None else real[np.arange(count) % len(real)]
        x = _prepared(recipe, samples, model_input)
        arrays = {"samples": samples, "input": x, "tolerance": np.array(limit)}
        for path in models:
            arrays |= _outputs(path, {model_input.name: x})
        if sum(array.nbytes for array in arrays.values()) <= MOST_BYTES:
            break
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no name here is that of an option
    return Example(file.getvalue(), limit, 0 if real is None else min(len(real), counts[0]))


def example_input(recipe: Recipe, model_input: Tensor) -> Array:
    """A few generated samples as the model takes them."""
    shape = model_input.shape or [None]
    count = shape[0] if isinstance(shape[0], int) and shape[0] > 0 else SAMPLES
    return _prepared(recipe, recipe.generate(count, SEED), model_input)


def _prepared(recipe: Recipe, samples: Array, model_input: Tensor) -> Array:
    return recipe.prepare(samples.copy()).astype(input_type(recipe, model_input.type))


def input_type(recipe: Recipe, onnx_type: str) -> str:
    """What numpy calls the type of the model's input; half-precision models are trained on single precision."""
    return "float16" if onnx_type == "FLOAT16" else str(recipe.prepare.dtype.name)


def _outputs(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    found = enumerate(output_proof.outputs(path, feeds))
    return {f"{path.name}/{n}": y for n, y in found if isinstance(y, np.ndarray) and y.dtype.kind in "biuf"}


def _rounds_to_half(path: Path) -> bool:
    """Whether a file computes in half precision; one that only stores packed values so does not."""
    graph = onnx.load(path, load_external_data=False).graph
    tensors = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    return any(t.data_type in HALF and not t.name.startswith(PREFIX) for t in tensors)
