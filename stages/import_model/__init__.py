"""Import an ONNX file as a trainable network, checked against onnxruntime.

The steps are: read and validate the file, normalize and flatten its graph, look for anything that
cannot be trained, compile the graph for torch, and compare torch's outputs with onnxruntime's. If
a graph cannot be compiled as it is, onnxsim may simplify it first. torch is imported only when a
graph is compiled, so that `inspect` answers without waiting for it.
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
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.import_model.unsupported import (
    find_inherent_problems,
    find_opset_problem,
    find_problems,
)
from ltp_pipeline.system.arrays import Array, StateDict
from ltp_pipeline.system.files import AnyPath
from ltp_pipeline.system.text import pluralize

if TYPE_CHECKING:
    from ltp_pipeline.stages.import_model.network import Network

MAX_ZERO_FRACTION = 0.01  # of layer weights; more zeros in the original are noted


def import_model(
    source: AnyPath | ModelProto,
    patterns: PruneSettings | None = None,
    settings: ModelSettings | None = None,
) -> tuple[Network, StateDict]:
    """Make a trainable network of a file, or of a model in memory.

    Args:
        source: Path of an ONNX file, or a model, which is not changed.
        patterns: Names of the layer weights to prune.
        settings: How the model is imported.

    Returns:
        The network and its tensors by name.

    Raises:
        InputError: If the file is not a valid ONNX model.
        UnsupportedModel: If the model cannot be trained.
    """
    return run(read_model_file(source), patterns or PruneSettings(), settings=settings)


def run(
    file: ModelFile,
    patterns: PruneSettings,
    samples: Mapping[str, Array] | None = None,
    settings: ModelSettings | None = None,
) -> tuple[Network, StateDict]:
    """Make a trainable network of a file that was read, and compare it with onnxruntime.

    Args:
        file: The file.
        patterns: Names of the layer weights to prune.
        samples: Samples by input name to compare on; None compares on random inputs.
        settings: How the model is imported.

    Returns:
        The network and its tensors by name.

    Raises:
        UnsupportedModel: If the model cannot be trained, or torch and onnxruntime disagree.
    """
    mode = (settings or ModelSettings()).simplify
    original, _ = normalize_model(file.model)
    first_error: UnsupportedModel | None = None
    if mode != "always":
        try:
            network, state = build_network(file, patterns)
            return _check_network(network, state, original, samples), state
        except UnsupportedModel as error:
            if mode == "never" or find_inherent_problems(original.proto):
                raise
            first_error = error
    try:
        simple_file = replace(file, model=simplify.simplify_model(original))
        network, state = build_network(simple_file, patterns)
        network = network.with_note(simplify.NOTES[mode])
        return _check_network(network, state, original, samples), state
    except (simplify.SimplifyFailed, InputError) as error:
        message = f"the graph cannot be simplified: {error}"
        hint = 'set model.simplify = "never"'
        raise first_error or UnsupportedModel(message, hint) from None
    except UnsupportedModel as error:
        raise first_error or error from None


def build_network(file: ModelFile, patterns: PruneSettings) -> tuple[Network, StateDict]:
    """Compile the graph of a file without running it.

    Returns:
        The network and its tensors by name.

    Raises:
        UnsupportedModel: If the model cannot be trained; it lists every problem.
    """
    from ltp_pipeline.stages.import_model.network import Network, compile_graph
    from ltp_pipeline.stages.import_model.program import NodeError

    file, flat, notes = prepare_graph(file)
    problems = find_problems(flat.proto)
    if problems:
        raise UnsupportedModel(
            f"the model cannot be handled: {pluralize(len(problems), 'problem')}",
            "replace or remove what is listed; the documentation lists the supported operators",
            problems,
        )
    try:
        forward, state = compile_graph(flat)
    except NodeError as error:
        raise UnsupportedModel(
            f"the graph cannot be built: {error}", "check how the model was exported", [str(error)]
        ) from None
    trained = set(forward.weight_names)
    candidates = find_layer_weights(flat, patterns.include, patterns.exclude)
    layer_weights = tuple(weight for weight in candidates if weight.name in trained)
    elements = sum(weight.elements for weight in layer_weights)
    zeros = elements - sum(int(state[w.name].count_nonzero()) for w in layer_weights)
    if zeros > MAX_ZERO_FRACTION * elements:
        fraction = zeros / elements
        notes.append(
            f"{zeros:,} of the {elements:,} layer weights are zero already ({fraction:.1%})"
        )
    others = describe_other_weights(layer_weights, find_other_weights(flat, layer_weights))
    if others is not None:
        notes.append(others)
    return Network(file, forward, layer_weights, notes=tuple(notes)), state


def prepare_graph(file: ModelFile) -> tuple[ModelFile, OnnxModel, list[str]]:
    """Normalize and flatten the graph of a file; needs no torch.

    Returns:
        The file with the graph that is written back, the model whose graph is executed, and notes
        about what was done.

    Raises:
        UnsupportedModel: If the opset is not supported or functions cannot be inlined.
    """
    problem = find_opset_problem(file.model.proto)
    if problem is not None:
        raise UnsupportedModel(problem, "convert it with onnx.version_converter", [problem])
    model, notes = normalize_model(file.model)
    flat, flat_notes = flatten_model(model)
    notes += flat_notes
    if has_weights_in_functions(model.proto):
        model = flat
        notes.append("functions that contain weights are inlined in the exported files too")
    return replace(file, model=model), flat, notes


def check_prunable(network: Network) -> None:
    """Raise an error if no layer weight of a network can be pruned.

    Raises:
        UnsupportedModel: If the model has no layer weights.
        InputError: If the settings exclude all of them.
    """
    if not network.layer_weights:
        raise UnsupportedModel(
            "the model has no layer weights: no Conv, ConvTranspose, Gemm, MatMul, LSTM, GRU or "
            "RNN has a weight of its own",
            "pass a model with weights; `ltp-pipeline inspect` lists the weights of a model",
        )
    if not network.prunable_weights:
        raise InputError("no layer weight is left to prune", "loosen --include and --exclude")


def _check_network(
    network: Network,
    state: StateDict,
    original: OnnxModel,
    samples: Mapping[str, Array] | None,
) -> Network:
    """Compare a network with onnxruntime and find out whether its batch size is fixed."""
    from ltp_pipeline.stages.import_model.parity import check_parity, find_fixed_batch

    parity, problem = check_parity(original, network, state, samples)
    network = replace(network, parity=parity)
    size = find_fixed_batch(network, state, samples)
    if size is not None:
        network = replace(network, forward=replace(network.forward, batch_size=size))
        samples_text = pluralize(size, "sample")
        note = f"the graph only runs on {samples_text} at a time, so larger batches run in parts"
        network = network.with_note(note)
    if problem is not None:
        network = network.with_note(f"not compared with onnxruntime: {problem}")
    return network
