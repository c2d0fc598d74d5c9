"""The words about sparse kernels follow the rows."""

from typing import Any

from benchmarks import kernels_text


def page(results: dict[str, Any]) -> str:
    return " ".join("\n".join(kernels_text.sections(results)).split())


def test_a_row_has_its_times_its_ratio_and_what_a_session_costs():
    row = {
        "plan": "resnet50 4x1 avx2",
        "sparsity": 0.9,
        "ms": 20.0,
        "dense_ms": 80.0,
        "ratio": 0.25,
    }
    row |= {
        "ratio_of_shortest": 0.24,
        "session_ratio": 1.1,
        "session_bytes": 50,
        "dense_session_bytes": 100,
    }
    row |= {"ratios_of_processes": [0.2, 0.25, 0.3]}
    about = {
        "machine": {"processor": "P", "path": "avx512"},
        "versions": {"onnxruntime": "1.2"},
        "rows": [row],
    }
    words = page({"kernels": {**about, "skipped": {"resnet50 2 threads": "unmeasured"}}})
    assert "| ResNet-50 | 4x1 avx2 | 90% | 80.0 | 20.0 | 0.250 (0.240) | 1.10 | 0.50 |" in words
    assert "resnet50 2 threads: unmeasured." in words
    assert "resnet50 4x1 avx2: the middle one of 3 processes, from 0.200 to 0.300." in words


def test_a_pruned_network_has_the_share_that_is_left_and_that_of_its_layers():
    row = {"cell": "resnet20", "compression": 10, "block": None, "multiply_adds_left": 0.123}
    row |= {"kept_by_layers": [0.01, 0.5], "dense_ms": 0.75, "ms": 0.3, "ratio": 0.4}
    words = page({"kernels_pruned": {"rows": [row]}})
    assert (
        "| ResNet20 | 10× | single weights | 0.123 | 1.0% to 50.0% | 0.75 | 0.30 | 0.40 |" in words
    )


def test_there_is_nothing_to_say_without_results():
    assert not page({})
