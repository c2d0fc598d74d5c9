"""Convert a torch module to an ONNX model that keeps normalization and Dropout for training."""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

OPSET = 17


def as_onnx(network: nn.Module, shape: Sequence[int] = (3, 224, 224)) -> onnx.ModelProto:
    """Return the ONNX model of a network from `image` to `scores`, for any batch size.

    Args:
        network: The module; it is in inference mode afterward.
        shape: Channels, height and width of an image.
    """
    network.eval()
    dropouts = [m for m in network.modules() if isinstance(m, nn.Dropout)]
    for dropout in dropouts:
        dropout.train()  # otherwise the exporter removes it
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # torch recommends its other exporter, which needs a further package.
        warnings.simplefilter("ignore")
        path = Path(folder, "network.onnx")
        torch.onnx.export(
            network,
            (torch.zeros(2, *shape),),
            path,
            opset_version=OPSET,
            # Otherwise normalization is folded into convolutions.
            training=torch.onnx.TrainingMode.PRESERVE,
            input_names=["image"],
            output_names=["scores"],
            dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}},
            dynamo=False,
        )
        model = onnx.load(path)
    for dropout in dropouts:
        dropout.eval()
    for node in model.graph.node:
        if node.op_type == "Dropout":
            del node.input[2:]  # training mode; without this input, inference is the identity
    _fold_constants(model.graph)
    return model


def _fold_constants(graph: onnx.GraphProto) -> None:
    """Compute the nodes that do not depend on inputs, and remove unused tensors.

    The exporter writes equal tensors, such as initial scales, as one tensor and Identity nodes.
    Each of them becomes a tensor again.
    """
    constants = {t.name: t for t in graph.initializer}
    nodes = []
    for node in list(graph.node):
        if node.op_type == "Constant":
            constants[node.output[0]] = _rename_tensor(node.attribute[0].t, node.output[0])
        elif all(name in constants for name in node.input):
            constants[node.output[0]] = _evaluate_node(node, constants)
        else:
            nodes.append(node)
    read = dict.fromkeys(name for node in nodes for name in node.input if name in constants)
    tensors = [_rename_tensor(constants[name], name) for name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(tensors)


def _evaluate_node(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]
) -> onnx.TensorProto:
    """Return the output of a node whose inputs are constants."""
    outputs = [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)]
    graph = helper.make_graph(
        [node], "constant", [], outputs, [constants[name] for name in node.input]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    (value,) = ReferenceEvaluator(model).run(None, {})
    return numpy_helper.from_array(np.asarray(value), node.output[0])


def _rename_tensor(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """Return a copy of a tensor with another name."""
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
