"""From a torch module to ONNX, ready to be trained further: norms and Dropout stay in the graph."""

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
    """The network in inference mode, weights included, from `image` to `scores`, for batches of any size."""
    network.eval()
    dropouts = [m for m in network.modules() if isinstance(m, nn.Dropout)]
    for dropout in dropouts:
        dropout.train()  # an exporter leaves out what does nothing
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter(
            "ignore"
        )  # torch would rather use its other exporter, which needs a further package
        path = Path(folder, "network.onnx")
        torch.onnx.export(
            network,
            (torch.zeros(2, *shape),),
            path,
            opset_version=OPSET,
            # Otherwise norms are folded into convolutions
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
            del node.input[2:]  # training mode; without it the node does nothing in inference
    _fold_constants(model.graph)
    return model


def _fold_constants(graph: onnx.GraphProto) -> None:
    """Compute what depends on no input, and drop what nobody reads.

    Equal tensors, such as the scales of fresh norms, come as one tensor and Identity nodes: each
    gets its own again.
    """
    known = {t.name: t for t in graph.initializer}
    nodes = []
    for node in list(graph.node):
        if node.op_type == "Constant":
            known[node.output[0]] = _named(node.attribute[0].t, node.output[0])
        elif all(name in known for name in node.input):
            known[node.output[0]] = _evaluated(node, known)
        else:
            nodes.append(node)
    read = dict.fromkeys(name for node in nodes for name in node.input if name in known)
    tensors = [_named(known[name], name) for name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(tensors)


def _evaluated(node: onnx.NodeProto, known: dict[str, onnx.TensorProto]) -> onnx.TensorProto:
    """The output of a node of constants."""
    outputs = [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)]
    graph = helper.make_graph([node], "constant", [], outputs, [known[name] for name in node.input])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    (value,) = ReferenceEvaluator(model).run(None, {})
    return numpy_helper.from_array(np.asarray(value), node.output[0])


def _named(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    """A tensor under a name."""
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy
