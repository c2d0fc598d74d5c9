"""Does torch compute what onnxruntime computes?

Outputs are compared on samples where there are any, else on random input. An output that is too small to tell anything
is tried on random input of other scales; where that does not help, what it is computed from is compared instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from onnx import GraphProto, TensorProto

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.graph.nodes import SHAPE_OPERATORS, is_standard
from ltp_pipeline.graph.rewrites.flatten import flatten_model
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.graph.view import GraphView
from ltp_pipeline.stages.import_model import fixed_batch as batches
from ltp_pipeline.stages.import_model import onnxruntime_child, parity_inputs
from ltp_pipeline.stages.import_model.network import CompiledGraph, Network, compile_observer
from ltp_pipeline.stages.import_model.parity_inputs import ParityInputs
from ltp_pipeline.stages.import_model.program import NodeError
from ltp_pipeline.stages.import_model.values import HALF_TYPES, array_to_torch
from ltp_pipeline.system import child_process, memory
from ltp_pipeline.system import tolerance as closeness
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.system.scratch import temporary_folder
from ltp_pipeline.system.tolerance import Agreement, MaxDifference

TOLERANCE = 1e-4
TOLERANCE_HALF = (
    2e-2  # fp16 and bf16 files: torch computes in fp32, onnxruntime rounds at every node
)
_HALF = ("FLOAT16", "BFLOAT16")
_HALF_TYPES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_TOO_LARGE = "beyond reason"  # which operators say of sizes
_STEPS_BACK = 3  # from an output that says nothing to what it is computed from


def check_parity(
    model: OnnxModel, network: Network, state: StateDict, samples: Mapping[str, Array] | None = None
) -> tuple[float | None, str | None]:
    """Compare what torch computes with what onnxruntime makes of the model as it was given.

    Gives the largest relative difference, None where nothing could be compared; and what could not, and why.
    """
    inputs = network.file.inputs
    odd = [i for i in inputs if not parity_inputs.is_numeric(i)]
    if odd:
        return None, f"no random values can be made for input {odd[0].name!r} of type {odd[0].type}"
    with temporary_folder("parity") as folder:
        path = folder / "model.onnx"
        write_model(model, path)
        try:
            first, problem = _first_run(path, network.forward, state, inputs, samples)
            if first is None:
                return None, problem
            return _Comparison(path, model, network, state).of(first)
        except child_process.ChildCrashed as error:
            raise UnsupportedModel(
                f"onnxruntime {error} on this model", "export it again"
            ) from None
        except onnxruntime_child.LoadFailed as error:
            if samples is None and "NOT_IMPLEMENTED" in str(
                error
            ):  # e.g. bf16, which few of its CPU operators have
                return None, str(error)
            remedy = "export it again; a newer opset often helps"
            raise UnsupportedModel(f"onnxruntime cannot load the model: {error}", remedy) from None


def find_fixed_batch(
    network: Network, state: StateDict, samples: Mapping[str, Array] | None = None
) -> int | None:
    """The batch size that a file fixes, where its graph does not give the same for samples of larger batches."""
    size = batches.get_declared_batch(network.file.model.graph)
    inputs = network.file.inputs
    if size is None or not all(map(parity_inputs.is_numeric, inputs)):
        return None
    for feeds in filter(None, parity_inputs.iter_likely_inputs(inputs, samples)):
        tensors = {name: array_to_torch(array) for name, array in feeds.arrays.items()}
        with torch.no_grad():
            try:
                network.forward(tensors, state)
            except NodeError:
                continue
            alike = batches.supports_any_batch(
                partial(network.forward, state=state), tensors, size, _alike
            )
            return None if alike else size
    return None


def _alike(ours: object, theirs: torch.Tensor) -> bool:
    tolerance = TOLERANCE_HALF if theirs.dtype in HALF_TYPES else TOLERANCE
    found = compare_outputs(
        ours, (theirs.float() if theirs.dtype in HALF_TYPES else theirs).cpu().numpy()
    )
    return closeness.check_tolerance(found, tolerance, lambda: 0.0) is not Agreement.DIFFERENT


class _Run(NamedTuple):
    """What both make of the same input."""

    feeds: ParityInputs
    ours: Sequence[object]
    theirs: Sequence[object]


def _first_run(
    path: Path,
    forward: CompiledGraph,
    state: StateDict,
    inputs: Sequence[TensorInfo],
    samples: Mapping[str, Array] | None,
) -> tuple[_Run | None, str | None]:
    """Try inputs until both run. torch goes first: it names a node that asks for too much."""
    problem = "the graph has no inputs"
    for feeds in parity_inputs.iter_likely_inputs(inputs, samples):
        if feeds is None:
            problem = "its inputs are too large to try"
            continue
        wrong = None
        ours: Sequence[object] = ()
        try:
            with memory.limit_memory():
                ours = _run_torch(forward, state, feeds)
        except NodeError as error:
            if _TOO_LARGE in str(error) or memory.is_shortage(error):
                raise _unsupported(error) from None
            wrong = error
        try:
            theirs = onnxruntime_child.run_model(path, feeds.arrays)
        except onnxruntime_child.RunFailed as error:
            problem = f"onnxruntime does not run the model on {feeds.description}: {error}"
            if feeds.description == parity_inputs.SAMPLES:  # on which it is to be measured
                raise UnsupportedModel(
                    problem, "check the model and the shape of the data"
                ) from None
            continue
        if wrong is not None:
            raise _unsupported(wrong) from None
        return _Run(feeds, ours, theirs), None
    return None, problem


def _unsupported(error: NodeError) -> UnsupportedModel:
    hint = "please report this node as a bug, or try a newer opset"
    if memory.is_shortage(error):
        hint = "check pads, scales and sizes of this node, or use a machine with more memory"
    return UnsupportedModel(f"the model cannot be run in torch: {error}", hint, [str(error)])


class _Comparison:
    """Settles output after output; one that differs is an error."""

    def __init__(self, path: Path, model: OnnxModel, network: Network, state: StateDict) -> None:
        self.path, self.model, self.network, self.state = path, model, network, state
        self.inputs = inputs = network.file.inputs
        initial = model.graph.initializer
        self.half = any(i.type in _HALF for i in inputs) or any(
            t.data_type in _HALF_TYPES for t in initial
        )
        self.tolerance = TOLERANCE_HALF if self.half else TOLERANCE
        self.settled: dict[
            str, float
        ] = {}  # relative difference of every value that was told to be equal

    def of(self, first: _Run) -> tuple[float | None, str | None]:
        names = [o.name for o in self.model.graph.output]
        silent = names
        for run in chain([first], self._others(first)):
            self._judge(self.path, run, names, silent)
            silent = [name for name in names if name not in self.settled]
            if not silent:
                break
        else:
            silent = self._by_what_feeds(first, silent)
        worst = max(self.settled.values(), default=None)
        if not silent:
            return worst, None
        which = (
            f"output {silent[0]!r} is"
            if len(silent) == 1
            else f"outputs {', '.join(map(repr, silent))} are"
        )
        return worst, f"{which} too small on every input tried"

    def _others(self, first: _Run) -> Iterator[_Run]:
        """The same at other scales, as far as both run and onnxruntime's outputs are finite."""
        for feeds in parity_inputs.iter_scaled_inputs(self.inputs, first.feeds, self.half):
            try:
                theirs = onnxruntime_child.run_model(self.path, feeds.arrays)
                ours = _run_torch(self.network.forward, self.state, feeds)
            except (onnxruntime_child.RunFailed, NodeError):
                continue
            if all(
                np.isfinite(y).all()
                for y in theirs
                if isinstance(y, np.ndarray) and y.dtype.kind == "f"
            ):
                yield _Run(feeds, ours, theirs)

    def _judge(
        self,
        path: Path,
        run: _Run,
        names: Sequence[str],
        wanted: Sequence[str],
        made: Mapping[str, str] | None = None,
    ) -> None:
        """Settle those of `wanted` that are equal; `made` says which output a value inside the graph belongs to."""

        @cache
        def plain() -> Sequence[object]:
            return onnxruntime_child.run_model(path, run.feeds.arrays, "NONE")

        def noise(i: int) -> float:
            return compare_outputs(plain()[i], run.theirs[i]).difference

        for i, name in enumerate(names):
            if name not in wanted:
                continue
            found = compare_outputs(run.ours[i], run.theirs[i])
            verdict = closeness.check_tolerance(found, self.tolerance, partial(noise, i))
            if verdict is Agreement.DIFFERENT:
                what = (
                    f"value {name!r}, which output {made[name]!r} is computed from,"
                    if made
                    else f"output {name!r}"
                )
                raise UnsupportedModel(
                    f"torch and onnxruntime disagree on {what} by {found.relative:.2g} of its largest value, "
                    f"more than {self.tolerance:.0e} ({run.feeds.description})",
                    "please report the model's operators (ltp-pipeline inspect) as a bug",
                )
            if verdict is Agreement.EQUAL:
                self.settled[name] = found.relative

    def _by_what_feeds(self, first: _Run, silent: Sequence[str]) -> list[str]:
        """Compare values from which silent outputs are computed; the outputs of which none could be compared."""
        walked, _ = flatten_model(self.network.file.model)
        known = {name for node in walked.graph.node for name in node.output}
        sources = {
            name: [s for s in _sources(self.model.graph, name) if s in known] for name in silent
        }
        made = {source: name for name in silent for source in sources[name]}
        if not made:
            return list(silent)
        inner = copy_proto(self.model.proto)
        del inner.graph.output[:]
        for name in made:
            inner.graph.output.add().name = name
        path = self.path.with_name("inner.onnx")
        write_model(replace(self.model, proto=inner), path)
        try:
            theirs = onnxruntime_child.run_model(path, first.feeds.arrays)
            ours = _run_torch(compile_observer(walked, list(made)), self.state, first.feeds)[
                -len(made) :
            ]
        except (onnxruntime_child.LoadFailed, onnxruntime_child.RunFailed, NodeError):
            return list(silent)
        floats = [
            n
            for n, y in zip(made, theirs, strict=True)
            if isinstance(y, np.ndarray) and y.dtype.kind == "f"
        ]
        self._judge(path, _Run(first.feeds, ours, theirs), list(made), floats, made)
        return [name for name in silent if not self.settled.keys() & sources[name]]


def _sources(graph: GraphProto, output: str) -> list[str]:
    """Values that depend on the graph's input and that an output is computed from, nearest first."""
    stored = {t.name for t in graph.initializer}
    live = {i.name for i in graph.input if i.name not in stored}
    for node in graph.node:
        if live.intersection(node.input) and not is_standard(node, *SHAPE_OPERATORS):
            live.update(node.output)
    producers = GraphView(graph).producers
    found: list[str] = []
    front = [output]
    for _ in range(_STEPS_BACK):
        read = [name for made in front if made in producers for name in producers[made].input]
        front = [
            n
            for n in dict.fromkeys(read)
            if n in live and n in producers and n not in (output, *found)
        ]
        found += front
    return found


def _run_torch(forward: CompiledGraph, state: StateDict, feeds: ParityInputs) -> tuple[object, ...]:
    with torch.no_grad():
        return forward({name: array_to_torch(array) for name, array in feeds.arrays.items()}, state)


def compare_outputs(ours: object, theirs: object) -> MaxDifference:
    """How far two outputs are apart; of lists, the worst part. What is not made of numbers is not compared."""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(ours) != len(theirs):
            return closeness.OTHER
        parts = [compare_outputs(a, b) for a, b in zip(ours, theirs, strict=True)]
        return max(parts, key=lambda part: part.relative, default=closeness.SAME)
    if isinstance(ours, torch.Tensor):
        ours = (ours.float() if ours.dtype is torch.bfloat16 else ours).detach().cpu().numpy()
    if (
        not isinstance(theirs, np.ndarray)
        or not isinstance(ours, np.ndarray)
        or theirs.dtype == object
    ):
        return closeness.SAME
    return closeness.max_difference(ours, theirs)


def relative_difference(ours: object, theirs: object) -> float:
    """Largest difference relative to the largest value; infinite where even the shapes differ."""
    return compare_outputs(ours, theirs).relative
