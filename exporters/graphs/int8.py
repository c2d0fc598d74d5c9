"""The int8 graph: the deploy graph quantised, so that every onnxruntime computes it in 8 bits.

Kernels are the quantised tensors, NAME_quantized; those that stay float keep their names. Wherever a weight was zero,
it is zero in 8 bits.
"""

from collections.abc import Collection

from onnx import version_converter

from ltp_pipeline.errors import ExportFailed, UnsupportedModel, summarize_error
from ltp_pipeline.exporters.files.run_proof import run_dense_model
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph
from ltp_pipeline.exporters.int8 import proof, search
from ltp_pipeline.exporters.int8.calibration import Calibration
from ltp_pipeline.exporters.int8.compact_names import compact_names
from ltp_pipeline.exporters.int8.layers import (
    SKIP_HINT,
    describe_quantized_nodes,
    find_quantizable_layers,
    make_no_layer_error,
)
from ltp_pipeline.exporters.int8.prepare import prepare_graph
from ltp_pipeline.exporters.int8.training_graph import build_training_graph, insert_trained_tensors
from ltp_pipeline.exporters.int8.transposed import restore_transposes
from ltp_pipeline.graph.model import OnnxModel, copy_proto
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.records import QuantizationInfo
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system import tolerance
from ltp_pipeline.system.text import pluralize

OPSET = 13  # from here on a weight may have a scale for each channel


def build_graph(
    model: OnnxModel,
    weights: Weights,
    weight_names: Collection[str],
    feeds: Weights,
    calibration: Calibration | None = None,
    settings: ExportSettings | None = None,
) -> BuiltGraph:
    """The int8 graph, proven to hold the weights and their zeros."""
    if calibration is None:
        raise ExportFailed(
            "an int8 file needs the data, to choose ranges and to measure it", "bring them back"
        )
    check_quantizable(model, weight_names)
    smaller = deploy.build_graph(model, weights, weight_names, feeds)
    plain, behind = prepare_graph(raise_opset(smaller.model, weight_names, feeds), weight_names)
    choice = search.QuantizationSearch(
        plain, find_quantizable_layers(plain, weight_names), calibration
    )
    found, trained, settings, notes = choice.run(), None, calibration.settings, list(smaller.notes)
    if calibration.train is not None:
        trained = calibration.train(
            build_training_graph(found.model, plain, found.layers, choice.extremes), found.layers
        )
        after = choice.evaluate_trained(
            found, insert_trained_tensors(found.model, trained.int8_tensors)
        )
        if after.drop > found.drop:
            trained = None
            notes.append(
                "int8 graph: training in 8 bits made it worse on the validation split, and was not taken"
            )
        else:
            found = after
    quantised = {layer.weight_name: layer for layer in found.layers}
    exact = {name: plain.get_array(name) for name in weight_names} | (
        {} if trained is None else dict(trained.float_tensors)
    )
    held = proof.verify_int8_weights(
        found.model, exact, weight_names, quantised, settings.int8_weight_bits
    )
    is_static = found.method != search.DYNAMIC
    how = QuantizationInfo(
        method=found.method,
        weight_bits=settings.int8_weight_bits,
        samples=settings.int8_samples if is_static else None,
        num_layers=len(quantised),
        float_layers=found.reasons,
        validation_drop=found.drop,
        trained_epochs=0 if trained is None else trained.epochs,
    )
    new = restore_transposes(compact_names(found.model, plain), behind)
    return BuiltGraph(
        new,
        {name: new.get_array(name) for name in held},
        (*notes, _format_note(how)),
        tuple(held),
        how,
    )


def check_quantizable(model: OnnxModel, weight_names: Collection[str]) -> None:
    """Refuse a model of which no int8 file can be made, whatever its weights are."""
    if nodes := describe_quantized_nodes(model.proto):
        raise UnsupportedModel(
            f"the model is quantised already: {nodes}", "give the model from before quantisation"
        )
    layers = find_quantizable_layers(prepare_graph(model, weight_names)[0], weight_names)
    if not layers.layers:
        raise make_no_layer_error(layers.reasons)


def raise_opset(model: OnnxModel, weight_names: Collection[str], feeds: Weights) -> OnnxModel:
    """The model in an opset that can be quantised, proven to compute the same."""
    opset = get_standard_opset(model.proto)
    if opset >= OPSET:
        return model
    why = f"opset {opset} has no scale for each channel, and the model cannot be raised to {OPSET}"
    try:
        new = OnnxModel.from_proto(version_converter.convert_version(model.to_proto(), OPSET))
    except Exception as error:  # noqa: BLE001 (the converter's C++ errors share no narrower type)
        reason = summarize_error(error)
        raise ExportFailed(f"{why}: {reason}", SKIP_HINT) from None
    if any(
        k not in new.tensors or new.get_array(k).tobytes() != model.get_array(k).tobytes()
        for k in weight_names
    ):
        raise ExportFailed(f"{why}: its kernels would change", SKIP_HINT)
    proto = copy_proto(new.proto)
    proto.ir_version = max(new.proto.ir_version, model.proto.ir_version)
    new = OnnxModel(proto, new.weights)
    for ours, theirs in zip(
        *(run_dense_model(m, weight_names, feeds) for m in (new, model)), strict=True
    ):
        gap = tolerance.max_difference(ours, theirs)
        if (
            tolerance.check_tolerance(gap, deploy.TOLERANCE, lambda: 0.0)
            is tolerance.Agreement.DIFFERENT
        ):
            raise ExportFailed(
                f"{why}: outputs would differ by {gap.relative:.2g} of the largest", SKIP_HINT
            )
    return new


def _format_note(how: QuantizationInfo) -> str:
    ranges = (
        "ranges found at every run"
        if how.samples is None
        else f"ranges by {how.method} on {how.samples} samples"
    )
    said = f"int8 graph: {pluralize(how.num_layers, 'kernel')} in {how.weight_bits} bits, {ranges}"
    if how.trained_epochs:
        said += f", trained in 8 bits for {pluralize(how.trained_epochs, 'epoch')}"
    if how.float_layers:
        named = "; ".join(f"{name}: {reason}" for name, reason in how.float_layers.items())
        said += f"; {pluralize(len(how.float_layers), 'kernel')} float ({named})"
    return said


GRAPH = ExportGraph(
    name="int8",
    description="norms folded, computes in 8 bits: faster in any onnxruntime",
    build=build_graph,
)
