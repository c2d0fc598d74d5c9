"""ONNX's own node cases, all that are about plain tensors."""

import sys

from tests.conformance import node_cases
from tests.support.paths import ROOT

WANTED = 1_550

# Of these every case passes unless a reason stands in the table.
CLASSIFIER_OPERATORS = frozenset(
    {
        *(
            "Conv",
            "ConvTranspose",
            "Gemm",
            "MatMul",
            "Einsum",
            "Resize",
            "Pad",
            "Reshape",
            "Split",
            "Clip",
            "Slice",
        ),
        *("BatchNormalization", "LayerNormalization", "RMSNormalization", "GroupNormalization"),
        *("InstanceNormalization", "Softmax", "Gelu", "Attention", "LSTM", "GRU", "RNN"),
    }
)
CLASSIFIER_PREFIXES = ("Reduce", "Gather", "Scatter")
CLASSIFIER_SUFFIXES = ("Pool",)


def test_node_case_passes_or_has_a_reason() -> None:
    failed = {name: reason for name, reason in node_cases.results().items() if reason is not None}
    expected = node_cases.expected_failures()
    new = [f"{name}: {failed[name][:300]}" for name in sorted(failed.keys() - expected.keys())]
    assert not new, "new failures:\n" + "\n".join(new)
    passing = sorted(expected.keys() - failed.keys())
    assert not passing, (
        f"now passing, or gone from onnx; remove from {node_cases.EXPECTED_FAILURES.name}: {passing}"
    )


def test_enough_cases_pass() -> None:
    results = node_cases.results()
    passed = sum(reason is None for reason in results.values())
    print(
        f"{passed:,} of {len(results):,} plain node cases pass ({len(node_cases.all_cases()):,} in all)"
    )
    assert passed >= WANTED
    assert len(results) >= 1_600, "the filter leaves out more than it should"


def test_cases_of_classifier_operators_pass() -> None:
    results = node_cases.results()
    expected = node_cases.expected_failures()
    for case in node_cases.plain_cases():
        operator = node_cases.operator_of(case) or ""
        if (
            operator in CLASSIFIER_OPERATORS
            or operator.startswith(CLASSIFIER_PREFIXES)
            or operator.endswith(CLASSIFIER_SUFFIXES)
        ):
            assert results[case.name] is None or case.name in expected, case.name


def test_expected_failures_have_one_reason_each() -> None:
    text = node_cases.EXPECTED_FAILURES.read_text(encoding="utf-8")
    for case in node_cases.expected_failures():
        assert text.count(f'"{case}"') == 1, case


def test_table_of_operators_is_current() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import write_operators
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    written = (ROOT / "docs" / "reference" / "operators.md").read_text(encoding="utf-8")
    assert written == write_operators.make_page(), "run python scripts/write_operators.py"
