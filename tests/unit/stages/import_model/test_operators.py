"""The table of operators."""

from pathlib import Path

from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled


def test_table_of_operators_equals_the_registry() -> None:
    written = Path(operators.__file__).with_name(operators.TABLE).read_text()
    assert operators.render_table() == written, "run scripts/write_operators.py"
