"""The int8 graph: the deploy graph quantized, so that every onnxruntime computes it in 8 bits.

A quantized layer weight has the name of the weight and the suffix "_quantized"; weights that stay
float keep their names. Weights that were zero are zero in 8 bits.
"""

from collections.abc import Collection

from onnx import version_converter

from ltp_pipeline.errors import ExportFailed, UnsupportedModel, summarize_error
from ltp_pipeline.exporters.files.run_proof import find_difference
from ltp_pipeline.exporters.graphs import deploy
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, ExportGraph, GraphContext
from ltp_pipeline.exporters.int8 import proof, search
from ltp_pipeline.exporters.int8.layers import (
    SKIP_HINT,
    describe_quantized_nodes,
    find_quantizable_layers,
    make_no_layer_error,
)
from ltp_pipeline.exporters.int8.names import compact_names
from ltp_pipeline.exporters.int8.prepare import prepare_graph, restore_transposes
from ltp_pipeline.exporters.int8.training_graph import (
    build_training_graph,
    insert_trained_tensors,
)
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.schemas import get_standard_opset
from ltp_pipeline.graph.tensors import Weights
from ltp_pipeline.results.schema_parts import QuantizationInfo
from ltp_pipeline.system.text import pluralize

OPSET = 13  # first in which a weight may have a scale for each channel


def build_graph(context: GraphContext) -> BuiltGraph:
    """Build the int8 graph and verify that it holds the weights and their zeros.

    Raises:
        UnsupportedModel: If no layer can be quantized.
        ExportFailed: If there are no data to calibrate on, or the graph is not as it should be.
    """
    calibration = context.calibration
    if calibration is None:
        raise ExportFailed(
            "an int8 file needs the data of the run, to choose ranges and to measure accuracy",
            "put the data back where they were",
        )
    weight_names = context.weight_names
    check_quantizable(context.model, weight_names)
    deployed = deploy.build_graph(context)
    raised = raise_opset(deployed.model, weight_names, context.feeds)
    float_model, transposed_names = prepare_graph(raised, weight_names)
    layers = find_quantizable_layers(float_model, weight_names)
    quantization = search.QuantizationSearch(float_model, layers, calibration)
    variant = quantization.run()
    notes = list(deployed.notes)
    exact = float_model.get_arrays(weight_names)
    trained_epochs = 0
    if calibration.train is not None:
        training_graph = build_training_graph(
            variant.model, float_model, variant.layers, quantization.extremes
        )
        trained = calibration.train(training_graph, variant.layers)
        trained_model = insert_trained_tensors(variant.model, trained.int8_tensors)
        trained_variant = quantization.evaluate_trained(variant, trained_model)
        if trained_variant.drop > variant.drop:
            notes.append(
                "int8 graph: quantization-aware training was discarded, because it made the"
                " network worse on the validation split"
            )
        else:
            variant = trained_variant
            exact |= trained.float_tensors
            trained_epochs = trained.epochs
    settings = calibration.settings
    weights = proof.verify_int8_weights(
        variant.model,
        exact,
        weight_names,
        {layer.weight_name: layer for layer in variant.layers},
        settings.int8_weight_bits,
    )
    info = QuantizationInfo(
        method=variant.method,
        weight_bits=settings.int8_weight_bits,
        samples=None if variant.method == search.DYNAMIC else settings.int8_samples,
        num_layers=len(variant.layers),
        float_layers=dict(variant.reasons),
        validation_drop=variant.drop,
        trained_epochs=trained_epochs,
    )
    model = restore_transposes(compact_names(variant.model, float_model), transposed_names)
    stored = model.get_arrays(weights)
    return BuiltGraph(model, stored, (*notes, _format_note(info)), tuple(weights), info)


def check_quantizable(model: OnnxModel, weight_names: Collection[str]) -> None:
    """Raise UnsupportedModel if no int8 file can be made of a model, whatever its weights are."""
    quantized_nodes = describe_quantized_nodes(model.proto)
    if quantized_nodes:
        raise UnsupportedModel(
            f"the model is already quantized: {quantized_nodes}",
            "pass the model before quantization",
        )
    float_model, _ = prepare_graph(model, weight_names)
    layers = find_quantizable_layers(float_model, weight_names)
    if not layers.layers:
        raise make_no_layer_error(layers.reasons)


def raise_opset(model: OnnxModel, weight_names: Collection[str], feeds: Weights) -> OnnxModel:
    """Return the model in an opset that can be quantized, and verify that it computes the same.

    Raises:
        ExportFailed: If it cannot be converted to that opset.
    """
    opset = get_standard_opset(model.proto)
    if opset >= OPSET:
        return model
    problem = f"opset {opset} has no scale per channel, and cannot be converted to {OPSET}"
    try:
        converted_proto = version_converter.convert_version(model.to_proto(), OPSET)
    except Exception as error:  # noqa: BLE001 (the converter's C++ errors share no narrower type)
        raise ExportFailed(f"{problem}: {summarize_error(error)}", SKIP_HINT) from None
    converted_proto.ir_version = max(converted_proto.ir_version, model.proto.ir_version)
    converted = OnnxModel.from_proto(converted_proto)
    changed_name = deploy.find_changed_weight(converted, model, weight_names)
    if changed_name is not None:
        raise ExportFailed(f"{problem}: the layer weight '{changed_name}' would change", SKIP_HINT)
    difference = find_difference(converted, model, weight_names, feeds, deploy.TOLERANCE)
    if difference is not None:
        raise ExportFailed(
            f"{problem}: outputs would differ by {difference:.2g} of the largest", SKIP_HINT
        )
    return converted


def _format_note(info: QuantizationInfo) -> str:
    """Format the note of the report on quantization."""
    ranges = "ranges computed at every run"
    if info.samples is not None:
        ranges = f"ranges by {info.method} on {info.samples} samples"
    num_layers = pluralize(info.num_layers or 0, "layer")
    note = f"int8 graph: {num_layers} in {info.weight_bits} bits, {ranges}"
    if info.trained_epochs:
        note += f", trained in 8 bits for {pluralize(info.trained_epochs, 'epoch')}"
    if info.float_layers:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in info.float_layers.items())
        note += f"; {pluralize(len(info.float_layers), 'layer')} in float ({reasons})"
    return note


GRAPH = ExportGraph(
    name="int8",
    description="norms folded, computes in 8 bits",
    build=build_graph,
)
