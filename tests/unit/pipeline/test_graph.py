"""Cost and imports of the graph package as a whole."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from benchmarks.graph_kinds import GRAPHS
from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file


def count_calls(function: Callable[[], object]) -> int:
    """Count function calls, a measure of work that other processes do not disturb."""
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
def test_work_is_linear_in_the_number_of_nodes(kind: str) -> None:
    """A loop over nodes that searches all nodes would take four times the work."""

    def work(nodes: int) -> tuple[int, int]:
        file = read_model_file(GRAPHS[kind](nodes))
        proto = file.model.to_proto()
        reading = count_calls(lambda: read_model_file(proto))
        return reading, count_calls(lambda: import_model.build_network(file, PruneSettings()))

    work(240)  # fills the caches
    for once, twice in zip(work(240), work(480), strict=True):
        assert 1.5 < twice / once < 2.2


def test_graph_package_does_not_import_torch() -> None:
    code = (
        "import sys; import ltp_pipeline.graph.rewrites.flatten, ltp_pipeline.graph.rewrites.normalize;"
        "import ltp_pipeline.graph.rewrites.simplify;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'onnxruntime', 'onnxsim')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
