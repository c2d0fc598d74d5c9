"""From an ONNX file to a trainable network over its graph, checked against onnxruntime.

torch is imported only where a graph is compiled, so that `inspect` answers without waiting for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from onnx import ModelProto

from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.graph.layer_weights import (
    describe_other_weights,
    find_layer_weights,
    find_other_weights,
)
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.model_file import ModelFile
from ltp_pipeline.graph.rewrites import simplify
from ltp_pipeline.graph.rewrites.flatten import flatten_model, has_weights_in_functions
from ltp_pipeline.graph.rewrites.normalize import normalize_model
from ltp_pipeline.settings.schema import ModelSettings, PruneSettings
from ltp_pipeline.stages.import_model import unsupported
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.import_model.unsupported import find_opset_problem, find_problems
from ltp_pipeline.stages.import_model.validity import check_declared_types
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from ltp_pipeline.stages.import_model.network import Network

__all__ = [
    "build_network",
    "check_declared_types",
    "check_prunable",
    "import_model",
    "read_model_file",
    "run",
]


def import_model(
    source: AnyPath | ModelProto,
    patterns: PruneSettings | None = None,
    settings: ModelSettings | None = None,
) -> tuple[Network, StateDict]:
    """Make a file, or a model in memory, trainable; the public entry."""
    return run(read_model_file(source), patterns or PruneSettings(), settings=settings)


def run(
    file: ModelFile,
    patterns: PruneSettings,
    samples: Mapping[str, Array] | None = None,
    settings: ModelSettings | None = None,
) -> tuple[Network, StateDict]:
    """Compile the graph and refuse a model that torch would not compute as onnxruntime does, on `samples` if given."""
    when = (settings or ModelSettings()).simplify
    given, _ = normalize_model(file.model)  # as it was given, but for what training left in it
    if when != "always":
        try:
            return _checked(*build_network(file, patterns), given, samples)
        except UnsupportedModel as error:
            if when == "never" or unsupported.find_inherent_problems(given.proto):
                raise
            refused = error
    try:
        network, state = build_network(
            replace(file, model=simplify.simplify_model(given)), patterns
        )
        return _checked(_noted(network, simplify.NOTES[when]), state, given, samples)
    except (simplify.SimplifyFailed, InputError) as error:
        if when == "always":
            raise UnsupportedModel(
                f"the graph cannot be simplified: {error}", 'set simplify = "never"'
            ) from None
        raise refused from None
    except UnsupportedModel:
        if when == "always":
            raise
        raise refused from None


def build_network(file: ModelFile, patterns: PruneSettings) -> tuple[Network, StateDict]:
    """Compile the graph, without running it."""
    from ltp_pipeline.stages.import_model.network import Network, compile_graph
    from ltp_pipeline.stages.import_model.program import NodeError

    file, walked, notes = prepare_graph(file)
    reasons = find_problems(walked.proto)
    if reasons:
        raise UnsupportedModel(
            f"the model cannot be handled: {len(reasons)} problem{'s' if len(reasons) > 1 else ''}",
            "replace or remove what is listed; docs/operators.md and docs/import.md say what is supported",
            reasons,
        )
    try:
        forward, state = compile_graph(walked)
    except NodeError as error:
        raise UnsupportedModel(
            f"the graph cannot be built: {error}", "check how the model was exported", [str(error)]
        ) from None
    trained = set(forward.weight_names)
    found = tuple(
        k
        for k in find_layer_weights(walked, patterns.include, patterns.exclude)
        if k.name in trained
    )
    elements = sum(k.elements for k in found)
    zeros = elements - sum(int(state[k.name].count_nonzero()) for k in found)
    if zeros > elements / 100:
        notes.append(
            f"{zeros:,} of the {elements:,} weights in kernels are zero already ({zeros / elements:.1%})"
        )
    if unpruned := describe_other_weights(found, find_other_weights(walked, found)):
        notes.append(unpruned)
    return Network(file, forward, found, notes=tuple(notes)), state


def prepare_graph(file: ModelFile) -> tuple[ModelFile, OnnxModel, list[str]]:
    """The file to write back to, the model to walk, and what was done to get there; needs no torch."""
    reason = find_opset_problem(file.model.proto)
    if reason is not None:
        raise UnsupportedModel(reason, "convert it with onnx.version_converter", [reason])
    model, notes = normalize_model(file.model)
    walked, done = flatten_model(model)
    if has_weights_in_functions(model.proto):
        model = walked
        done.append("functions that hold weights are written out in the exported files too")
    return replace(file, model=model), walked, [*notes, *done]


def check_prunable(network: Network) -> None:
    """Refuse a model of which nothing can be pruned."""
    if not network.layer_weights:
        raise UnsupportedModel(
            "the model has no kernels: no Conv, ConvTranspose, Gemm, MatMul, LSTM, GRU or RNN has a weight of its own",
            "give a model with weights; `ltp-pipeline inspect` shows what was found",
        )
    if not network.prunable_weights:
        raise InputError("no kernel is left to prune", "loosen --include and --exclude")


def _checked(
    network: Network, state: StateDict, given: OnnxModel, samples: Mapping[str, Array] | None
) -> tuple[Network, StateDict]:
    """Compare with what onnxruntime makes of the model that was given."""
    from ltp_pipeline.stages.import_model.parity import check_parity, find_fixed_batch

    parity, problem = check_parity(given, network, state, samples)
    network = replace(network, parity=parity)
    if (size := find_fixed_batch(network, state, samples)) is not None:
        network = _noted(
            replace(network, forward=replace(network.forward, batch_size=size)),
            f"the graph only runs on {pluralize(size, 'sample')} at a time, so larger batches are run in parts",
        )
    return (
        network if problem is None else _noted(network, f"not compared with onnxruntime: {problem}")
    ), state


def _noted(network: Network, note: str) -> Network:
    return replace(network, notes=(*network.notes, note))
