"""Make example.npz of a handoff: samples, the inputs made of them, and the outputs of each file.

`samples/NAME` has the stored samples of an input. Sequences are one array of all values, and
`samples/NAME_offsets` has where each begins and the last one ends (`samples/NAME_offsets_` if an
input is called NAME_offsets). `input/NAME` is what the model takes, `FILE/N` is output N of a file,
`tolerance` is what outputs may differ by, and `library/FILE` names the library of sparse operators
of a file.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto

from ltp_pipeline.data.columns import get_offsets_name
from ltp_pipeline.data.dataset import Samples
from ltp_pipeline.data.generated import generate_samples, load_recipes
from ltp_pipeline.data.preprocessing import prepare_samples
from ltp_pipeline.data.sequences import MaskSamples, RaggedSamples, select_rows
from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.encodings.packed_graph import PREFIX
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.results.schema import Report
from ltp_pipeline.results.schema_parts import InputRecipe, ModelTensorInfo
from ltp_pipeline.run_directory.run_directory import RunDirectory
from ltp_pipeline.system.arrays import Array

if TYPE_CHECKING:
    from ltp_pipeline.tasks.custom import CustomTask

SEED = 0
NUM_SAMPLES = 4  # generated samples, unless the model takes another number at once
MAX_BYTES = 16 << 20  # size from which the example has only one generated sample
# Differences by other processors and versions that are allowed, relative to the largest value.
TOLERANCE = 1e-3
HALF_TOLERANCE = 2e-2  # of files that compute in half precision
INT8_TOLERANCE = 5e-2  # of int8 files, in which some values are rounded the other way
HALF_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
QUANTIZING_OPERATORS = ("QuantizeLinear", "DynamicQuantizeLinear")


@dataclass(frozen=True)
class Example:
    """The bytes of example.npz.

    Attributes:
        content: Content of the file.
        tolerance: Allowed difference of outputs, relative to the largest value.
        num_real_samples: Number of samples from the data of the run; 0 if they are generated.
    """

    content: bytes
    tolerance: float = TOLERANCE
    num_real_samples: int = 0


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model, and how each is made of stored samples."""

    tensors: Sequence[ModelTensorInfo]
    recipes: Mapping[str, InputRecipe]

    @property
    def fixed_batch(self) -> int | None:
        """Number of samples that the model takes at once; None if it takes any number."""
        for tensor in self.tensors:
            if not tensor.shape:
                continue
            size = tensor.shape[0]
            if isinstance(size, int) and size > 0:
                return size
        return None

    def name_dtype(self, tensor: ModelTensorInfo) -> str:
        """Return numpy's name for the type of an input.

        Inputs in half precision are prepared in single precision, as for training.
        """
        if tensor.type == "FLOAT16":
            return "float16"
        return self.recipes[tensor.name].type

    def prepare(self, samples: Mapping[str, Samples]) -> dict[str, Array]:
        """Return all stored samples as the model takes them."""
        arrays = {}
        for tensor in self.tensors:
            stored = samples[tensor.name].take(np.arange(len(samples[tensor.name])))
            prepared = prepare_samples(self.recipes[tensor.name], stored)
            arrays[tensor.name] = prepared.astype(self.name_dtype(tensor))
        return arrays


def read_inputs(report: Report) -> ModelInputs:
    """Return the inputs of a report's model; raise InputError if their steps are missing."""
    tensors = report.model.inputs
    return ModelInputs(tensors, load_recipes(report.data, [tensor.name for tensor in tensors]))


def make_example(
    inputs: ModelInputs,
    models: Sequence[Path],
    real_samples: Mapping[str, Samples] | None = None,
    libraries: Mapping[str, str] | None = None,
) -> Example:
    """Run models on a few samples and return example.npz.

    Args:
        inputs: Inputs of the models.
        models: Model files.
        real_samples: Stored samples of the data by input; None for generated ones. If the model
            takes more samples at once, they are repeated.
        libraries: Name of the library of sparse operators by the name of the file that uses it.
    """
    batch = inputs.fixed_batch
    limits = _find_tolerances(models)
    if real_samples is None:
        num_real = 0
        counts = [batch or NUM_SAMPLES, batch or 1]
    else:
        num_real = len(next(iter(real_samples.values())))
        counts = [batch or num_real]
    arrays: dict[str, Array] = {}
    for count in counts:
        if real_samples is None:
            samples = generate_samples(inputs.recipes, count, SEED)
        else:
            samples = select_rows(real_samples, np.arange(count) % num_real)
        arrays = _run_models(inputs, models, samples)
        if sum(array.nbytes for array in arrays.values()) <= MAX_BYTES:
            break
    for name, limit in limits.items():
        arrays[name] = np.array(limit)
    for name, library in (libraries or {}).items():
        arrays[f"library/{name}"] = np.array(library)
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no array has the name of an option
    return Example(file.getvalue(), limits["tolerance"], min(num_real, counts[0]))


def generate_inputs(report: Report) -> dict[str, Array]:
    """Return a few generated samples as the model of a report takes them."""
    inputs = read_inputs(report)
    count = inputs.fixed_batch or NUM_SAMPLES
    return inputs.prepare(generate_samples(inputs.recipes, count, SEED))


def load_samples(
    folder: Path, report: Report, count: int, task: CustomTask | None = None
) -> dict[str, Samples]:
    """Load the first samples of a run's test split as they are stored.

    Args:
        folder: Run directory.
        report: Report of the run.
        count: Number of samples.
        task: The custom task of the run, if it has one.

    Returns:
        Samples by the name of the input.

    Raises:
        InputError: If the data are no longer those of the run.
    """
    # Only these samples need torch, which takes seconds to import.
    from ltp_pipeline.data.open import open_data
    from ltp_pipeline.stages.prepare import check_same_task
    from ltp_pipeline.tasks.custom_data import open_custom_data

    run_directory = RunDirectory(folder)
    check_same_task(run_directory, task)
    _, settings = run_directory.load_inputs()
    if not report.model.inputs:
        raise InputError(
            f"the report in {folder} does not have the inputs of the model",
            "start the same run again; it writes a new report",
        )
    inputs = [TensorInfo(each.name, each.type, each.shape) for each in report.model.inputs]
    if task is None:
        data = open_data(settings.data, inputs, settings.train.seed, settings.task)
        origin = str(settings.data.path)
    else:
        data = open_custom_data(task, settings.data, inputs, settings.train.seed)
        origin = task.origin
    if data.fingerprint != run_directory.manifest.identity.data:
        raise InputError(
            f"the data of {origin} have changed since the run in {folder}",
            "restore the data, or remove --example-samples",
        )
    stored = {name: source.samples for name, source in data.test.inputs.items()}
    return select_rows(stored, data.test.rows[:count])


def _run_models(
    inputs: ModelInputs, models: Sequence[Path], samples: Mapping[str, Samples]
) -> dict[str, Array]:
    """Return samples, inputs and numeric outputs of each model under their names in the example."""
    feeds = inputs.prepare(samples)
    arrays: dict[str, Array] = {}
    for name, values in samples.items():
        if isinstance(values, RaggedSamples):
            arrays[f"samples/{name}"] = values.values
            arrays[f"samples/{get_offsets_name(name, samples)}"] = values.offsets
        elif not isinstance(values, MaskSamples):  # masks are computed, not stored
            arrays[f"samples/{name}"] = values.take(np.arange(len(values)))
    arrays |= {f"input/{name}": array for name, array in feeds.items()}
    for path in models:
        for position, output in enumerate(run_proof.run_file(path, feeds)):
            if isinstance(output, np.ndarray) and output.dtype.kind in "biuf":
                arrays[f"{path.name}/{position}"] = output
    return arrays


def _find_tolerances(models: Sequence[Path]) -> dict[str, float]:
    """Return the tolerances for outputs, under their names in the example.

    The common one is wider if any model computes in half precision. Packed files that only store
    values in half precision compute in single precision.
    """
    limits = {"tolerance": TOLERANCE}
    for path in models:
        graph = onnx.load(path, load_external_data=False).graph
        tensors = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
        for tensor in tensors:
            if tensor.data_type in HALF_TYPES and not tensor.name.startswith(PREFIX):
                limits["tolerance"] = HALF_TOLERANCE
        if any(node.op_type in QUANTIZING_OPERATORS for node in graph.node):
            limits[f"tolerance/{path.name}"] = INT8_TOLERANCE
    return limits
