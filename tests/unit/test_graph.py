"""One view of a graph: who produces and who uses a value, what is known without running, rewrites in one pass."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from benchmarks import large_graph
from ltp_pipeline import graph as graphs
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.graph.rewrites.flatten import flatten
from ltp_pipeline.stages import import_model


def parsed(body: str, **tensors: np.ndarray) -> ModelProto:
    """A model from ONNX's text form; `tensors` become initializers."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "ai.onnx" : 16, "f" : 3]> g {body}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in tensors.items())
    return model


@pytest.fixture
def nested() -> ModelProto:
    return parsed(
        """(float[2] x, bool c) => (float[2] y) {
            k = Constant <value_ints = [3, 4]> ()
            a = Identity (w)
            b = Identity (a)
            h = Mul (x, b)
            y = If (c) <
                then_branch = yes () => (float[2] p) { q = Identity (h) p = Add (q, b) },
                else_branch = no () => (float[2] w) {}
            >
        }""",
        w=np.ones(2, np.float32),
    )


def test_producers_and_users_include_nested_graphs(nested: ModelProto) -> None:
    view = graphs.View(nested.graph)
    assert view.producers["h"].op_type == "Mul"
    assert "w" not in view.producers
    assert [(use.node.op_type, use.slot) for use in view.users["b"]] == [("Mul", 1), ("Add", 1)]
    assert "y" not in view.users
    assert view.behind == {"a": "w", "b": "w"}
    assert (view.counts["w"], view.counts["h"], view.counts["y"]) == (2, 1, 1)


def test_reads_look_through_what_only_passes_on(nested: ModelProto) -> None:
    found = [(node.op_type, name) for node, _, name in graphs.reads(nested.graph, outputs=True)]
    assert found == [
        *(("Mul", "x"), ("Mul", "w"), ("If", "c"), ("Add", "h"), ("Add", "w")),
        *(("output", "p"), ("output", "w"), ("output", "y")),
    ]


def test_a_name_of_one_branch_says_nothing_about_the_other() -> None:
    model = parsed(
        """(float[2] x, bool c) => (float[2] y) {
            y = If (c) <
                then_branch = yes () => (float[2] p) { t = Identity (w) p = Neg (t) },
                else_branch = no () => (float[2] q) { q = Neg (t) }
            >
        }""",
        w=np.ones(2, np.float32),
    )
    assert [name for node, _, name in graphs.reads(model.graph) if node.op_type == "Neg"] == ["w", "t"]


def test_opsets_labels_and_attributes(nested: ModelProto) -> None:
    assert graphs.opsets(nested) == {"": 17, "f": 3}
    assert graphs.standard_opset(nested) == graphs.opset_of(nested, "ai.onnx") == 17
    assert graphs.opset_of(nested, "unknown") == 1
    node = helper.make_node("Elu", ["x"], ["y"], alpha=2.0, domain="ai.onnx")
    assert graphs.is_standard(node, "Relu", "Elu")
    assert graphs.label(node) == "Elu 'y'"
    assert (graphs.attribute(node, "alpha"), graphs.attribute(node, "beta", 7)) == (2.0, 7)


def test_constants_are_known_by_name(nested: ModelProto) -> None:
    known = graphs.constants(nested.graph)
    assert known.keys() == {"k", "w"}
    values = graphs.small_value(known, "k")
    assert values is not None
    assert values.tolist() == [3, 4]
    assert graphs.small_value(known, "x") is None


def test_nodes_are_put_in_order() -> None:
    model = parsed("(float[2] x) => (float[2] y) { y = Relu (b) b = Neg (a) a = Exp (x) }")
    graphs.put_in_order(model.graph)
    assert [node.op_type for node in model.graph.node] == ["Exp", "Neg", "Relu"]


def test_fresh_names_are_not_given_twice(nested: ModelProto) -> None:
    names = graphs.Names(nested.graph)
    assert [names.fresh(name) for name in ("q", "q", "new")] == ["q_", "q__", "new"]


def test_an_if_inside_a_branch_that_is_written_out_is_written_out_too() -> None:
    model = parsed(
        """(float[2] x) => (float[2] y) {
            y = If (yes) <
                then_branch = t () => (float[2] p) {
                    no = Constant <value = bool {0}> ()
                    h = Neg (x)
                    p = If (no) <
                        then_branch = tt () => (float[2] q) { q = Exp (h) },
                        else_branch = te () => (float[2] q) { q = Add (h, w) }
                    >
                },
                else_branch = e () => (float[2] p) { p = Relu (x) }
            >
            z = Relu (y)
        }""",
        yes=np.array(True),
        w=np.ones(2, np.float32),
    )
    before = model.SerializeToString()
    flat, notes = flatten(graphs.Model.of(model))
    assert [node.op_type for node in flat.graph.node] == ["Constant", "Neg", "Add", "Identity", "Identity", "Relu"]
    assert flat.graph.node[2].input[:] == [flat.graph.node[1].output[0], "w"]
    assert notes == ["2 If nodes with a constant condition are walked as their branch"]
    assert model.SerializeToString() == before


def calls(function: Callable[[], object]) -> int:
    """How many functions are called: a measure of work that no other process disturbs."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", large_graph.GRAPHS)
def test_twice_the_nodes_take_twice_the_work(kind: str) -> None:
    """A loop over nodes that searches the nodes would take four times the work."""

    def work(nodes: int) -> tuple[int, int]:
        file = import_model.read(large_graph.GRAPHS[kind](nodes))
        proto = file.model.filled()
        reading = calls(lambda: import_model.read(proto))
        return reading, calls(lambda: import_model.build(file, KernelSettings()))

    work(1000)  # fills what is cached
    for once, twice in zip(work(1000), work(2000), strict=True):
        assert 1.5 < twice / once < 2.2


def test_nothing_in_the_package_imports_torch() -> None:
    code = (
        "import sys; import ltp_pipeline.graph.rewrites.flatten, ltp_pipeline.graph.rewrites.normalise;"
        "import ltp_pipeline.graph.rewrites.simplify;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'onnxsim')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
