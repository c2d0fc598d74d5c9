"""One view of a graph: who produces and who uses a value, what is known without running, rewrites in one pass."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks.graph_kinds import GRAPHS
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file


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


@pytest.mark.parametrize("kind", GRAPHS)
def test_twice_the_nodes_take_twice_the_work(kind: str) -> None:
    """A loop over nodes that searches the nodes would take four times the work."""

    def work(nodes: int) -> tuple[int, int]:
        file = read_model_file(GRAPHS[kind](nodes))
        proto = file.model.to_proto()
        reading = calls(lambda: read_model_file(proto))
        return reading, calls(lambda: import_model.build_network(file, PruneSettings()))

    work(240)  # fills what is cached
    for once, twice in zip(work(240), work(480), strict=True):
        assert 1.5 < twice / once < 2.2


def test_nothing_in_the_package_imports_torch() -> None:
    code = (
        "import sys; import ltp_pipeline.graph.rewrites.flatten, ltp_pipeline.graph.rewrites.normalise;"
        "import ltp_pipeline.graph.rewrites.simplify;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'onnxsim')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
