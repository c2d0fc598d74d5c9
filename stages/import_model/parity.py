"""Compare what torch computes with what onnxruntime computes.

Both run the model on samples if there are any, else on random inputs. A difference counts against
the largest value of an output, and must exceed the noise of onnxruntime itself. An output that is
too small for that is compared on random inputs of other scales; if it stays inconclusive, the
values that it is computed from are compared instead. A network that differs is rejected, so that
training never starts from another function than the file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np
import torch
from onnx import GraphProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.graph.view import GraphView, find_dependent_values
from ltp_pipeline.stages.import_model import onnxruntime_child, parity_inputs
from ltp_pipeline.stages.import_model.fixed_batch import get_declared_batch, supports_any_batch
from ltp_pipeline.stages.import_model.network import CompiledGraph, Network, compile_observer
from ltp_pipeline.stages.import_model.onnxruntime_child import LoadFailed, Output, RunFailed
from ltp_pipeline.stages.import_model.parity_inputs import ParityInputs
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.values import (
    HALF_DATA_TYPES,
    HALF_TYPES,
    array_to_torch,
    to_single_precision,
)
from ltp_pipeline.system import memory, tolerance
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.system.child_process import ChildCrashed
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.tolerance import Agreement, MaxDifference

TOLERANCE = 1e-4
# For files in half precision: torch computes in single precision, onnxruntime rounds at every node.
HALF_TOLERANCE = 2e-2
_SIZE_ERROR = "beyond reason"  # part of the errors that operators raise about sizes
_MAX_STEPS_BACK = 3  # nodes between an inconclusive output and the values compared instead


class ParityRun(NamedTuple):
    """Outputs of both runtimes for the same inputs."""

    inputs: ParityInputs
    torch_outputs: Sequence[object]
    ort_outputs: Sequence[Output]


def check_parity(
    model: OnnxModel,
    network: Network,
    state: StateDict,
    samples: Mapping[str, Array] | None = None,
) -> tuple[float | None, str | None]:
    """Compare the outputs of a network with those of onnxruntime.

    Args:
        model: The model as the file has it, which onnxruntime runs.
        network: The network.
        state: Its tensors by name.
        samples: Samples by input name; None compares on random inputs.

    Returns:
        The largest relative difference, None if nothing could be compared; and what could not be
        compared and why, None if everything was.

    Raises:
        UnsupportedModel: If outputs differ, or one of the runtimes cannot run the model.
    """
    for info in network.file.inputs:
        if not parity_inputs.is_numeric(info):
            return None, f"no random values can be made for input {info.name!r} of type {info.type}"
    with temporary_folder("parity") as folder:
        path = folder / "model.onnx"
        write_model(model, path)
        try:
            first_run, problem = _make_first_run(path, network, state, samples)
            if first_run is None:
                return None, problem
            return _Comparison(path, model, network, state).compare(first_run)
        except ChildCrashed as error:
            raise UnsupportedModel(
                f"onnxruntime {error} on this model", "export the model again"
            ) from None
        except LoadFailed as error:
            # For example bfloat16, which few operators of onnxruntime support on the CPU
            if samples is None and "NOT_IMPLEMENTED" in str(error):
                return None, str(error)
            raise UnsupportedModel(
                f"onnxruntime cannot load the model: {error}",
                "export the model again; a newer opset often helps",
            ) from None


def find_fixed_batch(
    network: Network, state: StateDict, samples: Mapping[str, Array] | None = None
) -> int | None:
    """Return the batch size that a graph declares if a larger batch has other outputs, else None.

    It is tried on samples by input name, or on random inputs.
    """
    size = get_declared_batch(network.file.model.graph)
    infos = network.file.inputs
    if size is None or not all(map(parity_inputs.is_numeric, infos)):
        return None
    run = partial(network.forward, state=state)
    for inputs in filter(None, parity_inputs.iter_likely_inputs(infos, samples)):
        tensors = {name: array_to_torch(array) for name, array in inputs.arrays.items()}
        with torch.no_grad():
            try:
                run(tensors)
            except NodeError:
                continue
            if supports_any_batch(run, tensors, size, _is_equal):
                return None
            return size
    return None


def _is_equal(actual: object, expected: torch.Tensor) -> bool:
    """Return True if two outputs of torch do not differ."""
    max_relative = TOLERANCE
    if expected.dtype in HALF_TYPES:
        max_relative = HALF_TOLERANCE
    difference = compare_outputs(actual, to_single_precision(expected).cpu().numpy())
    agreement = tolerance.check_tolerance(difference, max_relative, lambda: 0.0)
    return agreement is not Agreement.DIFFERENT


def _make_first_run(
    path: Path, network: Network, state: StateDict, samples: Mapping[str, Array] | None
) -> tuple[ParityRun | None, str | None]:
    """Try inputs until both runtimes run the model; if none does, return the reason.

    torch goes first, because it names a node that asks for too much memory.

    Raises:
        UnsupportedModel: If only onnxruntime runs the model, or not even on samples.
    """
    problem = "the graph has no inputs"
    for inputs in parity_inputs.iter_likely_inputs(network.file.inputs, samples):
        if inputs is None:
            problem = "its inputs are too large to try"
            continue
        torch_outputs: Sequence[object] = ()
        torch_error = None
        try:
            with memory.limit_memory():
                torch_outputs = _run_torch(network.forward, state, inputs)
        except NodeError as error:
            if _SIZE_ERROR in str(error) or memory.is_shortage(error):
                raise _make_error(error) from None
            torch_error = error
        try:
            ort_outputs = onnxruntime_child.run_model(path, inputs.arrays)
        except RunFailed as error:
            problem = f"onnxruntime does not run the model on {inputs.description}: {error}"
            if inputs.description == parity_inputs.SAMPLES:
                hint = "check the model and the shape of the data"
                raise UnsupportedModel(problem, hint) from None
            continue
        if torch_error is not None:
            raise _make_error(torch_error) from None
        return ParityRun(inputs, torch_outputs, ort_outputs), None
    return None, problem


def _make_error(error: NodeError) -> UnsupportedModel:
    hint = "please report this node as a bug, or try a newer opset"
    if memory.is_shortage(error):
        hint = "check pads, scales and sizes of this node, or use a machine with more memory"
    return UnsupportedModel(f"the model cannot be run in torch: {error}", hint, [str(error)])


@dataclass
class _Comparison:
    """Compares one output after the other; an output that differs is an error."""

    path: Path  # file of the model, as onnxruntime runs it
    model: OnnxModel
    network: Network
    state: StateDict
    differences: dict[str, float] = field(default_factory=dict)  # relative, of all equal values

    def __post_init__(self) -> None:
        has_half_inputs = any(i.type in ("FLOAT16", "BFLOAT16") for i in self.network.file.inputs)
        tensors = self.model.graph.initializer
        self.is_half = has_half_inputs or any(t.data_type in HALF_DATA_TYPES for t in tensors)
        self.tolerance = TOLERANCE
        if self.is_half:
            self.tolerance = HALF_TOLERANCE

    def compare(self, first_run: ParityRun) -> tuple[float | None, str | None]:
        """Return the largest difference, and which outputs could not be compared."""
        names = [output.name for output in self.model.graph.output]
        remaining = names
        for run in chain([first_run], self._iter_scaled_runs(first_run)):
            labels = {name: f"output {name!r}" for name in remaining}
            self._compare_values(self.path, run, names, labels)
            remaining = [name for name in names if name not in self.differences]
            if not remaining:
                break
        else:
            remaining = self._compare_sources(first_run, remaining)
        largest = max(self.differences.values(), default=None)
        if not remaining:
            return largest, None
        label = f"output {remaining[0]!r} is"
        if len(remaining) > 1:
            label = f"outputs {', '.join(map(repr, remaining))} are"
        return largest, f"{label} too small on every input tried"

    def _iter_scaled_runs(self, first_run: ParityRun) -> Iterator[ParityRun]:
        """Yield runs on inputs of other scales whose outputs are finite."""
        infos = self.network.file.inputs
        for inputs in parity_inputs.iter_scaled_inputs(infos, first_run.inputs, self.is_half):
            try:
                ort_outputs = onnxruntime_child.run_model(self.path, inputs.arrays)
                torch_outputs = _run_torch(self.network.forward, self.state, inputs)
            except (RunFailed, NodeError):
                continue
            if all(np.isfinite(value).all() for value in ort_outputs if _is_float_array(value)):
                yield ParityRun(inputs, torch_outputs, ort_outputs)

    def _compare_values(
        self, path: Path, run: ParityRun, names: Sequence[str], labels: Mapping[str, str]
    ) -> None:
        """Record the differences of values that are equal, and raise an error if one differs.

        Args:
            path: File that onnxruntime ran.
            run: Values of both runtimes.
            names: Names of the values, in order.
            labels: What to call the values that are compared in messages, by name.
        """

        @cache
        def run_unoptimized() -> Sequence[object]:
            return onnxruntime_child.run_model(path, run.inputs.arrays, "NONE")

        def measure_noise(i: int) -> float:
            return compare_outputs(run_unoptimized()[i], run.ort_outputs[i]).difference

        for i, name in enumerate(names):
            if name not in labels:
                continue
            difference = compare_outputs(run.torch_outputs[i], run.ort_outputs[i])
            noise = partial(measure_noise, i)
            agreement = tolerance.check_tolerance(difference, self.tolerance, noise)
            if agreement is Agreement.EQUAL:
                self.differences[name] = difference.relative
            elif agreement is Agreement.DIFFERENT:
                raise UnsupportedModel(
                    f"torch and onnxruntime disagree on {labels[name]} by "
                    f"{difference.relative:.2g} of its largest value, more than "
                    f"{self.tolerance:.0e} ({run.inputs.description})",
                    "please report the model's operators (ltp-pipeline inspect) as a bug",
                )

    def _compare_sources(self, run: ParityRun, outputs: Sequence[str]) -> list[str]:
        """Compare values that inconclusive outputs are computed from, on the inputs of a run.

        Returns:
            The outputs for which no such value could be compared.
        """
        flat, _ = flatten_model(self.network.file.model)
        computed = GraphView(flat.graph).producers
        sources: dict[str, list[str]] = {}
        labels: dict[str, str] = {}
        for output in outputs:
            candidates = _find_sources(self.model.graph, output)
            sources[output] = [name for name in candidates if name in computed]
            for name in sources[output]:
                labels[name] = f"value {name!r}, which output {output!r} is computed from,"
        names = list(labels)
        if not names:
            return list(outputs)
        proto = copy_proto(self.model.proto)
        del proto.graph.output[:]
        for name in names:
            proto.graph.output.add().name = name
        path = self.path.with_name("inner.onnx")
        write_model(replace(self.model, proto=proto), path)
        try:
            ort_values = onnxruntime_child.run_model(path, run.inputs.arrays)
            observer = compile_observer(flat, names)
            torch_values = _run_torch(observer, self.state, run.inputs)[-len(names) :]
        except (LoadFailed, RunFailed, NodeError):
            return list(outputs)
        for name, value in zip(names, ort_values, strict=True):
            if not _is_float_array(value):
                del labels[name]
        self._compare_values(path, ParityRun(run.inputs, torch_values, ort_values), names, labels)
        return [name for name in outputs if not self.differences.keys() & sources[name]]


def _find_sources(graph: GraphProto, output: str) -> list[str]:
    """Return values that depend on an input and that an output is computed from, nearest first."""
    inputs = collect_names(graph.input) - collect_names(graph.initializer)
    dependent = find_dependent_values(graph, inputs)
    producers = GraphView(graph).producers
    sources: dict[str, None] = {output: None}
    front = [output]
    for _ in range(_MAX_STEPS_BACK):
        reads: list[str] = []
        for name in front:
            if name in producers:
                reads += producers[name].input
        front = []
        for name in reads:
            if name in dependent and name in producers and name not in sources:
                front.append(name)
        sources |= dict.fromkeys(front)
    del sources[output]
    return list(sources)


def _is_float_array(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _run_torch(
    forward: CompiledGraph, state: StateDict, inputs: ParityInputs
) -> tuple[object, ...]:
    tensors = {name: array_to_torch(array) for name, array in inputs.arrays.items()}
    with torch.no_grad():
        return forward(tensors, state)


def compare_outputs(actual: object, expected: object) -> MaxDifference:
    """Return the largest difference of two outputs: tensors, arrays, or lists of them.

    Outputs that are not made of numbers count as equal.
    """
    if isinstance(expected, list) and isinstance(actual, list):
        if len(actual) != len(expected):
            return tolerance.OTHER
        parts = [compare_outputs(a, b) for a, b in zip(actual, expected, strict=True)]
        return max(parts, key=lambda part: part.relative, default=tolerance.SAME)
    if isinstance(actual, torch.Tensor):
        if actual.dtype is torch.bfloat16:
            actual = actual.float()
        actual = actual.detach().cpu().numpy()
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return tolerance.SAME
    if expected.dtype == object:
        return tolerance.SAME
    return tolerance.max_difference(actual, expected)
