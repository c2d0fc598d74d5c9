"""Facts about speed follow the rows."""

import pytest

from benchmarks import speed_facts


def test_collect_sparse_ops_joins_the_sparsities_of_a_plan() -> None:
    row = {
        "plan": "resnet50 4x1 avx2",
        "dense_ms": 80.0,
        "session_ratio": 1.1,
        "session_bytes": 50,
        "dense_session_bytes": 100,
        "ratios_of_processes": [0.2, 0.25, 0.3],
    }
    rows = [{**row, "sparsity": 0.9, "ratio": 0.25}, {**row, "sparsity": 0.95, "ratio": 0.2}]
    (line,) = speed_facts.collect_sparse_ops(rows)
    assert line["network"] == "resnet50"
    assert line["variant"] == "4×1 avx2"
    assert line["ratios"] == {0.9: 0.25, 0.95: 0.2}
    assert line["session_memory"] == [0.5, 0.5]
    assert line["ratios_of_processes"] == [0.2, 0.25, 0.3]


def test_collect_pruned_networks_joins_blocks_and_unstructured() -> None:
    row = {"cell": "resnet20", "compression": 10, "dense_ms": 0.75}
    rows = [{**row, "block": None, "ratio": 0.4}, {**row, "block": "4x1", "ratio": 0.3}]
    (line,) = speed_facts.collect_pruned_networks(rows)
    assert line["by_block"]["single"]["ratio"] == 0.4
    assert line["by_block"]["4x1"]["ratio"] == 0.3


def test_collect_int8_drops_subtracts_in_each_run() -> None:
    row = {
        "cell": "resnet",
        "compression": 10,
        "7 bits": {"float": 0.9, "int8": 0.89, "left_float": 2},
        "8 bits": {"float": 0.9, "int8": 0.91},
        "trained": {"float": 0.9, "int8": 0.9},
    }
    (line,) = speed_facts.collect_int8_drops([row])
    assert line["reduced"] == pytest.approx([1.0])
    assert line["full"] == pytest.approx([-1.0])
    assert line["trained"] == pytest.approx([0.0])
    assert line["num_float_layers"] == 2
