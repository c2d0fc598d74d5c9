"""Batches of another size than the one that a file declares."""

import numpy as np
import pytest
import torch
from onnx import TensorProto

from ltp_pipeline.stages.import_model.fixed_batch import (
    get_declared_batch,
    run_in_chunks,
    supports_any_batch,
)
from tests.support.imported import import_network
from tests.support.models import Graph, run_onnxruntime
from tests.support.sequence_models import STEPS, WIDTH, vision_transformer


def two_inputs(batch: int) -> Graph:
    """Return two inputs behind Reshapes that spell out the batch size."""
    g = Graph()
    rows = g.add("Reshape", "x", g.tensor("rows", [batch, 12], np.int64))
    more = g.add("Reshape", "z", g.tensor("more", [batch, 12], np.int64))
    g.gemm(g.add("Add", rows, more), "fc", 12, 3)
    g.nodes[-1].output[0] = "y"
    return g


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def test_declared_batch_is_the_first_dimension_of_most_inputs() -> None:
    g = two_inputs(4)
    g.add("Add", "y", "offset", outputs=["shifted"])
    inputs = {"offset": (1, 3), "x": (4, 3, 4), "z": (4, 4, 3)}
    assert get_declared_batch(g.model(inputs, ["shifted"]).graph) == 4
    assert (
        get_declared_batch(two_inputs(4).model({"x": ("N", 12), "z": ("N", 12)}, ["y"]).graph)
        is None
    )


def test_reshapes_of_two_inputs_run_on_other_batches() -> None:
    result = import_network(two_inputs(4).model({"x": (4, 3, 4), "z": (4, 4, 3)}, ["y"]))
    assert result.forward.batch_size is None
    assert result(torch.ones(7, 3, 4), torch.ones(7, 4, 3))[0].shape == (7, 3)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_graph_with_a_class_token_per_sample_runs_in_parts(batch: int, samples: int) -> None:
    model = vision_transformer(batch)
    result = import_network(model)
    assert result.forward.batch_size == batch
    assert f"only runs on {batch} sample" in result.notes[-1]
    x = np.random.default_rng(0).standard_normal((samples, STEPS, WIDTH)).astype(np.float32)
    (y,) = result(torch.from_numpy(x))
    for row, sample in zip(y.detach().numpy(), x, strict=True):
        expected = run_onnxruntime(model, {"x": np.stack([sample] * batch)})[0][0]
        np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-5)
    y.square().sum().backward()
    assert all(result.state[k.name].grad is not None for k in result.layer_weights)


def test_graph_that_mixes_samples_has_a_fixed_batch() -> None:
    g = Graph()
    g.add("Sub", "x", g.add("ReduceMean", "x", axes=[0]), outputs=["y"])
    assert import_network(g.model({"x": (2, 6)}, ["y"])).forward.batch_size == 2


def test_run_in_chunks_passes_other_inputs_to_every_part() -> None:
    def run(inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        assert len(inputs["x"]) == 2
        return inputs["x"] * inputs["scale"], inputs["scale"]

    inputs = {"x": torch.arange(5.0), "more": torch.zeros(5), "scale": torch.tensor([2.0])}
    doubled, scale = run_in_chunks(run, inputs, 2)
    assert doubled.tolist() == [0, 2, 4, 6, 8]
    assert scale.tolist() == [2]


def test_run_in_chunks_rejects_outputs_that_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match=r"\b2\b"):
        run_in_chunks(lambda inputs: (inputs["x"].sum(),), {"x": torch.arange(4.0)}, 2)


def test_supports_any_batch_compares_outputs() -> None:
    x = {"x": torch.arange(6.0).reshape(1, 6)}
    assert supports_any_batch(lambda inputs: (inputs["x"] * 2,), x, 1, equal)
    assert not supports_any_batch(lambda inputs: (inputs["x"] - inputs["x"].mean(0),), x, 1, equal)
    assert not supports_any_batch(lambda inputs: (inputs["x"].reshape(1, 6),), x, 1, equal)


def test_supports_any_batch_is_false_for_groups_of_samples() -> None:
    x = {"x": torch.arange(12.0).reshape(2, 6)}
    assert not supports_any_batch(
        lambda inputs: (inputs["x"].reshape(-1, 2, 6).flatten(0, 1),), x, 2, equal
    )


def test_supports_any_batch_keeps_tokens_within_the_vocabulary() -> None:
    g = Graph()
    rows = g.add("Gather", g.random("table", 2, 4), "ids")
    g.gemm(g.add("Reshape", rows, g.tensor("flat", [1, 12], np.int64)), "fc", 12, 3)
    g.nodes[-1].output[0] = "y"
    result = import_network(g.model({"ids": (1, 3)}, ["y"], types={"ids": TensorProto.INT64}))
    assert result.forward.batch_size is None
    assert result(torch.zeros(4, 3, dtype=torch.int64))[0].shape == (4, 3)
