"""What `inspect` says, and that it says it without torch."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from ltp_pipeline.config import ModelSettings
from ltp_pipeline.display import show_model
from ltp_pipeline.errors import InputError, UnsupportedModel
from ltp_pipeline.graph import NUMBER_TYPES, signature
from ltp_pipeline.records import TensorInfo
from ltp_pipeline.results import InspectedOperator
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.import_model.node_problems import is_quantised, operator_problem
from ltp_pipeline.stages.import_model.tensors import TORCH_TYPES
from ltp_pipeline.stages.inspect import inspect
from tests.support.imported import imported
from tests.support.models import Graph, conv_bn_classifier, mlp
from tests.support.victims import VICTIMS


@pytest.fixture
def saved(tmp_path):
    def save(model: onnx.ModelProto):
        onnx.save(model, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    return save


def test_a_classifier(saved, capsys) -> None:
    found = inspect(saved(conv_bn_classifier(8)))
    assert found.opset == 17
    assert found.producer == "tests 1"
    assert found.inputs == (TensorInfo("x", "FLOAT", ("N", 1, 8, 8)),)
    assert InspectedOperator("Conv", "ai.onnx", 2, supported=True) in found.operators
    assert (found.batch_norms, found.folded_batch_norms) == (2, 0)
    assert found.unsupported == ()
    assert sum(k.share for k in found.kernels) == pytest.approx(1)
    assert found.plan[0] == "`run` would prune 3 kernels with 100.0% of the weights in kernels."
    json.dumps(asdict(found), allow_nan=False)
    show_model(found)
    shown = capsys.readouterr().out.replace("\n", " ")
    for part in ("conv2.weight", "8×8×3×3", "by tests 1", "2 present"):
        assert part in shown


def test_long_names_are_not_cut_where_there_is_no_terminal(saved, capsys) -> None:
    found = inspect(saved(conv_bn_classifier(8)))
    long = replace(found.kernels[0], name="features/" * 30 + "conv")
    show_model(replace(found, kernels=(long,)))
    assert long.name in capsys.readouterr().out


def test_it_lists_the_kernels_that_an_import_finds(saved) -> None:
    for model in VICTIMS.values():
        listed = inspect(saved(model)).kernels
        expected = imported(model).kernels
        assert [(k.name, k.shape, k.reason) for k in listed] == [(k.name, k.shape, k.reason) for k in expected]


def test_what_is_not_supported(saved, capsys) -> None:
    g = Graph()
    g.gemm("x", "fc", 4, 3)
    g.add("StringNormalizer", g.nodes[-1].output[0], name="words", outputs=["y"])
    g.add("DequantizeLinear", g.tensor("q", [1], np.int8), g.tensor("s", 0.1), name="dq", outputs=["z"])
    found = inspect(saved(g.model({"x": ("N", 4)}, ["y", "z"])))
    assert len(found.unsupported) == 2
    assert [o.supported for o in found.operators if o.name == "StringNormalizer"] == [False]
    assert "exit 4" in found.plan[0]
    assert [k.name for k in found.kernels] == ["fc.weight"]
    show_model(found)
    assert "not supported" in capsys.readouterr().out


def test_folded_norms_sparsity_and_open_sizes(saved) -> None:
    g = Graph()
    y = g.conv("x", "conv", 1, 4, bias=True)
    g.add("GlobalAveragePool", y, outputs=["y"])
    model = g.model({"x": ("N", 1, "h", "w")}, ["y"])
    model.graph.initializer[0].raw_data = bytes(len(model.graph.initializer[0].raw_data))
    found = inspect(saved(model))
    assert found.folded_batch_norms == 1
    assert found.sparsity == 1
    text = " ".join(found.plan)
    for part in ("probably folded", "zero already", "taken from the data"):
        assert part in text


def test_no_kernels(saved) -> None:
    g = Graph()
    g.add("Relu", "x", outputs=["y"])
    found = inspect(saved(g.model({"x": (1, 4)}, ["y"])))
    assert found.sparsity is None
    assert "no kernels" in found.plan[0]


def test_one_of_a_thing_is_not_called_several(saved) -> None:
    g = Graph()
    g.add("GlobalAveragePool", g.conv("x", "conv", 1, 4, bias=True), outputs=["y"])
    found = inspect(saved(g.model({"x": ("N", 1, 8, 8)}, ["y"])))
    assert found.plan[0] == "`run` would prune 1 kernel with 100.0% of the weights in kernels."
    assert "folded into 1 convolution " in found.plan[-1]


def test_no_model(tmp_path) -> None:
    with pytest.raises(InputError):
        inspect(tmp_path / "missing.onnx")


def test_it_does_without_torch(saved) -> None:
    path = saved(conv_bn_classifier())
    code = (
        "import sys; from ltp_pipeline.stages.inspect import inspect; inspect(sys.argv[1]);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'onnxsim')))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0


def test_the_table_of_operators_is_that_of_the_registry() -> None:
    written = Path(operators.__file__).with_name(operators.TABLE).read_text()
    assert operators.render() == written, "run scripts/write_operators.py"


def test_an_operator_is_supported_where_the_importer_can_run_it() -> None:
    schemas = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
    for opset in (7, 13, onnx.defs.onnx_opset_version()):
        for name in sorted(schemas):
            known = signature(name, opset)
            runs = registry.find(name, opset) is not None or (known is not None and known.has_body)
            expected = name == "Constant" or (runs and not is_quantised(name))
            assert (operator_problem(name, opset) is None) == expected, (name, opset)


def test_the_types_that_are_supported_are_those_of_torch() -> None:
    assert set(TORCH_TYPES) == NUMBER_TYPES


def strange_operator(m: ModelProto) -> None:
    m.graph.node[1].op_type = "StringNormalizer"


def other_domain(m: ModelProto) -> None:
    m.graph.node[1].domain = "org.example"
    m.opset_import.append(onnx.helper.make_opsetid("org.example", 1))


def attribute_of_a_fused_operator(m: ModelProto) -> None:
    """onnx has no schema of it, so the checker says nothing."""
    m.graph.node[0].op_type, m.graph.node[0].domain = "FusedGemm", "com.microsoft"
    m.graph.node[0].attribute.append(onnx.helper.make_attribute("surprise", 1))
    m.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def type_of_a_cast(m: ModelProto) -> None:
    m.graph.node[1].op_type = "Cast"
    m.graph.node[1].attribute.append(onnx.helper.make_attribute("to", TensorProto.STRING))


def type_of_an_input(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E4M3FN


def strings(m: ModelProto) -> None:
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING


def quantised(m: ModelProto) -> None:
    m.graph.node[1].op_type = "DequantizeLinear"
    m.graph.node[1].input.append("fc1.bias")


def condition_on_the_data(m: ModelProto) -> None:
    source, target = m.graph.node[1].input[0], m.graph.node[1].output[0]
    cast = onnx.helper.make_node("Cast", [source], ["yes"], to=TensorProto.BOOL)
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Sorcery")):
        node = onnx.helper.make_node(op, [source], [f"{name}_y"], name=name, domain="" if op == "Relu" else "org")
        output = onnx.helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = onnx.helper.make_graph([node], name, [], [output])
    m.graph.node[1].CopyFrom(cast)
    m.graph.node.insert(2, onnx.helper.make_node("If", ["yes"], [target], name="decide", **branches))
    m.opset_import.append(onnx.helper.make_opsetid("org", 1))


def old_opset(m: ModelProto) -> None:
    m.opset_import[0].version = 6


SPOILED: dict[Callable[[ModelProto], None], str] = {
    strange_operator: "no implementation",
    other_domain: "operators of this domain are not supported",
    attribute_of_a_fused_operator: "attribute 'surprise' is not supported",
    type_of_a_cast: "type STRING is not supported",
    type_of_an_input: "input 'x' has type FLOAT8E4M3FN",
    strings: "holds strings",
    quantised: "have no gradient",
    condition_on_the_data: "its condition depends on the data",
    old_opset: "opset 6",
}


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
def test_it_gives_the_reasons_for_which_run_stops(saved, spoil: Callable[[ModelProto], None]) -> None:
    model = mlp()
    spoil(model)
    with pytest.raises(UnsupportedModel) as caught:
        imported(model, settings=ModelSettings(simplify="never"))
    found = inspect(saved(model)).unsupported
    assert list(found) == list(caught.value.reasons)
    assert any(SPOILED[spoil] in reason for reason in found)


def test_whether_a_model_is_supported_is_told_without_torch(saved) -> None:
    model = mlp()
    condition_on_the_data(model)
    code = (
        "import sys, onnx; from ltp_pipeline.stages.import_model.supported import problems;"
        "print(len(problems(onnx.load(sys.argv[1])))); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(saved(model))], capture_output=True, check=True)
    assert int(done.stdout) == 2
