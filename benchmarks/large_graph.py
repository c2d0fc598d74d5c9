"""How the time to inspect and to import grows with the number of nodes: about 2 for twice the nodes, 4 where quadratic.

    python -m benchmarks.large_graph [--quick] [--json]

Each graph is a chain of small nodes; its time at full size is divided by its time at half the size. Every measurement
is a process of its own, in processor time; the sizes take turns and the smallest time of each counts. `import` is
`import_model.build`: without the comparison with onnxruntime, whose own time is not ours.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

WIDTH = 4
_TIMED = """
import sys, time
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.inspect import inspect
if sys.argv[2] == "import":
    from ltp_pipeline.stages.import_model import network
begun = time.process_time()
if sys.argv[2] == "inspect":
    inspect(sys.argv[1])
else:
    import_model.build(import_model.read(sys.argv[1]), KernelSettings())
print(time.process_time() - begun)
"""


def chain(nodes: int) -> ModelProto:
    """Add and Relu in turn, after one layer with weights."""
    return _model([_small(i) for i in range(nodes)])


def constants(nodes: int) -> ModelProto:
    """The same with a tenth of the nodes Constants, and an If with a constant condition at every thousandth."""
    made: list[NodeProto] = []
    for i in range(nodes * 9 // 10):
        if i % 9 == 0:
            value = numpy_helper.from_array(np.full(WIDTH, i, np.float32))
            made.append(helper.make_node("Constant", [], [f"c{i}"], value=value))
        if i % 1000 == 500:
            made.append(_constant_if(i))
        else:
            made.append(_small(i, f"c{i - i % 9}"))
    return _model(made)


def statistics(nodes: int) -> ModelProto:
    """Every tenth node a BatchNormalization, and all of them share one tensor as mean."""
    shared = ["scale", "bias", "bias", "scale"]
    norms = (helper.make_node("BatchNormalization", [f"v{i}", *shared], [f"v{i + 1}"]) for i in range(nodes))
    return _model([_small(i) if i % 10 else norm for i, norm in enumerate(norms)], ("scale", "bias"))


GRAPHS: dict[str, Callable[[int], ModelProto]] = {"chain": chain, "constants": constants, "statistics": statistics}


def _small(i: int, other: str = "one") -> NodeProto:
    inputs = [f"v{i}", other] if i % 2 else [f"v{i}"]
    return helper.make_node("Add" if i % 2 else "Relu", inputs, [f"v{i + 1}"], name=f"n{i}")


def _constant_if(i: int) -> NodeProto:
    def branch(op: str) -> GraphProto:
        output = helper.make_tensor_value_info("inner", TensorProto.FLOAT, ["N", WIDTH])
        return helper.make_graph([helper.make_node(op, [f"v{i}"], ["inner"])], op, [], [output])

    branches = {"then_branch": branch("Relu"), "else_branch": branch("Neg")}
    return helper.make_node("If", ["yes"], [f"v{i + 1}"], name=f"if{i}", **branches)


def _model(nodes: list[NodeProto], vectors: tuple[str, ...] = ()) -> ModelProto:
    first = helper.make_node("MatMul", ["x", "weight"], ["v0"], name="first")
    arrays = {
        "weight": np.eye(WIDTH, dtype=np.float32),
        "one": np.ones(1, np.float32),
        "yes": np.array(True),
        **{name: np.ones(WIDTH, np.float32) for name in vectors},
    }
    graph = helper.make_graph(
        [first, *nodes],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, ["N", WIDTH])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(name: str, nodes: int, rounds: int) -> dict[str, float]:
    """Seconds at full and at half size, and their ratio, of both commands."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        sizes = (nodes // 2, nodes)
        for size in sizes:
            onnx.save(GRAPHS[name](size), str(Path(folder, f"{size}.onnx")))
        for what in ("inspect", "import"):
            half, full = (
                min(times)
                for times in zip(
                    *([_seconds(Path(folder, f"{size}.onnx"), what) for size in sizes] for _ in range(rounds)),
                    strict=True,
                )
            )
            found |= {f"{what}_half_s": half, f"{what}_full_s": full, f"{what}_ratio": full / half}
    return found


def _seconds(path: Path, what: str) -> float:
    command = [sys.executable, "-c", _TIMED, str(path), what]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, help="at full size; 100,000, or 20,000 with --quick")
    parser.add_argument("--graphs", nargs="*", default=list(GRAPHS), choices=list(GRAPHS))
    options = parser.parse_args()
    nodes = options.nodes or (20_000 if options.quick else 100_000)
    found = {name: measure(name, nodes, 1 if options.quick else 3) for name in options.graphs}
    if options.json:
        print(json.dumps({"nodes": nodes, "graphs": found}, indent=2))
        return
    print(f"{nodes:,} nodes against {nodes // 2:,}, seconds of processor time")
    for name, row in found.items():
        for what in ("inspect", "import"):
            print(f"{name:>10} {what:>7}: {row[f'{what}_half_s']:.2f} -> {row[f'{what}_full_s']:.2f}")
    for name, row in found.items():
        print(f"{name:>10} ratio: inspect {row['inspect_ratio']:.2f}, import {row['import_ratio']:.2f}")


if __name__ == "__main__":
    main()
