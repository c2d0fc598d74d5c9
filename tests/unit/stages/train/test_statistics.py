"""Running statistics are measured anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

import ltp_pipeline
from benchmarks.restore_bn import fold_norms
from ltp_pipeline.stages.train import batches
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.stages.train.statistics import refresh_statistics
from ltp_pipeline.system.arrays import StateDict
from tests.support.models import Graph, as_model, conv_bn_classifier
from tests.support.restored import import_restored, make_context
from tests.support.samples import only_input


def test_refreshed_statistics_are_the_mean_over_batches(started: tuple[RunContext, StateDict]):
    """The first BatchNormalization sees the stem's output: its statistics can be computed by hand."""
    context, state = started
    state = {**state, "stem.bn.mean": torch.full((16,), 7.0), "stem.bn.var": torch.full((16,), 9.0)}
    found = refresh_statistics(context, state)
    rng = np.random.default_rng(batches.derive_seed(context.settings.train.seed, "statistics"))
    rows = rng.permutation(len(context.data.train))[: len(context.data.train) // 128 * 128]
    y = F.conv2d(
        torch.from_numpy(only_input(context.data.train.read(rows))), state["stem.weight"], padding=1
    )
    assert torch.allclose(found["stem.bn.mean"], y.mean((0, 2, 3)), atol=1e-4)
    by_batch = torch.stack([b.var((0, 2, 3)) for b in y.split(128)]).mean(0)
    assert torch.allclose(found["stem.bn.var"], by_batch, rtol=1e-3, atol=1e-5)
    assert state["stem.bn.mean"].eq(7.0).all()


def test_running_statistics_are_refreshed_as_those_of_any_norm(tmp_path: Path):
    network, state = import_restored(fold_norms(conv_bn_classifier()))
    norm = network.restored_norms[0]
    spoiled = {**state, norm.mean: state[norm.mean] + 1, norm.variance: state[norm.variance] * 2}
    found = refresh_statistics(make_context(network, tmp_path), spoiled)
    assert torch.allclose(found[norm.mean], state[norm.mean], atol=1e-5)
    assert torch.allclose(found[norm.variance], state[norm.variance], rtol=0.02)


def test_statistics_of_a_norm_in_a_function_are_refreshed_and_those_given_stay(
    started: tuple[RunContext, StateDict],
):
    context, _ = started
    g = Graph()
    x = g.batch_norm(g.conv("image", "conv", 1, 4), "outer", 4)
    norm = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])
    function = helper.make_function(
        "local", "Norm", ["x", "s", "b", "m", "v"], ["y"], [norm], [helper.make_opsetid("", 17)]
    )
    names = [
        g.positive("s", 4),
        g.random("b", 4),
        g.tensor("m", np.full(4, 7.0)),
        g.tensor("v", np.full(4, 9.0)),
    ]
    g.nodes.append(helper.make_node("Norm", [x, *names], ["n"], domain="local"))
    g.add("GlobalAveragePool", "n", outputs=("out",))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("image", "out")]
    values[0].CopyFrom(helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, 8, 8]))
    graph = helper.make_graph(g.nodes, "g", values[:1], values[1:], g.tensors)
    model = as_model(graph, 17, imports=[helper.make_opsetid("local", 1)], functions=[function])
    network, state = ltp_pipeline.import_model(model)
    found = refresh_statistics(replace(context, network=network), state)
    assert state["m"].eq(7.0).all()
    assert state["v"].eq(9.0).all()
    assert found["m"].abs().max() < 6.0
    assert not torch.equal(found["outer.running_mean"], state["outer.running_mean"])
