"""The fast graph computes the same as the deploy graph, and exists only if it is faster."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper

from ltp_pipeline.errors import ExportFailed, NotFaster
from ltp_pipeline.exporters.files import run_proof
from ltp_pipeline.exporters.files.run_proof import open_session, run_file
from ltp_pipeline.exporters.graphs import fast
from ltp_pipeline.exporters.graphs.graph import BuiltGraph, GraphContext
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.storage import write_model
from ltp_pipeline.settings.schema import ExportSettings
from ltp_pipeline.system.arrays import Array
from ltp_pipeline.system.timing import Timing
from tests.support.kernels import needs_kernels, raise_missing, with_zeros
from tests.support.models import (
    Graph,
    conv_bn_classifier,
    mlp,
    prune,
    random_inputs,
    run_onnxruntime,
)
from tests.support.quantized import kernels_of

pytestmark = pytest.mark.usefixtures("without_onnxsim")
FORCED = ExportSettings(formats=("fast",), accelerate_min_sparsity=0.0)
TIMED = ExportSettings(formats=("fast",))


def built(
    model: ModelProto, settings: ExportSettings = FORCED, names: Sequence[str] = ()
) -> BuiltGraph:
    plain, names = OnnxModel.from_proto(model), names or kernels_of(model)
    weights = {name: plain.get_array(name) for name in names}
    context = GraphContext(plain, weights, names, random_inputs(model), settings=settings)
    return fast.build_graph(context)


def timed(monkeypatch: pytest.MonkeyPatch, *ms: float) -> None:
    """Let the fast, the deploy and the given graph take these times."""
    monkeypatch.setattr(fast, "time_interleaved", lambda *_, **__: [Timing(t, (t, t)) for t in ms])


@needs_kernels
def test_fast_graph_of_pruned_network_has_one_sparse_node_per_layer() -> None:
    model = prune(conv_bn_classifier(channels=16))
    result = built(model)
    ours = [node.op_type for node in result.model.graph.node if node.domain]
    assert [name.startswith(("SparseConv", "SparseGemm")) for name in ours] == [True, True, True]
    assert not {"Conv", "Gemm", "Relu", "BatchNormalization"} & {
        n.op_type for n in result.model.graph.node
    }
    assert result.sparse_kernels is not None
    assert result.sparse_kernels.converted_layers == ("conv1.weight", "conv2.weight", "fc.weight")
    assert result.sparse_kernels.latency_ratio is None
    assert result.sparse_kernels.library_sha256
    assert result.dense_model is not None
    for name in result.weights:
        assert (
            result.model.get_array(name).tobytes() == result.dense_model.get_array(name).tobytes()
        )
    onnx.checker.check_model(result.model.to_proto(), full_check=True)


@needs_kernels
def test_fast_graph_without_library_matches_deploy_graph_bit_for_bit(
    tmp_path: Path,
) -> None:
    model = prune(conv_bn_classifier(channels=16))
    result, feeds = built(model), random_inputs(model, batch=5, seed=1)
    assert result.dense_model is not None
    ours, theirs = (
        run_onnxruntime(m.to_proto(), feeds)[0] for m in (result.model, result.dense_model)
    )
    assert ours.tobytes() == theirs.tobytes()
    write_model(result.model, tmp_path / "fast.onnx")
    quick = open_session(tmp_path / "fast.onnx", library.sparse_ops_library()).run(None, feeds)[0]
    np.testing.assert_allclose(quick, theirs, atol=1e-5 * np.abs(theirs).max())


@needs_kernels
@pytest.mark.parametrize("others", [(1.0, 2.0), (2.0, 1.0)])
def test_fast_graph_slower_than_dense_graphs_raises_not_faster(
    monkeypatch: pytest.MonkeyPatch, others: tuple[float, float]
) -> None:
    model = prune(conv_bn_classifier(channels=16), 0.97)
    timed(monkeypatch, 0.5, *others)
    result = built(model, TIMED).sparse_kernels
    assert result is not None
    assert result.latency_ratio == 0.5
    timed(monkeypatch, 0.96, *others)
    with pytest.raises(NotFaster, match=r"\b0\.96\b"):
        built(model, TIMED)


@needs_kernels
def test_fast_graph_of_dense_network_raises_not_faster_without_timing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fast, "time_interleaved", lambda *_, **__: pytest.fail("it was timed"))
    with pytest.raises(NotFaster, match=r"conv1\.weight and 1 more") as result:
        built(conv_bn_classifier(channels=16), TIMED)
    assert result.value.exit_code == 7


def test_fast_graph_without_library_raises_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "sparse_ops_library", raise_missing)
    with pytest.raises(NotFaster) as caught:
        built(mlp())
    reason = fast.explain_missing_library()
    assert reason is not None
    assert caught.value.message in reason


@needs_kernels
def test_fast_graph_with_noisy_outputs_raises_not_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last bit of a sum decides which way such a value goes, in onnxruntime itself, too."""
    real = run_file

    def other_bits(
        path: Path, feeds: Any, library: Path | None = None, optimization: str = "ORT_ENABLE_BASIC"
    ) -> list[Array]:
        step = 0.01 if library or optimization == "ORT_ENABLE_ALL" else 0.0
        outputs = real(path, feeds, library, optimization)
        return [array + np.float32(step * np.abs(array).max()) for array in outputs]

    monkeypatch.setattr(run_proof, "run_file", other_bits)
    with pytest.raises(NotFaster, match=r"\b0\.01\b"):
        built(prune(mlp()))


@needs_kernels
def test_fast_graph_not_faster_error_names_skipped_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g = Graph()
    g.random("line", 8, 16, 3)
    y = g.conv("x", "c", 16, 16)
    y = g.add(
        "Conv",
        g.add("Reshape", y, g.tensor("shape", [0, 16, -1], np.int64)),
        "line",
        name="one axis",
    )
    timed(monkeypatch, 1.0, 1.0, 1.0)
    with pytest.raises(NotFaster, match=r"line: .*'one axis'"):
        built(with_zeros(g.model({"x": ("N", 16, 16, 16)}, [y]), {"c": 0.97}), TIMED)


@needs_kernels
def test_fast_graph_with_other_outputs_raises_export_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(model: OnnxModel, kernels: Any) -> Any:
        new, turned = turn_over(model, kernels)
        return replace(
            new,
            weights={**new.weights, "fc2.weight": new.get_array("fc2.weight") * np.float32(1.0001)},
        ), turned

    turn_over = fast.convert_to_sparse_ops
    monkeypatch.setattr(fast, "convert_to_sparse_ops", wrong)
    with pytest.raises(ExportFailed, match=r"differ.* \d"):
        built(mlp())


@needs_kernels
def test_fast_graph_converts_layers_in_functions() -> None:
    body = [helper.make_node("MatMul", ["a", "b"], ["p"]), helper.make_node("Relu", ["p"], ["y"])]
    function = helper.make_function(
        "local", "Layer", ["a", "b"], ["y"], body, [helper.make_opsetid("", 17)]
    )
    model = mlp()
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    last = model.graph.node[-1]
    last.output[0] = "before"
    model.graph.node.append(helper.make_node("Layer", ["before", "w"], ["logits"], domain="local"))
    result = built(model, names=["fc1.weight", "fc2.weight", "w"]).sparse_kernels
    assert result is not None
    assert "w" in result.converted_layers


def test_select_first_sample_keeps_fixed_batch() -> None:
    open_, fixed = mlp(), mlp(batch=3)
    x = {"x": np.zeros((3, 6), np.float32)}
    assert fast.select_first_sample(OnnxModel.from_proto(open_), x)["x"].shape == (1, 6)
    assert fast.select_first_sample(OnnxModel.from_proto(fixed), x)["x"].shape == (3, 6)
