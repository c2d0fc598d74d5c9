"""What `inspect` says, and that it says it without torch."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

import ltp_pipeline
from ltp_pipeline.cli.tables import show_model
from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.model_file import TensorInfo
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.multiply_adds import count_uses
from ltp_pipeline.stages.tools.inspect import InspectedOperator, inspect
from tests.support.imported import import_network
from tests.support.models import Graph, conv_bn_classifier
from tests.support.victims import VICTIMS


def test_inspect_classifier_lists_its_layers(saved, capsys) -> None:
    inspection = inspect(saved(conv_bn_classifier(8)))
    assert inspection.opset == 17
    assert inspection.producer == "tests 1"
    assert inspection.inputs == (TensorInfo("x", "FLOAT", ("N", 1, 8, 8)),)
    assert InspectedOperator("Conv", "ai.onnx", 2, supported=True) in inspection.operators
    assert (inspection.batch_norms, inspection.folded_batch_norms) == (2, 0)
    assert inspection.unsupported == ()
    assert sum(k.fraction for k in inspection.layers) == pytest.approx(1)
    assert (
        inspection.plan[0]
        == "`run` would prune 3 layer weights with 100.0% of all elements of layer weights."
    )
    assert [k.block_axis for k in inspection.layers] == [0, 0, None]
    assert "prune 2 of them in blocks" in inspection.plan[1]
    json.dumps(asdict(inspection), allow_nan=False)
    show_model(inspection)
    shown = capsys.readouterr().out.replace("\n", " ")
    for part in ("conv2.weight", "8×8×3×3", "by tests 1", "2 present"):
        assert part in shown


def test_inspect_without_terminal_keeps_long_names(saved, capsys) -> None:
    inspection = inspect(saved(conv_bn_classifier(8)))
    long = replace(inspection.layers[0], name="features/" * 30 + "conv")
    show_model(replace(inspection, layers=(long,)))
    assert long.name in capsys.readouterr().out


def test_inspect_lists_the_layers_of_an_import(saved) -> None:
    for model in VICTIMS.values():
        listed = inspect(saved(model)).layers
        expected = import_network(model).layer_weights
        assert [(k.name, k.shape, k.reason) for k in listed] == [
            (k.name, k.shape, k.reason) for k in expected
        ]


def test_inspect_lists_unsupported_operators(saved, capsys) -> None:
    g = Graph()
    g.gemm("x", "fc", 4, 3)
    g.add("StringNormalizer", g.nodes[-1].output[0], name="words", outputs=["y"])
    g.add(
        "DequantizeLinear",
        g.tensor("q", [1], np.int8),
        g.tensor("s", 0.1),
        name="dq",
        outputs=["z"],
    )
    inspection = inspect(saved(g.model({"x": ("N", 4)}, ["y", "z"])))
    assert len(inspection.unsupported) == 2
    assert [o.supported for o in inspection.operators if o.name == "StringNormalizer"] == [False]
    assert "exit code 4" in inspection.plan[0]
    assert [k.name for k in inspection.layers] == ["fc.weight"]
    show_model(inspection)
    assert "not supported" in capsys.readouterr().out


def test_inspect_shows_folded_norms_sparsity_and_open_sizes(saved) -> None:
    g = Graph()
    y = g.conv("x", "conv", 1, 4, bias=True)
    g.add("GlobalAveragePool", y, outputs=["y"])
    model = g.model({"x": ("N", 1, "h", "w")}, ["y"])
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    inspection = inspect(saved(model))
    assert inspection.folded_batch_norms == 1
    assert inspection.sparsity == 1
    text = " ".join(inspection.plan)
    for part in ("probably folded", "zero already", "taken from the data"):
        assert part in text


def test_inspect_model_without_layers_lists_none(saved) -> None:
    g = Graph()
    g.add("Relu", "x", outputs=["y"])
    inspection = inspect(saved(g.model({"x": (1, 4)}, ["y"])))
    assert inspection.sparsity is None
    assert "no layer weights" in inspection.plan[0]


def test_inspect_single_items_are_singular(saved) -> None:
    g = Graph()
    g.add("GlobalAveragePool", g.conv("x", "conv", 1, 4, bias=True), outputs=["y"])
    inspection = inspect(saved(g.model({"x": ("N", 1, 8, 8)}, ["y"])))
    assert (
        inspection.plan[0]
        == "`run` would prune 1 layer weight with 100.0% of all elements of layer weights."
    )
    assert "folded into 1 convolution " in inspection.plan[-1]


def test_inspect_missing_model_raises(tmp_path) -> None:
    with pytest.raises(InputError):
        inspect(tmp_path / "missing.onnx")


def test_inspect_does_not_import_torch(saved) -> None:
    path = saved(conv_bn_classifier())
    code = (
        "import sys; from ltp_pipeline.stages.tools.inspect import inspect; inspect(sys.argv[1]);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'onnxsim')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0


@pytest.mark.parametrize("batch", [None, 3])
def test_inspect_counts_the_multiply_adds_of_one_sample(saved, capsys, batch: int | None) -> None:
    g = Graph()
    h = g.add("Conv", "x", g.random("conv", 4, 2, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    pooled = g.add("Flatten", g.add("GlobalAveragePool", h))
    y = g.add("Gemm", pooled, g.random("fc", 5, 4), outputs=("y",), transB=1)
    result = inspect(saved(g.model({"x": (batch, 2, 8, 6)}, [y])))
    assert [layer.uses for layer in result.layers] == [4 * 3, 1]
    assert result.macs == 12 * 72 + 20
    show_model(result)
    assert "884 multiply-adds in one sample" in capsys.readouterr().out


def test_inspect_without_sizes_has_no_multiply_adds(saved, capsys) -> None:
    g = Graph()
    h = g.add("Conv", "x", g.random("conv", 4, 2, 3, 3))
    pooled = g.add("Flatten", g.add("GlobalAveragePool", h))
    y = g.add("Gemm", pooled, g.random("fc", 5, 4), outputs=("y",), transB=1)
    result = inspect(saved(g.model({"x": (None, 2, None, None)}, [y])))
    assert [layer.uses for layer in result.layers] == [None, 1]
    assert result.macs is None
    show_model(result)
    assert "multiply-adds" not in capsys.readouterr().out


def test_inspect_counts_as_a_run_does(saved) -> None:
    path = saved(conv_bn_classifier(8))
    imported_network, state = ltp_pipeline.import_model(path)
    counted = count_uses(imported_network, state, {"x": torch.randn(2, 1, 8, 8)})
    assert {layer.name: layer.uses for layer in inspect(path).layers} == counted
