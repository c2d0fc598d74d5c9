"""All float weights of a model are counted the same in every format, and the report shows them beside the kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from ltp_pipeline import exporters
from ltp_pipeline.display import show_validation
from ltp_pipeline.graph import Model, read, write
from ltp_pipeline.records import Accuracy, Sparsity
from ltp_pipeline.results import Measurement
from ltp_pipeline.stages.handoff import text as handoff_text
from ltp_pipeline.stages.report import html, markdown, text
from ltp_pipeline.stages.report.plots import trail
from tests.support.models import Graph, conv_bn_classifier
from tests.support.sample_report import report_of, sample
from tests.unit.test_import_graphs import branch

KERNELS = ["conv1.weight", "conv2.weight", "fc.weight"]


def pruned(model: ModelProto) -> ModelProto:
    """Nine in ten weights of each kernel zero."""
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.name in KERNELS:
            array = numpy_helper.to_array(tensor) * (rng.random(tuple(tensor.dims)) < 0.1)
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


def by_hand(model: ModelProto) -> Sparsity:
    arrays = [numpy_helper.to_array(t) for t in model.graph.initializer]
    return Sparsity(sum(a.size for a in arrays), sum(int((a != 0).sum()) for a in arrays))


@pytest.mark.parametrize("name", exporters.ENCODINGS)
def test_every_format_counts_the_same(tmp_path: Path, name: str) -> None:
    model = pruned(conv_bn_classifier(channels=24))
    write(exporters.ENCODINGS[name].encode(Model.of(model), KERNELS), tmp_path / "model.onnx")
    found = exporters.float_weights(read(tmp_path / "model.onnx"))
    assert {n for n, _ in found} == {t.name for t in model.graph.initializer}
    assert Sparsity.total(counted for _, counted in found) == by_hand(model)
    assert by_hand(model).nonzeros < by_hand(model).elements / 4


def test_integers_and_masks_do_not_count_and_tensors_of_branches_do() -> None:
    g = Graph()
    g.tensor("ids", [1, 2], np.int64)
    g.tensor("mask", [[0.0, -np.inf]])
    g.tensor("large", np.full(70_000, 1.0), np.float16)  # whose sum is not finite
    g.constant("yes", True, np.bool_)
    g.add("If", "yes", outputs=["k"], then_branch=branch("t", "wt", 1), else_branch=branch("e", "we", 2))
    found = dict(exporters.float_weights(Model.of(g.model({"x": ("N", 6)}, ["k"]))))
    assert {"large", "wt", "we"} <= found.keys()
    assert not {"ids", "mask", "yes"} & found.keys()
    assert found["large"] == Sparsity(70_000, 70_000)


def test_other_tensors_can_be_counted_in_the_place_of_a_files_own() -> None:
    zero = {"fc.weight": np.zeros((5, 8), np.float32)}
    model = Model.of(conv_bn_classifier()).with_weights(zero)
    assert dict(exporters.float_weights(model))["fc.weight"] == Sparsity(40, 0)


@pytest.fixture
def recurrent() -> dict[str, Any]:
    """A report of a model of whose 30,144 weights 192 are in kernels."""
    report = sample()[0]
    report["model"] |= {"kernel_elements": 192, "float_elements": 30_144}
    report["pruned"] |= {"compression": 5.05, "model_compression": 1.0052}
    report["baseline"] |= {"compression": 5.05, "model_compression": 1.0052}
    return report


def test_the_headline_says_both_compressions(recurrent: dict[str, Any]) -> None:
    assert text.headline(report_of(recurrent)).startswith("5.05× fewer weights in kernels, 1.01× in the whole model; ")


def test_few_weights_in_kernels_are_a_warning_in_every_rendering(recurrent: dict[str, Any]) -> None:
    told = "ernels hold only 0.6 % of the model's 30\u202f144 weights: the whole model has 1.01× fewer"
    pictures = {"trail": [], "histograms": [], "scatter": None, "sizes": {}}
    page = html.render(report_of(recurrent | pictures), []).split("</header>")[0].replace("&#39;", "'")
    for rendered in (markdown.render(report_of(recurrent)), handoff_text.render(report_of(recurrent)), page):
        assert told in rendered
    assert text.few_kernels(report_of(sample()[0])) is None
    recurrent["model"] |= {"kernel_elements": 9, "float_elements": 10}
    assert text.few_kernels(report_of(recurrent)) is None


def test_both_stand_wherever_one_does(recurrent: dict[str, Any]) -> None:
    page = html.render(report_of(recurrent | {"histograms": [], "scatter": None, "sizes": {}}), [])
    assert page.count("5.05× / 1.01×") == 2
    assert "LTP (test, 1.01× in the whole model)" in str(trail(report_of(recurrent)))
    assert "(compression 5.05× in the kernels, 1.01× in the whole model)" in handoff_text.render(report_of(recurrent))
    assert "| compression, whole model | 1× | 1.01× | 1.01× |" in markdown.render(report_of(recurrent))


def test_a_report_that_does_not_know_the_whole_model_is_rendered(recurrent: dict[str, Any]) -> None:
    del recurrent["pruned"]["model_compression"], recurrent["model"]["float_elements"]
    assert text.headline(report_of(recurrent)).startswith("5.05× fewer weights in kernels; ")
    assert "| compression, whole model | 1× | – |" in markdown.render(report_of(recurrent))


def test_validate_shows_both(capsys: pytest.CaptureFixture[str]) -> None:
    show_validation(
        Measurement(
            path="m",
            metric="top-1",
            accuracy=Accuracy(0.9, 0.9, None, 10, "test"),
            sparsity=0.8,
            compression=5.0,
            model_compression=1.01,
            nonzeros=1,
            bytes=1,
            load_ms=1.0,
            batch=16,
            threads=1,
            provider="CPU",
            notes=(),
            latency_ms=1.5,
            latency_quartiles_ms=(1.0, 2.0),
        )
    )
    assert "compression 5.00× (whole model 1.01×)" in capsys.readouterr().out
