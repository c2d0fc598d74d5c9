"""Write docs/reference/operators.md and the list of operators that `inspect` reads."""

import sys
from collections import Counter
from pathlib import Path

from onnx import defs

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a module of the tests reads and runs the node cases

from ltp_pipeline.graph.schemas import get_schema_version, has_function_body  # noqa: E402
from ltp_pipeline.stages.import_model import operators, registry  # noqa: E402
from ltp_pipeline.stages.import_model.unsupported import OLDEST_OPSET, is_quantized  # noqa: E402
from tests.conformance import node_cases  # noqa: E402

TARGET = ROOT / "docs" / "reference" / "operators.md"

HEADER = """# Operators

Written by `python scripts/write_operators.py`; do not edit.

{passed:,} of the {plain:,} node cases of ONNX {version} that are about plain tensors pass. Those that do not are in
`tests/conformance/expected_failures.toml`, each with its reason. Opsets {oldest} to {newest}.

*Versions* are the schema versions with code of their own; each runs until the next. *Function body* means that the node
runs as the operators by which the standard defines it. *Cases* counts the node cases with this one node.

| operator | versions | runs by | cases |
|---|---|---|---|
"""


def make_page() -> str:
    """Return the page in Markdown."""
    results = node_cases.results()
    total: Counter[str] = Counter()
    passed: Counter[str] = Counter()
    for case in node_cases.plain_cases():
        operator = node_cases.operator_of(case)
        if operator is not None:
            total[operator] += 1
            passed[operator] += results[case.name] is None
    first: dict[str, int] = {}
    for schema in defs.get_all_schemas_with_history():
        first[schema.name] = min(schema.since_version, first.get(schema.name, schema.since_version))
    versions: dict[str, list[int]] = {}
    others = []
    for op in registry.iter_ops():
        if op.domain == "":
            oldest = get_schema_version(op.name, OLDEST_OPSET)
            versions.setdefault(op.name, []).append(max(op.since, oldest or first[op.name]))
        else:
            others.append(f"`{op.name}` ({op.domain})")
    names = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""})
    others += [
        f"`{name}` (onnxruntime's, in the standard domain)" for name in versions.keys() - {*names}
    ]
    rows, missing = [], []
    for name in names:
        since, how = [str(v) for v in versions.get(name, [])], "own code"
        if name == "Constant":
            how = "becomes a tensor of the network"
        elif not since:
            has_body = has_function_body(name, defs.onnx_opset_version())
            if not has_body or is_quantized(name):
                missing.append(name)
                continue
            how = "function body"
        cases = f"{passed[name]} / {total[name]}" if total[name] else "none"
        rows.append(f"| {name} | {', '.join(since)} | {how} | {cases} |")
    page = HEADER.format(
        passed=sum(reason is None for reason in results.values()),
        plain=len(results),
        version=_onnx_version(),
        oldest=OLDEST_OPSET,
        newest=defs.onnx_opset_version(),
    )
    page += "\n".join(rows) + "\n"
    if others:
        page += f"\nIn addition to the standard: {', '.join(others)}.\n"
    return page + f"\nNot supported: {', '.join(missing)}.\n"


def _onnx_version() -> str:
    """Return major and minor version of onnx."""
    import onnx

    return ".".join(onnx.__version__.split(".")[:2])


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(make_page(), encoding="utf-8")
    shipped = ROOT / "stages" / "import_model" / operators.TABLE
    shipped.write_text(operators.render_table(), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)} and {shipped.relative_to(ROOT)}")
