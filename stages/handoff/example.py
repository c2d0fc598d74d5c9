"""example.npz of a handoff: samples, the inputs that are made of them, and what each file computes from these.

`samples/NAME` are those of an input as they are stored; of sequences all values, and `samples/NAME_offsets`, where each
begins and the last one ends (`samples/NAME_offsets_` where an input is called NAME_offsets). `input/NAME` is what the
model takes, `FILE/N` output N of a file, `library/FILE` the library that a file can be run with.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from ltp_pipeline.data import recipe
from ltp_pipeline.data.columns import offsets_of
from ltp_pipeline.data.dataset import Samples
from ltp_pipeline.data.recipe import Recipe
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, rows_of
from ltp_pipeline.exporters.encodings.packed_graph import PREFIX
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.schema_parts import ModelTensorInfo
from ltp_pipeline.system.arrays import Array

SEED = 0
SAMPLES = 4
MOST_BYTES = 16 << 20  # of an example with more than one sample
TOLERANCE = 1e-3  # of an output's largest value: what other processors and versions may differ by
INT8_TOLERANCE = (
    5e-2  # the same of a file that computes in 8 bits, of which some are rounded the other way
)
HALF_TOLERANCE = 2e-2  # the same where nodes round to half precision
STORED, INPUT = "samples/", "input/"  # what names in the file begin with
HALF = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Example:
    """What the file holds, how far outputs may be from it, and how many of its samples are real ones."""

    content: bytes
    tolerance: float = TOLERANCE
    real: int = 0


@dataclass(frozen=True)
class ModelInputs:
    """What the model takes, and how each input is made of stored samples."""

    tensors: Sequence[ModelTensorInfo]
    recipes: Mapping[str, Recipe]

    @property
    def fixed_batch(self) -> int | None:
        """How many samples the model takes at once, where it takes no other number."""
        sizes = [tensor.shape[0] for tensor in self.tensors if tensor.shape]
        return next((size for size in sizes if isinstance(size, int) and size > 0), None)

    def type_of(self, tensor: ModelTensorInfo) -> str:
        """What numpy calls the type of an input; half-precision models are trained on single precision."""
        return (
            "float16"
            if tensor.type == "FLOAT16"
            else str(self.recipes[tensor.name].prepare.dtype.name)
        )

    def prepare(self, samples: Mapping[str, Samples]) -> dict[str, Array]:
        """All of these samples as the model takes them."""
        return {
            tensor.name: self._prepared(tensor, samples[tensor.name]) for tensor in self.tensors
        }

    def _prepared(self, tensor: ModelTensorInfo, samples: Samples) -> Array:
        taken = samples.take(np.arange(len(samples)))
        return self.recipes[tensor.name].prepare(taken).astype(self.type_of(tensor))


def inputs_of(report: Report) -> ModelInputs:
    """What a report says of the model's inputs; one that does not say how each is made is refused."""
    tensors = report.model.inputs
    return ModelInputs(
        tensors, recipe.of_report(report.data.model_dump(), [tensor.name for tensor in tensors])
    )


def make(
    inputs: ModelInputs,
    models: Sequence[Path],
    real: Mapping[str, Samples] | None,
    libraries: Mapping[str, str] | None = None,
) -> Example:
    """Run the models on real samples if there are any, else on a few generated ones, few enough to be a small file.

    `libraries` are those that models can be run with, by the names of both.
    """
    batch, given = inputs.fixed_batch, 0 if real is None else len(next(iter(real.values())))
    limit = HALF_TOLERANCE if any(map(_rounds_to_half, models)) else TOLERANCE
    counts = [batch or SAMPLES, batch or 1] if real is None else [batch or given]
    arrays = dict[str, Array]()
    for count in counts:
        samples = (
            _generated(inputs, count) if real is None else rows_of(real, np.arange(count) % given)
        )
        feeds = inputs.prepare(samples)
        arrays = {
            **_stored(samples),
            **{INPUT + name: x for name, x in feeds.items()},
            "tolerance": np.array(limit),
        }
        for path in models:
            arrays |= _outputs(path, feeds)
            if _computes_in_8_bits(path):
                arrays[f"tolerance/{path.name}"] = np.array(INT8_TOLERANCE)
        if sum(array.nbytes for array in arrays.values()) <= MOST_BYTES:
            break
    arrays |= {f"library/{name}": np.array(library) for name, library in (libraries or {}).items()}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no name here is that of an option
    return Example(file.getvalue(), limit, min(given, counts[0]))


def example_inputs(report: Report) -> dict[str, Array]:
    """A few generated samples as the model of a report takes them."""
    inputs = inputs_of(report)
    return inputs.prepare(_generated(inputs, inputs.fixed_batch or SAMPLES))


def _generated(inputs: ModelInputs, count: int) -> dict[str, Samples]:
    return recipe.generated(inputs.recipes, count, SEED)


def _stored(samples: Mapping[str, Samples]) -> dict[str, Array]:
    """As the file holds them; masks are made and not stored."""
    arrays = dict[str, Array]()
    for name, values in samples.items():
        if isinstance(values, RaggedSamples):
            arrays |= {
                STORED + name: values.values,
                STORED + offsets_of(name, samples): values.offsets,
            }
        elif not isinstance(values, MaskSamples):
            arrays[STORED + name] = values.take(np.arange(len(values)))
    return arrays


def _outputs(path: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    found = enumerate(run_proof.run_file(path, feeds))
    return {
        f"{path.name}/{n}": y
        for n, y in found
        if isinstance(y, np.ndarray) and y.dtype.kind in "biuf"
    }


def _rounds_to_half(path: Path) -> bool:
    """Whether a file computes in half precision; one that only stores packed values so does not."""
    graph = onnx.load(path, load_external_data=False).graph
    tensors = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
    return any(t.data_type in HALF and not t.name.startswith(PREFIX) for t in tensors)


def _computes_in_8_bits(path: Path) -> bool:
    nodes = onnx.load(path, load_external_data=False).graph.node
    return any(node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") for node in nodes)
